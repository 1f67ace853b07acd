"""Merges with a share of their own in each tensor, and merges that were trained on, solved from squared distances.

Combinations with one share for all tensors are circuits (`provlab.forest.combinations`). Here are those between two
models, tensor by tensor, that miss by no more than the rounding of the files (`ROUNDING`):

- *by depth, by part*: a share of its own for each tensor; *passthrough* if each tensor is one model's.
- *slerp*: tensor by tensor along a great circle, so that the shares add up to a little more than 1.
- *TIES, DARE*: see `provlab.forest.sparse`.
- *trained on*: an estimate by angles, see `trained_on`; no rounding bounds it, and its edges say so.

Where each tensor is one of two models', these may as well have been made from it, each by training other tensors: the
set is left open, as where several pairs explain one model.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: roundings by which a merge may miss, in files of 16 bits (computed once) and more (each step of arithmetic rounds)
ROUNDING = {True: 1.6, False: 6.0}
COARSE = 1e-4  # rounding, relative to the weights, from which a file is one of 16 bits
GAIN = 2.0
WHOLE = 1e-3  # a share so near to 0 or 1 is one of a tensor that was taken over whole
CLEAR = 0.05  # rounding over the distance of the parents, below which a tensor's share tells the method
EQUAL = 0.01  # shares of tensors that differ by less are one share
LINEAR, BY_TENSOR, BY_DEPTH, BY_PART = "linear", "by tensor", "shares by depth", "shares by part"
PASSTHROUGH, SLERP, ARITHMETIC = "passthrough", "slerp", "task arithmetic"
BESIDE = 0.35  # cosine from which two changes are not at right angles: .7 for equal changes, .2 for drift of training
#: cosine at x, in every block, up to which x lies between two models; and at a fork of both, down to which it does not
BETWEEN, FORK = -0.25, -0.1
TRAINED_ON = "trained on"
Matrix = NDArray[np.float64]
Key = tuple[int | None, str]  # block and role of a tensor


@dataclass(frozen=True)
class Merge:
    """A model made of others.

    Attributes
    ----------
    parents, shares
        Their numbers, and their shares over all tensors.
    method
        In words.
    low, high
        Smallest and largest share of each parent over blocks.
    residual
        By how much it misses the model, in expected roundings of its file.
    base
        Number of the model whose changes were merged, where there is one and it is no parent.
    on
        How far it was trained on, over the distance of its parents; 0 where rounding explains what is left.
    certain
        False where its parents may have been made from it as well.
    """

    parents: tuple[int, ...]
    shares: tuple[float, ...]
    method: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    residual: float
    base: int | None = None
    on: float = 0.0
    certain: bool = True


@dataclass(frozen=True, eq=False)
class Distances:
    """Squared distances of n models, tensor by tensor.

    Attributes
    ----------
    keys
        The tensors.
    squared
        ``(tensors, n, n)``; NaN where the two have no tensor of one shape.
    norms
        ``(tensors, n)``: sums of squares.
    rounding
        ``(tensors, n)``: expected squares of the rounding of files.
    """

    keys: Sequence[Key]
    squared: Matrix
    norms: Matrix
    rounding: Matrix

    @cached_property
    def shared(self) -> NDArray[np.bool_]:
        """Tensors of one shape in all models, ``(tensors,)``."""
        return np.asarray(np.isfinite(self.squared).all(axis=(1, 2)))

    def common(self, *models: int) -> NDArray[np.bool_]:
        """Tensors of one shape in all of these models, ``(tensors,)``."""
        return np.asarray(np.isfinite(self.squared[np.ix_(range(len(self.keys)), models, models)]).all(axis=(1, 2)))

    def total(self) -> Matrix:
        """Distances over the tensors that all models share, ``(n, n)``; infinite where there are none."""
        if not self.shared.any():
            return np.where(np.eye(self.squared.shape[1], dtype=bool), 0.0, np.inf)
        return np.asarray(np.sqrt(self.squared[self.shared].sum(axis=0)))

    def cosine(self, x: int, p: int, c: int) -> float:
        """Largest cosine of x - p and c - p: over each block, and over what belongs to MLPs and what does not.

        A model of which a part alone is another's differs there from both, and little where all is summed.

        Parameters
        ----------
        x, p, c
            Numbers of models. Tensors count that all three share; NaN without any.
        """
        shared = self.common(x, p, c)
        parts: dict[tuple[str, int], list[int]] = {}
        for k, (block, role) in enumerate(self.keys):
            if shared[k] and block is not None:
                parts.setdefault(("block", block), []).append(k)
                parts.setdefault(("MLP", role.startswith(("gate", "up", "down"))), []).append(k)
        found = []
        for some in parts.values():
            xp, pc, xc = (self.squared[some, i, j].sum() for i, j in ((x, p), (p, c), (x, c)))
            found += [float((xp + pc - xc) / 2 / np.sqrt(xp * pc))] if xp and pc else []
        return max(found, default=float("nan"))


def find(distances: Distances, nodes: Sequence[int]) -> tuple[dict[int, Merge], list[tuple[int, ...]]]:
    """Find the merges of two among some models; and sets of models that were made of each other, nobody knows which.

    Parameters
    ----------
    distances
        Distances of all pairs.
    nodes
        Models no two of which are equal, and none of which is a merge that is known already.
    """
    explained = {x: found for x in nodes if (found := _by_tensor(distances, x, [i for i in nodes if i != x]))}
    merges: dict[int, Merge] = {}
    unknown: list[tuple[int, ...]] = []
    for x, found in explained.items():
        own = [one for one in found if not set(one.parents) & set(explained)] or found
        if len(own) == 1 and own[0].certain:
            merges[x] = own[0]
        else:
            unknown.append((x, *sorted({i for one in own for i in one.parents})))
    return merges, unknown


def trained_on(distances: Distances, known: Collection[int], earlier: NDArray[np.bool_]) -> dict[int, Merge]:
    """Find models between two others that no path explains: merges that were trained on for less than these differ.

    Changes of trainings apart are about at right angles, or alike. So where i and j were made from x, the angle at x
    between them is at most a right one; and on a path from i to x to j, i has no change that j lacks.
    A mean of i and j has them on either side, at 180 degrees, and training on takes it off their line. So x counts as a
    merge, trained on, if the cosine at x is at most `BETWEEN` in each block, and if a fourth model, at which both fork
    (`FORK`), shows changes of either (`BESIDE`). A snapshot between two others has no such fourth model. The nearest
    line of several is taken: that of the parents, or of kin near to them. Shares are those on the line.

    Parameters
    ----------
    distances
        Distances of all pairs.
    known
        Models that are merges already.
    earlier
        As of `find`. No model that is earlier than both is a merge of them, nor one between them in time if they are
        all there is.
    """
    blocks = sorted({block for block, _ in distances.keys if block is not None})
    sums = []  # squared distances over the matrices of each block
    for block in blocks:
        keys = [k for k, (at, role) in enumerate(distances.keys) if at == block and not role.endswith(("norm", "bias"))]
        sums.append(distances.squared[keys].sum(axis=0))
    squared = np.array(sums)  # (blocks, n, n); NaN where shapes differ
    n = distances.squared.shape[1]
    free = [i for i in range(n) if i not in known]
    if len(free) < 4 or not len(blocks):
        return {}

    def cosine(x: int, total: Matrix) -> Matrix:
        """At x between each two models, ``(..., n, n)``."""
        xi = total[..., x, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = (xi[..., :, None] + xi[..., None, :] - total) / 2
            return np.asarray(inner / np.sqrt(xi[..., :, None] * xi[..., None, :]))

    total = squared.sum(axis=0)
    at = {x: cosine(x, total) for x in free}
    made: dict[int, Merge] = {}
    for x in free:
        with np.errstate(invalid="ignore"):
            between = np.asarray((cosine(x, squared) <= BETWEEN).all(axis=0))
        pairs = [(i, j) for i in free for j in free if i < j and x not in (i, j) and between[i, j]]
        ranked = sorted((_off_line(total, x, i, j), i, j) for i, j in pairs if not earlier[x, [i, j]].all())
        for off, i, j in ranked[:1]:
            others = [y for y in free if y not in (x, i, j)]
            if any(at[y][i, j] >= FORK and at[i][y, j] > BESIDE and at[j][y, i] > BESIDE for y in others):
                made[x] = _trained_on(squared, x, i, j, off)
    # of models that lie between each other, the nearest to its line is the merge
    return {
        x: merge
        for x, merge in made.items()
        if not any(p in made and made[p].on < merge.on and x in made[p].parents for p in merge.parents)
    }


def _off_line(total: Matrix, x: int, i: int, j: int) -> float:
    """Distance of x from the line through i and j, over theirs."""
    share = (total[x, i] - total[x, j] + total[i, j]) / (2 * total[i, j])
    left = (1 - share) * total[x, i] + share * total[x, j] - share * (1 - share) * total[i, j]
    return float(np.sqrt(max(left, 0.0) / total[i, j]))


def _trained_on(squared: Matrix, x: int, i: int, j: int, off: float) -> Merge:
    """Shares of the point of the line next to x, over all blocks and block by block."""
    xi, xj, ij = squared[:, x, i], squared[:, x, j], squared[:, i, j]
    of_j = (xi - xj + ij) / (2 * ij)
    share = float((xi.sum() - xj.sum() + ij.sum()) / (2 * ij.sum()))
    low, high = (1 - of_j.max(), of_j.min()), (1 - of_j.min(), of_j.max())
    return Merge((i, j), (1 - share, share), TRAINED_ON, tuple(map(float, low)), tuple(map(float, high)), 0.0, on=off)


def _candidates(distances: Distances, x: int, others: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of others that x may lie between, by the tensors that all models share; the pair farthest apart first.

    This looks at all pairs at once, so that few are left to be solved one by one. A point of a great circle is off the
    line by at most ij / (8 |x|), for the squared distance ij.
    """
    shared = distances.shared
    squared, noise = distances.squared[shared], distances.rounding[shared]
    i, j = np.array(others)[np.array(np.triu_indices(len(others), 1))]
    xi, xj, ij = squared[:, x, i], squared[:, x, j], squared[:, i, j]  # (tensors, pairs)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip(np.where(ij > 0, (xi - xj + ij) / (2 * ij), 0.5), 0, 1)
        off = (1.5 * ij / 8) ** 2 / distances.norms[shared, x][:, None]
    left = ((1 - share) * xi + share * xj - share * (1 - share) * ij).sum(axis=0)
    bound = (noise[:, [x]] + noise[:, i] + noise[:, j]).sum(axis=0) * max(ROUNDING.values()) ** 2
    near = (left <= bound + np.where(np.isnan(off), 0.0, off).sum(axis=0)) & (ij.sum(axis=0) > 0)
    order = np.argsort(-ij.sum(axis=0)[near], kind="stable")
    return list(zip(i[near][order].tolist(), j[near][order].tolist(), strict=True))


