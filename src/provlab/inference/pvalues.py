"""p-values as log10 p, from 1 down to the smallest that a matching can give.

Dependent models give p-values far below 1e-308, where a double underflows to "0.0" and where
``scipy.stats.t.logsf`` and ``chi2.logsf`` return -inf. A p-value is never zero, so everything here
is computed and returned as log10 p. This is the one place for it: a test of many pairs, or of many
random copies of one, gives its distances as an array and `fisher` an axis.

Spearman's tail
    The statistic is the rank correlation of a matching with the identity. For permutations it is
    a function of one integer, D = sum_i (pi(i) - i)^2, with rho = 1 - 6 D / (n (n^2 - 1)). Models of
    common origin have matchings that agree, so the p-value is one-sided: P(D <= d) for a uniform
    permutation, by the law itself (`provlab.inference.tail`). The smallest belongs to the perfect
    match, one permutation of n!.

The paper's tail
    The paper (Section 3.2) turns rho into a p-value by Student's t with n - 2 degrees of freedom,
    whose two-sided tail is the regularised incomplete beta function I_{1 - rho^2}((n - 2) / 2, 1/2):
    `log10_p_t`, floored here at 2/n!, the exact two-sided p of a perfect match (the reversal counts
    too). It stands beside the law wherever published values are compared.

    It is exact for n = 1 and 2 (p = 1) and at both ends of every n. Between the ends it is too small.
    For p > 0.02 it is short of the exact two-sided p by a factor of at most 0.68 at n = 8 and closer
    to 1 with every n; further out the gap in log10 p grows as 0.026 n rho^4 up to rho = 0.6 or so
    (the fourth cumulants of the two distributions) and faster after: at n = 256 it reads -32.4 for
    -30.9, -105.6 for -96.9.
"""

import math
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from provlab.errors import InputError
from provlab.inference.tail import log10_tail

LN10 = math.log(10.0)

# Below this the incomplete beta and gamma functions near underflow; series, all terms positive, take over.
_SMALLEST_SAFE = 1e-250
_MIDDLE = 1e-10  # a rho^2 below which q = 1 - rho^2, rounded, no longer says how far from 1 the p-value is


@dataclass(frozen=True)
class Spearman:
    """Rank correlation of two permutations and its p-value.

    Attributes
    ----------
    rho
        Spearman's rank correlation, in [-1, 1]; NaN for n = 1, where there is none.
    distance
        D, the sum of squared rank differences (an even integer).
    n
        Number of ranks.
    log10_p
        log10 of the one-sided p-value, P(D <= distance) for a uniform permutation.
    paper_log10_p
        The paper's: log10 of the two-sided t tail, and never below a perfect match and its reversal.
    """

    rho: float
    distance: int
    n: int
    log10_p: float
    paper_log10_p: float


def spearman(a: ArrayLike, b: ArrayLike | None = None) -> Spearman:
    """Rank correlation of two index vectors without repeated values, and its p-value: small where the two agree.

    Parameters
    ----------
    a, b
        Integers, shape (n,), no value twice. Permutations, or injections into a larger set (the
        matching of a narrow layer into a wide one), which are ranked first. `b` defaults to the
        identity 0, ..., n - 1.

    Raises
    ------
    InputError
        If an argument is not one-dimensional, empty, not of integers, or repeats a value; if the
        lengths differ.
    """
    ranks = _ranks(a, "a")
    others = np.arange(ranks.size) if b is None else _ranks(b, "b")
    if ranks.size != others.size:
        raise InputError(f"a has {ranks.size} entries and b has {others.size}; they must have the same length")
    n = ranks.size
    distance = int(np.sum((ranks - others) ** 2))
    rho = 1.0 - 6 * distance / (n * (n * n - 1)) if n > 1 else math.nan
    return Spearman(rho, distance, n, log10_p_spearman(distance, n), log10_p_t(distance, n))


def distances(a: ArrayLike, b: ArrayLike | None = None) -> NDArray[np.int64]:
    """Sum of squared rank differences of many permutations at once, along the last axis.

    Parameters
    ----------
    a, b
        Integers, shapes (..., n) that broadcast: permutations of 0, ..., n - 1, which is not checked here. `b` defaults
        to the identity.

    Returns
    -------
    ndarray
        int64, shape (...): D, as `log10_p_spearman` takes it.
    """
    first = np.asarray(a)
    second = np.arange(first.shape[-1], dtype=first.dtype) if b is None else np.asarray(b)
    width = np.int32 if first.shape[-1] ** 3 < 2**32 else np.int64  # D is below n^3 / 3; narrow numbers are faster
    apart = np.subtract(first, second, dtype=width)
    return np.asarray(np.einsum("...i,...i->...", apart, apart), dtype=np.int64)  # (..., n) -> (...)


