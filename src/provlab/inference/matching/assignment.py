"""Exact assignment on short lists of candidates: bidding, then shortest augmenting paths.

Each row keeps its `k` best columns and a bound: no column outside the list is worth more to the row than that. A price
stands on each column, and what a column is worth to a row is its similarity less the price. Prices only rise, so a
bound stays true once it is found, and the row is read again only when its bound stands in the way. On similarities of
hidden units most rows are never read a second time, which is where the speed comes from: the textbook algorithm reads
all columns at each step.

1. *Bidding* (the augmenting row reduction of Jonker and Volgenant, 1987: an auction in which each bid goes to the
   limit). A row takes its best column and raises the price until its second best is as good; the row that owned the
   column bids next.
2. *Shortest augmenting paths* for the rows that are left, by Dijkstra's algorithm with a heap over the lists. A row's
   bound lies in the heap like a column: when it comes up first, the row is read again.
3. *Bids by steps*, where paths are long because many rows want the same columns, as rows do that share strong
   directions: an auction that goes a step further than the limit, by smaller and smaller steps (Bertsekas, 1988), and
   paths for what it leaves.

When both are done, every row has a column that is best at these prices, and columns without a row never got a price.
That proves the assignment optimal, and `provlab.inference.matching.certificate` checks it on the whole matrix, knowing
nothing of how it was found.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching.compiled import Floats, Integers, Reals, kernel, over_rows, read_only

LIST = 16  # candidates a row; 32 cost more to find than they save, from 2,000 to 14,000 columns,
SHORT_LIST = 8  # and these are enough for up to so many columns:
FEW_COLUMNS = 1024
GROUPS = 128  # groups of columns of which only the largest entry is looked at first, at most
BIDS = 32  # bids a row, at most, that go to the limit; a second reading of a row counts as READING bids
READING = 64
READING_ON_THE_WAY = 16  # columns, likewise
PATHS = 8  # columns a row, at most, that paths go through before bids by steps take over
NO_LIMIT = 2**62
STEPS = 0.02 * 10.0 ** -np.arange(8)  # of the similarities' spread; an assignment is worse by a step a row at most
BIDS_BY_STEPS = 10_000  # a row; no case came near it
NONE = -1


@dataclass(frozen=True, eq=False)
class Solution:
    """An assignment and the prices that prove it.

    Attributes
    ----------
    partners
        int32, shape (n,): column of each row.
    prices
        float64, shape (m,).
    """

    partners: Integers
    prices: Floats


class State(NamedTuple):  # numba keeps this name in its cache on disk; under another an old cache is unreadable
    """What the kernels work on: n rows, m columns, k candidates a row.

    Attributes
    ----------
    columns, values, bounds
        (n, k), (n, k) and (n,): candidates of each row, in no particular order, and their similarities; no column
        outside the list is worth more to the row than its bound.
    prices
        (m,).
    partners, owners
        (n,) and (m,): the column of each row and the row of each column, or `NONE`.
    worth
        (n,): the similarity of each row with its column.
    """

    columns: Integers
    values: Floats
    bounds: Floats
    prices: Floats
    partners: Integers
    owners: Integers
    worth: Floats


def solve(similarity: NDArray[np.floating]) -> Solution:
    """Find an assignment of largest total similarity.

    Parameters
    ----------
    similarity : ndarray
        Shape (n, m) with n <= m, float32 or float64, C-contiguous, finite. Its values count exactly.
    """
    similarity = read_only(similarity)
    n, m = similarity.shape
    k = min(LIST if m > FEW_COLUMNS else SHORT_LIST, m)
    columns, values, bounds = np.empty((n, k), np.int32), np.empty((n, k)), np.empty(n)
    over_rows(lambda start, stop: _fill(similarity, columns, values, bounds, start, stop), n, similarity.size)
    partners, owners, worth = np.full(n, NONE, np.int32), np.full(m, NONE, np.int32), np.empty(n)
    prices = np.zeros(m)
    state = State(columns, values, bounds, prices, partners, owners, worth)
    waiting = _bid(similarity, state, np.arange(n, dtype=np.int32), 0.0, BIDS * n)
    waiting = waiting[_augment(similarity, state, waiting, PATHS * n if n == m else NO_LIMIT) :]
    if len(waiting) > 0:
        spread = float(np.median(np.ptp(similarity[:: 1 + n // 64], axis=1)))
        for step in spread * STEPS[n * STEPS > 0.01]:
            _bid(similarity, state, _let_go(similarity, state, step), step, BIDS_BY_STEPS * n)
        _augment(similarity, state, _let_go(similarity, state, 0.0), NO_LIMIT)
    return Solution(partners, prices)


def mend(
    similarity: NDArray[np.floating],
    result: Solution,
    starts: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: Floats,
    *,
    cheap: float,
    tiny: float,
) -> Solution:
    """Find an assignment that is best for other values of a few edges, from one that is nearly best.

    Rows that would now rather have another of their edges let go, and paths lead on from there. Columns that are left
    over must all cost nothing, so each is given to a further row that likes all of them alike: two are enough for each,
    in a ring. These rows would also take a column that costs next to nothing.

    Parameters
    ----------
    similarity, result
        As of `solve`; the similarities are not read.
    starts, columns, values
        Edges, row after row: where each row starts, shape (n + 1,); columns; values. Each row has an edge.
    cheap
        The price up to which a column may come to be left over.
    tiny
        The gain for which no row lets go.
    """
    n, m = len(starts) - 1, len(result.prices)
    is_owned = np.bincount(result.partners, minlength=m) > 0
    spare = np.flatnonzero(~is_owned)
    rows, partners = np.repeat(np.arange(n), np.diff(starts)), result.partners.copy()
    if len(spare):
        owned = np.flatnonzero(is_owned & (result.prices <= cheap))
        ring = np.arange(len(spare))
        further = np.concatenate([ring, ring, np.arange(len(owned)) % len(spare)])
        rows = np.concatenate([rows, n + further])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        columns = np.concatenate([columns, spare, np.roll(spare, 1), owned])[order]
        values = np.concatenate([values, np.zeros(len(further))])[order]
        starts = np.searchsorted(rows, np.arange(m + 1))
        partners = np.concatenate([partners, spare])
    first = starts[:-1]
    places = rows, np.arange(len(rows)) - first[rows]
    width = int(np.diff(starts).max())
    state = State(  # a row with fewer edges has its first several times
        np.repeat(columns[first, None], width, axis=1).astype(np.int32), np.repeat(values[first, None], width, axis=1),
        np.full(m, -np.inf), result.prices.copy(), np.full(m, NONE, np.int32), np.full(m, NONE, np.int32), np.zeros(m),
    )  # fmt: skip
    state.columns[places], state.values[places] = columns, values
    own = columns == partners[rows]
    state.partners[rows[own]], state.owners[columns[own]], state.worth[rows[own]] = columns[own], rows[own], values[own]
    shown = read_only(similarity)
    _augment(shown, state, _let_go(shown, state, tiny), NO_LIMIT)
    prices = state.prices
    if len(spare):
        prices = np.maximum(prices - prices[state.partners[n:]].max(), 0.0)
    return Solution(state.partners[:n], prices)


# Kernels --------------------------------------------------------------------------------------------------------------

# NaN is refused before, and no result depends on the sign of a zero: with that, maxima are found 16 columns at a time.
_FAST = {"nnan", "nsz"}


@kernel(fastmath=_FAST)
def _group_maxima(row: Reals, prices: Floats, maxima: Floats) -> None:
    """Largest worth in each group of columns; group g is g and every column a number of groups further."""
    width = len(maxima)
    maxima[:] = -np.inf
    for first in range(0, len(row), width):
        part, less = row[first : first + width], prices[first : first + width]
        for g in range(len(part)):
            worth = part[g] - less[g]
            maxima[g] = worth if worth > maxima[g] else maxima[g]


@kernel()
def _choose(
    row: Reals, prices: Floats, maxima: Floats, columns: Integers, values: Floats, best: Floats, offset: int
) -> float:
    """The columns of most worth, and what the next could be worth at most.

    Each row begins its search at another group, lest rows with many equally good columns all list the same ones.

    The k-th largest of the maxima cannot exceed the k-th largest entry, so that groups below it are passed over.
    """
    k = len(columns)
    width = len(maxima)
    threshold = -np.inf
    if width >= k:
        filled = 0
        for g in range(width):
            filled = _insert(best, filled + 0, maxima[g])  # + 0: compiled once, not also for a literal
        threshold = best[k - 1]
    filled = 0
    for turn in range(width):
        g = (turn + offset) % width
        if maxima[g] < threshold:
            continue
        for j in range(g, len(row), width):
            worth = row[j] - prices[j]
            if worth < threshold or (filled == k and worth <= best[k - 1]):
                continue
            place = filled if filled < k else k - 1
            filled = min(filled + 1, k)
            while place > 0 and best[place - 1] < worth:
                best[place] = best[place - 1]
                columns[place] = columns[place - 1]
                values[place] = values[place - 1]
                place -= 1
            best[place] = worth
            columns[place] = j
            values[place] = row[j]
    return best[k - 1] if len(row) > k else -np.inf


@kernel()
def _insert(best: Floats, filled: int, value: float) -> int:
    """Keep the largest values, in falling order; returns how many there are."""
    if filled < len(best):
        place = filled
        filled += 1
    elif value > best[-1]:
        place = filled - 1
    else:
        return filled
    while place > 0 and best[place - 1] < value:
        best[place] = best[place - 1]
        place -= 1
    best[place] = value
    return filled


@kernel()
def _read_again(
    row: Reals, prices: Floats, maxima: Floats, columns: Integers, values: Floats, best: Floats, offset: int
) -> float:
    """A row's list at the present prices, and its bound.

    Callers give `offset` + 0: the sum is of 64 bits whatever the number was, and one kernel is compiled, not two.
    """
    _group_maxima(row, prices, maxima)
    return _choose(row, prices, maxima, columns, values, best, offset)


@kernel()
def _fill(similarity: Reals, columns: Integers, values: Floats, bounds: Floats, start: int, stop: int) -> None:
    """Lists of the rows from `start` to `stop`, when nothing has a price."""
    m = similarity.shape[1]
    maxima, best, prices = np.empty(min(GROUPS, 1 + m // 8)), np.empty(columns.shape[1]), np.zeros(m)
    for i in range(start, stop):
        bounds[i] = _read_again(similarity[i], prices, maxima, columns[i], values[i], best, i + 0)


@kernel()
def _bid(similarity: Reals, state: State, rows: Integers, step: float, budget: int) -> Integers:
    """Let `rows` bid; returns those that wait for a path.

    With a `step` above zero each bid goes that much further, so that no two rows can outbid each other in ever smaller
    steps; what is then assigned is worth to its row at most `step` less than the best.
    """
    columns, values, bounds, prices, partners, owners, worth = state
    n, m = similarity.shape
    k = columns.shape[1]
    maxima, best = np.empty(min(GROUPS, 1 + m // 8)), np.empty(k)
    waiting, n_waiting = np.empty(n, np.int32), 0
    for first in rows:
        i = first
        while i != NONE:
            budget -= 1
            top, two, e_one, e_two = _two_best(columns[i], values[i], prices)
            if top < bounds[i] or (step > 0.0 and two < bounds[i]):
                bounds[i] = _read_again(similarity[i], prices, maxima, columns[i], values[i], best, i + 0)
                budget -= READING
                top, two, e_one, e_two = _two_best(columns[i], values[i], prices)
            if two < bounds[i]:  # the second best may be outside the list: raise no further than is known
                two, e_two = bounds[i], NONE
            j = columns[i, e_one]
            tied = top + step <= two
            if tied and owners[j] != NONE and e_two != NONE and owners[columns[i, e_two]] == NONE:
                e_one = e_two  # as good, and free
                j = columns[i, e_one]
            previous = owners[j]
            if previous != NONE and (tied or budget < 0):
                waiting[n_waiting] = i
                n_waiting += 1
                break
            owners[j], partners[i], worth[i] = i, j, values[i, e_one]
            if two > -np.inf:
                prices[j] += max(top - two + step, 0.0)
            if previous != NONE:
                partners[previous] = NONE
            i = previous
    return waiting[:n_waiting]


@kernel()
def _let_go(similarity: Reals, state: State, step: float) -> Integers:
    """Take its column from each row that another would be worth more than `step` more; returns all rows without one."""
    columns, values, bounds, prices, partners, owners, worth = state
    n, m = len(partners), len(prices)
    maxima, best = np.empty(min(GROUPS, 1 + m // 8)), np.empty(columns.shape[1])
    without, n_without = np.empty(n, np.int32), 0
    for i in range(n):
        if partners[i] != NONE:
            own = worth[i] - prices[partners[i]]
            top = _two_best(columns[i], values[i], prices)[0]
            if top < bounds[i] and bounds[i] - own > step:
                bounds[i] = _read_again(similarity[i], prices, maxima, columns[i], values[i], best, i)
                top = best[0]
            if top - own > step:
                owners[partners[i]] = NONE
                partners[i] = NONE
        if partners[i] == NONE:
            without[n_without] = i
            n_without += 1
    return without[:n_without]


@kernel()
def _two_best(columns: Integers, values: Floats, prices: Floats) -> tuple[float, float, int, int]:
    top, two, e_one, e_two = -np.inf, -np.inf, NONE, NONE
    for e in range(len(columns)):
        worth = values[e] - prices[columns[e]]
        if worth > top:
            top, two, e_one, e_two = worth, top, e, e_one
        elif worth > two:
            two, e_two = worth, e
    return top, two, e_one, e_two


@kernel()
def _augment(similarity: Reals, state: State, waiting: Integers, budget: int) -> int:
    """Give each waiting row a column along the cheapest path of exchanges, and raise the prices along the way.

    A path begins at the waiting row, which takes a column; its owner takes another, and so on, up to a column that is
    free. At these prices an exchange loses the difference between the best column of its row and the new one. A loss is
    never negative, so Dijkstra's algorithm finds the path that loses least. Returns how many rows were served before
    the budget was spent.
    """
    columns, values, bounds, prices, partners, owners, worth = state
    m = len(prices)
    k = columns.shape[1]
    maxima, best = np.empty(min(GROUPS, 1 + m // 8)), np.empty(k)
    # (m,) each: what the waiting row loses if column j is freed for it, the row that then takes j, and its similarity
    far, before, new_worth = np.full(m, np.inf), np.empty(m, np.int32), np.empty(m)
    settled = np.zeros(m, np.bool_)  # columns whose loss is final
    # columns that were reached and columns that were settled, in order: what must be cleared after each path
    touched, order = np.empty(m, np.int32), np.empty(m, np.int32)
    for served in range(len(waiting)):
        if budget < 0:
            return served
        start = waiting[served]
        n_touched, n_order = 0, 0
        nearest, goal = np.inf, NONE  # the free column that is reached with the smallest loss so far
        # the row whose columns are looked at, the loss on the way to it, and whether beyond its list
        row, distance, reading = start, 0.0, False
        top = _two_best(columns[row], values[row], prices)[0]  # what its best column is worth to the row
        if top < bounds[row]:  # the best may be outside the list
            bounds[row] = _read_again(similarity[row], prices, maxima, columns[row], values[row], best, row + 0)
            top = _two_best(columns[row], values[row], prices)[0]
        start_top = top
        # smallest loss first: columns, and as -1 - row the rows whose bound could hide something nearer
        heap: list[Any] = [(np.inf, m)]
        while True:
            if reading:
                budget -= READING_ON_THE_WAY
                bounds[row] = _read_again(similarity[row], prices, maxima, columns[row], values[row], best, row + 0)
            # a list is gone through as one group of k columns, a row that was read again group by group
            for g in range(len(maxima) if reading else 1):
                if reading and distance + (top - maxima[g]) >= nearest:
                    continue
                stop = (m - g + len(maxima) - 1) // len(maxima) if reading else k
                for e in range(stop):
                    j = g + e * len(maxima) if reading else columns[row, e]
                    value = np.float64(similarity[row, j]) if reading else values[row, e]
                    if settled[j]:
                        continue
                    there = distance + max(top - (value - prices[j]), 0.0)
                    if there >= nearest or there >= far[j]:
                        continue
                    if far[j] == np.inf:
                        touched[n_touched] = j
                        n_touched += 1
                    far[j], before[j], new_worth[j] = there, row, value
                    if owners[j] == NONE:
                        nearest, goal = there, j
                    else:
                        heappush(heap, (there, np.int64(j)))  # an old entry stays
            if not reading:  # no column outside the list can be nearer than the bound says: look there when it comes up
                there = distance + max(top - bounds[row], 0.0)
                if there < nearest:
                    heappush(heap, (there, np.int64(-1 - row)))
            # take what is nearest off the heap: the next row to look at, until the free column is the nearest
            row = NONE
            while heap[0][0] < nearest:
                key, item = heappop(heap)
                if item >= 0:
                    if settled[item] or key > far[item]:  # an old entry
                        continue
                    settled[item] = True
                    budget -= 1
                    order[n_order] = item
                    n_order += 1
                    row, distance, reading = owners[item], key, False
                    top = worth[row] - prices[item]  # its own column is the best it can have
                else:
                    row, reading = -1 - item, True
                    if row == start:
                        distance, top = 0.0, start_top
                    else:
                        distance, top = far[partners[row]], worth[row] - prices[partners[row]]
                break
            if row == NONE:
                break
        # what is nearer than the goal becomes dearer by the difference: then every row on the way has its best column
        for t in range(n_order):
            prices[order[t]] += nearest - far[order[t]]
            settled[order[t]] = False
        for t in range(n_touched):
            far[touched[t]] = np.inf
        # back along the path: each row takes the column that it was reached for, and leaves its own to the one before
        j = goal
        while j != NONE:
            i = before[j]
            previous = partners[i]
            partners[i], owners[j], worth[i] = j, i, new_worth[j]
            j = previous
    return len(waiting)