def _bound(distances: Distances, x: int, parents: Sequence[int], keys: NDArray[np.bool_]) -> Matrix:
    """By how much, squared, rounding may make a merge miss: ``(tensors,)``; that of each parent counts whole."""
    models = [x, *parents]
    noise = distances.rounding[keys][:, models].sum(axis=1)
    all_noise, all_norms = (values[keys][:, models].sum() for values in (distances.rounding, distances.norms))
    return np.asarray(noise * ROUNDING[bool(all_noise > COARSE**2 * all_norms)] ** 2)


def _shares(distances: Distances, x: int, i: int, j: int, some: NDArray[np.bool_]) -> tuple[Matrix, Matrix]:
    """Share of j in each tensor, between 0 and 1, and the squared distance that is left, ``(tensors,)`` each."""
    xi, xj, ij = (distances.squared[some, a, b] for a, b in ((x, i), (x, j), (i, j)))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip(np.where(ij > 0, (xi - xj + ij) / (2 * ij), 0.5), 0, 1)
    return share, (1 - share) * xi + share * xj - share * (1 - share) * ij


def _by_tensor(distances: Distances, x: int, others: Sequence[int]) -> list[Merge]:
    """All pairs of models with a share of their own in each tensor, on the line between them or on a great circle."""
    found = []
    for i, j in _candidates(distances, x, others):
        some = distances.common(x, i, j)
        bound = _bound(distances, x, (i, j), some)
        xi, xj, ij = (distances.squared[some, a, b] for a, b in ((x, i), (x, j), (i, j)))
        if min(xi.sum(), xj.sum()) <= GAIN**2 * bound.sum():
            continue
        share, left = _shares(distances, x, i, j, some)
        certain = True
        if (left <= bound).all():
            clear = ij > GAIN**2 * bound  # elsewhere both parents are alike
            whole = (share[clear] < WHOLE) | (share[clear] > 1 - WHOLE)
            certain = not whole.all()
            merge = described(distances, x, (i, j), PASSTHROUGH if whole.all() else BY_TENSOR, float(left.sum()))
        else:
            merge = _slerp(distances, x, i, j, some, bound)
        if merge and merge.method != LINEAR:
            found.append(replace(merge, certain=certain))
    return found


