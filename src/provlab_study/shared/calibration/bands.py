"""Do p-values behave as p-values should? Bands and tests that answer with a stated error rate.

Under independence a p-value is uniform on (0, 1], or on the grid {1/(T+1), ..., 1} when it comes from
T permutations. Each function below compares a set of p-values with that, over all of the set at once:
its error rate is that of the whole picture, not of one point in it.

The exact probabilities rest on one fact: the number N(t) of n independent uniforms up to t is a
Poisson process given its end, so the probability that N stays between two steps is found by one pass
over the steps (Noé 1972; the pass in Poisson form is Moscovich and Nadler 2017).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from provlab.errors import InputError
from provlab_study.publishing.evidence import share_interval


@dataclass(frozen=True)
class KolmogorovSmirnov:
    """Kolmogorov-Smirnov test against the uniform: the distance, its exact p-value and the count."""

    statistic: float
    p: float
    n: int


@dataclass(frozen=True, eq=False)
class Band:
    """Where the ordered -log10 p of n independent uniforms lie, all n together.

    Attributes
    ----------
    expected
        Shape (n,): -log10 of k / (n + 1) for k = 1, ..., n, so the largest comes first.
    lower, upper
        Shape (n,): with probability `level` every ordered -log10 p lies between them.
    """

    expected: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def ks_uniform(log10_p: ArrayLike) -> KolmogorovSmirnov:
    """Kolmogorov-Smirnov test of p-values against U(0, 1).

    Parameters
    ----------
    log10_p
        Shape (n,), n >= 1. For p-values on a coarse grid the test is conservative; use
        `uniform_on_grid` there.

    Raises
    ------
    InputError
        If there is no value, or one is NaN or above 0.
    """
    values = checked(log10_p).ravel()
    result = stats.kstest(10.0**values, "uniform")
    return KolmogorovSmirnov(float(result.statistic), float(result.pvalue), int(values.size))


def checked(log10_p: ArrayLike) -> NDArray[np.float64]:
    """log10 p of pairs, ``(n,)``, or of pairs and blocks, ``(n, L)``; InputError if a value is NaN or above 0."""
    values = np.asarray(log10_p, dtype=np.float64)
    if values.ndim not in (1, 2) or values.size == 0:
        raise InputError(f"log10_p has shape {values.shape}; give one value a pair, or one a pair and block")
    if np.isnan(values).any() or values.max() > 1e-9:
        raise InputError("log10_p holds a NaN or a value above 0; log10 of a p-value is at most 0")
    return np.minimum(values, 0.0)


def simultaneous_band(n: int, level: float) -> Band:
    """Band that holds all ordered -log10 p of n independent uniforms with probability `level`.

    Every order statistic gets the same local level: U_(k) is Beta(k, n + 1 - k), and the band runs
    between its quantiles eta/2 and 1 - eta/2, with eta solved for exact simultaneous coverage.

    Parameters
    ----------
    n
        Number of p-values. The work grows as n^2: about a second at n = 2,000.
    level
        Simultaneous coverage.
    """
    eta = _local_level(n, level)
    lower_u, upper_u = _order_statistic_bounds(n, eta)
    k = np.arange(1, n + 1)
    return Band(
        expected=-np.log10(k / (n + 1)),
        lower=-np.log10(upper_u),
        upper=-np.log10(lower_u),
    )


def size_interval(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Exact (Clopper-Pearson) interval for the rate behind k events in n trials."""
    return share_interval(k, n, level)


def correlation_band(n: int, level: float = 0.95, n_comparisons: int = 1) -> tuple[float, float]:
    """Interval that holds `n_comparisons` null correlations over n pairs with probability >= `level`.

    Each correlation gets the level 1 - (1 - level) / n_comparisons (Bonferroni) and the t distribution
    with n - 2 degrees of freedom, which is Spearman's usual null and close to Pearson's for uniform
    values (within 2% of its quantiles at n = 15; see the tests).

    Parameters
    ----------
    n
        Number of independent pairs behind each correlation, at least 3. Pairs of models from the same
        two families repeat each other and count once.
    level
        Simultaneous coverage.
    n_comparisons
        Correlations looked at together: L (L - 1) / 2 for L blocks.
    """
    t = float(stats.t.isf((1.0 - level) / (2 * n_comparisons), n - 2))
    bound = t / math.sqrt(n - 2 + t * t)
    return -bound, bound


