"""Proof that an assignment is optimal, by prices, without knowing how it was found.

Put a price on each column. If every row owns the column that is worth most to it (similarity less price), and columns
without a row are free while no price is negative, then no other assignment has a larger total: this is linear
programming duality with complementary slackness. How far an assignment can be from the best is therefore at most the
sum of what the rows could gain at these prices, plus the prices of columns without a row. One pass over the whole
matrix finds that sum, and an error in the assignment or in the prices shows as a gap.
"""

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching.compiled import Floats, Integers, Longs, Reals, kernel, over_rows, read_only

GROUPS = 64  # of columns, of which the largest worth is looked at first
ROUNDING = 64 * 2.0**-53  # of a row's gain, relative to the largest price or similarity


def gap(similarity: NDArray[np.floating], indices: NDArray[np.integer], prices: NDArray[np.float64]) -> float:
    """How much larger another assignment could be, at most.

    Parameters
    ----------
    similarity
        Shape (n, m) with n <= m, float32 or float64, C-contiguous.
    indices
        Shape (n,): column of each row.
    prices
        Shape (m,), float64; any prices, but a gap near zero needs the right ones.

    Returns
    -------
    float
        In the units of the similarities; infinite if `indices` is no assignment, or a price is negative where
        columns are left over.
    """
    missing = left_over(indices, prices)
    if not np.isfinite(missing):
        return missing
    tops, shown = np.empty(len(similarity)), read_only(similarity)
    over_rows(lambda start, stop: _most_worth(shown, prices, tops, start, stop), len(similarity), similarity.size)
    own = similarity[np.arange(len(indices)), indices].astype(np.float64) - prices[indices]
    return float((tops - own).sum() + missing)


def left_over(indices: NDArray[np.integer], prices: NDArray[np.float64]) -> float:
    """Prices of the columns without a row; infinite where no proof can begin."""
    n, m = len(indices), len(prices)
    if n and (indices.min() < 0 or indices.max() >= m):
        return float("inf")
    owned = np.zeros(m, dtype=bool)
    owned[indices] = True
    if owned.sum() != n or not np.isfinite(prices).all() or (n < m and prices.min() < 0):
        return float("inf")
    return float(prices[~owned].sum())


def tolerance(values: NDArray[np.floating], prices: NDArray[np.float64]) -> float:
    """Largest gap that rounding in float64 can leave, for as many rows as values, where the true gap is zero."""
    return ROUNDING * len(values) * float(max(np.abs(values).max(initial=0.0), np.abs(prices).max(initial=0.0)))


def above(
    similarity: NDArray[np.floating], prices: Floats, floors: Floats, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
    """Columns worth more to a row than its floor, row after row, and where each row starts; None if beyond `limit`."""
    counts, shown = np.zeros(len(similarity), np.int64), read_only(similarity)

    def some(start: int, stop: int) -> NDArray[np.int32]:
        return _above(shown, prices, floors, limit, counts, start, stop)

    columns = np.concatenate(over_rows(some, len(similarity), similarity.size))
    return (np.concatenate([[0], np.cumsum(counts)]), columns) if len(columns) <= limit else None


@kernel(fastmath={"nnan", "nsz"})
def _group_maxima(row: Reals, prices: Floats, maxima: Floats) -> None:
    """Largest worth in each group of columns, which the processor finds side by side."""
    width = len(maxima)
    maxima[:] = -np.inf
    for first in range(0, len(row), width):
        part, less = row[first : first + width], prices[first : first + width]
        for g in range(len(part)):
            worth = part[g] - less[g]
            maxima[g] = worth if worth > maxima[g] else maxima[g]


@kernel()
def _most_worth(similarity: Reals, prices: Floats, tops: Floats, start: int, stop: int) -> None:
    maxima = np.empty(min(GROUPS, similarity.shape[1]))
    for i in range(start, stop):
        _group_maxima(similarity[i], prices, maxima)
        tops[i] = maxima[0]
        for g in range(1, len(maxima)):
            tops[i] = max(tops[i], maxima[g])


@kernel()
def _above(
    similarity: Reals, prices: Floats, floors: Floats, limit: int, counts: Longs, start: int, stop: int
) -> Integers:
    m = similarity.shape[1]
    maxima = np.empty(min(GROUPS, m))
    columns = np.empty(4 * (stop - start) + m, np.int32)
    total = 0
    for i in range(start, stop):
        _group_maxima(similarity[i], prices, maxima)
        before = total
        if total + m > len(columns):
            longer = np.empty(2 * (total + m), np.int32)
            for e in range(total):
                longer[e] = columns[e]
            columns = longer
        for g in range(len(maxima)):
            if maxima[g] > floors[i]:
                for j in range(g, m, len(maxima)):
                    if similarity[i, j] - prices[j] > floors[i]:
                        columns[total] = j
                        total += 1
        counts[i] = total - before
        if total > limit:
            break
    return columns[:total]