def _slerp(distances: Distances, x: int, i: int, j: int, some: NDArray[np.bool_], bound: Matrix) -> Merge | None:
    """Spherical interpolation: sin((1 - t) w) / sin w of i and sin(t w) / sin w of j, w being their angle."""
    ii, jj, xx = (distances.norms[some, k] for k in (i, j, x))
    ij, xi, xj = ((a + b - distances.squared[some, k, m]) / 2
                  for a, b, k, m in ((ii, jj, i, j), (xx, ii, x, i), (xx, jj, x, j)))  # inner products  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = ii * jj - ij**2
        shares = np.stack([(xi * jj - xj * ij) / determinant, (xj * ii - xi * ij) / determinant])  # (2, tensors)
        angle = np.arccos(np.clip(ij / np.sqrt(ii * jj), -1, 1))
        t = np.clip(np.arctan2(shares[1] * np.sin(angle), shares[0] + shares[1] * np.cos(angle)) / angle, 0, 1)
        expected = np.stack([np.sin((1 - t) * angle), np.sin(t * angle)]) / np.sin(angle)  # (2, tensors)
    flat = ~np.isfinite(expected).all(axis=0) | (distances.squared[some, i, j] <= GAIN**2 * bound)
    line, left = _shares(distances, x, i, j, some)
    expected[:, flat] = np.stack([1 - line, line])[:, flat]  # (2, tensors)
    u, v = expected  # what u i + v j leaves of x, from distances: w = u + v - 1 goes to the origin
    rest = 1 - u - v
    xi2, xj2, ij2 = (distances.squared[some, a, b] for a, b in ((x, i), (x, j), (i, j)))
    left = np.where(flat, left, u * xi2 + v * xj2 + rest * xx - u * v * ij2 - u * rest * ii - v * rest * jj)
    # tensors that lie almost on a line are interpolated along it
    alike = (left <= bound) | (_shares(distances, x, i, j, some)[1] <= bound)
    if not alike.all() or not ((t[~flat] > 0) & (t[~flat] < 1)).all() or flat.all():
        return None
    residual = float(np.minimum(np.maximum(left, 0), bound).sum())
    return described(distances, x, (i, j), SLERP, residual, np.stack([1 - t, t])[:, ~flat], np.flatnonzero(some)[~flat])


