"""The size of every statistic of `compare`, by the path that a user's two models take.

A check of p-values that it computes itself sees nothing of how the library breaks ties, adds up blocks, or which solver
it finds installed. So `Statistic.compare_block` and `Statistic.aggregate` of the library do all of the work here; only
the features are handed to them, as no file holds these networks.
"""

import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.inference import pvalues
from provlab.inference.matching import unit_rows
from provlab.reading.anatomy import Anatomy, TensorPart
from provlab.reading.architectures import Segment
from provlab.statistics import get
from provlab.statistics.options import Options
from provlab.statistics.phi_l2 import BlockWeights
from provlab.statistics.results import BlockResult
from provlab_study.calibration.trained import N_BLOCKS, WIDTH, Networks, ResidualPairs
from provlab_study.shared.calibration.check import Size, sizes

Floats = NDArray[np.float64]
Row = tuple[str, str, str]  # statistic, weights, solver

T, T_BLOCK = 19, 99  # permuted copies of phi_l2: few, as each pair has copies of its own
LEVEL = 0.01  # at which a row of the table is flagged, all rows and levels together
AS_TRAINED, TIED = "as trained", "one sign a unit"
COMPILED, SCIPY, EITHER = "compiled", "scipy", "either"
MATCHED = ("phi_u", "phi_h", "phi_match", "phi_match_unsigned", "phi_views")
#: weights as trained are matched by one solver: without ties there is one best matching to find
ROWS: tuple[Row, ...] = (
    *((name, *how) for name in MATCHED for how in ((AS_TRAINED, COMPILED), (TIED, COMPILED), (TIED, SCIPY))),
    *((name, weights, EITHER) for name in ("phi_l2", "phi_l2_blocks") for weights in (AS_TRAINED, TIED)),
)


@dataclass(frozen=True, eq=False)
class Compared:
    """log10 p of pairs of networks, by statistic, weights and solver.

    Attributes
    ----------
    blocks
        p-values of blocks, ``(n_pairs, L)``.
    whole
        p-values of pairs, by `Statistic.aggregate`, ``(n_pairs,)``.
    """

    blocks: dict[Row, Floats]
    whole: dict[Row, Floats]


def compare(pairs: ResidualPairs, rows: Iterable[Row] = ROWS, *, seed: int) -> Compared:
    """Compare both networks of each pair as a study of its own, whose seed is `seed` plus the number of the pair."""
    blocks = {row: np.empty((len(pairs), N_BLOCKS)) for row in rows}
    whole = {row: np.empty(len(pairs)) for row in blocks}
    for weights in dict.fromkeys(row[1] for row in blocks):
        sides = pairs.networks(tied=weights == TIED)
        anatomy = _anatomy(sides[0].gate.shape[2])
        for pair in range(len(pairs)):
            options = Options(seed=seed + pair, n_permutations=T, n_block_permutations=T_BLOCK)
            features = [[_features(side, anatomy, pair, block) for block in range(N_BLOCKS)] for side in sides]
            for row in (row for row in blocks if row[1] == weights):
                statistic = get(row[0])
                with without_compiler() if row[2] == SCIPY else nullcontext():
                    results = [
                        statistic.compare_block(a[row[0]], b[row[0]], block, options)
                        for block, (a, b) in enumerate(zip(*features, strict=True))
                    ]
                blocks[row][pair] = log10_p(results)
                whole[row][pair] = statistic.aggregate(results).log10_p
    return Compared(blocks, whole)


def match_rows(first: ArrayLike, second: ArrayLike, *, seed: int) -> list[BlockResult]:
    """phi_U of one block of many pairs, or of other features with one row a unit, ``(n_pairs, m, columns)`` each."""
    statistic = get("phi_u")
    return [
        statistic.compare_block(unit_rows(a), unit_rows(b), 0, Options(seed=seed + pair))
        for pair, (a, b) in enumerate(zip(np.asarray(first), np.asarray(second), strict=True))
    ]


def log10_p(results: Sequence[BlockResult]) -> Floats:
    """log10 p of each result, ``(n,)``."""
    return np.array([result.log10_p for result in results])


def same_block(pairs: ResidualPairs, *, seed: int) -> Floats:
    """Three p-values that share the renumbering of one block, ``(pairs, 3)`` log10: phi_H without a third of inputs."""
    first, second = (networks.hidden[:, 0] for networks in pairs.networks())
    thirds = np.arange(first.shape[-1]) % 3
    return np.stack(
        [log10_p(match_rows(first[..., thirds != k], second[..., thirds != k], seed=seed)) for k in range(3)], axis=1
    )


