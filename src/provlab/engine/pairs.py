"""All pairs of a list of models: resumable, each tensor read once, in this process or by workers.

A job is (statistic, place), where a place is a block, a pair of blocks, or the whole model. Plan: a `JobTable` for
each statistic says what is missing in the store, and that becomes jobs, each over all pairs, so that features of a
block are made once a model and dropped before the next block. Jobs come place by place, and what one statistic read
of a block is held for the next one where memory allows (`provlab.reading.held`); a worker reads for each job. Execute:
here, by processes, or on a cluster. Collect: each result goes into its table, and so to the store, at once; the table
makes the records. A pair that fails becomes a record with its reason, and the rest goes on.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from provlab import plugins
from provlab.engine.all_blocks import AllBlocks
from provlab.engine.jobs import Job, Task, in_this_process
from provlab.engine.memory import Budget, Pair, budget_for
from provlab.engine.passes import FeatureCache, ForwardPass
from provlab.engine.reference import Reference
from provlab.engine.store import Store
from provlab.engine.table import JobTable, Missing, OpenedModels, PairRecord, ResultCache, order_of
from provlab.engine.workers import completed
from provlab.errors import PAIR_FAILURES, InputError, NotComparableError, reason
from provlab.reading import counting
from provlab.reading.forms import lent
from provlab.reading.held import holding
from provlab.reading.part import split
from provlab.statistics import get as get_statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.results import BlockResult
from provlab.statistics.text import common_strings, shared_tokens

__all__ = [
    "OpenedModels",
    "PairRecord",
    "bar_of",
    "check_sources",
    "open_models",
    "run_pairs",
    "train_missing",
    "with_common_vocabulary",
]

SHARE_HELD = 4  # one part in so many of the memory holds tensors that several statistics read
_BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed}{left}"
#: share of the work before which the time that is left is unknown: the beginning, which compiles, is no rate
_KNOWN = 0.2


class _ProgressBar(tqdm):
    """Says how much time is left by the mean rate so far, once that says something."""

    _begun, _steps = 0.0, 0.0

    def begin(self, steps: int) -> None:
        """Begin a task of so many steps, of which only shares are heard of."""
        self._begun, self._steps = self.n, steps

    def advance(self, share: float) -> None:
        """Go on by a share of the task, and not beyond it: blocks that share their weights run more than once."""
        self.update(min(share * self._steps, self._begun + self._steps - self.n))

    @property
    def format_dict(self) -> dict[str, Any]:
        shown = super().format_dict
        n, total = shown["n"], shown["total"] or 1
        seconds = shown["elapsed"] * (total - n) / n if n >= _KNOWN * total else None
        return {**shown, "left": "" if seconds is None else f", about {tqdm.format_interval(seconds)} left"}


def bar_of(total: int, progress: float) -> _ProgressBar:
    """Make a bar that is shown at most once in `progress` seconds, and never for work that is done before that."""
    return _ProgressBar(
        desc="reading",
        total=total,
        disable=not progress,
        leave=False,
        bar_format=_BAR,
        mininterval=float(progress),
        delay=max(progress - 1.0, 0.0),
    )


def check_sources(sources: Sequence[str]) -> None:
    """Raise InputError unless these are two or more distinct sources; done before any is opened or made."""
    if repeated := sorted({s for s in sources if sources.count(s) > 1}):
        raise InputError(f"models must be distinct, but given more than once: {', '.join(repeated)}")
    if len(sources) < 2:
        raise InputError(f"give at least two models, not {len(sources)}")


def train_missing(models: Sequence[str]) -> None:
    """Have each scheme make those of its models together that are not there yet."""
    by_scheme: dict[str, list[str]] = {}
    for scheme, _, name in (split(source)[0].partition(":") for source in models if ":" in source):
        by_scheme.setdefault(scheme, []).append(name)
    for scheme, names in by_scheme.items():
        if prepare := plugins.hook(scheme, "prepare"):
            prepare(names)


def open_models(
    sources: Sequence[str], *, allow_pickle: bool = False, strict: bool = False, in_part: bool = False
) -> OpenedModels:
    """Open every source; one that cannot be opened is kept with its reason, or raises if `strict`.

    With `in_part`, no large file is hashed.

    Raises
    ------
    InputError
        If fewer than two distinct sources are given, or two stand for one folder.
    """
    check_sources(sources)
    models: dict[str, Model] = {}
    refused: dict[str, str] = {}
    for source in sources:
        try:
            models[source] = Model.open(source, allow_pickle=allow_pickle, in_part=in_part)
        except PAIR_FAILURES as error:
            if strict:
                raise
            refused[source] = reason(error)
    opened: dict[str, str] = {}  # what a source stands for, however it is written
    for source, model in models.items():
        other = opened.setdefault(model.checkpoint.source, source)
        if other != source:
            raise InputError(f"models must be distinct, but {other} and {source} are one")
    return OpenedModels(tuple(sources), models, refused, allow_pickle, in_part)


def with_common_vocabulary(options: Options, models: Mapping[str, Model], statistics: Sequence[str] = ()) -> Options:
    """Set what random tokens are drawn from, unless it is set already: ids that are below the smallest vocabulary.

    Where one of the statistics draws tokens, and the tokenizers number the same strings differently, it is the strings
    that all of them have. Where one reads the text, and the tokenizers cut it differently, it is the tokens that all of
    them have at the same places. A model without a tokenizer is given what another's writes around these.
    """
    smallest = min((model.anatomy.vocab_size for model in models.values()), default=0)
    if options.vocab_size is not None or not smallest:  # a part without a vocabulary reads no tokens
        return options
    drawn = any("vocab_size" in get_statistic(name).parameters(options) for name in statistics)
    vocabulary = None
    if drawn:
        vocabulary = common_strings(models.values())
    options = replace(options, vocab_size=smallest, vocabulary=vocabulary)
    reads = any("text_sha256" in get_statistic(name).parameters(options) for name in statistics) and options.text
    if reads:
        options = replace(options, shared=shared_tokens(models.values(), options))
    if reads or drawn:
        options = replace(options, around=lent(model.checkpoint for model in models.values()))
    return options


def run_pairs(
    opened: OpenedModels,
    statistics: Sequence[str],
    options: Options,
    *,
    store: Store | None = None,
    blocks: Sequence[int] | None = None,
    pairs: Sequence[Pair] | Mapping[str, Sequence[Pair]] | None = None,
    all_blocks: bool = False,
    progress: float = True,
    memory: int | str | None = None,
    workers: int = 1,
    executor: Executor | None = None,
) -> list[PairRecord]:
    """Run every statistic on every pair of models.

    Parameters
    ----------
    opened : OpenedModels
        From `open_models`.
    statistics : sequence of str
        Registered names.
    options : Options
        Seeds, sizes, device; the vocabulary is filled in if unset.
    store : Store, optional
        Where finished results are kept and found again; without it nothing is written.
    blocks : sequence of int, optional
        Restrict the per-block statistics to these blocks (counted from 0), each once and in ascending order.
    pairs : sequence of (a, b), or mapping of statistics to such, optional
        Which pairs of sources, of all statistics or of each; all by default, in the order of the sources.
    all_blocks : bool
        Compare every block of one model with every block of the other, by statistics that can
        (`provlab.engine.all_blocks`).
    progress : float
        Show a bar with an estimate on stderr, at most once in so many seconds; 0 or False shows none.
    memory : int or str, optional
        Bytes, or text such as ``8GB``, that the study may take with its libraries; by default most of what is free. A
        pair that no order of work fits into a given limit becomes a record with the reason.
    workers : int
        Processes on this machine; 1 is this process itself.
    executor : Executor, optional
        Does the work in place of processes of our own; `memory` is then that of each of its workers, and by default
        what is free here.

    Returns
    -------
    list of PairRecord
        One per pair and statistic, statistics outermost, pairs in their order; the same by any workers.

    Raises
    ------
    InputError
        If `blocks` is empty or names one that no model has, or `workers` is no number of them.
    WorkerError
        If workers die again and again.
    """
    if blocks is not None and not blocks:
        raise InputError("blocks is empty; give the blocks to read, or leave it out for all")
    deepest = max((model.anatomy.n_blocks for model in opened.models.values()), default=0)
    if deepest and (unknown := sorted(set(blocks or ()) - set(range(deepest)))):
        raise InputError(f"there is no block {unknown[0]}: these models have blocks 0 to {deepest - 1}")
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise InputError(f"workers must be a whole number of at least 1, not {workers!r}")
    budget = budget_for(memory, workers)
    if not isinstance(pairs, Mapping):
        pairs = dict.fromkeys(statistics, list(pairs) if pairs is not None else list(combinations(opened.sources, 2)))
    options = with_common_vocabulary(options, opened.models, statistics)
    if blocks is not None:
        options = replace(options, blocks=tuple(sorted(set(blocks))))
    kind = AllBlocks if all_blocks else JobTable
    caches = [ResultCache(store, get_statistic(name), options) for name in statistics]
    tables = [kind(opened, cache, pairs[cache.statistic.name], blocks) for cache in caches]
    execute(tables, budget, progress=progress, workers=workers, executor=executor)
    return _agreed([record for table in tables for record in table.records()])


def all_pairs_of_blocks(
    statistic: str, a: Model, b: Model, options: Options, *, store: Store | None = None, progress: float = True
) -> dict[tuple[int, int], BlockResult]:
    """Compare every block of `a` with every block of `b`; two blocks that cannot be compared are left out.

    Of a text that the two tokenizers cut differently, only the tokens that both have at the same places are read.

    Raises
    ------
    NotComparableError
        No pair of blocks can be compared (`AllBlocks.compared`).
    """
    pair = a.checkpoint.source, b.checkpoint.source
    opened = OpenedModels(pair, {pair[0]: a, pair[1]: b}, {})
    options = with_common_vocabulary(options, opened.models, [statistic])
    table = AllBlocks(opened, ResultCache(store, get_statistic(statistic), options), [pair], None)
    execute([table], budget_for(None), progress=progress)
    if pair in table.errors:
        raise NotComparableError(table.errors[pair][1])
    return table.compared(pair)


def execute(
    tables: Sequence[JobTable],
    budget: Budget,
    *,
    progress: float = True,
    workers: int = 1,
    executor: Executor | None = None,
) -> None:
    """Do what is missing in tables of one study, one a statistic: plan its jobs, do them, and enter each result."""
    by_name = {table.statistic.name: table for table in tables}
    todo = {name: table.jobs() for name, table in by_name.items()}
    here = executor is None and workers == 1
    with ExitStack() as stack:
        cache = None
        store = tables[0].cache.store if tables else None
        if any(get_statistic(name).recorded for name, jobs in todo.items() if jobs):
            root = store.root if store else Path(stack.enter_context(TemporaryDirectory(prefix="provlab-")))
            cache = FeatureCache(root.resolve() / "features", budget.process // 2 if here else 0)
        jobs = [job for name, missing in todo.items() for job in _jobs(by_name[name], missing, cache, budget)]
        jobs.sort(key=lambda job: order_of(job.places[0]))  # place by place: all statistics read the same tensors there
        tasks: list[Task] = [*(_passes(tables, jobs, cache, budget) if cache else []), *jobs]
        total = sum(task.n_comparisons if isinstance(task, Job) else _served(task, jobs) for task in tasks)
        bar = stack.enter_context(bar_of(total, progress))
        if here:
            failed = {name: table.errors for name, table in by_name.items()}
            several = len({job.statistic for job in jobs}) > 1
            held = stack.enter_context(holding(budget.process // SHARE_HELD if several else 0))
            models = tables[0].opened.models if tables else {}
            done_tasks = in_this_process(tasks, models, failed, held, bar.advance)
        else:
            done_tasks = completed(tasks, workers=workers, executor=executor)
        # closed at once, also if we are stopped between two results
        for task, done in stack.enter_context(closing(done_tasks)):
            counting.add(done.count)
            bar.set_description(task.name, refresh=False)
            if isinstance(task, Job):
                for (pair, place), result in done.results:
                    by_name[task.statistic].take(pair, place, result)
                    bar.update()
            else:
                bar.begin(_served(task, jobs))
                for name, failure in done.results:
                    for pair in {pair for _, together in todo[name] for pair in together}:
                        if task.model.source in pair:
                            by_name[name].take(pair, None, failure)
                bar.advance(1.0)
        if cache:
            cache.clear(key for task in tasks for key in task.features.values())


def _served(task: ForwardPass, jobs: Sequence[Job]) -> int:
    """How many steps of the bar a pass is: the places at which features of the model are compared."""
    keys = set(task.features.values())
    return sum(len(job.places) for job in jobs if keys & {job.features.get(task.model.source)})


def _agreed(records: list[PairRecord]) -> list[PairRecord]:
    """Take the p-values from all statistics of a pair that rest on order, if one of them shows that both are sorted.

    phi_H sees sorts that phi_U, which reads fewer weights, does not.
    """
    by_order = [(r, r.outcome) for r in records if r.outcome and r.outcome.detail.order is not None]
    why = {(r.a, r.b): outcome.why for r, outcome in by_order if outcome.why and outcome.log10_p is None}

    def agreed(record: PairRecord) -> PairRecord:
        outcome, both_sorted = record.outcome, why.get((record.a, record.b))
        if not both_sorted or not outcome or outcome.detail.order is None or outcome.log10_p is None:
            return record
        return replace(record, outcome=outcome.without_p(both_sorted))

    return [agreed(record) for record in records]


def _jobs(
    table: JobTable,
    missing: Sequence[Missing],
    cache: FeatureCache | None,
    budget: Budget,
) -> list[Job]:
    """Describe the jobs of one statistic, so that they can be sent to a worker."""
    statistic, options = table.statistic, table.cache.options
    reads_text = "text_sha256" in statistic.parameters(options)
    sent = options if reads_text else replace(options, text="", vocabulary=None, shared=None)
    jobs = []
    for places, pairs in missing:
        sources = dict.fromkeys(source for pair in pairs for source in pair)
        models = {source: _reference(table, source) for source in sources}
        keys = {source: _features(table, source) for source in sources if statistic.recorded}
        jobs.append(Job(statistic.name, places, tuple(pairs), models, keys, cache, sent, budget))
    return jobs


def _passes(tables: Sequence[JobTable], jobs: Sequence[Job], cache: FeatureCache, budget: Budget) -> list[ForwardPass]:
    """Describe a pass for each model that must be run for these jobs."""
    features: dict[str, dict[str, str]] = {}  # source -> statistic -> key in the cache
    for job in jobs:
        for source, key in job.features.items():
            features.setdefault(source, {})[job.statistic] = key
    passes = []
    for source in tables[0].opened.models:
        missing = {name: key for name, key in features.get(source, {}).items() if key not in cache}
        if missing:
            options = tables[0].cache.options
            passes.append(ForwardPass(_reference(tables[0], source), missing, cache, options, budget))
    return passes


def _reference(table: JobTable, source: str) -> Reference:
    digest = table.opened.models[source].checkpoint.digest
    return Reference(source, digest, table.opened.allow_pickle, table.opened.in_part)


def _features(table: JobTable, source: str) -> str:
    """Hash of all that recorded features depend on."""
    statistic, options = table.statistic, table.cache.options
    parameters, model = statistic.parameters(options), statistic.identity(table.opened.models[source], options)
    # statistics that record the same share what one pass leaves
    what = statistic.recorded.__qualname__ if statistic.recorded else statistic.name
    some = {} if options.blocks is None else {"blocks": options.blocks}
    return Store.key(recorded=what, version=statistic.version, model=model, parameters=parameters, **some)
