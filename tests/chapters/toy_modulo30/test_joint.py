"""The joint histogram against counts of the single inputs, with bounds on the grid."""

import numpy as np
import pytest

from provlab.chapters.toy_modulo30.joint import WIDTH, Joint, on_grid
from provlab.errors import InputError
from provlab.modeldiff.comparison import from_enumeration

RNG = np.random.default_rng(7)
A = RNG.gamma(4, 0.5, 20_000).astype(np.float32)
B = (A + RNG.normal(0, 0.1, len(A))).clip(0).astype(np.float32)
VALID = RNG.random(len(A)) < 0.3
JOINT = Joint.of(A, B, VALID)
Z = (0.8, 1.93)


def test_nothing_is_lost():
    assert JOINT.size == len(A)
    assert JOINT.only(label=True).size == VALID.sum()
    assert len(JOINT) < len(A)


def test_histograms_of_parts_add_up_to_that_of_the_whole():
    parts = [Joint.of(A[some], B[some], VALID[some]) for some in np.array_split(RNG.permutation(len(A)), 3)]
    merged = Joint.merged(parts)
    assert np.array_equal(merged.key, JOINT.key)
    assert np.array_equal(merged.count, JOINT.count)


def test_terms_with_bounds_on_the_grid_are_exact():
    """The counts themselves, by comparing the losses of all inputs (a D of exactly 0 does not occur here)."""
    cells = from_enumeration(*JOINT.losses(), Z, JOINT.count)
    single = from_enumeration(A, B, Z)
    assert not (A == B).any()
    np.testing.assert_allclose(cells.terms(), single.terms(), rtol=1e-12)
    edges = np.arange(-20, 21) * 2 * WIDTH
    np.testing.assert_allclose(cells.rho("A", edges), single.rho("A", edges), atol=1e-12)


def test_the_points_lie_in_their_cells():
    """Counting the points again gives the same cells: that no bound on the grid can tell points from inputs."""
    again = Joint.of(*JOINT.losses(), JOINT.label)
    assert np.array_equal(again.key, JOINT.key)


def test_density_and_quantiles_are_those_of_the_losses():
    edges, counts = JOINT.density("B")
    assert np.array_equal(counts, np.histogram(B.astype(float), edges)[0])
    low, high = JOINT.only(label=True).quantiles("A", [0.01, 0.99])
    assert 0 <= low - np.quantile(A[VALID], 0.01, method="inverted_cdf") < WIDTH
    assert 0 <= high - np.quantile(A[VALID], 0.99, method="inverted_cdf") < WIDTH


def test_bounds_are_rounded_to_the_grid():
    assert on_grid(1.7349) == 1.73
    assert on_grid(2.0) == 2.0


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="negative"):
        Joint.of(np.array([-0.5]), np.array([1.0]), np.array([True]))
    with pytest.raises(InputError, match="shares must be"):
        JOINT.quantiles("A", [0.0])
