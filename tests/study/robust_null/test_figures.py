"""Pictures of units in common: marks and captions."""

import numpy as np
import pytest

from provlab_study.robust_null import figures


def test_counts_are_shares_beside_chance():
    figure = figures.common_counts({"bases": [0, 1, 1, 3], "tree": np.array([[2, 2], [2, 2]])}, caption="Common.")
    assert figure.caption == "Common. bases: mean 1.25, most 3, n = 4; tree: mean 2.00, most 2, n = 4."
    first, second = figure.figure.axes[0].lines
    assert list(first.get_ydata()) == [0.25, 0.5, 0.0, 0.25]
    assert list(second.get_ydata()) == [0, 0, 1, 0]
    assert [bar.get_height() for bar in figure.figure.axes[0].patches][:2] == pytest.approx([np.exp(-1)] * 2)
    figure.png()  # warnings are errors: the layout holds


def test_causes_mark_what_lies_above_chance():
    means = {"all units": [(3.0, 2.5, 3.5), (1.1, 0.8, 1.4)], "few": [(1.0, 0.9, 1.1), (1.0, 0.9, 1.1)]}
    figure = figures.ablations(means, ["block 0", "block 1"], caption="Why.")
    marks = [line.get_marker() for line in figure.figure.axes[0].lines[1:]]
    assert marks == ["D", "o"]
    assert "all units: block 0 3.00, block 1 1.10" in figure.alt
    assert [axes.get_title() for axes in figure.figure.axes] == ["block 0", "block 1"]
