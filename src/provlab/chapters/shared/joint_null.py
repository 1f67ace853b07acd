"""Are many p-values uniform when the pairs behind them share models? An exact joint null by symmetry.

All pairs among 21 models are not 210 experiments: the fine-tunes of one base repeat each other, and so do their
comparisons with a third model. A Kolmogorov-Smirnov test that takes the pairs as independent is then wrong by an
unknown amount. The assumption behind phi_U and phi_H gives more than it is usually asked for: *all* models of one tree
may have their hidden units relabelled by one random permutation per block, tree by tree, and the whole table of
matchings keeps its distribution as long as the trees are independent. Redrawing these permutations gives exact joint
copies of the table, and with them the null distribution of any summary of it (Theorem 1, applied to trees).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from provlab.errors import InputError
from provlab.inference.permtest import p_value


@dataclass(frozen=True, eq=False)
class JointKS:
    """Kolmogorov-Smirnov distance of a table of p-values, held against its copies.

    Attributes
    ----------
    statistic
        Distance of the observed p-values from the uniform.
    p
        (1 + number of copies at least as far) / (1 + copies).
    n_pairs, n_draws
        Pairs in the table, and copies.
    copies
        ``(n_draws,)`` distances of the copies.
    """

    statistic: float
    p: float
    n_pairs: int
    n_draws: int
    copies: NDArray[np.float64]


def joint_ks(
    matchings: Mapping[tuple[str, str], Sequence[NDArray[np.int64]]],
    trees: Mapping[str, str],
    *,
    n_draws: int = 999,
    seed: int,
    aggregated: bool = True,
) -> JointKS:
    """Test that Fisher's aggregate over blocks is uniform over all pairs at once.

    Of phi_MATCH, which has two matchings a block, the copies keep how far the two agree: whether the table is further
    from the uniform than the models that pairs share, and the units that models have in common, make it.

    Parameters
    ----------
    matchings
        For each pair (a, b) of models from different trees, one ``(h,)`` permutation per block: the unit of b that
        each unit of a was matched to; or two of them, ``(2, h)``, by gate and by up.
    trees
        Tree of each model.
    n_draws
        Joint copies of the table.
    seed
        Of the permutations.
    aggregated
        Fisher's aggregate of each pair; else the p-values of all blocks of all pairs.

    Raises
    ------
    InputError
        If a pair lies within one tree or a tree is missing, the pairs differ in their number of blocks or units, a
        matching is no permutation, or `n_draws` is not positive.
    """
    if n_draws < 1:
        raise InputError(f"n_draws must be at least 1, not {n_draws}")
    pairs = list(matchings)
    if not pairs:
        raise InputError("matchings is empty: there is no independent pair to look at")
    if unknown := sorted({model for pair in pairs for model in pair} - set(trees)):
        raise InputError(f"trees has no tree of {unknown[0]!r}; give the tree of every model")
    if inside := [pair for pair in pairs if trees[pair[0]] == trees[pair[1]]]:
        raise InputError(f"matchings holds the pair {inside[0]} of one tree; only pairs across trees have a null")
    shapes = {tuple(np.shape(block) for block in blocks) for blocks in matchings.values()}
    if len(shapes) != 1 or len(set(next(iter(shapes)))) != 1:
        raise InputError(f"all pairs must have the same number of blocks and units, not {sorted(shapes)}")
    table = np.array([matchings[pair] for pair in pairs])  # (pairs, blocks, h), or (pairs, blocks, 2, h)
    n_blocks, h = table.shape[1], table.shape[-1]
    twice = table.ndim == 4
    if not np.array_equal(np.sort(table, axis=-1), np.broadcast_to(np.arange(h), table.shape)):
        raise InputError("matchings holds no permutation of 0 to h - 1 for some pair and block; match all units")
    names = sorted({trees[model] for pair in pairs for model in pair})
    first = np.array([names.index(trees[a]) for a, _ in pairs])
    second = np.array([names.index(trees[b]) for _, b in pairs])
    rng = np.random.default_rng(seed)
    by_gate, by_up = (table[:, :, 0], table[:, :, 1]) if twice else (None, table)
    observed = _distance(np.arange(h)[None, None] if by_gate is None else by_gate, by_up, aggregated)
    copies = np.empty(n_draws)
    for draw in range(n_draws):
        labels = rng.permuted(np.broadcast_to(np.arange(h), (len(names), n_blocks, h)), axis=-1)
        # unit i of a is now called labels[a][i], and its partner labels[b][matching[i]]
        partners = np.take_along_axis(labels[second], by_up, axis=-1)
        others = labels[first] if by_gate is None else np.take_along_axis(labels[second], by_gate, axis=-1)
        copies[draw] = _distance(others, partners, aggregated)
    return JointKS(observed, float(p_value(observed, copies)), len(pairs), n_draws, copies)


def _distance(a: NDArray[np.int64], b: NDArray[np.int64], aggregated: bool = True) -> float:
    """KS distance from the uniform of the pairs' aggregates (or blocks), from two labellings ``(pairs, blocks, h)``.

    Per block Spearman's correlation with its two-sided t-tail, over blocks Fisher. Far tails are cut at the smallest
    double: among independent pairs there are none, and a copy of a table has none.
    """
    h = b.shape[-1]
    rho = 1.0 - 6.0 * np.square(a - b).sum(axis=-1) / (h * (h * h - 1.0))
    tail = np.maximum(special.betainc((h - 2) / 2, 0.5, 1.0 - np.square(rho)), np.finfo(float).tiny)
    # Fisher: chi-square with twice as many degrees of freedom as blocks
    p = special.chdtrc(2 * rho.shape[-1], -2.0 * np.log(tail).sum(axis=-1)) if aggregated else tail.ravel()
    aggregate = np.sort(p)
    steps = np.arange(1, len(aggregate) + 1) / len(aggregate)
    return float(max((steps - aggregate).max(), (aggregate - steps).max() + steps[0]))