@overload
def log10_p_spearman(distance: int, n: int) -> float: ...
@overload
def log10_p_spearman(distance: NDArray[np.integer], n: int) -> NDArray[np.float64]: ...
def log10_p_spearman(distance: int | NDArray[np.integer], n: int) -> float | NDArray[np.float64]:
    """log10 of P(D <= distance) for a uniform permutation: how likely so close an agreement is by chance.

    Parameters
    ----------
    distance
        D, an even integer between 0 (the same order) and (n^3 - n) / 3 (the reverse order), or an array of them.
    n
        Number of ranks, at least 1.

    Returns
    -------
    float, or ndarray of the shape of `distance`
        From -log10 n!, of the perfect match, to 0; see `provlab.inference.tail` for how near the truth.

    Raises
    ------
    InputError
        If no permutation of n ranks has this distance.
    """
    log10_p = np.maximum(log10_tail(_possible(distance, n), n), log10_floor(n))  # which rounding may pass
    return log10_p if log10_p.ndim else float(log10_p)


@overload
def log10_p_t(distance: int, n: int) -> float: ...
@overload
def log10_p_t(distance: NDArray[np.integer], n: int) -> NDArray[np.float64]: ...
def log10_p_t(distance: int | NDArray[np.integer], n: int) -> float | NDArray[np.float64]:
    """Two-sided log10 p of the rank correlation by Student's t, as the paper takes it; strong disagreement rejects too.

    Parameters
    ----------
    distance, n
        As of `log10_p_spearman`.

    Returns
    -------
    float, or ndarray of the shape of `distance`
        Within 1e-9 of log10 of the t tail, or 2/n!, whichever is larger.

    Raises
    ------
    InputError
        If no permutation of n ranks has this distance.

    Notes
    -----
    Paper, Section 3.2, after Equation 2; the floor is added here.
    """
    D = _possible(distance, n)
    if n <= 2:
        log10_p = np.zeros(D.shape)
    else:
        whole = n * (n * n - 1)  # rho = (whole - 6 D) / whole
        part, rest = 6 * D, 2 * whole - 6 * D  # 1 - rho and 1 + rho, times whole
        q, rho_squared = np.asarray((part / whole) * (rest / whole)), np.asarray(np.square((whole - part) / whole))
        log10_p = np.maximum(_ln_t_tail(q, rho_squared, n) / LN10, log10_floor(n) + math.log10(2.0))
    return log10_p if log10_p.ndim else float(log10_p)


def _possible(distance: int | NDArray[np.integer], n: int) -> NDArray[np.int64]:
    """D as integers of 64 bits, if permutations of n ranks have it."""
    if n < 1:
        raise InputError(f"n is {n}; it must be at least 1")
    largest = (n**3 - n) // 3
    D = np.asarray(distance, dtype=np.int64)
    if (wrong := D[(D < 0) | (largest < D) | (D % 2 != 0)]).size:
        raise InputError(f"distance is {wrong[0]}; for n = {n} it must be even and between 0 and {largest}")
    return D


def distance_at(log10_p: float, n: int) -> int:
    """Return the largest D whose p is at most 10^log10_p; 0 if only a perfect match has it, or none.

    Parameters
    ----------
    log10_p
        Below 0.
    n
        Number of ranks, at least 3.
    """
    low, high = 0, (n**3 - n) // 6  # D / 2, from the perfect match to the reverse
    while low < high:
        half = (low + high + 1) // 2
        low, high = (half, high) if log10_p_spearman(2 * half, n) <= log10_p else (low, half - 1)
    return 2 * low


def log10_p_correlation(rho: float, n: int) -> float:
    """log10 of the two-sided t tail of a correlation over n >= 3 independent pairs of values; no floor, |rho| < 1."""
    return float(_ln_t_tail(np.asarray((1.0 - rho) * (1.0 + rho)), np.asarray(rho * rho), n)) / LN10


def log10_p_normal(z: ArrayLike) -> NDArray[np.float64]:
    """log10 of the chance that a standard normal number is `z` or more, for each of an array."""
    return np.asarray(special.log_ndtr(-np.asarray(z, dtype=np.float64)) / LN10)


