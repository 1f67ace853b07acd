"""Where two models have a common origin: phi_MATCH of every block with every block, and unit by unit (Section 4.4.2).

A model that was cut out of another keeps some of its blocks, at other places, and some of their hidden units. phi_MATCH
needs neither equal depth nor equal width, so it can be asked of all pairs of blocks. Their p-values share
activations and are not independent: Holm's correction is read, never Fisher's aggregate.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from provlab.engine.ledger import Bench, Finished, PairRecord
from provlab.engine.pairs import BAR
from provlab.engine.store import Store
from provlab.engine.tasks import named, place
from provlab.errors import PAIR_FAILURES, NotComparableError, ParameterError, reason
from provlab.inference import pvalues
from provlab.inference.matching import UnitRows
from provlab.models import room
from provlab.models.room import keep
from provlab.statistics import get
from provlab.statistics.base import BlockResult, Model, Options, Outcome, Statistic
from provlab.statistics.phi_match import PhiMatch, keep_views

_STATISTIC = PhiMatch()
_SHOWN = 12  # pairs of blocks that a verdict names


@dataclass(frozen=True, eq=False)
class UnitMap:
    """Which hidden unit of the wider MLP each unit of the narrower one is.

    Attributes
    ----------
    by_gate, by_up : array
        ``(h,)`` int64: partner of unit k of the narrower MLP (of the first, where both are equally wide), by gate and
        by up activations.
    width : int
        Of the wider MLP.
    """

    by_gate: NDArray[np.int64]
    by_up: NDArray[np.int64]
    width: int

    @cached_property
    def agreed(self) -> NDArray[np.bool_]:
        """Units with one partner by both; of unrelated MLPs about one in all does."""
        return self.by_gate == self.by_up

    @property
    def kept(self) -> NDArray[np.int64]:
        """Units of the wider MLP that survived in the narrower one, ascending."""
        return np.sort(self.by_gate[self.agreed])


@dataclass(frozen=True, eq=False)
class BlockMap:
    """phi_MATCH of every block of one model with every block of another.

    Attributes
    ----------
    a, b : str
        Names of the two models.
    log10_p : array
        ``(blocks of a, blocks of b)``.
    rho : array
        Spearman correlations of the two matchings, of the same shape.
    floor : float
        The smallest log10 p that a pair of blocks can reach.
    units : mapping
        ``(i, j)`` -> the matching of their hidden units.
    """

    a: str
    b: str
    log10_p: NDArray[np.float64]
    rho: NDArray[np.float64]
    floor: float
    units: Mapping[tuple[int, int], UnitMap] = field(repr=False)

    @cached_property
    def holm(self) -> NDArray[np.float64]:
        """log10 p of all pairs of blocks, corrected together."""
        return pvalues.holm(self.log10_p.ravel()).reshape(self.log10_p.shape)

    def rejected(self, level: float = 0.01) -> list[tuple[int, int]]:
        """Pairs of blocks that Holm's procedure rejects at `level`, in order."""
        return [(int(i), int(j)) for i, j in np.argwhere(self.holm <= np.log10(level))]

    def mistakes(
        self, truth: Sequence[int], level: float = 0.01
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Pairs of blocks that are missed, and pairs that are found and wrong.

        Parameters
        ----------
        truth : sequence of int
            Block of a that each block of b was; empty if none was any.
        level : float
            As of `found`.
        """
        right, rejected = {(old, new) for new, old in enumerate(truth)}, set(self.rejected(level))
        return sorted(right - rejected), sorted(rejected - right)

    def origin(self, level: float = 0.01) -> dict[int, int | None]:
        """For each block of b the block of a that it comes from: the smallest p among those found, or None."""
        rejected = self.holm <= np.log10(level)
        best = np.where(rejected, self.log10_p, np.inf).argmin(axis=0)
        return {j: int(best[j]) if rejected[:, j].any() else None for j in range(self.log10_p.shape[1])}


def block_map(a: Model, b: Model, options: Options, *, store: Store | None = None, progress: bool = True) -> BlockMap:
    """Match every block of `a` with every block of `b` by phi_MATCH, after one pass over the text for each model.

    Parameters
    ----------
    a, b : Model
        Both with gated MLPs, of any depth and width, and with tokenizers that cut the text alike.
    options : Options
        With the held-out text; activations at its ``kept_tokens`` positions are kept, in memory or, where they are
        large, in temporary files, and normalised once for each block. Beside them there is memory for one block of
        each model, their similarities, and the matchings of all pairs.
    store : Store, optional
        Where finished pairs of blocks are kept and found again.
    progress : bool
        Show a bar with an estimate on stderr.

    Raises
    ------
    NotComparableError
        A model has no gated MLP, or the tokenizers cut the text differently.
    """
    results = _everywhere(_STATISTIC, a, b, Finished(store, _STATISTIC, options), progress=progress)
    return _mapped(a, b, results)


def all_with_all(
    bench: Bench, names: Sequence[str], options: Options, *, explicit: bool, store: Store | None, progress: bool
) -> list[PairRecord]:
    """Compare all blocks of two models with all, by those of these statistics that can: the best for the pair.

    Raises
    ------
    ParameterError
        It is asked for, and none of them can.
    """
    gated = all(model.anatomy.has("gate") for model in bench.models.values())
    able = [name for name in names if gated and name in ("phi_match", "phi_match_unsigned")]
    able = able or [name for name in names if name == "phi_u"]
    if explicit and not able:
        raise ParameterError("all blocks are compared by phi_match, where both models have gates, or phi_u; name one")
    (of_a, a), (of_b, b) = bench.models.items()
    records = [compared_everywhere(get(name), a, b, options, store=store, progress=progress) for name in able]
    return [replace(record, a=of_a, b=of_b) for record in records]  # as the models were named


def compared_everywhere(
    statistic: Statistic, a: Model, b: Model, options: Options, *, store: Store | None = None, progress: bool = True
) -> PairRecord:
    """Compare every block of `a` with every block of `b` and bring it to one p-value, for models of any depth.

    The p-value is the smallest of all pairs of blocks, adjusted by Holm over all of them. Blocks of the outcome are
    those of `a`, each with its best partner in `b` and the p-value adjusted likewise; its detail says under
    ``all_blocks`` how many blocks there are, what was found where, and how many pairs could not be compared and count
    as no evidence.

    Parameters
    ----------
    statistic : Statistic
        phi_match, its unsigned form, or phi_u.
    a, b, options, store, progress
        As of `block_map`; phi_u needs no text, and up projections of one shape.
    """
    finished = Finished(store, statistic, options)
    try:
        results = _everywhere(statistic, a, b, finished, progress=progress)
    except PAIR_FAILURES as error:
        return PairRecord(a.checkpoint.source, b.checkpoint.source, statistic.name, None, reason(error))
    block_map = _mapped(a, b, results)
    floor = min(0.0, block_map.floor + float(np.log10(block_map.holm.size)))
    blocks = []
    for i, row in enumerate(block_map.holm):
        compared = [
            (block_map.log10_p[i, j], j, result) for j in range(len(row)) if (result := results[i, j]) is not None
        ]
        if compared:
            _, j, result = min(compared, key=lambda entry: entry[:2])
            kept = ("n", "agree", "of_units")
            counts = {name: value for name, value in result.detail.items() if name in kept}
            blocks.append(BlockResult(i, result.value, float(row[j]), {**counts, "floor": floor, "partner": j}))
    detail = {
        "shape": list(block_map.holm.shape),
        "found": [list(pair) for pair in block_map.rejected()],
        "not_compared": sum(result is None for result in results.values()),
        "log10_p": block_map.log10_p.tolist(),
    }
    of_a, of_b = block_map.holm.shape
    pairs = ", ".join(f"{i} with {j}" for i, j in detail["found"][:_SHOWN]) or "none"
    more = f" and {left} more" if (left := len(detail["found"]) - _SHOWN) > 0 else ""
    lost = f"; {detail['not_compared']} pairs could not be compared" if detail["not_compared"] else ""
    message = (
        f"{statistic.name} compared all {of_a} blocks of one with all {of_b} of the other; its p-value is the smallest "
        f"of {of_a * of_b} pairs of blocks, by Holm over them (found: {pairs}{more}{lost})."
    )
    keys = tuple(finished.key((a, b), pair) for pair, result in results.items() if result is not None)
    best = min(blocks, key=lambda block: (float(block_map.holm[block.block].min()), -block.value))
    outcome = Outcome(best.value, best.log10_p, tuple(blocks), floor, {"all_blocks": detail, "said": message})
    return PairRecord(a.checkpoint.source, b.checkpoint.source, statistic.name, outcome, None, keys)


def _everywhere(
    statistic: Statistic, a: Model, b: Model, finished: Finished, *, progress: bool
) -> dict[tuple[int, int], BlockResult | None]:
    """Results of all pairs of blocks; None where two blocks cannot be compared, as where one has a row of zeros.

    Raises
    ------
    NotComparableError
        No pair of blocks can be compared; the reason is that of the first.
    """
    statistic.require(a, b)
    shape = a.anatomy.n_blocks, b.anatomy.n_blocks
    options = finished.options
    keys = {pair: finished.key((a, b), pair) for pair in product(range(shape[0]), range(shape[1]))}
    results: dict[tuple[int, int], BlockResult | None] = {pair: finished.get(key) for pair, key in keys.items()}
    left = [pair for pair, result in results.items() if result is None]
    if not left:
        return results
    of_a, of_b = (statistic.prepare(model, options) for model in (a, b))
    # a block of a is at hand while it meets all blocks of b, and these wait normalised
    first = functools.lru_cache(maxsize=1)(of_a.block)
    second = functools.cache(lambda j: _kept(of_b.block(j), room.IN_MEMORY // shape[1]))
    refused: list[NotComparableError] = []
    with tqdm(total=len(left), disable=not progress, leave=False, bar_format=BAR, desc="blocks") as bar:
        for i, j in left:
            try:
                with named(place(statistic.name, (i, j)), a.name, b.name):
                    result = results[i, j] = statistic.compare_block(first(i), second(j), i, options)
                finished.put(keys[i, j], (a.checkpoint.source, b.checkpoint.source), (a, b), (i, j), result)
            except NotComparableError as error:
                refused.append(error)
            bar.update()
    if len(refused) == len(results):
        raise refused[0]
    return results


def _kept(features: Any, limit: int) -> Any:
    """Return one block's features, in temporary files where they are large."""
    if isinstance(features, dict):  # of experts
        return {name: _kept(rows, limit // len(features)) for name, rows in features.items()}
    if isinstance(features, UnitRows):
        return replace(features, held=keep(features.unit, limit))
    return keep_views(features, limit)


def _mapped(a: Model, b: Model, results: Mapping[tuple[int, int], BlockResult | None]) -> BlockMap:
    """Bring results of phi_MATCH or phi_U together; a pair of blocks that was not compared is no evidence."""
    shape = a.anatomy.n_blocks, b.anatomy.n_blocks
    log10_p, rho = np.zeros(shape), np.full(shape, np.nan)
    units, floors = {}, []
    width = max(a.anatomy.mlp_width, b.anatomy.mlp_width)
    for pair, result in results.items():
        if result is None:
            continue
        log10_p[pair], rho[pair] = result.log10_p, result.value
        floors.append(result.detail["floor"])
        if result.matching is not None and result.matching.ndim == 2:
            units[pair] = UnitMap(result.matching[0], result.matching[1], width)
    return BlockMap(a.name, b.name, log10_p, rho, min(floors), units)
