"""Pairs of a study that are finished, missing or failed; and how a finished unit is kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provlab.engine.memory import Pair
from provlab.engine.reference import Result
from provlab.engine.store import Store
from provlab.engine.tasks import Place
from provlab.errors import PAIR_FAILURES, InputError, reason
from provlab.statistics.base import Model, Options, Statistic
from provlab.statistics.results import BlockResult, Outcome


@dataclass(frozen=True)
class PairRecord:
    """One statistic on one pair.

    Attributes
    ----------
    a, b : str
        Sources of the two models, in the order in which they were compared.
    statistic : str
        Registered name.
    outcome : Outcome or None
        ``None`` where the comparison failed.
    error : str or None
        Why it failed, one line.
    keys : tuple of str
        Where the finished units stand in the store.
    """

    a: str
    b: str
    statistic: str
    outcome: Outcome | None
    error: str | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bench:
    """The sources in their order, the models that opened, by source, and the reason for each that did not."""

    sources: tuple[str, ...]
    models: dict[str, Model]
    refused: dict[str, str]
    allow_pickle: bool = False


@dataclass(frozen=True)
class Finished:
    """Finished units of one statistic, under a hash of all that their numbers depend on; none without a store.

    A key is the hash of the statistic, its version and what it reads of the options, of both digests (with those of the
    tokenizers where it reads text), and of the block.
    """

    store: Store | None
    statistic: Statistic
    options: Options

    def key(self, models: Sequence[Model], block: Place) -> str:
        """Key of one unit, whether it is finished or not."""
        a, b = (self.statistic.identity(model, self.options) for model in models)
        return Store.key(**self._about(a, b), block=block)

    def get(self, key: str) -> BlockResult | None:
        """Return a finished unit, or None."""
        if not self.store or (unit := self.store.get(key)) is None:
            return None
        return BlockResult.from_record(unit, self.store.matching(key))

    def put(self, key: str, sources: Pair, models: Sequence[Model], block: Place, result: BlockResult) -> None:
        """Write a finished unit."""
        if not self.store:
            return
        sides = (
            {"source": source, "digest": model.checkpoint.digest, "commit": model.checkpoint.commit}
            for source, model in zip(sources, models, strict=True)
        )
        self.store.put(key, self._about(*sides) | result.as_record() | {"block": block}, result.matching)

    def _about(self, a: object, b: object) -> dict[str, object]:
        statistic = self.statistic
        parameters = statistic.parameters(self.options)
        return {"statistic": statistic.name, "version": statistic.version, "a": a, "b": b, "parameters": parameters}


class Ledger:
    """One statistic over the pairs of a study: what is known, what is missing, what failed.

    Attributes
    ----------
    errors : dict
        Pair -> the first block that failed, in their order (-1 before any), and why.
    """

    def __init__(self, bench: Bench, finished: Finished, pairs: Sequence[Pair], only: Sequence[int] | None) -> None:
        self.bench, self.finished, self.statistic = bench, finished, finished.statistic
        self.pairs = pairs
        self.errors: dict[Pair, tuple[int, str]] = {}
        self._results: dict[tuple[Pair, int | None], BlockResult] = {}
        self._keys: dict[tuple[Pair, int | None], str] = {}
        self._places: dict[Pair, list[int | None]] = {}
        for pair in pairs:
            if refused := [bench.refused[source] for source in pair if source in bench.refused]:
                self.errors[pair] = -1, refused[0]
                continue
            try:
                self._places[pair] = self._blocks(pair, only)
            except PAIR_FAILURES as error:
                self.take(pair, None, error)

    def _blocks(self, pair: Pair, only: Sequence[int] | None) -> list[int | None]:
        blocks = self.statistic.blocks(*(self.bench.models[source] for source in pair))
        if only is None or blocks == [None]:
            return blocks
        if unknown := [block for block in only if block not in blocks]:
            raise InputError(
                f"there is no block {', '.join(map(str, unknown))}: these models have blocks 0 to {len(blocks) - 1}"
            )
        return [*sorted(set(only))]  # a block counted twice would count twice in Fisher

    def missing(self) -> dict[int | None, list[Pair]]:
        """Look up the store, and return the pairs of each block that are not in it."""
        left: dict[int | None, list[Pair]] = {}
        for pair, blocks in self._places.items():
            try:
                for block in blocks:
                    key = self._keys[pair, block] = self.finished.key([self.bench.models[s] for s in pair], block)
                    if (result := self.finished.get(key)) is not None:
                        self._results[pair, block] = result
            except PAIR_FAILURES as error:
                self.take(pair, None, error)
                continue
            for block in blocks:
                if (pair, block) not in self._results:
                    left.setdefault(block, []).append(pair)
        return dict(sorted(left.items(), key=lambda item: -1 if item[0] is None else item[0]))

    def take(self, pair: Pair, block: int | None, result: Result) -> None:
        """Enter what came out for one pair on one block (None: on all): keep a result, or note why there is none."""
        if isinstance(result, BlockResult):
            self._results[pair, block] = result
            models = [self.bench.models[source] for source in pair]
            self.finished.put(self._keys[pair, block], pair, models, block, result)
            return
        at = -1 if block is None else block
        if pair not in self.errors or at < self.errors[pair][0]:
            self.errors[pair] = at, reason(result)

    def records(self) -> Iterator[PairRecord]:
        """One record per pair, aggregated over its blocks."""
        for pair in self.pairs:
            if pair in self.errors:
                yield PairRecord(*pair, self.statistic.name, None, self.errors[pair][1])
                continue
            units = [(pair, block) for block in self._places[pair]]
            outcome = self.statistic.outcome([self._results[unit] for unit in units])
            yield PairRecord(*pair, self.statistic.name, outcome, None, tuple(self._keys[unit] for unit in units))
