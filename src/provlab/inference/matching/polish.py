"""From an assignment that is best for float32 cosines to one that is best for float64 cosines.

A float32 cosine of unit rows of d entries is within (d + 16) 2^-24 of the true one. At the prices that prove the
float32 assignment, only edges within a few times that of their row's best can matter: about one a row beside the one
that is assigned. Their cosines are computed again in float64, from the rows as they were given. The next step
finds prices that prove the assignment for these values: a system of differences, solved by sweeps from the prices at
hand. Where it has no solution, a cycle of rows would gain by passing their columns round; they do, and the sweeps go
on. A last pass over the whole float32 matrix, with its error added, shows that no other edge can matter.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching.assignment import NONE, Solution
from provlab.inference.matching.certificate import ROUNDING, left_over
from provlab.inference.matching.compiled import Floats, Integers, Longs, Reals, kernel, over_rows, read_only
from provlab.inference.matching.cosine import UnitRows

EDGES = 64  # near edges a row, on average, beyond which the whole product in float64 is cheaper ...
FEW_EDGES = 2**17  # ... unless they are so few anyway
SWEEPS = 2000
WIDENINGS = 3


@dataclass(frozen=True, eq=False)
class Polished:
    """An assignment that is best for float64 cosines, as far as `gap` proves it.

    Attributes
    ----------
    partners, prices
        As in `Solution`.
    values
        float64: the cosine of each row with its partner.
    gap
        How much larger another assignment could be, at most, up to rounding in float64.
    """

    partners: NDArray[np.int32]
    prices: Floats
    values: Floats
    gap: float


def error_bound(columns: int) -> float:
    """Largest error of a float32 cosine of rows of so many entries, in whatever order the sum was taken."""
    return (columns + 16) * 2.0**-24


def polish(
    similarity: NDArray[np.float32],
    result: Solution,
    first: UnitRows,
    second: UnitRows,
    *,
    order: NDArray[np.integer] | None = None,
    unsigned: bool = False,
) -> Polished | None:
    """Make an assignment of float32 cosines exact for float64 cosines.

    Parameters
    ----------
    similarity
        Shape (n, m) with n <= m: the float32 cosines.
    found
        Their best assignment.
    first, second
        The rows that were compared.
    order
        Column j of `similarity` is row ``order[j]`` of `second`; row j if None.
    unsigned
        The similarities are absolute values of cosines.

    Returns
    -------
    Polished or None
        None where so many edges are alike that the whole matrix had better be computed in float64.
    """
    error = error_bound(first.shape[1])
    n = len(similarity)
    for widening in range(WIDENINGS):
        edges = _near(similarity, result.prices, 3 * error * 4**widening, max(FEW_EDGES, EDGES * n))
        if edges is None:
            return None
        starts, columns = edges
        values = _cosines(first, second, starts, columns if order is None else order[columns])
        if unsigned:
            values = np.abs(values)
        partners, prices, own, tops = result.partners.copy(), result.prices.copy(), np.empty(n), np.empty(n)
        if n < similarity.shape[1]:
            prices[partners] += error / 2  # room to come down: where columns are left over, no price may be negative
        tiny = ROUNDING / 8 * max(np.abs(values).max(), prices.max())
        _settle(starts, columns, values, partners, prices, own, tops, tiny, SWEEPS)
        if not _hidden(similarity, prices, tops - error, starts, columns):
            gap = float((tops - (own - prices[partners])).sum()) + left_over(partners, prices)
            return Polished(partners, prices, own, gap)
    return None


def _near(
    similarity: NDArray[np.float32], prices: Floats, margin: float, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
    """Edges within `margin` of the best of their row, row after row: where each row starts, and the columns."""
    n = len(similarity)
    shown = read_only(similarity)
    counts = np.zeros(n, np.int64)

    def some(start: int, stop: int) -> NDArray[np.int32]:
        return _collect(shown, prices, margin, limit, counts, start, stop)

    columns = np.concatenate(over_rows(some, n, similarity.size))
    if len(columns) > limit:
        return None
    return np.concatenate([[0], np.cumsum(counts)]), columns


def _cosines(first: UnitRows, second: UnitRows, starts: NDArray[np.int64], columns: NDArray[np.integer]) -> Floats:
    values = np.empty(len(columns))
    sides = [(read_only(plain(side.rows)), side.scales, side.lengths) for side in (first, second)]
    partners = columns.astype(np.int64)

    def some(start: int, stop: int) -> None:
        _dot_products(sides[0], sides[1], starts, partners, values, start, stop)

    over_rows(some, len(starts) - 1, len(columns) * first.shape[1])
    return values


def plain(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    """Rows as the kernel takes them: float32 or float64, contiguous."""
    return np.ascontiguousarray(rows, rows.dtype if rows.dtype in (np.float32, np.float64) else np.float64)


def _hidden(
    similarity: NDArray[np.float32],
    prices: Floats,
    floors: Floats,
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
) -> bool:
    """Whether an edge above its row's floor is not among those listed."""
    shown = read_only(similarity)

    def some(start: int, stop: int) -> bool:
        return bool(_any_unlisted(shown, prices, floors, starts, columns, start, stop))

    return any(over_rows(some, len(similarity), similarity.size))


