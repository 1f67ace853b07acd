"""p-values as log10 p, from 1 down to the smallest that a matching can give.

Dependent models give p-values far below 1e-308, where a double underflows to "0.0" and where
``scipy.stats.t.logsf`` and ``chi2.logsf`` return -inf. A p-value is never zero, so everything here
is computed and returned as log10 p.

Spearman's tail
    The statistic is the rank correlation of a matching with the identity. For permutations it is
    a function of one integer, D = sum_i (pi(i) - i)^2, with rho = 1 - 6 D / (n (n^2 - 1)), so that
    1 - rho^2 is a quotient of integers, known without cancellation. The paper (Section 3.2) turns
    rho into a p-value by Student's t with n - 2 degrees of freedom, whose two-sided tail is the
    regularised incomplete beta function I_{1 - rho^2}((n - 2) / 2, 1/2).

The floor
    The t distribution is continuous, the permutations are n! in number. The largest correlation is
    reached by one of them, so its exact p-value is 1/n!, or 2/n! two-sided (the reversal counts
    too). The t tail goes below that and to zero at rho = 1; no p-value returned here does.

How good the t tail is
    Exact: n = 1 (one permutation, p = 1), n = 2 (rho is 1 or -1: p = 1 two-sided, 1/2 or 1 for
    "greater"), and both ends of every n. Between the ends the t tail is the smaller one. For p > 0.01
    it is short of the exact p by a factor of at most 0.68 at n = 8 and closer to 1 with every n;
    further out the gap in log10 p grows as 0.026 n rho^4 up to rho = 0.6 or so (the fourth cumulants
    of the two distributions) and faster after: at n = 256 it reads -32.4 for an exact -30.9, -105.6
    for -96.9. It is the paper's p-value; as evidence it is exact enough wherever a decision turns on
    it, and beyond that an order of magnitude of the exponent, not a probability to quote.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from provlab.errors import InputError

Alternative = Literal["two-sided", "greater"]

LN10 = math.log(10.0)

# Below this the incomplete beta function nears underflow and its series, all terms positive, takes over.
_SMALLEST_SAFE_BETAINC = 1e-250


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
        log10 of the p-value; never below the exact probability of a perfect match.
    """

    rho: float
    distance: int
    n: int
    log10_p: float


def spearman(a: ArrayLike, b: ArrayLike | None = None, alternative: Alternative = "two-sided") -> Spearman:
    """Rank correlation of two index vectors without repeated values.

    Parameters
    ----------
    a, b
        Integers, shape (n,), no value twice. Permutations, or injections into a larger set (the
        matching of a narrow layer into a wide one), which are ranked first. `b` defaults to the
        identity 0, ..., n - 1.
    alternative
        "two-sided" (the paper's; strong anti-correlation rejects too) or "greater".

    Raises
    ------
    InputError
        If an argument is not one-dimensional, empty, not of integers, or repeats a value; if the
        lengths differ; if the alternative is unknown.
    """
    ranks = _ranks(a, "a")
    others = np.arange(ranks.size) if b is None else _ranks(b, "b")
    if ranks.size != others.size:
        raise InputError(f"a has {ranks.size} entries and b has {others.size}; they must have the same length")
    n = ranks.size
    distance = int(np.sum((ranks - others) ** 2))
    rho = 1.0 - 6 * distance / (n * (n * n - 1)) if n > 1 else math.nan
    return Spearman(rho, distance, n, log10_p_spearman(distance, n, alternative))


