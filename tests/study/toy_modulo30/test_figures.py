"""The picture of rho(D) against its truth."""

import numpy as np
import pytest

from provlab.errors import InputError
from provlab.modeldiff.comparison import from_enumeration
from provlab_study.toy_modulo30.figures import differences_against_truth

EDGES = np.linspace(-0.3, 0.3, 7)
LOSSES = np.random.default_rng(0).uniform(2.2, 3.8, (2, 500))
EXACT = from_enumeration(LOSSES[0], LOSSES[0] + np.linspace(-0.3, 0.3, 500), (2, 4))


def test_the_figure_says_how_far_the_samples_are_off():
    truth = [1.1 * EXACT.rho(side, EDGES)[0] for side in "AB"]  # the same shape: scale does not count
    labels = {"xlabel": "D", "caption": "What to see."}
    figure = differences_against_truth(EDGES, "ab", truth, EXACT, EXACT, **labels)
    assert "at most 0.000" in figure.alt
    assert figure.png()[:4] == b"\x89PNG"
    assert len(figure.spots) == 12
    value, known = EXACT.rho("A", EDGES)[0][0], truth[0][0]
    assert figure.spots[0].text == (
        f"inputs of a, D from -0.30 to -0.20: enumerated {known:.4f}, sampled {value:.4f} "
        f"({value:.4f} to {value:.4f}), without weights {known:.4f}"
    )
    truth[1][0] += 3 * truth[1].sum()
    assert "at most 0.6" in differences_against_truth(EDGES, "ab", truth, EXACT, EXACT, **labels).alt
    with pytest.raises(InputError, match="one value for each of 6 bins"):
        differences_against_truth(EDGES, "ab", [truth[0][:5], truth[1]], EXACT, EXACT, **labels)
