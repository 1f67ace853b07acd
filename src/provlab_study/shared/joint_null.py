"""Exact joint nulls by symmetry: the units that many matchings share, relabelled at random.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.permtest import p_value

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
_TESTS = 256  # matchings relabelled at a time, which a processor's cache holds
#: from Spearman's distances and the number of units to log10 p
Law = Callable[[Integers, int], Floats]


def of_all_units(matchings: Mapping[tuple[str, str], Sequence[Integers]]) -> dict[tuple[str, str], Sequence[Integers]]:
    """Keep the pairs whose matchings are permutations of all units, as the laws here require.

    Units that write next to nothing are not matched, so the matchings of a model that has some are no permutations.
    """
    most = max((block.shape[-1] for blocks in matchings.values() for block in blocks), default=0)
    every = np.arange(most)
    return {
        pair: blocks
        for pair, blocks in matchings.items()
        if all(block.shape[-1] == most and (np.sort(block, axis=-1) == every).all() for block in blocks)
    }


def relabelled_null(matchings: ArrayLike, n_draws: int, *, rng: np.random.Generator) -> Floats:
    """Draw the p-values of several tests under independence, exactly, by relabelling the axis that they share.

    Parameters
    ----------
    matchings
        ``(tests, n)``: a permutation for each test, found between two models, dependent ones too.
    n_draws
        Random relabellings of the axis.
    rng
        The random generator of the relabellings.

    Returns
    -------
    array
        ``(n_draws, tests)`` log10 p of Spearman's correlation with the identity. Each column is a draw from that test's
        null; the rows keep how the tests depend on each other.
    """
    table = np.asarray(matchings)
    tests, n = table.shape
    distances = np.empty((n_draws, tests), dtype=np.int64)
    for draw in range(n_draws):
        distances[draw] = pvalues.distances(rng.permutation(n)[table])
    return pvalues.log10_p_spearman(distances, n)


@dataclass(frozen=True, eq=False)
class JointKS:
    """Kolmogorov-Smirnov distance of a table of p-values, compared with its copies.

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


@dataclass(frozen=True, eq=False)
class JointNull:
    """Spearman's distances of a table of pairs, and of its joint copies.

    Attributes
    ----------
    observed, drawn
        int64, ``(pairs, blocks)`` and ``(n_draws, pairs, blocks)``.
    units
        Hidden units of a block.
    """

    observed: Integers
    drawn: Integers
    units: int

    def ks(self, *, aggregated: bool = True, law: Law = pvalues.log10_p_spearman) -> JointKS:
        """Test that p-values are uniform over all pairs at once.

        Parameters
        ----------
        aggregated
            Fisher's aggregate of each pair; else the p-values of all blocks of all pairs.
        law
            From Spearman's distances and the number of units to log10 p; by default one-sided, by the law itself.
        """
        observed, copies = (
            _ks(law(distances, self.units), aggregated) for distances in (self.observed[None], self.drawn)
        )
        return JointKS(
            float(observed[0]), float(p_value(observed[0], copies)), len(self.observed), len(self.drawn), copies
        )


def joint_ks(
    matchings: Mapping[tuple[str, str], Sequence[NDArray[np.int64]]],
    trees: Mapping[str, str],
    *,
    n_draws: int = 999,
    seed: int,
) -> JointKS:
    """Test that the aggregates of all pairs are uniform: `joint_null`, where one question is asked of it."""
    return joint_null(matchings, trees, n_draws=n_draws, seed=seed).ks()