def p_student(t: float, degrees: int) -> float:
    """Chance of `t` or more by Student's law, upper tail: a plain number, for means of few values."""
    return float(special.stdtr(degrees, -t))


def p_signs(losses: int, gains: int) -> float:
    """Chance of a split at least as uneven as this one if each of the two sides is as likely: two-sided, exact.

    McNemar's exact test where the counts are of answers that two models give differently; 1 where there are none.
    """
    return min(1.0, 2.0 * float(special.bdtr(min(losses, gains), losses + gains, 0.5)))


def log10_signs(losses: int, gains: int) -> float:
    """log10 of `p_signs`, also where that underflows."""
    n, few = losses + gains, np.arange(min(losses, gains) + 1)
    ways = special.gammaln(n + 1) - special.gammaln(few + 1) - special.gammaln(n - few + 1)
    return min(0.0, float(special.logsumexp(ways) + math.log(2) * (1 - n)) / LN10)


def in_words(p: float) -> str:
    """Write a p-value that came as a plain number: ``p = 0.012``, and never 0, to which a float may underflow."""
    return f"p = {p:.2g}" if p > 1e-300 else "p < 1e-300"


def log10_floor(n: int) -> float:
    """log10 of the probability that a uniform permutation of n is a perfect match, 1/n!."""
    return -math.lgamma(n + 1) / LN10


def _ln_t_tail(q: NDArray[np.float64], rho_squared: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Logarithm of the two-sided tail I_q((n - 2)/2, 1/2), q = 1 - rho^2, for n >= 3; -inf at q = 0."""
    a = (n - 2) / 2
    tail = np.asarray(special.betainc(a, 0.5, q))
    middle = rho_squared < _MIDDLE
    if middle.any():
        tail[middle] = special.betaincc(0.5, a, rho_squared[middle])
    ln_tail = np.asarray(np.log(np.maximum(tail, _SMALLEST_SAFE)))
    far = tail <= _SMALLEST_SAFE
    if not far.any():
        return ln_tail
    # I_q(a, 1/2) = q^a (1 - q)^(1/2) / (a B(a, 1/2)) 2F1(a + 1/2, 1; a + 1; q), DLMF 8.17.8
    q, rho_squared = q[far], rho_squared[far]
    with np.errstate(divide="ignore"):  # ln 0 = -inf is what a perfect match has
        ln_q = np.where(rho_squared < 0.5, np.log1p(-np.minimum(rho_squared, 0.5)), np.log(q))  # of the smaller one
        series = special.hyp2f1(a + 0.5, 1.0, a + 1.0, q)
        far_tail = a * ln_q + 0.5 * np.log(rho_squared) - math.log(a) - special.betaln(a, 0.5) + np.log(series)
    ln_tail[far] = far_tail
    return ln_tail


@overload
def fisher(log10_p: ArrayLike, axis: None = None) -> float: ...
@overload
def fisher(log10_p: ArrayLike, axis: int) -> NDArray[np.float64]: ...
def fisher(log10_p: ArrayLike, axis: int | None = None) -> float | NDArray[np.float64]:
    """Fisher's combination of independent p-values, as log10 p.

    Parameters
    ----------
    log10_p
        Shape (L,), one value for each of L independent tests; with `axis` any shape.
    axis
        Along which the L tests of one combination lie.

    Returns
    -------
    float, or ndarray without that axis
        log10 of P(chi^2 with 2L degrees of freedom > -2 sum ln p).

    Raises
    ------
    InputError
        If there is no value, or one is NaN, infinite or above 0.

    Notes
    -----
    Paper, Section 3.2, Algorithm 3 and Theorem 2. Not valid for dependent p-values: over parameters
    that share a permutation, or over all pairs of blocks, use `holm`.

    With even degrees of freedom the tail is finite: exp(-y) sum_{j<L} y^j / j!, y = -sum ln p.
    """
    values = _log10_p(log10_p, "log10_p", any_shape=axis is not None)
    if values.size == 0:
        raise InputError("log10_p is empty; Fisher's method needs at least one p-value")
    if axis is None:
        y = -math.fsum(values) * LN10
        return min(float(_ln_finite_sum(np.float64(y), values.size)) / LN10, 0.0) if y else 0.0
    L = values.shape[axis]
    sums = np.asarray(-values.sum(axis=axis) * LN10)
    # of many combinations only those beyond the incomplete gamma function are summed: that takes ten times as long
    tail = special.gammaincc(L, sums)
    ln_tail = np.log(np.maximum(tail, _SMALLEST_SAFE))
    far = tail <= _SMALLEST_SAFE
    if far.any():
        ln_tail[far] = _ln_finite_sum(sums[far], L)
    return np.minimum(ln_tail / LN10, 0.0)


def fisher_threshold(log10_p: float, n_tests: ArrayLike) -> NDArray[np.float64]:
    """Sum of -ln p over so many tests at which Fisher's p equals 10^log10_p, for log10_p from -300 to below 0."""
    return np.asarray(special.gammainccinv(n_tests, 10.0**log10_p))


def _ln_finite_sum(y: NDArray[np.float64] | np.float64, L: int) -> NDArray[np.float64]:
    """Ln of exp(-y) sum_{j<L} y^j / j!, each y > 0."""
    j = np.arange(L)
    terms = np.multiply.outer(np.log(y), j) - special.gammaln(j + 1.0)  # (..., L)
    return np.asarray(-y + np.logaddexp.reduce(terms, axis=-1))


def holm(log10_p: ArrayLike) -> NDArray[np.float64]:
    """Holm's adjustment: reject where ``adjusted <= log10(alpha)``; no assumption on dependence.

    Parameters
    ----------
    log10_p
        Shape (m,), the p-values of one family of tests.

    Returns
    -------
    ndarray
        Adjusted log10 p, shape (m,), in the order of the input (empty for an empty family).

    Raises
    ------
    InputError
        If a value is NaN, infinite or above 0.
    """
    values = _log10_p(log10_p, "log10_p")
    m = values.size
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] + np.log10(np.arange(m, 0, -1)))
    return _unsort(stepped, order)


