"""Hidden units in common and the size of phi_MATCH under independence, by the one symmetry that it has.

phi_MATCH matches the units of two MLPs twice, by gate and by up activations. Renumber the units of the second model by
pi, and both matchings are renumbered: Spearman's correlation is then that of pi o gate with pi o up. A random start
makes every pi equally likely, whatever training made of the units. So the exact law of the correlation is known *given*
the two matchings without their numbers, that is, given the cycles of sigma = up o gate^-1. Its mean is
(f - 1)/(h - 1), where f counts the units on which gate and up agree, and f is 1 on average if sigma is uniform. The
p-value is valid as far as f behaves like the number of fixed points of a random permutation; where it does not, the
actual size of a test at a nominal level can be computed, from few pairs, by drawing pi.

A diagnosis and no test: a copy of a model has f = h, and each renumbering of it as well. An extension; the paper
("Independence Tests for Language Models", Section 3.3) shows a figure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from provlab.inference import allowing, pvalues
from provlab.inference.matching import match_shuffled, tie_seed
from provlab.inference.matching.cosine import Rows
from provlab_study.shared.calibration import jackknife

Floats = NDArray[np.float64]
Activations = NDArray[np.floating[Any]]  # (units, tokens)
#: for each pair of models, for each block ``(2, h)``: the partner of each unit by gate and by up
Matchings = Mapping[tuple[str, str], Sequence[NDArray[np.int64]]]
Allowance = Callable[[int], int]  # how many of so many units may be in common


@dataclass(frozen=True)
class ActualSize:
    """How often independent pairs have a p-value up to a level, over all orders of their units.

    Attributes
    ----------
    level
        Nominal.
    size
        Probability of a p-value up to the level, averaged over pairs.
    low, high
        95% interval, by the jackknife over models (or over trees of them).
    """

    level: float
    size: float
    low: float
    high: float


def common_units(matchings: Matchings) -> NDArray[np.int64]:
    """Count the units that have one partner by gate and by up, ``(pairs, blocks)``; by chance one, at any width."""
    return np.array([[(by_gate == by_up).sum() for by_gate, by_up in blocks] for blocks in matchings.values()])


def renumbered(
    matchings: ArrayLike, n_draws: int, *, rng: np.random.Generator, allowance: Allowance | None = None
) -> Floats:
    """Draw log10 p of phi_MATCH over random orders of the second model's units, exactly.

    Parameters
    ----------
    matchings
        ``(n, 2, h)``: for each of n blocks the permutations by gate and by up.
    n_draws
        Orders drawn for each block.
    rng
        For the orders, and for the units that are left out.
    allowance
        How many of a block's units may be in common without evidence, such as `allowing.allowance`: up to so many of
        those in common are left out, and units swapped in pairs, and the p-value is one-sided, by the law of those that
        are left. By default the paper's p-value: two-sided, by the t tail, of all units.

    Returns
    -------
    array
        ``(n, n_draws)``.
    """
    table = np.asarray(matchings)
    n, _, h = table.shape
    if allowance is None:
        return np.asarray(pvalues.log10_p_t(_redrawn_distances(table, n_draws, rng), h))
    kept = [_without(block, allowance(h), rng) for block in table]
    log10_p = np.empty((n, n_draws))
    for width in {block.shape[1] for block in kept}:  # those that keep equally many units are drawn together
        which = [i for i, block in enumerate(kept) if block.shape[1] == width]
        distances = _redrawn_distances(np.stack([kept[i] for i in which]), n_draws, rng)
        log10_p[which] = pvalues.log10_p_spearman(distances, width)
    return log10_p


def _redrawn_distances(table: NDArray[np.int64], n_draws: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Spearman's distance of both matchings, from ``(n, 2, h)``, in so many orders of units: ``(n, n_draws)``."""
    n, _, h = table.shape
    distances = np.empty((n, n_draws), dtype=np.int64)
    # Each block has an order of its own, and all share those behind it, one a draw: what they compose to is uniform,
    # independent between the blocks of one draw and between any two draws, and a block is shuffled only once.
    own = rng.permuted(np.tile(np.arange(h), (n, 1)), axis=1)
    orders = rng.permuted(np.tile(np.arange(h, dtype=np.int32), (n_draws, 1)), axis=1)
    for i, (gate, up) in enumerate(table):
        distances[i] = pvalues.distances(orders.take(own[i, gate], axis=1), orders.take(own[i, up], axis=1))
    return distances


