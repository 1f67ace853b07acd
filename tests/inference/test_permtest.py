"""PERMTEST: its arithmetic by hand, its level by simulation, and the faults it must not have."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import stats

from provlab.errors import InputError
from provlab.inference.permtest import p_value, permtest


class RowPermutations:
    """All renumberings of the rows of a matrix."""

    def __init__(self, rows):
        self.rows = rows

    def sample(self, rng):
        order = rng.permutation(self.rows)
        return lambda theta: theta[order]


class Scripted:
    """Not transformations at all: each sample replaces theta by the next of a list."""

    def __init__(self, values):
        self.values = iter(values)

    def sample(self, rng):
        value = next(self.values)
        return lambda theta: value


def phi_l2(theta1, theta2):
    return -np.linalg.norm(theta1 - theta2)


def test_place_among_the_copies_by_hand():
    # itself and 3.0, of four; never zero
    assert_array_equal(p_value([2.0, 9.0], [[0.0, 1.0, 3.0]] * 2), [0.5, 0.25])
    assert p_value(-9.0, [0.0, 1.0, 3.0]) == 1.0


def test_ties_count_against_rejection():
    assert p_value(1.0, [1.0, 1.0, 1.0]) == 1.0
    assert p_value(1.0, [1.0, 0.0, 0.0]) == 0.5
    assert p_value(-math.inf, [-math.inf]) == 1.0


def test_result_holds_what_was_seen():
    result = permtest(lambda a, b: a * b, 3.0, 2.0, Scripted([1.0, 5.0, 3.0, 0.0]), n_permutations=4, rng=0)
    assert result.observed == 6.0
    assert_array_equal(result.permuted, [2.0, 10.0, 6.0, 0.0])
    assert result.p == 3 / 5
    assert result.log10_p == pytest.approx(math.log10(3 / 5))


def test_only_the_first_model_is_transformed():
    theta2 = np.arange(6.0).reshape(3, 2)
    recorded = []
    permtest(
        lambda a, b: float(recorded.append(b) or 0.0), theta2 + 1, theta2, RowPermutations(3), n_permutations=5, rng=0
    )
    assert all(b is theta2 for b in recorded)


def test_similar_models_get_the_smallest_p_and_not_the_largest():
    """The printed algorithm's quotient would give 1 here: the direction is what this guards."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(30, 4))
    result = permtest(
        phi_l2, theta, theta + 0.1 * rng.normal(size=theta.shape), RowPermutations(30), n_permutations=99, rng=1
    )
    assert result.p == 1 / 100


def test_independent_models_get_every_p_equally_often():
    """Chi-square of 2,000 p-values over the 20 cells of T = 19, below its 99.9% quantile."""
    rng = np.random.default_rng(1)
    trials, cells = 2000, 20
    p = [
        permtest(phi_l2, *rng.normal(size=(2, 6, 3)), RowPermutations(6), n_permutations=cells - 1, rng=rng).p
        for _ in range(trials)
    ]
    counts = np.bincount(np.rint(np.array(p) * cells).astype(int), minlength=cells + 1)[1:]
    assert counts.sum() == trials
    # copies equal to the pair itself (one permutation of 720) make p larger, never smaller
    assert stats.chisquare(counts).pvalue > 1e-3


def test_same_seed_same_result():
    theta1, theta2 = np.random.default_rng(2).normal(size=(2, 8, 3))
    first, second = (permtest(phi_l2, theta1, theta2, RowPermutations(8), n_permutations=99, rng=5) for _ in range(2))
    assert_array_equal(first.permuted, second.permuted)
    assert first.permuted.shape == (99,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: p_value(math.nan, [1.0]), "NaN 1 times"),
        (lambda: p_value(1.0, [math.nan, 1.0, math.nan]), "NaN 2 times"),
        (lambda: p_value(1.0, []), "no copy"),
        (lambda: p_value(1.0, 2.0), "permuted has shape"),
        (lambda: p_value([1.0, 2.0], [[1.0]]), "permuted has shape"),
        (lambda: permtest(lambda a, b: a, 1.0, 2.0, Scripted([1.0, math.nan]), n_permutations=2, rng=0), "NaN"),
        (lambda: permtest(phi_l2, 1, 2, Scripted([]), n_permutations=0, rng=0), "n_permutations is 0"),
    ],
)
def test_what_cannot_be_ranked_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
