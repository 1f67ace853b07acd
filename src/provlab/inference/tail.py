"""The law of Spearman's correlation between uniform permutations, far beyond where Student's t describes it.

With x_i = (i + 1/2) / n - 1/2 the correlation is S = sum_i x_i x_pi(i), up to a factor, and the sum of squared rank
differences is D = 2 n^2 (sum x^2 - S), an even integer. The moments of S under tilting are permanents:

    exp K(theta) = E exp(theta S) = per(A) / n!,    A_ij = exp(theta x_i x_j),

and Lugannani and Rice (1980), with Daniels' (1987) correction for a lattice of spacing 1 / n^2, turn K into the tail.

K where the kernel is wide (`_wide`): scaled to a doubly stochastic B = d A d (Sinkhorn), McCullagh (2014) has
    per(B) / n! = n^-n det(I + J/n - B^2)^(-1/2), short of the truth by a(theta) / n. a is measured where all
    permutations are counted (`exact_law`, n = 10). K_n = n k + c + r/n is carried from narrow n to any n.
K where it is narrow (`_narrow`): A is a band of width s^(-1/2), s = theta / n^2, of which only the ends know n, so that
    ln per = n g(s) + e(s). For s < 0.9 by expansion: g from Gaussian sums, with Szego's theorem for the determinant and
    the next orders; above, exactly, by carrying the permanent from row to row (`_band`).
The last values, D <= 16, where fewer than nine steps separate a permutation from perfect order, are counted
    (`_near_the_floor`), and so is every n up to 10.

Against the exact law of n = 11 to 14: within 0.02 in log10 p at every value.

References
----------
Daniels (1987), Int. Stat. Rev. 55:37. Lugannani and Rice (1980), Adv. Appl. Prob. 12:475. McCullagh (2014), J. Stat.
Comput. Simul. 84:404. The counts are row n of OEIS A175929.
"""

import math
from functools import cache, lru_cache
from itertools import combinations

import numpy as np
from numpy.polynomial.chebyshev import Chebyshev, chebpts1
from numpy.typing import ArrayLike, NDArray
from scipy import special  # and not its splines: they take longer to import than a tail takes to compute

from provlab.errors import InputError

LARGEST_EXACT = 14
COUNTED = 10  # up to here every permutation is counted when a tail is asked for
Reals = NDArray[np.float64]

_EXACT_FROM = 0.9  # s from which bands are computed exactly
_NARROWEST = 20.0  # s at which not one adjacent pair of 50,000 is still exchanged
_CARRIED_FROM = (48, 72, 120)
_WIDEST = 200.0  # theta at which a band takes over, if n is not narrower than that
_POINTS = 4000  # of either part of the curve: linear between them, it is good to 0.02 in log10 p up to 50,000 ranks
#: tilts at which K is known where the kernel is wide: Chebyshev's points of arcsinh(theta), in which K is smooth
_V = 0.5 * math.asinh(1.25 * _WIDEST) * (chebpts1(32) + 1.0)
_THETA = np.sinh(_V)
_NEAREST = 8  # D / 2 up to which permutations near the identity are counted


@cache
def exact_law(n: int) -> NDArray[np.int64]:
    """Count the permutations of n ranks by D.

    Parameters
    ----------
    n
        From 1 to 14; time and memory grow as n^4 2^n.

    Returns
    -------
    ndarray
        int64, shape (k,): permutations with D = 0, 2, ..., (n^3 - n) / 3; their sum is n!.

    Raises
    ------
    InputError
        If n is out of range.

    Notes
    -----
    Ranks are placed one by one; what matters of those placed is only which places are taken, so there are 2^n states
    instead of n! arrangements.
    """
    if not 1 <= n <= LARGEST_EXACT:
        raise InputError(f"n is {n}; the exact law is counted for 1 to {LARGEST_EXACT} ranks, draw it beyond")
    largest = (n**3 - n) // 3
    layer = np.ones((1, 1), dtype=np.int64)  # ways[state, D] with the first i ranks placed
    index = {0: 0}
    for i in range(n):
        states = [sum(1 << j for j in places) for places in combinations(range(n), i + 1)]
        following = {state: k for k, state in enumerate(states)}
        ways = np.zeros((len(states), largest + 1), dtype=np.int64)
        for j in range(n):
            free = [state for state in index if not state >> j & 1]
            if free:
                step = (i - j) ** 2
                before = layer[[index[state] for state in free]]
                room = min(before.shape[1], largest + 1 - step)
                ways[[following[state | 1 << j] for state in free], step : step + room] += before[:, :room]
        layer, index = ways, following
    return layer[0, ::2]