def _without(block: NDArray[np.int64], at_most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Both matchings ``(2, n)`` of the units that phi_MATCH counts, ranked again."""
    left = block[:, allowing.counted(block[0], block[1], at_most, rng=rng)]
    return np.searchsorted(np.sort(left[0]), left)  # by gate and by up the rest has the same partners


def actual_sizes(
    matchings: Matchings,
    levels: Sequence[float],
    *,
    n_draws: int,
    rng: np.random.Generator,
    aggregated: bool = False,
    trees: Mapping[str, str] | None = None,
    allowance: Allowance | None = None,
) -> list[ActualSize]:
    """Find the actual sizes of tests by phi_MATCH at nominal levels, on independent models.

    Parameters
    ----------
    matchings
        Independent pairs, with equally many blocks each.
    levels
        Nominal levels.
    n_draws
        Orders of units for each pair.
    aggregated
        Whether the test is Fisher's aggregate over blocks, and not a single block.
    trees
        Tree of each model, where several models share an origin; by default each is its own.
    allowance
        As for `renumbered`: by default the paper's p-value.
    """
    pairs = list(matchings)
    blocks = len(matchings[pairs[0]])
    drawn = renumbered([block for pair in pairs for block in matchings[pair]], n_draws, rng=rng, allowance=allowance)
    drawn = drawn.reshape(len(pairs), blocks, n_draws)
    if aggregated:
        drawn = pvalues.fisher(drawn, axis=1)[:, None]
    sizes = []
    for level in levels:
        small = (drawn <= np.log10(level) + 1e-12).mean(axis=(1, 2))
        size, low, high = jackknife(dict(zip(pairs, small.tolist(), strict=True)), groups=trees)
        sizes.append(ActualSize(level, size, max(0.0, low), min(1.0, high)))
    return sizes


def predicted_size(common: ArrayLike, width: int, level: float) -> float:
    """Size of one block from the numbers of common units alone, with a normal law about the shifted mean.

    Parameters
    ----------
    common
        Common units of each of many blocks.
    width
        Units of each.
    level
        Nominal, two-sided.
    """
    shift = (np.asarray(common, dtype=float) - 1.0) / np.sqrt(width - 1.0)
    z = stats.norm.isf(level / 2.0)
    return float(np.mean(stats.norm.sf(z - shift) + stats.norm.sf(z + shift)))


def fisher_draws(common: ArrayLike, width: int, n_blocks: int, n_draws: int, *, rng: np.random.Generator) -> Floats:
    """Draw log10 p of Fisher's aggregate over many blocks of independent models, with common units like those given.

    Blocks draw their number of common units from `common`, each for itself; the correlation is normal about the
    shifted mean. The share of draws up to a nominal level is the actual size there, and a quantile is the nominal level
    whose actual size is its share.

    Returns
    -------
    array
        ``(n_draws,)``.
    """
    pool = np.asarray(common, dtype=float).ravel()
    aggregate = np.empty(n_draws)
    step = max(1, 2_000_000 // n_blocks)
    for start in range(0, n_draws, step):
        shape = (min(step, n_draws - start), n_blocks)
        shift = (rng.choice(pool, shape) - 1.0) / np.sqrt(width - 1.0)
        tail = 2.0 * special.ndtr(-np.abs(rng.standard_normal(shape) + shift))
        aggregate[start : start + shape[0]] = pvalues.fisher(np.log10(tail), axis=1)
    return aggregate


def pair_matchings(
    a: tuple[Rows, Rows], b: tuple[Rows, Rows], *, seed: int, unsigned: bool = False
) -> NDArray[np.int64]:
    """Match the units of two blocks by gate and by up activations, ``(2, h)``.

    Parameters
    ----------
    a, b
        Gate and up activations of a block, ``(h, tokens)`` each, or the `unit_rows` of either.
    seed
        The seed of the orders in which ties are broken; another one for each block.
    unsigned
        Match by the size of the cosine, whatever its sign.
    """
    return np.stack(
        [
            match_shuffled(x, y, seed=tie_seed(seed, side), unsigned=unsigned).indices
            for side, (x, y) in enumerate(zip(a, b, strict=True))
        ]
    )


def alignment(gate: ArrayLike, up: ArrayLike) -> Floats:
    """Size of the correlation of each unit's own gate and up activations, ``(h,)`` between 0 and 1.

    Parameters
    ----------
    gate, up
        ``(h, tokens)`` activations of one block of one model.
    """
    first, second = centred(gate), centred(up)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.abs((first * second).sum(axis=1)) / np.maximum(lengths, np.finfo(float).tiny)


def centred(activations: ArrayLike) -> Floats:
    """Subtract from each unit its mean over the tokens."""
    values = np.asarray(activations, dtype=np.float64)
    return np.asarray(values - values.mean(axis=1, keepdims=True))


def _half(gate: Activations, up: Activations, score: Floats) -> tuple[Activations, Activations]:
    """Return the half of the units with the smallest scores, in their order."""
    chosen = np.sort(np.argsort(score, kind="stable")[: len(score) // 2])
    return gate[chosen], up[chosen]


Ablation = Callable[[Activations, Activations, np.random.Generator], tuple[Activations, Activations]]
#: changes of the gate and up activations of a block before its units are matched
ABLATIONS: dict[str, Ablation] = {
    "all units": lambda gate, up, rng: (gate, up),
    "half of them, at random": lambda gate, up, rng: _half(gate, up, rng.random(len(gate))),
    "the half most aligned": lambda gate, up, rng: _half(gate, up, -alignment(gate, up)),
    "the half least aligned": lambda gate, up, rng: _half(gate, up, alignment(gate, up)),
    "means removed": lambda gate, up, rng: (centred(gate), centred(up)),
    "means removed, least aligned": lambda gate, up, rng: _half(centred(gate), centred(up), alignment(gate, up)),
}