def described(
    distances: Distances, x: int, parents: Sequence[int], method: str, residual: float,
    shares: Matrix | None = None, keys: NDArray[np.int64] | None = None,
) -> Merge | None:  # fmt: skip
    """Describe a merge: by shares ``(parents,)`` or of tensors ``(parents, tensors)``, else those on lines."""
    some = distances.common(x, *parents)
    i, j = parents[:2]
    if shares is not None and keys is None:  # one for all tensors
        shares, keys = np.tile(shares[:, None], some.sum()), np.flatnonzero(some)
    if shares is None or keys is None:
        apart = distances.squared[some, i, j] > GAIN**2 * _bound(distances, x, parents, some)  # else parents are alike
        share, keys = _shares(distances, x, i, j, some)[0][apart], np.flatnonzero(some)[apart]
        shares = np.stack([1 - share, share])
    if not len(keys):
        return None
    weights = distances.squared[keys, i, j] + np.finfo(float).tiny
    groups: dict[int | None, list[int]] = {}
    for at, key in enumerate(keys):
        groups.setdefault(distances.keys[key][0], []).append(at)
    blocks = np.array([np.average(shares[:, at], axis=1, weights=weights[at]) for at in groups.values()])
    if method == BY_TENSOR:
        clear = _bound(distances, x, parents, np.isin(np.arange(len(some)), keys)) < CLEAR**2 * weights
        clear = clear if clear.any() else np.ones_like(clear)
        within = max(float(np.ptp(shares[0, at][clear[at]])) for at in groups.values() if clear[at].any())
        across = float(np.ptp(shares[0, clear]))
        method = LINEAR if across < EQUAL else BY_DEPTH if within < EQUAL else BY_PART
    expected = float(distances.rounding[some][:, [x, *parents]].sum())
    total, low, high = np.average(shares, axis=1, weights=weights), blocks.min(axis=0), blocks.max(axis=0)
    return Merge(
        tuple(parents), tuple(map(float, total)), method, tuple(map(float, low)), tuple(map(float, high)),
        float(np.sqrt(max(residual, 0.0) / max(expected, np.finfo(float).tiny))),
    )  # fmt: skip