# Kernels --------------------------------------------------------------------------------------------------------------

_GROUPS = 128


@kernel(fastmath={"nnan", "nsz"})
def _maxima(row: Reals, prices: Floats, maxima: Floats) -> None:
    width = len(maxima)
    maxima[:] = -np.inf
    for first in range(0, len(row), width):
        part, less = row[first : first + width], prices[first : first + width]
        for g in range(len(part)):
            worth = part[g] - less[g]
            maxima[g] = worth if worth > maxima[g] else maxima[g]


@kernel()
def _collect(
    similarity: Reals, prices: Floats, margin: float, limit: int, counts: Longs, start: int, stop: int
) -> Integers:
    m = similarity.shape[1]
    maxima = np.empty(min(_GROUPS, 1 + m // 8))
    columns = np.empty(4 * (stop - start) + m, np.int32)
    total = 0
    for i in range(start, stop):
        _maxima(similarity[i], prices, maxima)
        top = -np.inf
        for g in range(len(maxima)):
            top = max(top, maxima[g])
        floor = top - margin
        before = total
        if total + m > len(columns):
            longer = np.empty(2 * (total + m), np.int32)
            for e in range(total):
                longer[e] = columns[e]
            columns = longer
        for g in range(len(maxima)):
            if maxima[g] >= floor:
                for j in range(g, m, len(maxima)):
                    if similarity[i, j] - prices[j] >= floor:
                        columns[total] = j
                        total += 1
        counts[i] = total - before
        if total > limit:
            break
    return columns[:total]


@kernel()
def _any_unlisted(
    similarity: Reals, prices: Floats, floors: Floats, starts: Longs, columns: Integers, start: int, stop: int
) -> bool:
    m = similarity.shape[1]
    maxima = np.empty(min(_GROUPS, 1 + m // 8))
    listed = np.zeros(m, np.bool_)
    for i in range(start, stop):
        _maxima(similarity[i], prices, maxima)
        for e in range(starts[i], starts[i + 1]):
            listed[columns[e]] = True
        for g in range(len(maxima)):
            if maxima[g] > floors[i]:
                for j in range(g, m, len(maxima)):
                    if similarity[i, j] - prices[j] > floors[i] and not listed[j]:
                        return True
        for e in range(starts[i], starts[i + 1]):
            listed[columns[e]] = False
    return False


@kernel(fastmath={"reassoc", "contract"})
def _dot_products(
    first: tuple[Reals, Floats, Floats],
    second: tuple[Reals, Floats, Floats],
    starts: Longs,
    columns: Longs,
    values: Floats,
    start: int,
    stop: int,
) -> None:
    """Cosines in float64; every pair is summed in the same order, so that equal rows have equal cosines.

    A side is its rows (h, d), their scales (h,) and their lengths (h,).
    """
    rows_a, scales_a, lengths_a = first
    rows_b, scales_b, lengths_b = second
    for i in range(start, stop):
        a, scale_a = rows_a[i], scales_a[i]
        for e in range(starts[i], starts[i + 1]):
            b, scale_b = rows_b[columns[e]], scales_b[columns[e]]
            total = 0.0
            for t in range(len(a)):
                total += (a[t] * scale_a) * (b[t] * scale_b)
            values[e] = total / (lengths_a[i] * lengths_b[columns[e]])


@kernel()
def _settle(
    starts: Longs,
    columns: Integers,
    values: Floats,
    partners: Integers,
    prices: Floats,
    own: Floats,
    tops: Floats,
    tiny: float,
    sweeps: int,
) -> None:
    """Lower prices until each row's own column is its best, mending the assignment where that is impossible.

    The price that row i's column may have is bounded by each near column j: price[j] + value[own] - value[j]. Prices of
    columns without a row stay at zero. `cause[i]` is the edge that last lowered the price of row i's column.
    """
    n, m = len(partners), len(prices)
    owners = np.full(m, NONE, np.int32)
    cause = np.full(n, NONE, np.int64)
    mark = np.empty(n, np.int32)
    for i in range(n):
        owners[partners[i]] = i
        for e in range(starts[i], starts[i + 1]):
            if columns[e] == partners[i]:
                own[i] = values[e]
    changed = True
    while changed and sweeps > 0:
        changed = False
        sweeps -= 1
        for step in range(n):
            i = step if sweeps % 2 == 0 else n - 1 - step
            price = prices[partners[i]]
            for e in range(starts[i], starts[i + 1]):
                allowed = prices[columns[e]] + own[i] - values[e]
                if columns[e] != partners[i] and allowed < price - tiny:
                    price, cause[i], changed = allowed, e, True
            prices[partners[i]] = price
        if n < m:
            for i in range(n):
                if prices[partners[i]] < -tiny and _pass_on(i, columns, values, partners, prices, own, owners, cause):
                    cause[:], changed = NONE, True
                    break
        if sweeps % 8 == 0:  # a circle of causes is a cycle of rows that would gain by passing their columns round
            mark[:] = NONE
            for i in range(n):
                r = i
                while r != NONE and mark[r] == NONE:
                    mark[r] = i
                    r = owners[columns[cause[r]]] if cause[r] != NONE else NONE
                if r != NONE and mark[r] == i:
                    if not _pass_round(r, columns, values, partners, own, owners, cause, tiny):
                        sweeps = 0
                    cause[:] = NONE
                    break
    for i in range(n):
        if n < m:
            prices[partners[i]] = max(prices[partners[i]], 0.0)
    for i in range(n):
        tops[i] = own[i] - prices[partners[i]]
        for e in range(starts[i], starts[i + 1]):
            tops[i] = max(tops[i], values[e] - prices[columns[e]])


@kernel()
def _pass_on(
    i: int,
    columns: Integers,
    values: Floats,
    partners: Integers,
    prices: Floats,
    own: Floats,
    owners: Integers,
    cause: Longs,
) -> bool:
    """Leave row i's column over, and let each row on the chain of causes take the next one's, up to a free column."""
    r = i
    for _ in range(len(partners)):
        r = owners[columns[cause[r]]] if cause[r] != NONE else -2
        if r < 0:
            break
    if r != NONE:  # the chain has no free end
        return False
    prices[partners[i]] = 0.0
    owners[partners[i]] = NONE
    r = i
    while r != NONE:
        j = columns[cause[r]]
        following = owners[j]
        partners[r], own[r], owners[j] = j, values[cause[r]], r
        r = following
    return True


@kernel()
def _pass_round(
    first: int,
    columns: Integers,
    values: Floats,
    partners: Integers,
    own: Floats,
    owners: Integers,
    cause: Longs,
    tiny: float,
) -> bool:
    """Let each row of a circle take the column of the next; not if nothing but rounding is gained."""
    gain, length, r = 0.0, 0, first
    while length == 0 or r != first:
        gain += values[cause[r]] - own[r]
        length += 1
        r = owners[columns[cause[r]]]
    if gain <= length * tiny:
        return False
    for _ in range(length):
        j = columns[cause[r]]
        following = owners[j]
        partners[r], own[r], owners[j] = j, values[cause[r]], r
        r = following
    return True
