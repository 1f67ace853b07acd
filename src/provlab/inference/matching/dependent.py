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

from provlab.inference.matching.compiled import Floats, Longs, Reals, kernel, over_rows, read_only
from provlab.inference.matching.cosine import UnitRows, blocks
from provlab.inference.matching.polish import error_bound, plain

PROBED = 48  # rows looked at first
PARTS = 32  # the columns are taken by such parts,
MOST = 12  # at most so many of them
SINGLE = 12  # a cosine computed alone costs as much as so many in a product
SAVING = 0.6  # of the whole product, at most, or it is not tried
ROWS = 512  # of one block of the product


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
    n, columns = first.shape
    m = len(second)
    if n < 2 * PROBED:
        return None
    few = _columns_worth_taking(first, second, unsigned)
    if few is None:
        return None
    left, left_rest = _split(first, few)
    right, right_rest = _split(second, few)
    if order is not None:
        right, right_rest = right[order], right_rest[order]
    rows_of = np.arange(m) if order is None else order.astype(np.int64)
    left_side, right_side = ((read_only(plain(side.rows)), side.scales, side.lengths) for side in (first, second))
    rests, result = (left_rest, right_rest), (np.empty(n, np.int64), np.empty(n))
    error = 2 * error_bound(columns)
    allowed = int(SAVING * m / SINGLE)  # single cosines a row
    for start in range(0, n, ROWS):
        products = left[start : start + ROWS] @ right.T
        if unsigned:
            np.abs(products, out=products)

        def some(low: int, high: int, start: int = start, products: NDArray[np.float32] = products) -> int:
            budget = allowed * (high - low)
            return _best_of_rows(
                products, rests, error, unsigned, left_side, right_side, rows_of, start, low, high, budget, result
            )

        if min(over_rows(some, len(products), products.size)) < 0 or _twice(result[0][: start + len(products)]):
            return None
    return result


def _columns_worth_taking(first: UnitRows, second: UnitRows, unsigned: bool) -> NDArray[np.int64] | None:
    """Those columns of highest energy for which the product and what it leaves open cost least."""
    n, columns = first.shape
    probed = np.linspace(0, n - 1, PROBED).astype(np.int64)
    rows = first.some(probed)
    cosines = np.empty((PROBED, len(second)), np.float32)
    for some in blocks(len(second), ROWS):
        cosines[:, some] = rows @ second.some(some).T
    if unsigned:
        np.abs(cosines, out=cosines)
    tops = cosines.max(axis=1)
    if np.median(tops) < 0.5 or _twice(cosines.argmax(axis=1)):
        return None
    energy = np.zeros(columns)
    for side in (first, second):
        for some in blocks(len(side), ROWS):
            unit = side.some(some)
            energy += np.einsum("ij,ij->j", unit, unit)
    ranked = np.argsort(-energy, kind="stable")
    cheapest, few = SAVING, None
    products = np.zeros((PROBED, len(second)), np.float32)
    left_rest, right_rest = np.ones(PROBED), np.ones(len(second))
    step = max(1, columns // PARTS)
    for part in range(min(MOST, columns // step)):
        chosen = ranked[part * step : (part + 1) * step]
        left, right = rows[:, chosen], second.columns(chosen)
        products += left @ right.T
        left_rest -= np.einsum("ij,ij->i", left, left)
        right_rest -= np.einsum("ij,ij->i", right, right)
        bound = np.abs(products) if unsigned else products
        bound = bound + np.sqrt(np.outer(left_rest.clip(0), right_rest.clip(0)))
        open_share = float((bound >= tops[:, None]).mean())
        cost = (part + 1) * step / columns + SINGLE * open_share
        if cost < cheapest:
            cheapest, few = cost, ranked[: (part + 1) * step]
        elif few is not None and (part + 1) * step / columns > cheapest:
            break
    return None if few is None else np.sort(few)


def _split(side: UnitRows, few: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The few columns, and the length of each row over the rest."""
    part = side.columns(few)
    rest = 1 - np.einsum("ij,ij->i", part, part, dtype=np.float64)
    return part, np.sqrt(rest.clip(0)).astype(np.float32)


def _twice(columns: NDArray[np.integer]) -> bool:
    return len(np.unique(columns)) < len(columns)


@kernel(fastmath={"nnan", "nsz"})
def _bounds(products: Reals, rest: float, rests: Reals, maxima: Reals) -> None:
    """Largest bound of each group of columns."""
    width = len(maxima)
    maxima[:] = -np.inf
    for first in range(0, len(products), width):
        part, others = products[first : first + width], rests[first : first + width]
        for g in range(len(part)):
            bound = part[g] + rest * others[g]
            maxima[g] = bound if bound > maxima[g] else maxima[g]


@kernel(fastmath={"reassoc", "contract"})
def _cosine(a: Reals, b: Reals, scale_a: float, scale_b: float, length_a: float, length_b: float) -> float:
    total = 0.0
    for t in range(len(a)):
        total += (a[t] * scale_a) * (b[t] * scale_b)
    return total / (length_a * length_b)


@kernel()
def _best_of_rows(
    products: Reals,
    rests: tuple[Reals, Reals],
    error: float,
    unsigned: bool,
    first: tuple[Reals, Floats, Floats],
    second: tuple[Reals, Floats, Floats],
    rows_of: Longs,
    start: int,
    low: int,
    high: int,
    budget: int,
    result: tuple[Longs, Floats],
) -> int:
    """Best column of each row; returns what is left of the budget of single cosines, below zero if it was passed.

    Parameters
    ----------
    products
        (some, m): products over the few columns, of rows from `start` on; those from `low` to `high` are looked at.
    rests
        (n,) and (m,): lengths over the other columns.
    error
        By which a bound may be short in float32.
    first, second
        Rows (h, d), their scales (h,) and their lengths (h,).
    rows_of
        (m,): the row of `second` that a column stands for.
    found
        (n,) each, written here: best columns and their cosines.
    """
    left_rest, right_rest = rests
    rows_a, scales_a, lengths_a = first
    rows_b, scales_b, lengths_b = second
    best, values = result
    m = products.shape[1]
    maxima = np.empty(min(128, m), np.float32)  # of group g, which is g and every column a number of groups further
    for p in range(low, high):
        i = start + p
        rest = left_rest[i]
        _bounds(products[p], rest, right_rest, maxima)
        g = int(np.argmax(maxima))
        top, column = -np.inf, -1
        for j in range(g, m, len(maxima)):  # what the bound likes best is a good first guess
            if products[p, j] + rest * right_rest[j] >= maxima[g]:
                column = j
                break
        for turn in range(-1, len(maxima)):  # the guess first, then group by group what its cosine leaves possible
            g = turn if turn >= 0 else column % len(maxima)
            if maxima[g] + error < top:
                continue
            for j in range(g, m, len(maxima)):
                if (turn < 0 and j != column) or (turn >= 0 and j == column):
                    continue
                if products[p, j] + rest * right_rest[j] + error < top:
                    continue
                b = rows_of[j]
                value = _cosine(rows_a[i], rows_b[b], scales_a[i], scales_b[b], lengths_a[i], lengths_b[b])
                value = abs(value) if unsigned else value
                budget -= 1
                if value > top:
                    top, best[i], values[i] = value, j, value
        if budget < 0:
            return budget
    return budget
