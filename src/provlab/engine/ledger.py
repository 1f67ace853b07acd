"""What a study knows of its pairs: found in the store, missing, failed; and how a finished unit is kept."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from provlab.engine.schedule import Pair, Place, by_block, places
from provlab.engine.store import Store
from provlab.engine.units import PAIR_FAILURES, Failed, comparable, reason
from provlab.errors import MissingRoleError, NotComparableError
from provlab.statistics.base import BlockResult, Model, Options, Outcome, Statistic


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


def unit_key(statistic: Statistic, a: Model, b: Model, block: Place, options: Options) -> str:
    """Key of one finished unit: the statistic and its version, both digests, what it read of the options."""
    return Store.key(
        statistic=statistic.name,
        version=statistic.version,
        a=a.checkpoint.digest,
        b=b.checkpoint.digest,
        block=block,
        parameters=statistic.parameters(options),
    )


def finished_unit(
    statistic: Statistic,
    sources: Pair,
    models: tuple[Model, Model],
    block: Place,
    options: Options,
    store: Store | None,
    compare: Callable[[], BlockResult],
) -> BlockResult:
    """Return one unit from the store, or compute it by `compare` and store it.

    Raises
    ------
    NotComparableError
        The arrays that were to be compared do not fit; the message says whose they are.
    """
    key = unit_key(statistic, *models, block, options)
    found = stored(store, key)
    if found is None:
        found = comparable(statistic, *models, block, compare)
        keep(store, key, statistic, sources, models, block, options, found)
    return found


def stored(store: Store | None, key: str) -> BlockResult | None:
    """Return a finished unit, or None."""
    found = store.get(key) if store else None
    if store is None or found is None:
        return None
    block = found["block"] if isinstance(found["block"], int) else None
    return BlockResult(block, found["value"], found["log10_p"], found["detail"], store.matching(key))


def keep(
    store: Store | None,
    key: str,
    statistic: Statistic,
    sources: Pair,
    models: tuple[Model, Model],
    block: Place,
    options: Options,
    result: BlockResult,
) -> None:
    """Write a finished unit, if there is a store."""
    if not store:
        return
    a, b = (
        {"source": source, "digest": model.checkpoint.digest, "commit": model.checkpoint.commit}
        for source, model in zip(sources, models, strict=True)
    )
    unit = {
        "statistic": statistic.name,
        "version": statistic.version,
        "a": a,
        "b": b,
        "parameters": statistic.parameters(options),
        "block": block,
        "value": result.value,
        "log10_p": result.log10_p,
        "detail": result.detail,
    }
    store.put(key, unit, result.matching)


class Ledger:
    """One statistic over the pairs of a study: what is known, what is missing, what failed."""

    def __init__(
        self,
        bench: Bench,
        statistic: Statistic,
        options: Options,
        store: Store | None,
        wanted: Sequence[Pair],
        only: Sequence[int] | None,
        strict: bool,
    ) -> None:
        self.bench, self.statistic, self.options, self.store = bench, statistic, options, store
        self.wanted, self.strict = wanted, strict
        self.errors: dict[Pair, tuple[int, str]] = {}  # the first block that failed, in their order, and why
        self.found: dict[tuple[Pair, int | None], BlockResult] = {}
        self.keys: dict[tuple[Pair, int | None], str] = {}
        opened = []
        for pair in wanted:
            refused = [bench.refused[source] for source in pair if source in bench.refused]
            if refused:
                self.errors[pair] = -1, refused[0]
            else:
                opened.append(pair)
        self.places, errors = places(statistic, bench.models, opened, only)
        for pair, error in errors.items():
            self.failed(pair, None, error)

    def models(self, pair: Pair) -> tuple[Model, Model]:
        """Both models of a pair."""
        return self.bench.models[pair[0]], self.bench.models[pair[1]]

    def missing(self) -> dict[int | None, list[Pair]]:
        """Look up the store, and return the pairs of each block that are not in it."""
        left: dict[Pair, list[int | None]] = {}
        for pair, blocks in self.places.items():
            try:
                for block in blocks:
                    key = unit_key(self.statistic, *self.models(pair), block, self.options)
                    self.keys[pair, block] = key
                    found = stored(self.store, key)
                    if found is not None:
                        self.found[pair, block] = found
                left[pair] = [block for block in blocks if (pair, block) not in self.found]
            except PAIR_FAILURES as error:
                self.failed(pair, None, error)
        return by_block(left)

    def take(self, pair: Pair, block: int | None, result: BlockResult | Failed | BaseException) -> None:
        """Enter what came out for one pair on one block, and keep it if it is a result."""
        if isinstance(result, BlockResult):
            self.found[pair, block] = result
            keep(
                self.store,
                self.keys[pair, block],
                self.statistic,
                pair,
                self.models(pair),
                block,
                self.options,
                result,
            )
        else:
            self.failed(pair, block, result.reason if isinstance(result, Failed) else result)

    def failed(self, pair: Pair, block: int | None, why: BaseException | str) -> None:
        """Note why a pair failed, or let a strict run fail with it."""
        if (
            self.strict
            and isinstance(why, BaseException)
            and not isinstance(why, (NotComparableError, MissingRoleError))
        ):
            raise why
        place = -1 if block is None else block
        if pair not in self.errors or place < self.errors[pair][0]:
            self.errors[pair] = place, why if isinstance(why, str) else reason(why)

    def records(self) -> Iterator[PairRecord]:
        """One record per pair, aggregated over its blocks."""
        for pair in self.wanted:
            if pair in self.errors:
                yield PairRecord(*pair, self.statistic.name, None, self.errors[pair][1])
                continue
            blocks = self.places[pair]
            outcome = self.statistic.aggregate([self.found[pair, block] for block in blocks])
            keys = tuple(self.keys[pair, block] for block in blocks)
            yield PairRecord(*pair, self.statistic.name, outcome, None, keys)
