"""Exact joint nulls by symmetry: what many matchings have in common, relabelled at random.

All pairs among 21 models are not 210 experiments: the fine-tunes of one base repeat each other, and so do their
comparisons with a third model. Nor are several matrices of one pair several experiments, if their rows count the same
units: the columns of all that reads the residual stream, say. A test that takes such p-values as independent is wrong
by an unknown amount. The assumption behind phi_U and phi_H gives more than it is usually asked for: *all* that is
counted by the same units may be relabelled by one random permutation, and the whole table of matchings keeps its
distribution as long as the models at both ends are independent. Redrawing these permutations gives exact joint copies
of the table, and with them the null distribution of any summary of it (Theorem 1, applied to axes). Each p-value stays
uniform; Theorem 2 adds independence only for tests that have a relabelling each.

Source: "Independence Tests for Language Models", Theorem 1, and Appendix H.1, which leaves Fisher's method out where an
axis is shared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.permtest import p_value

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def relabelled_null(
    matchings: ArrayLike,
    n_draws: int,
    *,
    rng: np.random.Generator,
    others: ArrayLike | None = None,
    axes: ArrayLike | None = None,
) -> Floats:
    """Draw the p-values of several tests under independence, exactly, by relabelling the axes that they share.

    A test is Spearman's correlation of two orders of the same units: a matching and the identity, or two matchings.

    Parameters
    ----------
    matchings
        ``(tests, n)``: a permutation for each test, found between two models, dependent ones too.
    n_draws
        Random relabellings of each axis.
    rng
        Of the relabellings.
    others
        ``(tests, n)``: what the matchings are compared with; by default the identity.
    axes
        ``(2, tests)``, numbers from 0 on: the axis of the units in `others`, and the one that each matching leads to;
        by default all matchings lead to one axis, and `others` keep their labels.

    Returns
    -------
    array
        ``(n_draws, tests)``, log10 p. Each column is a draw from that test's null; the rows keep how the
        tests depend on each other.

    Raises
    ------
    InputError
        If a row is no permutation of at least three units.
    """
    second = _permutations(matchings)
    tests, n = second.shape
    first = np.arange(n) if others is None else _permutations(others)  # (n,) or (tests, n)
    own_axes, partner_axes = (None, np.zeros(tests, dtype=int)) if axes is None else np.asarray(axes)
    places = second + n * partner_axes[:, None]  # of the partners, among the labels of all axes
    n_axes = 1 if axes is None else 1 + np.max(axes)
    distances = np.empty((n_draws, tests), dtype=np.int64)
    for draw in range(n_draws):
        labels = rng.permuted(np.broadcast_to(np.arange(n), (n_axes, n)), axis=-1)  # unit i is now labels[axis, i]
        own = first if own_axes is None else labels[own_axes]  # (n,) or (tests, n)
        if own_axes is not None and others is not None:
            own = np.take_along_axis(own, first, axis=1)
        distances[draw] = pvalues.distances(own, labels.take(places))
    return pvalues.log10_p_spearman(distances, n)


def _permutations(matchings: ArrayLike) -> Integers:
    table = np.asarray(matchings)
    if table.ndim != 2 or table.shape[1] < 3:
        raise InputError(f"matchings has shape {table.shape}; it must be (tests, units) of at least 3 units")
    if (np.sort(table, axis=1) != np.arange(table.shape[1])).any():
        raise InputError("matchings holds a row that is no permutation; match all units, and equally many of them")
    return table


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
    names = sorted({trees[model] for pair in pairs for model in pair})
    # every block of every tree is an axis of its own, and every block of every pair a test
    axes = np.array([[names.index(trees[model]) for model in pair] for pair in pairs]).T[..., None] * n_blocks
    axes = (axes + np.arange(n_blocks)).reshape(2, -1)  # (2, pairs * blocks)
    found, others = table.reshape(-1, h), None
    if table.ndim == 4:  # by up against by gate: both lead to units of the second model
        found, others, axes[0] = table[:, :, 1].reshape(-1, h), table[:, :, 0].reshape(-1, h), axes[1]
    drawn = relabelled_null(found, n_draws, rng=np.random.default_rng(seed), others=others, axes=axes)
    seen = pvalues.log10_p_spearman(pvalues.distances(found, others), h)
    observed, copies = (_ks(log10_p.reshape(-1, len(pairs), n_blocks), aggregated) for log10_p in (seen, drawn))
    return JointKS(float(observed[0]), float(p_value(observed[0], copies)), len(pairs), n_draws, copies)


def _ks(log10_p: Floats, aggregated: bool) -> Floats:
    """KS distances ``(draws,)`` from the uniform of the pairs' aggregates over blocks, or of all blocks.

    From ``(draws, pairs, blocks)``.
    """
    values = pvalues.fisher(log10_p, axis=2) if aggregated else log10_p.reshape(len(log10_p), -1)
    p = 10.0 ** np.sort(values, axis=1)
    steps = np.arange(1, p.shape[1] + 1) / p.shape[1]
    return np.maximum((steps - p).max(axis=1), (p - steps).max(axis=1) + steps[0])
