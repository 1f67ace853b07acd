"""The size of every statistic of `compare`, by the path that a user's two models take.

A check of p-values that it computes itself sees nothing of how the library breaks ties, adds up blocks, or which solver
it finds installed. So `Statistic.compare_block` and `Statistic.aggregate` of the library do all of the work here; only
the features are handed to them, as no file holds these networks.
"""

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from provlab.chapters.calibration.trained import N_BLOCKS, WIDTH, Networks, ResidualPairs
from provlab.chapters.shared import calibration
from provlab.inference import pvalues
from provlab.inference.matching import unit_rows
from provlab.models.anatomy import Anatomy, TensorPart
from provlab.models.architectures import Segment
from provlab.plots import format_interval, style
from provlab.statistics import get
from provlab.statistics.base import BlockResult, Options
from provlab.statistics.phi_l2 import BlockWeights
from provlab.statistics.phi_u import PhiU

Floats = NDArray[np.float64]

OF_WEIGHTS_AND_TEXT = ("phi_u", "phi_h", "phi_match", "phi_match_unsigned", "phi_views")  # by MATCH
OF_PERMTEST = ("phi_l2", "phi_l2_blocks")
T, T_BLOCK = 19, 99  # permuted copies of phi_l2: few, as each pair has copies of its own
LEVEL = 0.01  # at which a row of the table is flagged, all rows and levels together
AS_TRAINED, TIED = "as trained", "one sign a unit"
COMPILED, SCIPY, EITHER = "compiled", "scipy", "either"


Row = tuple[str, str, str]  # statistic, weights, solver


@dataclass(frozen=True, eq=False)
class Compared:
    """log10 p of pairs of networks, by statistic, weights and solver.

    Attributes
    ----------
    blocks
        Of each block, ``(n_pairs, L)``.
    whole
        Of the pair, by `Statistic.aggregate`, ``(n_pairs,)``.
    """

    blocks: dict[Row, Floats]
    whole: dict[Row, Floats]


def compare(
    pairs: ResidualPairs,
    *,
    seed: int,
    statistics: Sequence[str] = (*OF_WEIGHTS_AND_TEXT, *OF_PERMTEST),
    weights: Sequence[str] = (AS_TRAINED, TIED),
    solvers: Sequence[str] = (COMPILED, SCIPY),
) -> Compared:
    """Compare both networks of each pair as a study of its own, whose seed is `seed` and the number of the pair.

    Weights as trained are matched by the first of `solvers` alone: without ties there is one best matching to find.
    """
    found = Compared({}, {})
    for stored in weights:
        sides = pairs.networks(tied=stored == TIED)
        anatomy = _anatomy(sides[0].gate.shape[2])
        for pair in range(len(pairs)):
            options = Options(seed=seed + pair, n_permutations=T, n_block_permutations=T_BLOCK)
            features = [[_features(side, anatomy, pair, block) for block in range(N_BLOCKS)] for side in sides]
            for solver in solvers if stored == TIED else solvers[:1]:
                with without_compiler() if solver == SCIPY else nullcontext():
                    for name in statistics:
                        if name not in OF_PERMTEST:
                            _compare(found, (name, stored, solver), pair, len(pairs), features, options)
                        elif solver == solvers[0]:  # nothing is matched
                            _compare(found, (name, stored, EITHER), pair, len(pairs), features, options)
    return found


def match_rows(first: ArrayLike, second: ArrayLike, *, seed: int) -> list[BlockResult]:
    """phi_U of one block of many pairs, or whatever else is matched by its rows, ``(n_pairs, m, columns)`` each."""
    statistic = PhiU()
    return [
        statistic.compare_block(unit_rows(a), unit_rows(b), 0, Options(seed=seed + pair))
        for pair, (a, b) in enumerate(zip(np.asarray(first), np.asarray(second), strict=True))
    ]


def log10_p(results: Sequence[BlockResult]) -> Floats:
    """log10 p of each, ``(n_pairs,)``."""
    return np.array([result.log10_p for result in results])