def ties_alike(pairs: ResidualPairs, *, seed: int) -> Floats:
    """log10 p ``(pairs, blocks)`` of tied up projections, ties broken alike in every block: a fault."""
    first, second = (side.up.swapaxes(0, 1) for side in pairs.networks(tied=True))  # (blocks, pairs, units, width)
    with without_compiler():
        return np.stack([log10_p(match_rows(a, b, seed=seed)) for a, b in zip(first, second, strict=True)], axis=1)


@contextmanager
def without_compiler() -> Iterator[None]:
    """Within, MATCH is solved by scipy, as where numba is not installed."""
    before = os.environ.get("PROVLAB_NO_COMPILE")
    os.environ["PROVLAB_NO_COMPILE"] = "1"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "matching by scipy's solver", RuntimeWarning)
            yield
    finally:
        os.environ.pop("PROVLAB_NO_COMPILE")
        if before is not None:
            os.environ["PROVLAB_NO_COMPILE"] = before


def _anatomy(hidden_units: int) -> Anatomy:
    """Axes that are permuted together in the blocks of these networks, for `phi_l2`."""
    shapes = {"gate": ("mlp", "model"), "up": ("mlp", "model"), "down": ("model", "mlp")}
    lengths = {"mlp": hidden_units, "model": WIDTH}
    parts = tuple(
        TensorPart(
            f"{role}.{block}",
            block,
            (Segment(role, axes),),
            (lengths[axes[0]],),
            tuple(lengths[axis] for axis in axes),
            transposed=False,
            interleaved=False,
            head_size=1,
        )
        for role, axes in shapes.items()
        for block in range(N_BLOCKS)
    )
    return Anatomy("residual network", N_BLOCKS, WIDTH, 0, parts, (), False, None, hidden_units)


def _features(networks: Networks, anatomy: Anatomy, pair: int, block: int) -> dict[str, Any]:
    """Features of one block of one network, as `Features.block` of each statistic gives them."""
    gate, up, down = networks.gate[pair, block], networks.up[pair, block], networks.down[pair, block]
    inner = unit_rows(up)
    tokens = np.zeros((0, 0), np.int64)
    activations = unit_rows(networks.seen_gate[pair, block]), unit_rows(networks.seen_up[pair, block]), tokens
    tensors = {f"gate.{block}": gate, f"up.{block}": up, f"down.{block}": down.T}
    weights = BlockWeights(anatomy, block, tensors)
    return {
        "phi_u": inner,
        "phi_h": unit_rows(networks.hidden[pair, block]),
        "phi_match": activations,
        "phi_match_unsigned": activations,
        "phi_views": (inner, unit_rows(down), tokens),
        "phi_l2": weights,
        "phi_l2_blocks": weights,
    }


# The table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SizeRow:
    """How often one statistic rejects pairs of independent models.

    Attributes
    ----------
    statistic, weights, solver
        What was compared, and how MATCH was solved.
    sizes
        At each level that the statistic can reach.
    too_many
        Levels at which there are more small p-values than chance explains, all rows and levels of the table together.
    """

    statistic: str
    weights: str
    solver: str
    sizes: tuple[Size, ...]
    too_many: tuple[float, ...]


def size_table(rows: Mapping[Row, Floats]) -> list[SizeRow]:
    """Shares of small p-values, each row and level by the exact binomial test, corrected by Holm's method.

    Parameters
    ----------
    rows
        log10 p of disjoint pairs, ``(n_pairs,)`` each, such as `Compared.whole`.
    """
    order = [statistic for statistic, *_ in ROWS]
    by_row = {
        row: sizes(rows[row], T if row[0] == "phi_l2" else None)
        for row in sorted(rows, key=lambda row: order.index(row[0]))
    }
    questions = [(row, size) for row, row_sizes in by_row.items() for size in row_sizes]
    adjusted = pvalues.holm([size.log10_p for _, size in questions])
    flagged = {(row, size.level) for (row, size), p in zip(questions, adjusted, strict=True) if p <= math.log10(LEVEL)}
    return [
        SizeRow(*row, counts, tuple(s.level for s in counts if (row, s.level) in flagged))
        for row, counts in by_row.items()
    ]
