"""Bands and checks: their stated error rates by simulation, parts by hand, and faults they must find."""

import math

import numpy as np
import pytest
from scipy import stats

from provlab.errors import InputError
from provlab_study.shared import calibration


def coverage(band, rng, trials=20_000):
    ordered = -np.log10(np.sort(rng.random((trials, band.expected.size)), axis=1))
    return ((ordered >= band.lower) & (ordered <= band.upper)).all(axis=1).mean()


@pytest.mark.parametrize(("n", "level"), [(1, 0.9), (2, 0.95), (15, 0.95), (15, 0.5), (141, 0.99), (564, 0.95)])
def test_band_covers_all_points_at_once_with_its_level(n, level):
    """20,000 simulated sets: within four standard errors of the stated level."""
    share = coverage(calibration.simultaneous_band(n, level), np.random.default_rng(n))
    assert abs(share - level) < 4 * math.sqrt(level * (1 - level) / 20_000)


def test_band_of_one_value_by_hand():
    band = calibration.simultaneous_band(1, 0.9)
    assert band.expected == pytest.approx([-math.log10(0.5)])
    assert (band.upper[0], band.lower[0]) == pytest.approx((-math.log10(0.05), -math.log10(0.95)))


def test_probability_between_steps_against_counting():
    """Three uniforms, N(1/4) <= 1 and N(1/2) in {1, 2}: summed over the multinomial by hand."""
    reference = sum(
        math.factorial(3) / (math.factorial(a) * math.factorial(b) * math.factorial(3 - a - b))
        * 0.25**a * 0.25**b * 0.5 ** (3 - a - b)
        for a in range(2)
        for b in range(4 - a)
        if 1 <= a + b <= 2
    )  # fmt: skip
    times, low, high = np.array([0.25, 0.5]), np.array([0, 1]), np.array([1, 2])
    assert calibration.bands._probability_between(3, times, low, high) == pytest.approx(reference, rel=1e-12)
    assert calibration.bands._probability_between(3, times, np.array([2, 0]), np.array([3, 1])) == 0.0


def test_ks_against_scipy_and_far_below_underflow():
    p = np.random.default_rng(0).random(100)
    ours, reference = calibration.ks_uniform(np.log10(p)), stats.kstest(p, "uniform")
    assert (ours.statistic, ours.p) == pytest.approx((reference.statistic, reference.pvalue))
    assert ours.n == 100
    assert calibration.ks_uniform(np.full(20, -5000.0)).p < 1e-20


@pytest.mark.parametrize("n", [15, 141])
def test_correlation_band_holds_null_correlations_of_uniform_values(n):
    rng = np.random.default_rng(n)
    p = rng.random((2, 20_000, n))
    x, y = p - p.mean(axis=2, keepdims=True)
    pearson = (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))
    for comparisons in (1, 6):
        low, high = calibration.correlation_band(n, 0.95, comparisons)
        assert low == -high
        outside = ((pearson < low) | (pearson > high)).mean()
        target = 0.05 / comparisons
        assert outside == pytest.approx(target, abs=4 * math.sqrt(target / 20_000))


def drawn_on_grid(rng, n, cells):
    return rng.integers(1, cells + 1, n) / cells


def test_grid_check_has_its_level():
    """At most 5% of 400 sets of exact p-values are called uneven, within four standard errors."""
    rng = np.random.default_rng(5)
    p = np.array([calibration.uniform_on_grid(drawn_on_grid(rng, 120, 20), 19) for _ in range(400)])
    assert (p <= 0.05).mean() < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)
    assert (p <= 0.5).mean() > 0.25  # discrete, so conservative, but not blind


def test_grid_check_of_one_p_value_by_hand():
    # T = 3: 1/4 and 1 have probability 1/4 each and are as extreme, from below and from above
    assert calibration.uniform_on_grid([0.25], 3) == pytest.approx(0.5)


def test_grid_check_finds_p_values_that_are_too_small_and_too_large():
    """The printed Algorithm 1 gives p - 1/(T + 1), here with its zeros raised to the grid; and the other way round."""
    p = drawn_on_grid(np.random.default_rng(6), 1000, 20)
    assert calibration.uniform_on_grid(p, 19) > 0.01
    assert calibration.uniform_on_grid(np.maximum(p - 0.05, 0.05), 19) < 1e-4
    assert calibration.uniform_on_grid(np.minimum(p + 0.05, 1.0), 19) < 1e-4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibration.ks_uniform([0.5]), "at most 0"),
        (lambda: calibration.uniform_on_grid([], 19), "p has shape"),
        (lambda: calibration.uniform_on_grid([0.0], 19), "off the grid"),
        (lambda: calibration.uniform_on_grid([0.051], 19), "off the grid"),
        (lambda: calibration.uniform_on_grid([math.nan], 19), "off the grid"),
        (lambda: calibration.uniform_on_grid([0.5], 0), "T = 0"),
    ],
)
def test_what_cannot_be_checked_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