def _compare(
    found: Compared, row: Row, pair: int, n_pairs: int, features: list[list[dict[str, Any]]], options: Options
) -> None:
    """Compare one pair by one statistic, and write down what comes out."""
    name = row[0]
    statistic = get(name)
    results = [
        statistic.compare_block(a[name], b[name], block, options)
        for block, (a, b) in enumerate(zip(*features, strict=True))
    ]
    outcome = statistic.aggregate(results)
    found.blocks.setdefault(row, np.empty((n_pairs, N_BLOCKS)))[pair] = [result.log10_p for result in results]
    found.whole.setdefault(row, np.empty(n_pairs))[pair] = outcome.log10_p


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
    """What is permuted with what in the blocks of these networks, as `phi_l2` asks."""
    shapes = {"gate": ("mlp", "model"), "up": ("mlp", "model"), "down": ("model", "mlp")}
    sizes = {"mlp": hidden_units, "model": WIDTH}
    parts = tuple(
        TensorPart(
            f"{role}.{block}",
            block,
            (Segment(role, axes),),
            (sizes[axes[0]],),
            tuple(sizes[axis] for axis in axes),
            transposed=False,
            interleaved=False,
            head_size=1,
        )
        for role, axes in shapes.items()
        for block in range(N_BLOCKS)
    )
    return Anatomy("residual network", N_BLOCKS, WIDTH, 0, parts, (), False, None, hidden_units)


def _features(networks: Networks, anatomy: Anatomy, pair: int, block: int) -> dict[str, Any]:
    """What `Features.block` of each statistic would give for one block of one network."""
    gate, up, down = networks.gate[pair, block], networks.up[pair, block], networks.down[pair, block]
    inner = unit_rows(up)
    tokens = np.zeros((0, 0), np.int64)
    seen = unit_rows(networks.seen_gate[pair, block]), unit_rows(networks.seen_up[pair, block]), tokens
    tensors = {f"gate.{block}": gate, f"up.{block}": up, f"down.{block}": down.T}
    weights = BlockWeights(anatomy, block, tensors)
    return {
        "phi_u": inner,
        "phi_h": unit_rows(networks.hidden[pair, block]),
        "phi_match": seen,
        "phi_match_unsigned": seen,
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
    sizes: tuple[calibration.Size, ...]
    too_many: tuple[float, ...]


def size_table(found: Mapping[Row, Floats]) -> list[SizeRow]:
    """Shares of small p-values, each row and level by the exact binomial test, corrected by Holm's method.

    Parameters
    ----------
    found
        log10 p of disjoint pairs, ``(n_pairs,)`` each, such as `Compared.whole`.
    """
    order = (*OF_WEIGHTS_AND_TEXT, *OF_PERMTEST)
    sizes = {
        key: calibration.check(found[key], n_permutations=T if key[0] == "phi_l2" else None).sizes
        for key in sorted(found, key=lambda key: order.index(key[0]))
    }
    asked = [(key, size) for key, row in sizes.items() for size in row]
    adjusted = pvalues.holm([size.log10_p for _, size in asked])
    flagged = {(key, size.level) for (key, size), p in zip(asked, adjusted, strict=True) if p <= math.log10(LEVEL)}
    return [SizeRow(*key, row, tuple(s.level for s in row if (key, s.level) in flagged)) for key, row in sizes.items()]


def of_models(frame: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> dict[Row, Floats]:
    """Rows of language models: log10 p of disjoint pairs, from a study's frame of pairs."""
    found = frame.set_index(["statistic", "a", "b"])["log10_p"]
    return {
        (name, "language models", COMPILED): np.array([found[name, a, b] for a, b in pairs])
        for name in frame["statistic"].unique()
    }


def worded(table: Sequence[SizeRow]) -> pd.DataFrame:
    """The table as the page shows it."""
    rows = []
    for row in table:
        shown = {f"≤ {s.level:g}": format_interval(s.share, s.low, s.high, 4) for s in row.sizes}
        rows.append(
            {
                "statistic": style.word(row.statistic),
                "weights": row.weights,
                "solver": row.solver,
                "pairs": f"{row.sizes[0].n:,}",
                **{f"≤ {level:g}": shown.get(f"≤ {level:g}", "out of reach") for level in calibration.SIZES},
                "too many": ", ".join(f"at {level:g}" for level in row.too_many) or "no",
            }
        )
    return pd.DataFrame(rows)
