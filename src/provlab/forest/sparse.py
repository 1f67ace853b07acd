"""Merges that keep some numbers of each change and none of others: TIES and DARE, read number by number.

With a base and two models made from it, s and t their changes and u that of the merge, each number of u is one of: 0;
p s; q t; both together (DARE: p s + q t; TIES, where they agree in sign: (p s + q t) / 2). DARE drops numbers at random
and scales the rest up (arXiv 2311.03099); TIES drops the smallest and takes the mean of those that agree (arXiv
2306.01708). Training leaves no such numbers: each has its own ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from provlab.forest.measure import spacing
from provlab.forest.merges import Distances, Merge
from provlab.statistics.model import Model

NEEDED = 0.95  # of the numbers must be explained
ALONE = 0.01  # of the numbers, at least, must be explained by one change and by no other
SHARPEST = 0.004  # width of a bin of ln ratios
TOLERANCE = 4.0  # roundings
BASES = 5  # nearest models that are tried as bases, and changes that are most like its own
TRIES = 10  # bases with two models, the likeliest first, that are read for each model
CHANGE = 0.1  # least factor of either change, over all numbers
MOST = 2**20  # numbers read of one tensor
ROOM = 5.0  # as far as that must two explanations of a number be apart, for it to be counted as told
TIES, DARE = "TIES", "DARE"
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Told:
    """How a merge was made: `method`, the factors of both changes, and the shares of numbers.

    `dropped` are 0 though both changes are not; `explained` is the share that fits.
    """

    method: str
    factors: tuple[float, float]
    dropped: float
    explained: float


def mode(ratios: Numbers) -> float | None:
    """The ratio that comes up most often, among positive ones; None without a peak."""
    logs = np.log(ratios[(ratios > 0.05) & (ratios < 20)])
    if len(logs) < 20:
        return None
    counts, edges = np.histogram(logs, bins=np.arange(-3.0, 3.0 + SHARPEST, SHARPEST))
    k = int(np.argmax(counts))
    near = logs[(logs >= edges[max(k - 1, 0)]) & (logs <= edges[min(k + 2, len(edges) - 1)])]
    # a peak has many times what a smooth curve of this height would have there
    if len(near) < 0.005 * len(ratios) or len(near) < 4 * counts[max(k - 25, 0) : k + 26].mean() * 3:
        return None
    return float(np.exp(np.median(near)))


def explain(x: Numbers, base: Numbers, first: Numbers, second: Numbers, rounding: Numbers) -> Told | None:
    """Explain a merge by two models and their base.

    Parameters
    ----------
    x, base, first, second
        ``(n,)``: the same numbers of the merge, the base and two models made from it.
    rounding
        ``(n,)``: standard deviation of the rounding of x's file and those of the others.

    Returns
    -------
    Told or None
        None where training is the better explanation.
    """
    u, s, t = x - base, first - base, second - base
    some = (np.abs(s) > ROOM * rounding) & (np.abs(t) > ROOM * rounding) & (np.abs(s - t) > ROOM * rounding)
    u, s, t, near = u[some], s[some], t[some], TOLERANCE * rounding[some]
    zero = np.abs(u) <= near
    if len(u) < 100 or zero.mean() < ALONE:
        return None
    moved = ~zero
    p, q = mode(u[moved] / s[moved]), mode(u[moved] / t[moved])
    if p is None or q is None:
        return None
    fits = {
        "first": np.abs(u - p * s) <= near * max(1, p),
        "second": np.abs(u - q * t) <= near * max(1, q),
        "sum": np.abs(u - p * s - q * t) <= near * max(1, p + q),
        "mean": np.abs(u - (p * s + q * t) / 2) <= near * max(1, p + q),
    }
    explained = zero | np.logical_or.reduce(list(fits.values()))
    only = [fits[name] & ~zero & ~fits[other] for name, other in (("first", "second"), ("second", "first"))]
    if explained.mean() < NEEDED or min(part.mean() for part in only) < ALONE:
        return None
    alone = zero | fits["first"] | fits["second"]
    both = [int((fits[name] & ~fits[other] & ~alone).sum()) for name, other in (("mean", "sum"), ("sum", "mean"))]
    method = TIES if both[0] > both[1] else DARE
    return Told(method, (p, q), float(zero.mean()), float(explained.mean()))


def find(opened: Sequence[Model], distances: Distances, nodes: Sequence[int]) -> dict[int, Merge]:
    """Find TIES and DARE merges among models, none of which is a merge of another kind.

    For each model, those bases and pairs of models come first whose two changes explain most of its own, as squared
    distances tell, among its nearest. Then two tensors of each are read.
    """
    merges: dict[int, Merge] = {}
    total = distances.total()
    for x in nodes:
        others = [i for i in np.argsort(total[x], kind="stable").tolist() if i != x and i in nodes]
        tries = []
        for base in others[:BASES]:
            # cosines of x - base with the others' changes: the two that were merged are among the largest
            alike = {i: -distances.cosine(x, base, i) for i in others if i != base}
            some = sorted(i for i in sorted(alike, key=alike.__getitem__)[:BASES])
            tries += [(left, base, i, j) for i, j in combinations(some, 2) if (left := _left(distances, x, base, i, j))]
        for _, base, i, j in sorted(tries)[:TRIES]:
            if merge := _read(opened, distances, x, base, i, j):
                merges[x] = merge
                break
    return merges


def _left(distances: Distances, x: int, base: int, i: int, j: int) -> float | None:
    """Share of x's change that two changes leave; None if either has no part in it."""
    some = distances.common(x, base, i, j)
    if not some.any():
        return None
    squared = distances.squared[some].sum(axis=0)
    inner = [[(squared[base, k] + squared[base, m] - squared[k, m]) / 2 for m in (i, j, x)] for k in (i, j, x)]
    gram, own = np.array(inner)[:2, :2], np.array(inner)[:2, 2]
    if np.linalg.det(gram) <= 1e-9 * gram[0, 0] * gram[1, 1] or not inner[2][2]:
        return None
    factors = np.linalg.solve(gram, own)
    return float(1 - own @ factors / inner[2][2]) if factors.min() > CHANGE else None


