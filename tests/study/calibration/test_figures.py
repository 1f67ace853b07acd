"""Rates and levels: the caption on valid sets and on planted faults."""

import numpy as np
import pytest

from provlab_study.calibration import figures
from provlab_study.shared import calibration


def reports():
    uniform = np.log10(np.random.default_rng(0).permutation((np.arange(1000) + 0.5) / 1000))
    return {"phi_u": calibration.check(uniform)}, {"half": calibration.check(uniform - np.log10(2))}


def test_the_caption_counts_what_is_flagged():
    valid, faults = reports()
    figure = figures.sizes(valid, faults, caption="Rates.")
    assert figure.caption.startswith("Rates. Bars are exact 95% intervals")
    assert "Lower end above 1: none; flagged by the check as a whole: none" in figure.caption
    assert "1 of 1 flagged" in figure.caption
    panels = figure.figure.axes
    assert [axes.get_title() for axes in panels] == ["level 0.05", "level 0.01", "level 0.001"]
    # 50 of 1,000 up to 0.05 for the uniform ones, 100 for their halves
    assert [line.get_xdata()[0] for line in panels[0].lines[1:]] == pytest.approx([1.0, 2.0])
    figure.png()  # warnings are errors: the layout holds


def test_a_fault_among_the_valid_is_named():
    valid, faults = reports()
    caption = figures.sizes(valid | faults).caption
    assert "Lower end above 1: half at 0.05, half at 0.01; flagged by the check as a whole: half" in caption
