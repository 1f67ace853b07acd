"""From an assignment that is best for float32 cosines to one that is best for float64 cosines.

A float32 cosine of unit rows of d entries is within (d + 16) 2^-24 of the true one, and nearer where longer rows are
summed by parts (`cosine.multiplied`). At the prices that prove the
float32 assignment, only edges within a few times that of their row's best can matter: about one a row beside the one
that is assigned. Their cosines are computed again in float64, from the rows as they were given, and the assignment is
mended on these edges. All others stay below their row's best, if prices have changed by less than the margin leaves.
"""

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching.assignment import Solution, mend
from provlab.inference.matching.certificate import ROUNDING, above, left_over, proved
from provlab.inference.matching.compiled import Floats, Longs, Reals, kernel, over_rows, read_only
from provlab.inference.matching.cosine import Assignment, UnitRows, error_bound

EDGES = 64  # near edges a row, on average, beyond which the whole product in float64 is cheaper ...
FEW_EDGES = 2**17  # ... unless they are so few anyway
WIDENINGS = 3


def polish(
    similarity: NDArray[np.float32],
    result: Solution,
    first: UnitRows,
    second: UnitRows,
    *,
    order: NDArray[np.integer] | None = None,
    unsigned: bool = False,
) -> Assignment | None:
    """Make an assignment of float32 cosines exact for float64 cosines.

    Parameters
    ----------
    similarity
        Shape (n, m) with n <= m: the float32 cosines.
    result
        Their best assignment.
    first, second
        The rows that were compared.
    order
        Column j of `similarity` is row ``order[j]`` of `second`; row j if None.
    unsigned
        The similarities are absolute values of cosines.

    Returns
    -------
    Assignment or None
        None where so many edges are alike that the whole matrix had better be computed in float64.
    """
    error = error_bound(first.shape[1])
    n, m = similarity.shape
    limit = max(FEW_EDGES, EDGES * n)
    worth = similarity[np.arange(n), result.partners] - result.prices[result.partners]  # the best each row can have
    for widening in range(WIDENINGS):
        margin = 3 * error * 4**widening
        edges = above(similarity, result.prices, worth - margin, limit)
        if edges is None or np.diff(edges[0]).max() * m > limit:
            return None
        starts, columns = edges
        values = edge_cosines(first, second, starts, columns if order is None else order[columns])
        if unsigned:
            values = np.abs(values)
        tiny = ROUNDING / 8 * max(np.abs(values).max(), result.prices.max())
        mended = mend(similarity, result, starts, columns, values, cheap=margin, tiny=tiny)
        best = np.maximum.reduceat(values - mended.prices[columns], starts[:-1])
        if (best >= worth - margin + error + (result.prices - mended.prices).max()).all():
            own = values[np.repeat(mended.partners, np.diff(starts)) == columns]
            gap = float((best - (own - mended.prices[mended.partners])).sum())
            gap += left_over(mended.partners, mended.prices)
            return proved(mended.partners, own, mended.prices, gap)
    return None


def edge_cosines(first: UnitRows, second: UnitRows, starts: NDArray[np.int64], columns: NDArray[np.integer]) -> Floats:
    """Cosines in float64 of some pairs of rows, row after row of `first`: where each starts, and rows of `second`."""
    values = np.empty(len(columns))
    sides = [(read_only(_plain(side.rows)), side.scales, side.lengths) for side in (first, second)]
    partners = columns.astype(np.int64)

    def some(start: int, stop: int) -> None:
        _dot_products(sides[0], sides[1], starts, partners, values, start, stop)

    over_rows(some, len(starts) - 1, len(columns) * first.shape[1])
    return values


def _plain(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    """Rows as the kernel takes them: float32 or float64, contiguous."""
    return np.ascontiguousarray(rows, rows.dtype if rows.dtype in (np.float32, np.float64) else np.float64)


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
