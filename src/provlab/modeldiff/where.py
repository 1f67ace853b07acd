"""At which tokens two models part: groups of disputed outputs, and the first token of each at which they do."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from provlab.modeldiff.written import Interval, Written

PARTED = 1.0  # nats: a token that the other model finds so much less likely is one at which the two part
_GROUPS, _TOKENS = 4, 256  # groups, and tokens that set them apart
_LEAST = 0.02  # of the divergence; smaller groups are left out


@dataclass(frozen=True)
class Group:
    """Disputed outputs of one model whose difference lies at the same tokens.

    Attributes
    ----------
    share, divergence
        The share of the model's outputs, and of the divergence, with 95% intervals for this division into groups.
    first
        Row and place of the token at which most of them part first (`PARTED`), and the share of the group that does;
        None if none does.
    rows
        Typical members, the most typical first.
    heaviest
        All members, that which carries most of the difference first.
    """

    share: Interval
    divergence: Interval
    first: tuple[int, int, float] | None
    rows: list[int]
    heaviest: list[int]


def groups(written: Written, disputed: NDArray[np.bool_], *, n_members: int, seed: int) -> list[Group]:
    """Divide disputed outputs by the tokens at which the other model's loss is higher, by k-means.

    Parameters
    ----------
    written
        What one model writes.
    disputed
        ``(n,)``: which outputs.
    n_members
        Typical members of each group.
    seed
        The seed of the first centres, and of intervals.

    Returns
    -------
    list of Group
        That which carries most of the divergence first; empty where hardly any output is disputed.
    """
    rows = np.flatnonzero(disputed & (written.outputs.weight > 0))
    tokens = written.tokens[rows]
    once = np.unique(tokens, axis=0, return_index=True)[1]  # a member is shown once
    if len(once) <= _GROUPS:
        return []
    carried = np.maximum(written.toward[rows], 0.0)  # (rows, predictions)
    predicted = tokens[:, -carried.shape[1] :]
    numbers, place = np.unique(predicted, return_inverse=True)  # of a large vocabulary few tokens come
    by_number = np.zeros((len(rows), len(numbers)))
    np.add.at(by_number, (np.arange(len(rows))[:, None], place.reshape(predicted.shape)), carried)
    most = np.argsort(-by_number.sum(axis=0), kind="stable")[:_TOKENS]
    points = by_number[:, most] / np.maximum(np.linalg.norm(by_number[:, most], axis=1, keepdims=True), 1e-12)
    with warnings.catch_warnings(action="ignore"):  # an empty group is left out below
        centres, group = kmeans2(points, _GROUPS, minit="++", rng=np.random.default_rng(seed))
    result, members = [], set(once.tolist())
    for k, centre in enumerate(centres):
        mask = np.zeros(len(disputed), dtype=bool)
        mask[rows[group == k]] = True
        divergence = written.share_of_divergence(mask, seed=seed)
        if not divergence[0] >= _LEAST:
            continue
        typical = np.argsort(-(points @ centre), kind="stable")  # (rows, tokens) @ (tokens,)
        shown = [i for i in typical if group[i] == k and i in members and written.own[rows[i]]]
        own = np.flatnonzero(group == k)
        heaviest = rows[own[np.argsort(-carried[own].sum(axis=1), kind="stable")]].tolist()
        share, first = written.share(mask, seed=seed), first_parting(written, mask)
        result.append(Group(share, divergence, first, [int(rows[i]) for i in shown[:n_members]], heaviest))
    return sorted(result, key=lambda group: -group.divergence[0])


def first_parting(written: Written, rows: NDArray[np.bool_]) -> tuple[int, int, float] | None:
    """Return where most of some outputs part first: a row and place of that token, and the share that does there."""
    apart = (written.toward >= PARTED) & rows[:, None]
    some = np.flatnonzero(apart.any(axis=1))
    weight = written.outputs.weight
    if not weight[some].sum() > 0:
        return None
    at = apart[some].argmax(axis=1) + written.tokens.shape[1] - written.predictions
    _, first, place = np.unique(written.tokens[some, at], return_index=True, return_inverse=True)
    sums = np.bincount(place, weight[some])
    best = int(sums.argmax())
    return int(some[first[best]]), int(at[first[best]]), float(sums[best] / weight[rows].sum())
