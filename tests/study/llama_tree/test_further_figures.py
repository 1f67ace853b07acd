"""The picture of five further tests: the line is the level, and its words count what lies beyond it."""

import pandas as pd
import pytest

from provlab_study.llama_tree import further_figures


def test_the_line_is_the_level_and_the_words_count_both_sides():
    rows = [
        ("phi_e", -30.0, True, False),
        ("phi_e", -2.0, True, False),  # at the level: p = 0.01 rejects
        ("phi_e", -1.9, False, False),
        ("phi_e", -0.1, True, True),
        ("phi_e", float("nan"), True, True),  # no p-value: not found, and one of the pairs
        ("phi_e", -2.5, False, True),
    ]
    frame = pd.DataFrame(rows, columns=["statistic", "log10_p", "dependent", "disguised"])
    drawn = further_figures.by_test(frame, ["phi_e"], disguised=True)
    for axes in drawn.figure.axes:
        assert axes.lines[0].get_xdata()[0] == pytest.approx(2.0)
    assert "as they stand: 2 of 2 related pairs below 0.01, 0 of 1 independent ones" in drawn.alt
    assert len(further_figures.by_test(frame, ["phi_e"], disguised=False).figure.axes) == 1
    assert "in disguise: 0 of 2 related pairs below 0.01, 1 of 1 independent ones" in drawn.alt
