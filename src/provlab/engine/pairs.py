"""All pairs of a list of models: resumable, each tensor read once per statistic, here or by workers.

The unit of work is (statistic, block) over all models: features of one block are made for every model, every pair is
compared, and the features are dropped before the next block (`schedule` lays this out, `units` does it). What is
finished goes to the store at once. What fails for one pair becomes a record with its reason, and the rest goes on.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import combinations
from typing import Any

from tqdm import tqdm

from provlab.engine.executors import Processes, Task, Workers, completed
from provlab.engine.ledger import Bench, Ledger, PairRecord, finished_unit
from provlab.engine.memory import budget_for
from provlab.engine.schedule import Pair, Schedule, lay_out
from provlab.engine.shelf import Shelf
from provlab.engine.store import Store
from provlab.engine.units import PAIR_FAILURES, PassTask, Reference, UnitTask, compare_group, reason, run_pass
from provlab.errors import InputError
from provlab.models import counting
from provlab.statistics import get as get_statistic
from provlab.statistics.base import Features, Model, Options, Statistic

__all__ = ["BAR", "Bench", "PairRecord", "finished_unit", "open_models", "run_pairs", "with_common_vocabulary"]

BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed}, about {remaining} left"


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
    return Bench(tuple(sources), models, refused, allow_pickle)


def with_common_vocabulary(options: Options, models: Mapping[str, Model]) -> Options:
    """Set the vocabulary of random tokens to the smallest among the models, unless it is set already."""
    if options.vocab_size is not None or not models:
        return options
    return replace(options, vocab_size=min(model.anatomy.vocab_size for model in models.values()))


def run_pairs(
    bench: Bench,
    statistics: Sequence[str],
    options: Options,
    *,
    store: Store | None = None,
    blocks: Sequence[int] | None = None,
    pairs: Sequence[Pair] | None = None,
    progress: bool = True,
    strict: bool = False,
    memory: int | str | None = None,
    workers: int = 1,
    executor: Executor | None = None,
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
        Raise what befalls a pair, except that a statistic does not apply to it; needs one worker.
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
        One per pair and statistic, statistics outermost, pairs in their order; the same whoever did the work.

    Raises
    ------
    InputError
        If `blocks` is empty, or `workers` is no number of them.
    WorkerError
        If workers die again and again.
    """
    if blocks is not None and not blocks:
        raise InputError("blocks is empty; give the blocks to read, or leave it out for all")
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise InputError(f"workers must be a whole number of at least 1, not {workers!r}")
    budget = budget_for(memory, workers)
    wanted = list(pairs) if pairs is not None else list(combinations(bench.sources, 2))
    options = with_common_vocabulary(options, bench.models)
    ledgers = {name: Ledger(bench, get_statistic(name), options, store, wanted, blocks, strict) for name in statistics}
    todo = {name: ledger.missing() for name, ledger in ledgers.items()}
    elsewhere = executor is not None or workers > 1
    schedule = lay_out(todo, bench.models, options, budget, spill=elsewhere)
    for one in schedule.refused:
        for pair in one.pairs:
            ledgers[one.statistic].failed(pair, None, one.reason)
    with ExitStack() as stack:
        bar = stack.enter_context(
            tqdm(
                total=schedule.comparisons + len(schedule.passes),
                unit="pair",
                disable=not progress,
                leave=False,
                mininterval=1.0,
                bar_format=BAR,
            )
        )
        shelf = Shelf.of(schedule, bench.models, options, store, stack)
        if elsewhere and schedule.steps:
            crew = Workers(executor) if executor is not None else Processes(workers)
            _run_elsewhere(schedule, ledgers, shelf, crew, bar)
        else:
            _run_here(schedule, ledgers, shelf, bar)
        shelf.clear()
    return [record for ledger in ledgers.values() for record in ledger.records()]


def _run_here(schedule: Schedule, ledgers: Mapping[str, Ledger], shelf: Shelf, bar: Any) -> None:
    """Do all work in this process; the passes come before the first unit that reads what they left."""
    prepared: dict[tuple[str, str], Features] = {}
    models = next(iter(ledgers.values())).bench.models
    passed = False
    for unit in schedule.units:
        ledger = ledgers[unit.statistic]
        statistic = ledger.statistic
        if statistic.recorded and not passed:
            passed = True
            for step in schedule.passes:
                bar.set_description(f"pass of {models[step.model].name}")
                chosen = [get_statistic(name) for name in shelf.lacks(step)]
                for name, features in run_pass(models[step.model], chosen, ledger.options):
                    try:
                        shelf.put(name, step.model, features)
                    except OSError as error:
                        shelf.put(name, step.model, error)
                bar.update()

        def features(source: str, statistic: Statistic = statistic, options: Options = ledger.options) -> Features:
            if statistic.recorded:
                return shelf.get(statistic, source, models[source])
            if (statistic.name, source) not in prepared:
                prepared[statistic.name, source] = statistic.prepare(models[source], options)
            return prepared[statistic.name, source]

        bar.set_description(unit.statistic)
        for group in unit.groups:
            pairs = [pair for pair in group.pairs(unit.pairs) if pair not in ledger.errors]
            found = compare_group(statistic, unit.block, group, pairs, models, features, ledger.options)
            for pair, result in found:
                ledger.take(pair, unit.block, result)
                bar.update()
            if len(unit.groups) > 1:
                prepared.clear()


def _run_elsewhere(schedule: Schedule, ledgers: Mapping[str, Ledger], shelf: Shelf, crew: Workers, bar: Any) -> None:
    """Hand all work out; only results come back, and are kept here."""
    tasks: list[Task] = []
    bench = next(iter(ledgers.values())).bench
    options = next(iter(ledgers.values())).options
    references = {
        source: Reference(source, model.checkpoint.digest, bench.allow_pickle) for source, model in bench.models.items()
    }
    for step in schedule.passes:
        if names := shelf.lacks(step):
            folders = tuple(str(shelf.folders[name, step.model]) for name in names)
            tasks.append(PassTask(references[step.model], names, folders, options))
    awaited = {task.model.source for task in tasks if isinstance(task, PassTask)}
    for unit in schedule.units:
        ledger = ledgers[unit.statistic]
        reads_text = "text_sha256" in ledger.statistic.parameters(options)
        for group in unit.groups:
            met = (*group.held, *group.passing)
            tasks.append(
                UnitTask(
                    unit.statistic,
                    unit.block,
                    group,
                    group.pairs(unit.pairs),
                    {source: references[source] for source in met},
                    {s: str(shelf.folders[unit.statistic, s]) for s in met} if ledger.statistic.recorded else {},
                    options if reads_text else replace(options, text=""),
                )
            )

    def ready(task: Task, passed: set[str]) -> bool:
        return isinstance(task, PassTask) or not task.folders or not (awaited & set(task.models)) - passed

    with closing(completed(tasks, crew, ready=ready)) as results:  # at once, also if we are stopped between two results
        for task, done in results:
            counting.add(done.count)
            for what, result in done.found:
                if isinstance(task, UnitTask):
                    assert result is not None
                    ledgers[task.statistic].take(what, task.block, result)
                    bar.update()
                elif result is not None:  # a pass that failed, for all pairs that need it
                    for unit in schedule.units:
                        for pair in unit.pairs:
                            if unit.statistic == what and task.model.source in pair:
                                ledgers[what].take(pair, None, result)
            if isinstance(task, PassTask):
                bar.update()
