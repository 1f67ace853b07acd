"""Proof that an assignment is optimal, by prices, without knowing how it was found.

Put a price on each column. If every row owns the column that is worth most to it (similarity less price), and columns
without a row are free while no price is negative, then no other assignment has a larger total: this is linear
programming duality with complementary slackness. How far an assignment can be from the best is therefore at most the
sum of what the rows could gain at these prices, plus the prices of columns without a row. One pass over the whole
matrix finds that sum, and an error in the assignment or in the prices shows as a gap.
"""

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching.compiled import Floats, Reals, kernel, over_rows, read_only

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
    n, m = similarity.shape
    missing = left_over(indices, prices)
    if not np.isfinite(missing):
        return missing
    tops = np.empty(n)
    shown = read_only(similarity)

    def some(start: int, stop: int) -> None:
        _most_worth(shown, prices, tops, start, stop)

    over_rows(some, n, n * m)
    own = similarity[np.arange(n), indices].astype(np.float64) - prices[indices]
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


@kernel(fastmath={"nnan", "nsz"})
def _most_worth(similarity: Reals, prices: Floats, tops: Floats, start: int, stop: int) -> None:
    """The worth of the best column to each row, by 64 maxima side by side, which the processor finds together."""
    m = similarity.shape[1]
    maxima = np.empty(min(64, m))
    for i in range(start, stop):
        maxima[:] = -np.inf
        for first in range(0, m, 64):
            part, less = similarity[i, first : first + 64], prices[first : first + 64]
            for g in range(len(part)):
                worth = part[g] - less[g]
                maxima[g] = worth if worth > maxima[g] else maxima[g]
        tops[i] = maxima[0]
        for g in range(1, len(maxima)):
            tops[i] = max(tops[i], maxima[g])
