"""E-values: the calibrator by quadrature and by hand, and its size under any stopping rule by simulation."""

import numpy as np
import pytest
from scipy import integrate, stats

from provlab.inference import evalues

NULLS, BLOCKS = 2_000, 32
LEVELS = (0.1, 0.05, 0.01)


def too_often(log10_e):
    """Levels that the largest product over 32 blocks passes too often, by an exact binomial test of each.

    The largest product is what the worst stopping rule sees. Nulls on a grid too: p-values of 999 copies.
    """
    rng = np.random.default_rng(5)
    result = []
    for p in (rng.random((NULLS, BLOCKS)), rng.integers(1, 1001, size=(NULLS, BLOCKS)) / 1000):
        largest = np.cumsum(log10_e(np.log10(p)), axis=1).max(axis=1)
        passed = [(a, np.count_nonzero(largest >= -np.log10(a))) for a in LEVELS]
        result += [a for a, k in passed if stats.binom.sf(k - 1, NULLS, a) < 1e-3]
    return result


def test_the_level_is_kept_whenever_reading_stops():
    assert not too_often(evalues.log10_e)


def test_a_calibrator_that_integrates_to_more_than_one_is_seen():
    """Half as much evidence again from each block as there is, and p^-0.9, whose mean is 10."""
    assert too_often(lambda log10_p: evalues.log10_e(log10_p) + np.log10(1.5))
    assert too_often(lambda log10_p: -log10_p * 0.9)


def test_asking_fisher_again_after_each_block_would_not_keep_the_level():
    p = np.random.default_rng(6).random((NULLS, BLOCKS))
    chi = stats.chi2.sf(-2 * np.cumsum(np.log(p), axis=1), 2 * np.arange(1, BLOCKS + 1))
    assert (chi.min(axis=1) <= 0.01).mean() > 0.02


@pytest.mark.parametrize("p", [0.5, 0.01, 1e-9])
def test_the_calibrator_is_the_mixture(p):
    mixed = integrate.quad(lambda kappa: kappa * p ** (kappa - 1), 0, 1)[0]
    assert evalues.log10_e(np.log10(p)) == pytest.approx(np.log10(mixed), abs=1e-9)


def test_the_calibrator_at_its_ends():
    assert 10 ** evalues.log10_e(0.0) == pytest.approx(0.5)
    near = evalues.log10_e([-1.0001e-4 / np.log(10), -0.9999e-4 / np.log(10)])
    assert near[0] == pytest.approx(near[1], abs=1e-7)
    # p = 10^-2000, where no float holds p: 1 / (p (ln p)^2)
    assert evalues.log10_e(-2000.0) == pytest.approx(2000 - 2 * np.log10(2000 * np.log(10)))
    assert (np.diff(evalues.log10_e(np.linspace(-9, 0, 500))) < 0).all()