def benjamini_hochberg(log10_p: ArrayLike) -> NDArray[np.float64]:
    """Benjamini-Hochberg's adjustment (false discovery rate, independent tests); see `holm`."""
    return _step_up(_log10_p(log10_p, "log10_p"), log10_factor=0.0)


def benjamini_yekutieli(log10_p: ArrayLike) -> NDArray[np.float64]:
    """Benjamini-Yekutieli's adjustment (false discovery rate, any dependence); see `holm`."""
    values = _log10_p(log10_p, "log10_p")
    harmonic = math.fsum(1.0 / k for k in range(1, values.size + 1))
    return _step_up(values, log10_factor=math.log10(harmonic) if values.size else 0.0)


def _step_up(values: NDArray[np.float64], log10_factor: float) -> NDArray[np.float64]:
    m = values.size
    order = np.argsort(values, kind="stable")
    scaled = values[order] + math.log10(max(m, 1)) - np.log10(np.arange(1, m + 1)) + log10_factor
    stepped = np.minimum.accumulate(scaled[::-1])[::-1]
    return _unsort(stepped, order)


def _unsort(adjusted: NDArray[np.float64], order: NDArray[np.intp]) -> NDArray[np.float64]:
    result = np.empty_like(adjusted)
    result[order] = np.minimum(adjusted, 0.0)
    return result


def _log10_p(values: ArrayLike, name: str, *, any_shape: bool = False) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 and not any_shape:
        raise InputError(f"{name} has shape {array.shape}; it must be one-dimensional")
    if array.size == 0:
        return array
    smallest, largest = array.min(), array.max()  # both NaN if one is
    if np.isnan(largest):
        raise InputError(
            f"{name} holds {np.isnan(array).sum()} NaN; leave failed tests out before combining or adjusting"
        )
    if np.isneginf(smallest):
        raise InputError(f"{name} holds -inf; a p-value is never zero, so pass its logarithm, not an underflow")
    if largest > 0.0:
        raise InputError(f"{name} holds {largest:g}; log10 of a p-value is at most 0")
    return array


def _ranks(values: ArrayLike, name: str) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} has shape {array.shape}; it must be a non-empty vector of indices")
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} has dtype {array.dtype}; it must hold integers, the indices of a matching")
    order = np.argsort(array, kind="stable")
    in_order = array[order]
    if repeated := int((in_order[1:] == in_order[:-1]).sum()):
        raise InputError(f"{name} repeats {repeated} of its {array.size} values; a matching uses each index once")
    ranks = np.empty(array.size, dtype=np.int64)
    ranks[order] = np.arange(array.size)
    return ranks
