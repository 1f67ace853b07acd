"""The picture of rho(D) against its truth."""

import numpy as np
import pytest

from provlab.chapters.toy_modulo30.figures import Differences, differences_against_truth
from provlab.errors import InputError

EDGES = np.linspace(-0.3, 0.3, 7)
TRUTH = np.array([0.1, 0.2, 0.5, 0.4, 0.2, 0.1])


def inputs_of(label, truth=TRUTH):
    return Differences(label, truth, truth * 1.02, truth * 0.9, truth * 1.1, truth[::-1])


def test_the_figure_says_how_far_the_samples_are_off():
    figure = differences_against_truth(EDGES, (inputs_of("A"), inputs_of("B")), xlabel="D", caption="What to see.")
    assert "at most 0.000" in figure.alt  # the same shape: scale does not count
    assert figure.png()[:4] == b"\x89PNG"


def test_bins_and_values_must_agree():
    with pytest.raises(InputError, match="one value for each of 6 bins"):
        differences_against_truth(EDGES, (inputs_of("A", TRUTH[:5]), inputs_of("B")), xlabel="D", caption="x")
