"""All pairs of a list of models under a list of statistics: resumable, each tensor read once per statistic.

The unit of work is (statistic, block) over all models: features of one block are made for every model, every pair is
compared, and the features are dropped before the next block. A finished unit goes to the store at once. What fails for
one pair becomes a record with its reason, and the rest goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from tqdm import tqdm

from provlab.errors import InputError, MissingRoleError, NotComparableError, ProvlabError
from provlab.statistics import get as get_statistic
from provlab.statistics.base import BlockResult, Features, Model, Options, Outcome, Statistic
from provlab.studies.store import Store

#: where a unit lies: one block of both models, a block of each, or the whole models
Place = int | tuple[int, int] | None

BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed}, about {remaining} left"

# what may befall one pair without being a fault of the study: refusals, and the machine's own limits
PAIR_FAILURES = (ProvlabError, MemoryError, OSError, RuntimeError)


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


def open_models(sources: Sequence[str], *, allow_pickle: bool = False, strict: bool = False) -> Bench:
    """Open every source; one that cannot be opened is kept with its reason, or raises if `strict`.

    Raises
    ------
    InputError
        If fewer than two distinct sources are given, or two stand for one folder.
    """
    if repeated := sorted({s for s in sources if sources.count(s) > 1}):
        raise InputError(f"models must be distinct, but given more than once: {', '.join(repeated)}")
    if len(sources) < 2:
        raise InputError(f"a study needs at least two models, not {len(sources)}")
    models: dict[str, Model] = {}
    refused: dict[str, str] = {}
    for source in sources:
        try:
            models[source] = Model.open(source, allow_pickle=allow_pickle)
        except PAIR_FAILURES as error:
            if strict:
                raise
            refused[source] = reason(error)
    opened: dict[str, str] = {}  # what a source stands for, however it is written
    for source, model in models.items():
        other = opened.setdefault(model.checkpoint.source, source)
        if other != source:
            raise InputError(f"models must be distinct, but {other} and {source} are one")
    return Bench(tuple(sources), models, refused)


def reason(error: BaseException) -> str:
    """One line for a record: our own errors speak for themselves, others are named."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ProvlabError) else f"{type(error).__name__}: {text}"


def with_common_vocabulary(options: Options, models: Mapping[str, Model]) -> Options:
    """Set the vocabulary of random tokens to the smallest among the models, unless it is set already."""
    if options.vocab_size is not None or not models:
        return options
    return replace(options, vocab_size=min(model.anatomy.vocab_size for model in models.values()))


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
    sources: tuple[str, str],
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
    a, b = models
    key = unit_key(statistic, a, b, block, options)
    found = store.get(key) if store else None
    if store and found is not None:
        return BlockResult(
            found["block"] if isinstance(found["block"], int) else None,
            found["value"],
            found["log10_p"],
            found["detail"],
            store.matching(key),
        )
    try:
        result = compare()
    except InputError as error:  # inference sees arrays only and calls them W1 and W2: say whose they are
        where = "" if block is None else f" on block {' and '.join(map(str, np.atleast_1d(block)))}"
        raise NotComparableError(f"{statistic.name}{where} of {a.name} (W1) and {b.name} (W2): {error}") from error
    if store:
        store.put(
            key,
            {
                "statistic": statistic.name,
                "version": statistic.version,
                "a": {"source": sources[0], "digest": a.checkpoint.digest, "commit": a.checkpoint.commit},
                "b": {"source": sources[1], "digest": b.checkpoint.digest, "commit": b.checkpoint.commit},
                "parameters": statistic.parameters(options),
                "block": block,
                "value": result.value,
                "log10_p": result.log10_p,
                "detail": result.detail,
            },
            result.matching,
        )
    return result


def run_pairs(
    bench: Bench,
    statistics: Sequence[str],
    options: Options,
    *,
    store: Store | None = None,
    blocks: Sequence[int] | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    progress: bool = True,
    strict: bool = False,
) -> list[PairRecord]:
    """Run every statistic on every pair of models.

    Parameters
    ----------
    bench : Bench
        From `open_models`.
    statistics : sequence of str
        Registered names.
    options : Options
        Seeds, sizes, device; the vocabulary is filled in if unset.
    store : Store, optional
        Where finished units are kept and found again; without it nothing is written.
    blocks : sequence of int, optional
        Restrict the per-block statistics to these blocks (counted from 0), each once and in ascending order.
    pairs : sequence of (a, b), optional
        Which pairs of sources; all by default, in the order of the sources.
    progress : bool
        Show a bar with an estimate on stderr.
    strict : bool
        Raise what befalls a pair, except that a statistic does not apply to it.

    Returns
    -------
    list of PairRecord
        One per pair and statistic, statistics outermost, pairs in their order.

    Raises
    ------
    InputError
        If `blocks` is empty.
    """
    if blocks is not None and not blocks:
        raise InputError("blocks is empty; give the blocks to read, or leave it out for all")
    wanted = list(pairs) if pairs is not None else list(combinations(bench.sources, 2))
    options = with_common_vocabulary(options, bench.models)
    records: list[PairRecord] = []
    chosen = [get_statistic(name) for name in statistics]
    with tqdm(
        total=len(wanted) * len(chosen), unit="pair", disable=not progress, leave=False, mininterval=1.0, bar_format=BAR
    ) as bar:
        for statistic in chosen:
            bar.set_description(statistic.name)
            records += _Run(bench, statistic, options, store, blocks, bar, strict).all(wanted)
    return records