def _read(opened: Sequence[Model], distances: Distances, x: int, base: int, i: int, j: int) -> Merge | None:
    """Read the two largest tensors of the first block that all four share, and tell how they were made."""
    some = distances.common(x, base, i, j)
    # matrices: gains of norms are large and few
    keys = [
        key
        for key, shared in zip(distances.keys, some, strict=True)
        if shared and key[0] == 0 and not key[1].endswith(("norm", "bias"))
    ]
    keys.sort(key=lambda key: -distances.norms[distances.keys.index(key), x])
    results = []
    for block, role in keys[:2]:
        arrays, spacings = [], []
        for k in (x, base, i, j):
            anatomy, checkpoint = opened[k].anatomy, opened[k].checkpoint
            arrays.append(anatomy.read(checkpoint, role, block).ravel()[:MOST].astype(np.float64))
            spacings.append(spacing(arrays[-1], opened[k], role, block))
        squares = [
            (apart * np.exp2(np.frexp(array)[1] - 1)) ** 2 / 12 for apart, array in zip(spacings, arrays, strict=True)
        ]
        results.append(explain(arrays[0], arrays[1], arrays[2], arrays[3], np.sqrt(np.sum(squares, axis=0))))
    kept = [result for result in results if result is not None]
    if not kept or len(kept) < len(results):
        return None
    factors = np.array([result.factors for result in kept])
    method = f"{kept[0].method} on <BASE>, {kept[0].dropped:.0%} of the changes dropped from both"
    middle, low, high = (tuple(map(float, way(factors, axis=0))) for way in (np.mean, np.min, np.max))
    return Merge((i, j), middle, method, low, high, 1.0, base)
