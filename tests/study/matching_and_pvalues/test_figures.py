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