class _Run:
    """One statistic over the pairs of a study."""

    def __init__(
        self,
        bench: Bench,
        statistic: Statistic,
        options: Options,
        store: Store | None,
        blocks: Sequence[int] | None,
        bar: Any,
        strict: bool,
    ) -> None:
        self.bench, self.statistic, self.options, self.store = bench, statistic, options, store
        self.only_blocks, self.bar, self.strict = blocks, bar, strict
        self.errors: dict[tuple[str, str], str] = {}
        self.prepared: dict[str, Features | BaseException] = {}

    def all(self, wanted: Sequence[tuple[str, str]]) -> list[PairRecord]:
        """Work block by block over all pairs, then aggregate each pair."""
        units = {pair: self._units(pair) for pair in wanted}
        done: dict[tuple[str, str], list[BlockResult]] = {pair: [] for pair in wanted}
        every_block = sorted(
            {block for blocks in units.values() for block in blocks},
            key=lambda block: -1 if block is None else block,
        )
        for block in every_block:
            features: dict[str, Any] = {}
            for pair in wanted:
                if pair in self.errors or block not in units[pair]:
                    continue
                try:
                    done[pair].append(self._unit(pair, block, features))
                except PAIR_FAILURES as error:
                    self._failed(pair, error)
                self.bar.update(1 / len(units[pair]))
        return [self._record(pair, units[pair], done[pair]) for pair in wanted]

    def _units(self, pair: tuple[str, str]) -> list[int | None]:
        """Blocks to compare, or none with the reason noted."""
        for source in pair:
            if source in self.bench.refused:
                self.errors[pair] = self.bench.refused[source]
                return []
        try:
            blocks = self.statistic.blocks(*(self.bench.models[source] for source in pair))
            if self.only_blocks is not None and blocks != [None]:
                if unknown := [b for b in self.only_blocks if b not in blocks]:
                    raise InputError(
                        f"there is no block {', '.join(map(str, unknown))}: these models have blocks 0 to "
                        f"{len(blocks) - 1}"
                    )
                blocks = [*sorted(set(self.only_blocks))]  # a block counted twice would count twice in Fisher
            return blocks
        except PAIR_FAILURES as error:
            self._failed(pair, error)
            return []

    def _failed(self, pair: tuple[str, str], error: BaseException) -> None:
        """Note why a pair failed, or let a strict run fail with it."""
        if self.strict and not isinstance(error, (NotComparableError, MissingRoleError)):
            raise error
        self.errors[pair] = reason(error)

    def _unit(self, pair: tuple[str, str], block: int | None, features: dict[str, Any]) -> BlockResult:
        """One finished unit, from the store or computed and stored."""
        models = (self.bench.models[pair[0]], self.bench.models[pair[1]])

        def compare() -> BlockResult:
            a, b = (self._block(source, block, features) for source in pair)
            return self.statistic.compare_block(a, b, block, self.options)

        return finished_unit(self.statistic, pair, models, block, self.options, self.store, compare)

    def _block(self, source: str, block: int | None, features: dict[str, Any]) -> Any:
        """Features of one model's block, made once; a failure is kept, so that no damaged tensor is read again."""
        if source not in features:
            try:
                features[source] = self._features(source).block(block)
            except PAIR_FAILURES as error:
                features[source] = error
        if isinstance(features[source], BaseException):
            raise features[source]
        return features[source]

    def _features(self, source: str) -> Features:
        """Features of one model, prepared once per statistic; so is a failure to prepare them."""
        if source not in self.prepared:
            try:
                self.prepared[source] = self.statistic.prepare(self.bench.models[source], self.options)
            except PAIR_FAILURES as error:
                self.prepared[source] = error
        prepared = self.prepared[source]
        if isinstance(prepared, BaseException):
            raise prepared
        return prepared

    def _record(self, pair: tuple[str, str], units: list[int | None], done: list[BlockResult]) -> PairRecord:
        name = self.statistic.name
        if pair in self.errors:
            if not units:
                self.bar.update(1)
            return PairRecord(*pair, name, None, self.errors[pair])
        a, b = (self.bench.models[source] for source in pair)
        keys = tuple(unit_key(self.statistic, a, b, block, self.options) for block in units)
        return PairRecord(*pair, name, self.statistic.aggregate(done), None, keys)
