"""The picture of who accuses whom: a figure a row, the share that it accuses with its exact interval."""

import pandas as pd
import pytest

from provlab_study.shared.accused import shares_accused

RATES = pd.DataFrame(
    [
        ("cosine", "independent", 17, 20),
        ("cosine", "parent and child", 20, 20),
        ("spread", "independent", 0, 20),
        ("spread", "the same, permuted", 3, 4),
    ],
    columns=["figure", "kind", "accused", "n"],
)


def test_a_row_is_a_score_with_its_share_and_its_exact_interval():
    drawn = shares_accused(RATES, caption="c")
    (axes,) = drawn.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cosine", "spread"]
    bars = [container for container in axes.containers if container[0].get_xdata()[0] == pytest.approx(0.85)]
    ((low, _), (high, _)) = bars[0][2][0].get_segments()[0]
    assert (low, high) == (pytest.approx(0.621, abs=1e-3), pytest.approx(0.968, abs=1e-3))  # Clopper and Pearson
    assert "cosine, independent: 17 of 20; cosine, parent and child: 20 of 20" in drawn.alt


def test_each_kind_is_named_once():
    figure = shares_accused(RATES, caption="c").figure
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(names) == sorted(set(RATES["kind"]))


def test_a_line_sets_those_apart_that_are_ours():
    assert not lines_across(RATES)
    assert lines_across(RATES.assign(ours=RATES["figure"].eq("spread"))) == [0.5]


def lines_across(rates):
    """Heights of lines over the whole width."""
    drawn = shares_accused(rates, caption="c")
    drawn.png()  # warnings are errors: the layout holds
    lines = drawn.figure.axes[0].get_lines()
    return [line.get_ydata()[0] for line in lines if line.get_linestyle() == "--"]