def uniform_on_grid(p: ArrayLike, n_permutations: int) -> float:
    """Check P(p <= k/(T+1)) = k/(T+1) for all k at once: the p-value of p-values that are uniform on their grid.

    At each k the number of p-values up to k/(T+1) is binomial; the most unlikely of these numbers is
    the test statistic and its exact null distribution is computed, so no correction is left to make.

    Parameters
    ----------
    p
        Shape (n,): independent p-values, multiples of 1/(T+1).
    n_permutations
        T, the number of permutations behind each p-value.

    Raises
    ------
    InputError
        If there is no value, or one does not lie on the grid.

    Notes
    -----
    Theorem 1 of the paper, in the form P(p <= k/(T+1)) <= k/(T+1): equality where there are no ties.
    """
    values = np.asarray(p, dtype=np.float64)
    cells = n_permutations + 1
    if values.ndim != 1 or values.size == 0 or n_permutations < 1:
        raise InputError(f"p has shape {values.shape} with T = {n_permutations}; give a vector and T >= 1")
    steps = np.rint(values * cells)
    # written so that NaN fails as well
    if not (np.all(np.abs(values * cells - steps) < 1e-6) and steps.min() >= 1 and steps.max() <= cells):
        raise InputError(f"p holds values off the grid 1/{cells}, ..., 1 of T = {n_permutations} permutations")
    n = values.size
    counts = np.cumsum(np.bincount(steps.astype(np.int64) - 1, minlength=cells))
    # The last point, where every p-value is counted, says nothing.
    grid = np.arange(1, cells) / cells
    at_least, at_most = stats.binom.sf(counts[:-1] - 1, n, grid), stats.binom.cdf(counts[:-1], n, grid)
    # the observed count itself is as extreme as itself, whatever the rounding
    tail = float(np.minimum(at_least, at_most).min()) * (1.0 + 1e-9)
    numbers = np.arange(n + 1)
    low = np.array([np.searchsorted(stats.binom.cdf(numbers, n, t), tail, side="right") for t in grid])
    # the last number whose upper tail is above `tail`
    high = np.array([np.searchsorted(-stats.binom.sf(numbers - 1, n, t), -tail) - 1 for t in grid])
    return min(1.0, max(0.0, 1.0 - _probability_between(n, grid, low, high)))


@lru_cache(maxsize=32)
def _local_level(n: int, level: float) -> float:
    """Solve `_coverage` = `level` for eta; coverage falls as eta grows."""
    # Bonferroni, eta = (1 - level) / n, covers at least `level`; eta = 1 - level covers at most that.
    if n == 1:
        return 1.0 - level
    low, high = math.log((1.0 - level) / n), math.log(1.0 - level)
    return math.exp(optimize.brentq(lambda x: _coverage(n, math.exp(x)) - level, low, high, xtol=1e-5))


def _coverage(n: int, eta: float) -> float:
    """P(every U_(k) lies between its quantiles eta/2 and 1 - eta/2)."""
    lower, upper = _order_statistic_bounds(n, eta)
    k = np.arange(1, n + 1)
    # U_(k) >= lower_k means at most k - 1 values up to it; U_(k) <= upper_k means at least k.
    times = np.concatenate([lower, upper])
    low = np.concatenate([np.zeros(n, dtype=np.int64), k])
    high = np.concatenate([k - 1, np.full(n, n)])
    order = np.argsort(times, kind="stable")
    # Both steps only rise, so each point may carry the tighter of what comes before and after it.
    low = np.maximum.accumulate(low[order])
    high = np.minimum.accumulate(high[order][::-1])[::-1]
    return _probability_between(n, times[order], low, high)


def _order_statistic_bounds(n: int, eta: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    k = np.arange(1, n + 1)
    lower = special.betaincinv(k, n + 1 - k, eta / 2)
    return lower, 1.0 - lower[::-1]  # U_(k) and 1 - U_(n+1-k) have one distribution


def _probability_between(n: int, times: NDArray[np.float64], low: NDArray[np.int64], high: NDArray[np.int64]) -> float:
    """P(low_i <= N(times_i) <= high_i for all i), N(t) the number of n uniforms up to t.

    `times` ascend within [0, 1]. N is a Poisson process of rate n given that it ends at n: the counts
    of the process are pushed through the steps and the end is divided by P(Poisson(n) = n).
    """
    log_factorial = special.gammaln(np.arange(n + 1) + 1.0)
    start, weights = 0, np.ones(1)  # weights[j] = P(count is start + j, all steps so far kept)
    now = 0.0
    for time, smallest, largest in zip(times, low, high, strict=True):
        weights, start = _advance(weights, start, n * (time - now), int(smallest), int(largest), log_factorial)
        if weights.size == 0:
            return 0.0
        now = float(time)
    weights, _ = _advance(weights, start, n * (1.0 - now), n, n, log_factorial)
    if weights.size == 0:
        return 0.0
    ending = math.exp(n * math.log(n) - n - log_factorial[n])
    return float(weights[0] / ending)


def _advance(
    weights: NDArray[np.float64],
    start: int,
    mean: float,
    smallest: int,
    largest: int,
    log_factorial: NDArray[np.float64],
) -> tuple[NDArray[np.float64], int]:
    """Add a Poisson(mean) number to the count and keep what lies in [smallest, largest]."""
    top = min(largest, log_factorial.size - 1)
    if top < max(start, smallest):
        return np.empty(0), start
    if mean > 0.0:
        jumps = np.arange(top - start + 1)
        step = np.exp(jumps * math.log(mean) - mean - log_factorial[: jumps.size])
        weights = np.convolve(weights, step)
    skipped = max(0, smallest - start)
    return weights[skipped : top - start + 1], start + skipped