def log10_p_spearman(distance: int, n: int, alternative: Alternative = "two-sided") -> float:
    """log10 p of the rank correlation with sum of squared rank differences `distance`.

    Parameters
    ----------
    distance
        D, an even integer between 0 (the same order) and (n^3 - n) / 3 (the reverse order).
    n
        Number of ranks, at least 1.
    alternative
        "two-sided" or "greater".

    Returns
    -------
    float
        Within 1e-9 of log10 of the t tail, or the floor
        2/n! (two-sided) or 1/n! (greater), whichever is larger.

    Raises
    ------
    InputError
        If no permutation of n ranks has this distance, or if the alternative is unknown.

    Notes
    -----
    Paper, Section 3.2, after Equation 2; the floor is added here.
    """
    n, distance = int(n), int(distance)
    if n < 1:
        raise InputError(f"n is {n}; it must be at least 1")
    largest = (n**3 - n) // 3
    if not 0 <= distance <= largest or distance % 2:
        raise InputError(f"distance is {distance}; for n = {n} it must be even and between 0 and {largest}")
    if alternative not in ("two-sided", "greater"):
        raise InputError(f"alternative is {alternative!r}; it must be 'two-sided' or 'greater'")

    above_middle = 2 * distance <= largest  # rho >= 0
    if n <= 2:
        return math.log10(0.5) if n == 2 and above_middle and alternative == "greater" else 0.0
    two_sided = _ln_t_tail(distance, n)
    if alternative == "two-sided":
        return max(two_sided / LN10, log10_floor(n, "two-sided"))
    if above_middle:
        return max((two_sided - math.log(2.0)) / LN10, log10_floor(n, "greater"))
    return math.log1p(-0.5 * math.exp(two_sided)) / LN10


def in_words(p: float) -> str:
    """Write a p-value that came as a plain number: ``p = 0.012``, and never 0, to which a float may underflow."""
    return f"p = {p:.2g}" if p > 1e-300 else "p < 1e-300"


def log10_floor(n: int, alternative: Alternative = "two-sided") -> float:
    """log10 of the probability that a uniform permutation of n matches perfectly: 2/n! or 1/n!."""
    ways = 2.0 if alternative == "two-sided" and n > 1 else 1.0
    return float(math.log(ways) - special.gammaln(n + 1)) / LN10


def _ln_t_tail(distance: int, n: int) -> float:
    """Logarithm of the two-sided tail I_q((n - 2)/2, 1/2), q = 1 - rho^2, for n >= 3."""
    # rho = (whole - part) / whole in integers; Python's quotient of integers is rounded once
    part, whole = 6 * distance, n * (n * n - 1)
    q = part * (2 * whole - part) / whole**2
    rho_squared = (whole - part) ** 2 / whole**2
    if q == 0.0:
        return -math.inf
    if rho_squared == 0.0:
        return 0.0
    a = (n - 2) / 2
    tail = float(special.betainc(a, 0.5, q))
    if tail > _SMALLEST_SAFE_BETAINC:
        return math.log(tail)
    # I_q(a, 1/2) = q^a (1 - q)^(1/2) / (a B(a, 1/2)) 2F1(a + 1/2, 1; a + 1; q), DLMF 8.17.8
    ln_q = math.log1p(-rho_squared) if rho_squared < 0.5 else math.log(q)
    series = float(special.hyp2f1(a + 0.5, 1.0, a + 1.0, q))
    ln_beta = float(special.betaln(a, 0.5))
    return a * ln_q + 0.5 * math.log(rho_squared) - math.log(a) - ln_beta + math.log(series)


def fisher(log10_p: ArrayLike) -> float:
    """Fisher's combination of independent p-values, as log10 p.

    Parameters
    ----------
    log10_p
        Shape (L,), one value for each of L independent tests.

    Returns
    -------
    float
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
    values = _log10_p(log10_p, "log10_p")
    if values.size == 0:
        raise InputError("log10_p is empty; Fisher's method needs at least one p-value")
    y = -math.fsum(values) * LN10
    if y == 0.0:
        return 0.0
    j = np.arange(values.size)
    tail = -y + float(special.logsumexp(j * math.log(y) - special.gammaln(j + 1.0)))
    return min(tail / LN10, 0.0)


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


def _log10_p(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}; it must be one-dimensional")
    if nans := int(np.isnan(array).sum()):
        raise InputError(f"{name} holds {nans} NaN; leave failed tests out before combining or adjusting")
    if np.isneginf(array).any():
        raise InputError(f"{name} holds -inf; a p-value is never zero, so pass its logarithm, not an underflow")
    if array.size and array.max() > 0.0:
        raise InputError(f"{name} holds {array.max():g}; log10 of a p-value is at most 0")
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
