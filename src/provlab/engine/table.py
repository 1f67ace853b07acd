"""Which jobs of a statistic are finished, missing or failed; and how a finished result is kept."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from provlab.codehash import code_digest
from provlab.engine.jobs import Place
from provlab.engine.memory import Pair
from provlab.engine.reference import Result
from provlab.engine.store import Store
from provlab.errors import PAIR_FAILURES, InputError, reason
from provlab.statistics.base import Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.results import FIELDS, BlockResult, Outcome

#: places and pairs that one job is to compare
Missing = tuple[tuple[Place, ...], list[Pair]]


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
        Where the finished results stand in the store, if there is one.
    """

    a: str
    b: str
    statistic: str
    outcome: Outcome | None
    error: str | None = None
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpenedModels:
    """The sources in their order, the models that opened, by source, the reason for each that did not, and how."""

    sources: tuple[str, ...]
    models: dict[str, Model]
    refused: dict[str, str]
    allow_pickle: bool = False
    in_part: bool = False


@dataclass(frozen=True)
class ResultCache:
    """Finished results of one statistic, under a hash of all that their numbers depend on; none without a store.

    A key is the hash of the statistic, the code behind it and what it reads of the options, of what fields a result
    has, of both digests (with those of the tokenizers where it reads text), and of the place. A statistic that no file
    holds counts by its version.
    """

    store: Store | None
    statistic: Statistic
    options: Options

    def key(self, models: Sequence[Model], place: Place) -> str:
        """Key of one result, whether it is finished or not; empty where none is kept."""
        if not self.store:
            return ""
        a, b = (self.statistic.identity(model, self.options) for model in models)
        return Store.key(**self._about(a, b), code=code_digest(type(self.statistic)), block=place)

    def get(self, key: str) -> BlockResult | None:
        """Return a finished result, or None."""
        if not self.store or (kept := self.store.get(key)) is None:
            return None
        return BlockResult.from_record(kept, self.store.matching(key))

    def put(self, key: str, sources: Pair, models: Sequence[Model], place: Place, result: BlockResult) -> None:
        """Write a finished result."""
        if not self.store:
            return
        sides = (
            {"source": source, "digest": model.checkpoint.digest, "commit": model.checkpoint.commit}
            for source, model in zip(sources, models, strict=True)
        )
        self.store.put(key, self._about(*sides) | result.as_record() | {"block": place}, result.matching)

    def _about(self, a: object, b: object) -> dict[str, object]:
        statistic = self.statistic
        parameters = statistic.parameters(self.options)
        about = {"statistic": statistic.name, "version": statistic.version, "fields": FIELDS, "parameters": parameters}
        return {**about, "a": a, "b": b}


class JobTable:
    """One statistic over the pairs of a study: what is known, what is missing, what failed.

    Attributes
    ----------
    errors : dict
        Pair -> its first place that failed, in their order (-1 before any), and why.
    results : dict
        Pair and place -> result.
    """

    def __init__(
        self, opened: OpenedModels, cache: ResultCache, pairs: Sequence[Pair], only: Sequence[int] | None
    ) -> None:
        self.opened, self.cache, self.statistic = opened, cache, cache.statistic
        self.pairs = pairs
        self.errors: dict[Pair, tuple[int, str]] = {}
        self.results: dict[tuple[Pair, Place], BlockResult] = {}
        self._keys: dict[tuple[Pair, Place], str] = {}
        self._places: dict[Pair, Sequence[Place]] = {}
        for pair in pairs:
            if refused := [opened.refused[source] for source in pair if source in opened.refused]:
                self.errors[pair] = -1, refused[0]
                continue
            try:
                a, b = self._models(pair)
                self._places[pair] = self.places(a, b, only)
            except PAIR_FAILURES as error:
                self.take(pair, None, error)

    def places(self, a: Model, b: Model, only: Sequence[int] | None) -> Sequence[Place]:
        """Where the statistic compares a pair."""
        blocks = self.statistic.blocks(a, b)
        if only is None or blocks == [None]:
            return blocks
        if unknown := [block for block in only if block not in blocks]:
            raise InputError(
                f"there is no block {', '.join(map(str, unknown))}: these models have blocks 0 to {len(blocks) - 1}"
            )
        return sorted(set(only))  # a block counted twice would count twice in Fisher

    def _models(self, pair: Pair) -> list[Model]:
        return [self.opened.models[source] for source in pair]

    def missing(self) -> dict[Place, list[Pair]]:
        """Look up the store, and return the pairs of each place that are not in it."""
        left: dict[Place, list[Pair]] = {}
        for pair, places in self._places.items():
            try:
                for place in places:
                    key = self._keys[pair, place] = self.cache.key(self._models(pair), place)
                    if (result := self.cache.get(key)) is not None:
                        self.results[pair, place] = result
            except PAIR_FAILURES as error:
                self.take(pair, None, error)
                continue
            for place in places:
                if (pair, place) not in self.results:
                    left.setdefault(place, []).append(pair)
        return left

    def jobs(self) -> list[Missing]:
        """The missing ones as jobs: a place and its pairs, so that each tensor is read once; places in their order."""
        left = sorted(self.missing().items(), key=lambda item: order_of(item[0]))
        return [((place,), pairs) for place, pairs in left]

    def take(self, pair: Pair, place: Place, result: Result) -> None:
        """Enter what came out for one pair at one place (None: at all): keep a result, or note why there is none."""
        if isinstance(result, BlockResult):
            self.results[pair, place] = result
            self.cache.put(self._keys[pair, place], pair, self._models(pair), place, result)
            return
        at = order_of(place)
        if pair not in self.errors or at < self.errors[pair][0]:
            self.errors[pair] = at, reason(result)

    def records(self) -> Iterator[PairRecord]:
        """One record per pair, aggregated over its blocks."""
        for pair in self.pairs:
            if pair in self.errors:
                yield PairRecord(*pair, self.statistic.name, None, self.errors[pair][1])
            else:
                yield self.record(pair)

    def record(self, pair: Pair) -> PairRecord:
        """The record of a pair without an error."""
        at = [(pair, place) for place in self._places[pair]]
        outcome = self.statistic.outcome([self.results[each] for each in at])
        return PairRecord(*pair, self.statistic.name, outcome, None, self.keys(at))

    def keys(self, at: Iterable[tuple[Pair, Place]]) -> tuple[str, ...]:
        """Where the results stand in the store, if there is one."""
        return tuple(self._keys[each] for each in at) if self.cache.store else ()


def order_of(place: Place) -> int:
    """A place among others: the whole model before block 0, a pair of blocks by the first model's."""
    return -1 if place is None else place[0] if isinstance(place, tuple) else place
