"""Where two models disagree: the loss of each token under both, and groups of disputed inputs by their tokens."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from provlab.modeldiff.nll import SequenceNll
from provlab.modeldiff.representative import Direction

DISPUTED = 0.25  # of a model's inputs: those that the other finds least likely, compared with the model itself
_GROUPS, _TOKENS, _NAMED = 4, 256, 4  # groups, tokens that set them apart, and tokens that name one
_LEAST = 0.02  # of a model's inputs; smaller groups are left out


@dataclass(frozen=True)
class Group:
    """Disputed inputs of one model whose difference lies at the same tokens.

    Attributes
    ----------
    tokens
        Those that carry most of the difference, numbers of the comparison.
    share
        The share of the model's inputs, with its 95% interval for this division into groups.
    log10_count
        Log10 of the number of these inputs.
    rows
        Typical members, the most typical first: rows of the direction.
    """

    tokens: list[int]
    share: tuple[float, float, float]
    log10_count: float
    rows: list[int]


def by_token(a: SequenceNll, b: SequenceNll, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
    """D of each token that is predicted, loss under A less that under B (nats), ``(n, predictions)``."""
    return a.each(tokens) - b.each(tokens)


def groups(inputs: Direction, a: SequenceNll, b: SequenceNll, *, n_members: int, seed: int) -> list[Group]:
    """Divide a model's disputed inputs by the tokens at which the other model's loss is higher, by k-means.

    Parameters
    ----------
    inputs
        One model's inputs, with their draws.
    a, b
        Both models.
    n_members
        Typical members of each group.
    seed
        The seed of the first centres, and of intervals.

    Returns
    -------
    list of Group
        The largest first; empty where no input is disputed.
    """
    assert inputs.draws is not None  # only an enumeration has none
    toward = -1.0 if inputs.side == "A" else 1.0  # sign of D where the other model finds an input less likely
    ends = toward * inputs.quantile([DISPUTED, 1 - DISPUTED])
    rows = np.flatnonzero((toward * inputs.difference >= max(ends)) & inputs.disagreement)
    once = np.unique(inputs.draws.tokens[rows], axis=0, return_index=True)[1]  # a member is shown once
    if len(once) <= _GROUPS:
        return []
    tokens = inputs.draws.tokens[rows]
    carried = np.maximum(toward * by_token(a, b, tokens), 0.0)  # (rows, predictions)
    by_number = np.zeros((len(rows), a.vocabulary))
    np.add.at(by_number, (np.arange(len(rows))[:, None], tokens[:, -carried.shape[1] :]), carried)
    most = np.argsort(by_number.sum(axis=0))[::-1][:_TOKENS]
    points = by_number[:, most] / np.maximum(np.linalg.norm(by_number[:, most], axis=1, keepdims=True), 1e-12)
    with warnings.catch_warnings(action="ignore"):  # an empty group is left out below
        centres, group = kmeans2(points, _GROUPS, minit="++", rng=np.random.default_rng(seed))
    result, members = [], set(once.tolist())
    for k, centre in enumerate(centres):
        mask = np.zeros(len(inputs.difference), dtype=bool)
        mask[rows[group == k]] = True
        share = inputs.share(mask, seed=seed)
        if share[0] < _LEAST:
            continue
        typical = [i for i in np.argsort(-(points @ centre), kind="stable") if group[i] == k and i in members]
        number = float(inputs.log10_count(inputs.weight[mask].sum()))
        tops = [int(most[j]) for j in np.argsort(-centre, kind="stable")[:_NAMED] if centre[j] > 0]
        result.append(Group(tops, share, number, [int(rows[i]) for i in typical[:n_members]]))
    return sorted(result, key=lambda group: -group.share[0])
