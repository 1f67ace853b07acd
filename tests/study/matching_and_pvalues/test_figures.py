"""Figures of the chapter say what they show."""

import numpy as np
from matplotlib.patches import Rectangle

from provlab_study.matching_and_pvalues import figures


def test_agreement_tells_the_largest_difference():
    figure = figures.agreement([-1.0, -2.0], [-1.0, -2.5], xlabel="a", ylabel="b")
    assert "Each of 2 points" in figure.caption
    assert "Largest difference 0.5" in figure.caption


def test_correlations_outside_the_band_are_framed():
    matrix = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, -0.1], [0.0, -0.1, 1.0]])
    figure = figures.correlation_matrix(matrix, ["0", "1", "2"], (-0.3, 0.3))
    assert "3 correlations, 1 outside" in figure.caption
    assert len([p for p in figure.figure.axes[0].patches if isinstance(p, Rectangle)]) == 1


def test_units_are_told_one_by_one_where_a_pointer_can_part_them():
    few, many = figures.TOLD, figures.TOLD + 1  # 11,008 of each model would make a page of megabytes
    drawn = figures.partners({"few": np.arange(few)[::-1], "many": np.arange(many)}, caption="Partners.")
    assert len(drawn.spots) == few
    assert f"many: {many} of {many} units have their own place" in drawn.caption
