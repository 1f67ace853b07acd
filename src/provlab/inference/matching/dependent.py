"""Pairs that depend on one another: the matching without most of the product.

If the best columns of all rows are distinct, they are the best assignment, since no row could gain. So it is with a
model and its fine-tune, whose rows are each other's nearest by far. Then most of the product need not be computed.
Split the columns of both matrices into a few of high energy and the rest; by the inequality of Cauchy and Schwarz

    cos(x, y) <= <x, y> over the few + |x| |y| over the rest.

Where this bound is below a cosine that the row is known to have, the pair cannot matter. All other cosines are computed
in float64. A few rows, looked at first, tell how many columns are worth taking, and whether to try at all.
"""

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching.compiled import Floats
from provlab.inference.matching.cosine import UnitRows, blocks, error_bound, multiplied
from provlab.inference.matching.polish import edge_cosines

PROBED = 48  # rows looked at first
SHARES = (1 / 16, 1 / 8, 1 / 4, 3 / 8)  # of the columns that are taken
SINGLE = 12  # a cosine computed alone costs as much as so many in a product
SAVING = 0.6  # of the whole product, at most, or it is not tried
ROWS = 512  # of one block of the product
_ROUNDED = 2.0**-22  # twice what float32 entries add to the squared length of a row of length one, at most

Part = tuple[NDArray[np.float32], NDArray[np.float32]]  # rows over the few columns, and their lengths over the rest


def distinct_best(
    first: UnitRows, second: UnitRows, *, order: NDArray[np.integer] | None = None, unsigned: bool = False
) -> tuple[NDArray[np.int64], Floats] | None:
    """The best columns of all rows if they are distinct, and found with less than the whole product.

    Parameters
    ----------
    first, second, order, unsigned
        As for `provlab.inference.matching.exact.best_by_cosine`.

    Returns
    -------
    tuple or None
        Columns and float64 cosines, shape (n,) each: an optimal assignment, as no row has a larger cosine at all. None
        where columns are wanted twice, or where the product would not be much smaller.
    """
    n, m = len(first), len(second)
    few = columns_worth_taking(first, second, unsigned) if n >= 2 * PROBED else None
    if few is None:
        return None
    order = np.arange(m) if order is None else order
    (left, left_rest), (right, right_rest) = _split(first.unit, few), _split(second.unit, few)
    right, right_rest = right[order], right_rest[order]
    error = 2 * error_bound(first.shape[1])
    columns, values = np.empty(n, np.int64), np.empty(n)

    def exact(rows: NDArray[np.int64], partners: NDArray[np.int64]) -> Floats:
        cosines = edge_cosines(first, second, np.searchsorted(rows, np.arange(n + 1)), order[partners])
        return np.abs(cosines) if unsigned else cosines

    for block in blocks(n, ROWS):
        here = np.arange(block.start, block.stop)
        bounds = _bounds((left[block], left_rest[block]), (right, right_rest), unsigned)
        known = exact(here, bounds.argmax(axis=1))  # what the bound likes best is a good first guess
        rows, partners = np.nonzero(bounds + error >= known[:, None])
        if len(rows) > SAVING / SINGLE * bounds.size:
            return None
        cosines = exact(here[rows], partners)
        best = np.lexsort((-cosines, rows))[np.searchsorted(rows, np.arange(len(here)))]
        columns[block], values[block] = partners[best], cosines[best]
        if _twice(columns[: block.stop]):
            return None
    return columns, values


def columns_worth_taking(first: UnitRows, second: UnitRows, unsigned: bool) -> NDArray[np.int64] | None:
    """Those columns of highest energy for which the product and what it leaves open cost least."""
    probed = np.linspace(0, len(first) - 1, PROBED).astype(np.int64)
    cosines = first.unit[probed] @ second.unit.T  # (probed, d) @ (d, m)
    if unsigned:
        np.abs(cosines, out=cosines)
    if _twice(cosines.argmax(axis=1)):
        return None
    energy = sum(np.einsum("ij,ij->j", side.unit, side.unit) for side in (first, second))  # (d,)
    ranked = np.argsort(-energy, kind="stable")
    costs = {}
    for share in SHARES:
        few = np.sort(ranked[: int(share * len(ranked))])
        bounds = _bounds(_split(first.unit[probed], few), _split(second.unit, few), unsigned)
        costs[share + SINGLE * float((bounds >= cosines.max(axis=1)[:, None]).mean())] = few
    cheapest = min(costs)
    return costs[cheapest] if cheapest < SAVING else None


def _split(unit: NDArray[np.float32], few: NDArray[np.int64]) -> Part:
    part = np.take(unit, few, axis=1)
    # (n,): what the other columns hold, at most; entries were rounded, and a root makes the error of a small rest large
    rest = 1 + _ROUNDED - np.einsum("ij,ij->i", part, part, dtype=np.float64)
    return part, np.sqrt(rest.clip(0)).astype(np.float32)


def _bounds(left: Part, right: Part, unsigned: bool) -> NDArray[np.float32]:
    """What the cosine of each pair of rows cannot pass."""
    products = multiplied(left[0], right[0])  # (n, few), (m, few) -> (n, m)
    if unsigned:
        np.abs(products, out=products)
    return products + np.outer(left[1], right[1])


def _twice(columns: NDArray[np.integer]) -> bool:
    return len(np.unique(columns)) < len(columns)