def joint_null(
    matchings: Mapping[tuple[str, str], Sequence[NDArray[np.int64]]],
    trees: Mapping[str, str],
    *,
    n_draws: int,
    seed: int,
) -> JointNull:
    """Draw joint copies of a table of pairs.

    A copy relabels each block of each tree by a permutation of its own. phi_MATCH has two matchings a block: a copy
    relabels the units by gate and the units by up independently. No theorem says that the two are unrelated, so this is
    the assumption that is tested, and units that both give the same partner are lost in the copies.

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
        The seed of the permutations.

    Raises
    ------
    InputError
        If there is no pair, the pairs differ in their number of blocks or units, or `n_draws` is not positive.
    """
    if n_draws < 1:
        raise InputError(f"n_draws must be at least 1, not {n_draws}")
    pairs = list(matchings)
    if not pairs:
        raise InputError("matchings is empty: there is no independent pair to look at")
    shapes = {tuple(np.shape(block) for block in blocks) for blocks in matchings.values()}
    if len(shapes) != 1 or len(set(next(iter(shapes)))) != 1:
        raise InputError(f"all pairs must have the same number of blocks and units, not {sorted(shapes)}")
    table = np.array([matchings[pair] for pair in pairs])  # (pairs, blocks, h), or (pairs, blocks, 2, h)
    n_blocks, h = table.shape[1], table.shape[-1]
    names = sorted({trees[model] for pair in pairs for model in pair})
    # every block of every tree is an axis of its own, and every block of every pair a test
    axes = np.array([[names.index(trees[model]) for model in pair] for pair in pairs]).T[..., None] * n_blocks
    axes = (axes + np.arange(n_blocks)).reshape(2, -1)  # (2, tests), tests = pairs * blocks
    sides = np.moveaxis(table.reshape(len(pairs) * n_blocks, -1, h), 1, 0)  # (1 or 2, tests, h)
    observed = pvalues.distances(sides[-1], None if len(sides) == 1 else sides[0])
    drawn = _relabelled_distances(sides, axes, n_draws, np.random.default_rng(seed))
    return JointNull(observed.reshape(len(pairs), n_blocks), drawn.reshape(n_draws, len(pairs), n_blocks), h)


def _relabelled_distances(sides: Integers, axes: Integers, n_draws: int, rng: np.random.Generator) -> Integers:
    """Spearman's distances ``(n_draws, tests)`` of matchings ``(1 or 2, tests, h)`` between `axes` ``(2, tests)``."""
    n_sides, tests, h = sides.shape
    first, second = axes
    n_axes = int(axes.max()) + 1
    distances = np.empty((n_draws, tests), dtype=np.int64)
    partners = sides + h * second[:, None]  # where a partner's label stands in the labels of all axes, laid end to end
    rows = h * np.arange(min(tests, _TESTS))[:, None]
    for draw in range(n_draws):
        # unit i of an axis is now labels[side, axis, i]; a matching m from axis a to b is labels[b] o m o labels[a]^-1
        labels = rng.permuted(np.tile(np.arange(h, dtype=np.int32), (n_sides, n_axes, 1)), axis=-1)
        if n_sides == 2:  # the old number by up of the unit that has the label of unit i by gate
            by_up = np.take_along_axis(np.argsort(labels[1], axis=1), labels[0], axis=1)
        for start in range(0, tests, _TESTS):
            some = slice(start, start + _TESTS)
            own, to = labels[0][first[some]], labels[0].take(partners[0, some])  # (some, h), by the units' old numbers
            if n_sides == 2:
                order = by_up[first[some]]
                own = labels[1].take(partners[1, some].take(order + rows[: len(order)]))
            distances[draw, some] = pvalues.distances(own, to)
    return distances


def _ks(log10_p: Floats, aggregated: bool) -> Floats:
    """KS distances ``(draws,)`` from the uniform of the pairs' aggregates over blocks, or of all blocks.

    From ``(draws, pairs, blocks)``.
    """
    values = pvalues.fisher(log10_p, axis=2) if aggregated else log10_p.reshape(len(log10_p), -1)
    p = 10.0 ** np.sort(values, axis=1)
    steps = np.arange(1, p.shape[1] + 1) / p.shape[1]
    return np.maximum((steps - p).max(axis=1), (p - steps).max(axis=1) + steps[0])
