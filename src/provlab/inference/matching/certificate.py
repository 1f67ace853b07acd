"""Proof that an assignment is optimal, by prices, without knowing how it was found.

Put a price on each column. If every row owns the column that is worth most to it (similarity less price), and columns
without a row are free while no price is negative, then no other assignment has a larger total: this is linear
programming duality with complementary slackness. How far an assignment can be from the best is therefore at most the
sum of what the rows could gain at these prices, plus the prices of columns without a row. One pass over the whole
matrix finds that sum, and an error in the assignment or in the prices shows as a gap.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching.cosine import Assignment

Floats = NDArray[np.float64]

IN_CACHE = 2**17  # entries worked on at a time: with their prices taken off they stay in a processor's cache
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
    tops = np.concatenate([worth.max(axis=1) for worth in _worth(similarity, prices)])
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


def proved(
    partners: NDArray[np.integer], values: NDArray[np.float64], prices: NDArray[np.float64], gap: float
) -> Assignment:
    """Return an assignment with this gap: the column of each row, and the similarity of the two, ``(n,)`` each."""
    gap = max(gap, 0.0)
    return Assignment(partners.astype(np.int64), float(values.sum()), gap, gap <= tolerance(values, prices))


def above(
    similarity: NDArray[np.floating], prices: Floats, floors: Floats, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
    """Columns worth more to a row than its floor, row after row, and where each row starts; None if beyond `limit`."""
    starts, columns, first = [np.zeros(1, np.int64)], [np.empty(0, np.int32)], 0
    for worth in _worth(similarity, prices):
        rows, places = np.divmod(np.flatnonzero(worth > floors[first : first + len(worth), None]), worth.shape[1])
        first += len(worth)
        starts.append(starts[-1][-1] + np.bincount(rows, minlength=len(worth)).cumsum())
        columns.append(places.astype(np.int32))
        if starts[-1][-1] > limit:
            return None
    return np.concatenate(starts), np.concatenate(columns)


def _worth(similarity: NDArray[np.floating], prices: Floats) -> Iterator[Floats]:
    """Similarity less price, float64, of some rows at a time."""
    step = max(1, IN_CACHE // similarity.shape[1])
    return (similarity[first : first + step] - prices for first in range(0, len(similarity), step))