def log10_tail(distance: ArrayLike, n: int) -> Reals:
    """log10 of P(D <= distance) for a uniform permutation of n ranks: the one-sided p-value of agreement.

    Parameters
    ----------
    distance
        Any shape; each an even integer between 0 and (n^3 - n) / 3.
    n
        Number of ranks, at least 1.

    Returns
    -------
    ndarray
        Shape of `distance`, from -log10 n! up to 0. `provlab.inference.pvalues` refuses other distances and n.
    """
    d = np.asarray(distance, dtype=np.int64)
    largest = (n**3 - n) // 3
    if n <= COUNTED:
        below = np.cumsum(exact_law(n))
        return np.asarray(np.log10(below[d // 2] / below[-1]))
    # the law is symmetric about its middle: P(D <= d) = 1 - P(D <= largest - d - 2)
    upper = 2 * d > largest
    nearer = np.where(upper, largest - d - 2, d)
    ln_p = np.where(nearer < 0, -np.inf, _ln_lower_tail(np.maximum(nearer, 0) // 2, n))
    return np.asarray(np.where(upper, np.log1p(-np.exp(np.minimum(ln_p, -1e-16))), ln_p) / math.log(10.0))


def _ln_lower_tail(half: NDArray[np.int64], n: int) -> Reals:
    """Ln P(D / 2 <= half) below the middle."""
    near = _near_the_floor(n)[np.minimum(half, _NEAREST)]
    far = half > _NEAREST
    return np.asarray(np.where(far, np.interp(np.log1p(half / n), *_curve(n)), near) if far.any() else near)


@lru_cache(maxsize=64)
def _curve(n: int) -> Reals:
    """(ln(1 + k / n), ln P(D / 2 <= k)) from k = 8 to the middle, rising: shape (2, m)."""
    high = min(_WIDEST, 0.6 * n * n)  # theta at which the second form of K takes over
    half, ln_p = np.concatenate([_points_where_wide(n, high), _points_where_narrow(n, high)], axis=1)
    # the middle: as much of the law lies on one side as on the other
    middle = (n**3 - n) / 12.0
    counted = _near_the_floor(n)
    keep = (half > _NEAREST) & (half < middle - 0.5) & (ln_p > counted[-1])
    half = np.concatenate([[middle - 0.5], half[keep], [_NEAREST]])
    ln_p = np.concatenate([[math.log(0.5)], ln_p[keep], counted[-1:]])
    order = np.argsort(half)
    return np.stack([np.log1p(half[order] / n), np.maximum.accumulate(ln_p[order])])  # (2, points)


def _points_where_wide(n: int, high: float) -> Reals:
    """(D / 2, ln P) for theta below `high`, shape (2, m)."""
    ratio = _over_squares(_wide(n))
    v = np.linspace(0.05, math.asinh(high), _POINTS)
    t, c = np.sinh(v), np.cosh(v)
    f = ratio(v)
    f1 = ratio.deriv()(v) / c  # slope and bend over theta
    f2 = (ratio.deriv(2)(v) - f1 * t) / c**2
    k, first, second = t**2 * f, 2 * t * f + t**2 * f1, 2 * f + 4 * t * f1 + t**2 * f2  # K, K', K''
    ln_p = _lugannani_rice(t * first - k, t / n**2, second * n**4)
    return np.stack([n**2 * (_sum_of_squares(n) - first) - 0.5, ln_p])  # (2, m)


def _points_where_narrow(n: int, high: float) -> Reals:
    """(D / 2, ln P) for theta from `high`, shape (2, m)."""
    ln_s, step = np.linspace(math.log(high / n**2), math.log(_NARROWEST), _POINTS, retstep=True)
    s = np.exp(ln_s)
    # ln of E exp(-s D / 2) n!, and its slope and bend over ln s by differences of fourth order
    back, before, k, after, ahead = (_narrow(np.exp(ln_s + j * step), n) for j in range(-2, 3))
    slope = (back - 8.0 * before + 8.0 * after - ahead) / (12.0 * step)
    bend = (-back + 16.0 * before - 30.0 * k + 16.0 * after - ahead) / (12.0 * step**2)
    first, second = slope / s, (bend - slope) / s**2  # minus where D / 2 is expected, under the tilt
    return np.stack([-first - 0.5, _lugannani_rice(math.lgamma(n + 1) - k + s * first, s, second)])  # (2, m)


def _lugannani_rice(rate: Reals, s: Reals, variance: Reals) -> Reals:
    """Ln of the tail at a tilt of s for a unit of D / 2, from the rate theta K' - K and the variance of D / 2 there."""
    w = np.sqrt(2.0 * np.maximum(rate, 1e-12))
    u = 2.0 * np.sinh(np.minimum(s, 600.0) / 2.0) * np.sqrt(np.maximum(variance, 1e-12))
    ln_density = -0.5 * w**2 - 0.5 * math.log(2.0 * math.pi)
    mills = np.exp(special.log_ndtr(-w) - ln_density)
    return np.asarray(ln_density + np.log(np.maximum(mills + 1.0 / u - 1.0 / w, 1e-300)))


def _sum_of_squares(n: int) -> float:
    """Sum of x_i^2: S of the perfect order."""
    return (n * n - 1) / (12.0 * n)


def _step(x: Reals) -> Reals:
    """From 0 to 1, with two continuous derivatives."""
    x = np.clip(x, 0.0, 1.0)
    return x**3 * (10.0 - 15.0 * x + 6.0 * x**2)


def _over_squares(k: Reals) -> Chebyshev:
    """K / theta^2, whose relative error stays small where theta does, of K at `_THETA`."""
    return Chebyshev.fit(_V, k / _THETA**2, len(_V) - 1)


# A wide kernel --------------------------------------------------------------------------------------------------------


def _wide(n: int) -> Reals:
    """K at `_THETA`."""
    if n < _CARRIED_FROM[0]:
        k = np.array([_mccullagh(theta, n) for theta in _THETA])
    else:
        slope, constant, rest = _carried()
        k = n * slope + constant + rest / n
    return k + _beyond_the_determinant() / n


@cache
def _carried() -> Reals:
    """Coefficients of K_n = n k + c + r / n at `_THETA`, shape (3, len(_THETA)), from three narrow n."""
    k = np.array([[_mccullagh(theta, n) for theta in _THETA] for n in _CARRIED_FROM])
    return np.linalg.solve(np.array([[n, 1.0, 1.0 / n] for n in _CARRIED_FROM]), k)


@cache
def _beyond_the_determinant() -> Reals:
    """a(theta) = n (K - McCullagh's K) at `_THETA`: from all permutations of ten ranks, and from bands beyond 60."""
    counts, n = exact_law(COUNTED), COUNTED
    theta = np.minimum(_THETA, 60.0)
    weight = np.log(np.maximum(counts, 1e-300)) - theta[:, None] / n**2 * np.arange(len(counts))
    exact = special.logsumexp(weight, axis=1) - math.lgamma(n + 1) + theta * _sum_of_squares(n)
    error = n * (exact - np.array([_mccullagh(tilt, n) for tilt in theta]))
    return np.asarray(error + _beyond(_THETA) - _beyond(theta))


def _beyond(theta: Reals) -> Reals:
    """The same, up to a constant, where theta is large: s / 96 for each rank and 0.056 s^(1/2) for the ends."""
    return theta / 96.0 + 0.056 * np.sqrt(theta)


def _mccullagh(theta: float, n: int) -> float:
    """K(theta) by Sinkhorn scaling and McCullagh's determinant."""
    x = (np.arange(n) + 0.5) / n - 0.5
    # exp(-theta (x - y)^2 / 2) is A, scaled by factors of its rows and columns
    kernel = np.exp(-0.5 * theta * np.subtract.outer(x, x) ** 2)  # (n, n)
    d = 1.0 / np.sqrt(kernel.sum(axis=1))
    for _ in range(200):
        rows = d * (kernel @ d)  # (n, n) @ (n,)
        d /= np.sqrt(rows)
        if np.abs(rows - 1.0).max() < 1e-12:
            break
    B = d[:, None] * kernel * d
    determinant = np.linalg.slogdet(np.eye(n) + 1.0 / n - B @ B)[1]  # (n, n) @ (n, n)
    return float(-n * math.log(n) - 0.5 * determinant - 2.0 * np.log(d).sum() + theta * _sum_of_squares(n))


# A narrow kernel ------------------------------------------------------------------------------------------------------


def _narrow(s: Reals, n: int) -> Reals:
    """Ln of the permanent of exp(-s (i - j)^2 / 2), as n g(s) + e(s); for n s^(1/2) of 10 or more."""
    root = np.sqrt(s)
    # a row's sum, as if continuous, less one for n! / n^n; Szego's integral of -ln(1 - b^2) / 2, b the Gaussian's
    # transform, is zeta(3/2) s^(1/2) / (4 pi^(1/2)); next orders fitted to exact bands of s = 0.4 to 1.2
    g = 0.5 * np.log(2 * np.pi / s) - 1.0 + special.zeta(1.5) / (4 * math.sqrt(math.pi)) * root
    g += s / 96.0 + 1.012e-3 * s**1.5 + 8.4e-5 * s**2
    # the two ends, by the same means
    e = -0.994624 / root - 0.25 * np.log(s) + 0.56061 + 0.171038 * root - 0.017238 * s - 0.00015 * s**1.5
    g_exact, e_exact = (curve(np.log(np.maximum(s, _EXACT_FROM))) for curve in _bands())
    share = _step((s - _EXACT_FROM) / 0.3)
    return np.asarray(n * ((1 - share) * g + share * g_exact) + (1 - share) * e + share * e_exact)


@cache
def _bands() -> tuple[Chebyshev, Chebyshev]:
    """G and e over ln s, exactly."""
    low, high = math.log(_EXACT_FROM), math.log(_NARROWEST) + 0.1
    ln_s = low + 0.5 * (high - low) * (chebpts1(24) + 1.0)
    short, long = np.array([_band(math.exp(value), (30, 40)) for value in ln_s]).T
    g = (long - short) / 10
    return Chebyshev.fit(ln_s, g, len(ln_s) - 1), Chebyshev.fit(ln_s, short - 30 * g, len(ln_s) - 1)


def _band(s: float, sizes: tuple[int, ...]) -> list[float]:
    """Ln of the permanents of exp(-s (i - j)^2 / 2), |i - j| <= 5, of these sizes.

    Rows are given columns one by one. Row i reaches the 11 columns from i - 5 to i + 5; of these five are taken when
    its turn comes, and which is all that matters (252 states). The first must be taken then, or nobody will.
    """
    states, source, target, steps = _moves()
    weight = np.exp(-0.5 * s * steps**2)
    start = states - 1  # the lowest five: columns that do not exist
    v, ln_scale, permanents = np.eye(1, states, start)[0], 0.0, []
    for size in range(1, max(sizes) + 1):
        v = np.bincount(target, v[source] * weight, minlength=states)
        if size in sizes:
            permanents.append(ln_scale + math.log(v[start]))
        scale = v.sum()
        v, ln_scale = v / scale, ln_scale + math.log(scale)
    return permanents


@cache
def _moves() -> tuple[int, NDArray[np.int64], NDArray[np.int64], Reals]:
    """States of `_band`, and from which to which by a step of what length a row's column leads."""
    reach = 5
    states = sorted(sum(1 << j for j in places) for places in combinations(range(2 * reach), reach))
    index = {state: len(states) - 1 - k for k, state in enumerate(states)}  # the lowest columns taken: the last
    moves = [
        (index[state], index[(state | 1 << j) >> 1], j - reach)
        for state in states
        for j in range(2 * reach + 1)
        if not state >> j & 1 and (state | 1 << j) & 1
    ]
    source, target, steps = np.array(moves).T
    return len(states), source, target, steps.astype(np.float64)


# Near the floor -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _near_the_floor(n: int) -> Reals:
    """Ln P(D / 2 <= k) for k = 0 to 8, by counting: shape (9,).

    A permutation is a row of pieces that cannot be cut further. One of length l > 1 has D / 2 >= l - 1, so that
    all that matter are found among the permutations of nine ranks, and r of them, of length L together, can stand among
    n ranks in C(n - L + r, r) ways.
    """
    counts = [0] * (_NEAREST + 1)
    for count, length, k, ways in _rows_of_pieces():
        if length <= n:
            counts[k] += ways * math.comb(n - length + count, count)
    below = [sum(counts[: k + 1]) for k in range(_NEAREST + 1)]
    return np.array([math.log(count) - math.lgamma(n + 1) for count in below])


@cache
def _rows_of_pieces() -> list[tuple[int, int, int, int]]:
    """(r, L, k, ways): in how many ways r pieces of length L together have D / 2 = k."""
    rows: dict[tuple[int, int, int], int] = {(0, 0, 0): 1}
    for r in range(_NEAREST):
        for (count, length, k), ways in [item for item in rows.items() if item[0][0] == r]:
            for (piece, cost), number in _pieces().items():
                if k + cost <= _NEAREST:
                    key = (count + 1, length + piece, k + cost)
                    rows[key] = rows.get(key, 0) + ways * number
    return [(*key, ways) for key, ways in rows.items()]


@cache
def _pieces() -> dict[tuple[int, int], int]:
    """(l, k) -> permutations of l > 1 ranks with D / 2 = k of which no first few are a permutation of themselves."""
    whole = [[int(c) for c in exact_law(m)[: _NEAREST + 1]] if m else [1] for m in range(_NEAREST + 2)]
    # whole[m] = sum over the first piece: alone[l] * whole[m - l]
    alone: dict[int, list[int]] = {}
    for m in range(1, _NEAREST + 2):
        left = [*whole[m], *[0] * (_NEAREST + 1)][: _NEAREST + 1]
        for length, own in alone.items():
            for k, c in enumerate(own):
                for j, w in enumerate(whole[m - length]):
                    if k + j <= _NEAREST:
                        left[k + j] -= c * w
        alone[m] = left
    return {(m, k): c for m, own in alone.items() if m > 1 for k, c in enumerate(own) if c}
