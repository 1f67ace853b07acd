"""The jobs of a study, and how one is done, in this process or by a worker.

A `Job` is one statistic at one place for all pairs of models: at a block of both, or over the whole models. Where all
blocks of two models meet all, it is one statistic on one pair at many places. Where a statistic reads activations, a
`ForwardPass` (`provlab.engine.passes`) comes first. Both are small descriptions: names, pairs and options. Their
`results` come of models that are open already; a worker opens them itself, compares their digests with those that the
study began with, and sends back results (`do`). No tensor travels.
"""

import os
import socket
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from provlab import machine
from provlab.engine.device import product_on
from provlab.engine.memory import Allowance, Budget, Pair, nbytes
from provlab.engine.passes import FeatureCache, ForwardPass
from provlab.engine.reference import Reference, Result, named, too_large
from provlab.engine.rounds import in_rounds
from provlab.engine.timing import timed
from provlab.errors import PAIR_FAILURES, CheckpointError, NotComparableError, NoUnitsError, ProvlabError, reason
from provlab.inference.matching import multiplied_by
from provlab.machine import Beside
from provlab.reading.counting import Count, counting
from provlab.reading.held import Held, once
from provlab.statistics import get as get_statistic
from provlab.statistics.base import Features
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.results import BlockResult

HERE = "this process"
_HELD = 3  # times the bytes of its features that a comparison holds: with its similarity, and what is made of it
#: where two models are compared: one block of both, a block of each, or the whole models
Place = int | tuple[int, int] | None
#: one block of one model, by its source
Side = tuple[str, int | None]


@dataclass(frozen=True)
class Job:
    """Compare `pairs` under one statistic at each of `places`.

    Attributes
    ----------
    models : mapping
        Source -> reference, of all models of the pairs.
    features : mapping
        Source -> key of its features, for statistics that a forward pass records; empty for others.
    """

    statistic: str
    places: tuple[Place, ...]
    pairs: tuple[Pair, ...]
    models: Mapping[str, Reference]
    features: Mapping[str, str]
    cache: FeatureCache | None
    options: Options
    budget: Budget

    @property
    def n_comparisons(self) -> int:
        """How many results it gives."""
        return len(self.places) * len(self.pairs)

    @property
    def name(self) -> str:
        """Name for a reader."""
        return named_place(self.statistic, self.places[0] if len(self.places) == 1 else None)

    @property
    def prepares(self) -> list[tuple[str, str]]:
        """Statistic and source of all features that it takes."""
        return [(self.statistic, source) for source in self.models]

    def results(
        self, opened: Callable[[Reference], Model], prepared: dict[tuple[str, str], Features] | None = None
    ) -> Iterator[tuple[tuple[Pair, Place], Result]]:
        """Yield each pair and place with its result, or the error; arguments as of `begun`."""
        begun = self.begun(opened, {} if prepared is None else prepared, _at_once)
        return ((where, result()) for where, result in begun)

    def begun(
        self, opened: Callable[[Reference], Model], prepared: dict[tuple[str, str], Features], begin: "Begin"
    ) -> Iterator[tuple[tuple[Pair, Place], Callable[[], Result]]]:
        """Yield each pair and place with what waits for its result; both sides are read when it is yielded.

        Parameters
        ----------
        opened
            Opens a model, or has it open.
        prepared
            Features by (statistic, source) that were made before for other blocks; added to.
        begin
            Takes a comparison and the bytes of its features, and returns what waits for its result.
        """
        statistic = get_statistic(self.statistic)
        cached = self.cache.nbytes if self.cache else 0
        memory = Allowance(self.budget.process - cached)
        several = self.n_comparisons > 1
        at = {sides(pair, place): (pair, place) for place in self.places for pair in self.pairs}

        preparing = Lock()  # a statistic may run a model for it, which is not made for two threads

        def prepare(source: str, model: Model) -> Features:
            with preparing:
                if statistic.recorded and self.cache:
                    return self.cache.get(self.features[source], statistic.recorded, model)
                if (statistic.name, source) not in prepared:
                    prepared[statistic.name, source] = statistic.prepare(model, self.options)
                return prepared[statistic.name, source]

        def of_block(features: Features, source: str, block: int | None) -> Any:
            if self.cache is None or source not in self.features:
                return features.block(block)
            # other statistics that compare what the same pass left take it from here
            return once(self.cache, (self.features[source], block), lambda: features.block(block))

        def load(side: Side) -> Any:
            source, block = side
            try:
                model = opened(self.models[source])
                what = f"{named_place(self.statistic, block)} of {model.name}"
                with named(what), timed("read", self.statistic, source) as taken:
                    features = of_block(prepare(source, model), source, block)
                    taken.nbytes = nbytes(features)
            except PAIR_FAILURES as error:
                return error
            memory.room_for([features])  # before the other side is read
            return features

        def compare(pair: tuple[Side, Side], a: Any, b: Any) -> Result:
            (_, block), place = pair[0], at[pair][1]  # random numbers are those of the first model's block
            if refused := [side for side in (a, b) if isinstance(side, BaseException)]:
                others = [error for error in refused if not isinstance(error, NoUnitsError)]
                return others[0] if others else statistic.without(block, [side in refused for side in (a, b)])
            names = [opened(self.models[source]).name for source, _ in pair]
            if self.budget.given and (needed := nbytes(a) + nbytes(b)) > memory.limit:
                what = f"{self.statistic} of {' and '.join(names)}"
                return NotComparableError(too_large(what, needed, self.budget, cached))
            measure = memory.first_comparison() if several and memory.working is None else nullcontext()
            clock = timed("compare", self.statistic, *(source for source, _ in pair))
            try:
                what = named_place(self.statistic, place)
                with named(what, *names), clock, measure, multiplied_by(product_on(self.options.device)):
                    return statistic.checked(statistic.compare_block(a, b, block, self.options))
            except NoUnitsError:  # seen when the two were brought together
                return statistic.without(block, [])
            except PAIR_FAILURES as error:
                return error

        def started(pair: tuple[Side, Side], a: Any, b: Any) -> Callable[[], Result]:
            # of several, the first shows how much memory the others take, alone
            way = _at_once if several and memory.working is None else begin
            return way(partial(compare, pair, a, b), nbytes(a) + nbytes(b))

        if several:
            return ((at[pair], result) for pair, result in in_rounds(list(at), load, started, memory.room_for))
        # tensors of a block alone: what reads tokenizers, or runs a model, is not made for two threads
        apart = self.budget.given or any(block is None for pair in at for _, block in pair)

        def both(pair: tuple[Side, Side]) -> list[Any]:
            loads = [partial(load, side) for side in pair]
            return [call() for call in loads] if apart else machine.side_by_side(*loads)

        return ((where, started(pair, *both(pair))) for pair, where in at.items())


Task: TypeAlias = "Job | ForwardPass"
#: takes what is to be done and the bytes that it holds, and returns what waits for its result
Begin: TypeAlias = Callable[[Callable[[], Result], int], Callable[[], Result]]


def _at_once(work: Callable[[], Result], size: int) -> Callable[[], Result]:
    result = work()
    return lambda: result


class Failed(ProvlabError):
    """Why there is no result, in one line: an error as it travels."""


@dataclass(frozen=True)
class Done:
    """Results of a job or a pass.

    Attributes
    ----------
    results : iterable
        A result or its exception for each pair and place of a job; for each statistic of a pass that failed. In the
        caller's own process each is computed when it is taken.
    count : Count
        Bytes that another process read.
    worker : str
        Host and process.
    """

    results: Iterable[tuple[Any, Result]]
    count: Count
    worker: str


def do(task: Task) -> Done:
    """Do one job or pass as a worker, from nothing but its description."""
    with counting() as count:
        finished = tuple(
            (what, result if isinstance(result, BlockResult) else Failed(reason(result)))
            for what, result in task.results(_opened)
        )
    return Done(finished, count, f"{socket.gethostname()}:{os.getpid()}")


def in_this_process(
    tasks: Iterable[Task],
    models: Mapping[str, Model],
    failed: Mapping[str, Container[Pair]],
    held: Held,
    advance: Callable[[float], object],
) -> Generator[tuple[Task, Done], None, None]:
    """Do one after the other in this process; each result is computed when it is taken, and is there at once.

    Where a device multiplies, an assignment is nearly all that is left of a comparison, and takes one core. So there
    comparisons go on in threads, one a core and as many as fit into memory, while the next sides are read; results come
    in the same order.

    Parameters
    ----------
    models
        Open already, by source.
    failed
        Statistic -> pairs that failed, growing as they do: they are not tried on further blocks.
    held
        What was read of the place at hand, which the jobs of other statistics read too.
    advance
        Called with each share of the forward pass at hand that is done.
    """
    tasks = list(tasks)
    waiting = _Waiting()
    last = {key: i for i, task in enumerate(tasks) if isinstance(task, Job) for key in task.prepares}
    prepared: dict[tuple[str, str], Features] = {}
    for i, task in enumerate(tasks):
        held.at(task.places if isinstance(task, Job) else None)
        if isinstance(task, Job):
            task = replace(task, pairs=tuple(pair for pair in task.pairs if pair not in failed[task.statistic]))
            # features prepared for other blocks are kept until their last job
            prepared = {key: features for key, features in prepared.items() if last[key] >= i}

        def opened(reference: Reference) -> Model:
            return models[reference.source]

        if not isinstance(task, Job):
            yield task, Done(task.results(opened, advance), Count(), HERE)
            continue
        if product_on(task.options.device) is None:
            yield task, Done(task.results(opened, prepared), Count(), HERE)
            continue
        if task.n_comparisons > 1:  # the memory of its first comparison is measured, so nothing else may run
            yield from waiting.done(0)
        waiting.room = task.budget.process
        for where, result in task.begun(opened, prepared, waiting.begin):
            waiting.add(task, where, result)
            yield from waiting.done(machine.threads() - 1)
    yield from waiting.done(0)


class _Waiting:
    """Comparisons that run in threads, in the order in which their results are wanted."""

    def __init__(self) -> None:
        self.room = 0  # bytes that they may hold
        self._sizes: dict[Beside[Result], int] = {}  # of those that may still run
        self._results: deque[tuple[Job, Any, Callable[[], Result]]] = deque()

    def begin(self, work: Callable[[], Result], size: int) -> Callable[[], Result]:
        """Begin one, once there is room: wait for the oldest until then."""
        while self._sizes and _HELD * (size + sum(self._sizes.values())) > self.room:
            oldest = next(iter(self._sizes))
            oldest.wait()
            del self._sizes[oldest]
        thread = Beside(work)
        self._sizes[thread] = size

        def result() -> Result:
            self._sizes.pop(thread, None)
            return thread.result()

        return result

    def add(self, job: Job, where: Any, result: Callable[[], Result]) -> None:
        """Let a result wait for those before it."""
        self._results.append((job, where, result))

    def done(self, most: int) -> Iterator[tuple[Job, Done]]:
        """Yield the oldest results until at most so many wait."""
        while len(self._results) > most:
            job, where, result = self._results.popleft()
            yield job, Done(((where, result()),), Count(), HERE)


def sides(pair: Pair, place: Place) -> tuple[Side, Side]:
    """Which block of either model meets at a place."""
    blocks = place if isinstance(place, tuple) else (place, place)
    return (pair[0], blocks[0]), (pair[1], blocks[1])


def named_place(statistic: str, place: Place) -> str:
    """Name a place for a reader: ``phi_u on block 3``."""
    return statistic if place is None else f"{statistic} on block {' and '.join(map(str, np.atleast_1d(place)))}"


@lru_cache(maxsize=1024)
def _opened(reference: Reference) -> Model:
    """Open a model once a process, and compare its digest with that of the study."""
    model = Model.open(reference.source, allow_pickle=reference.allow_pickle, in_part=reference.in_part)
    if model.checkpoint.digest != reference.digest:
        raise CheckpointError(
            f"{reference.source} holds other weights on {socket.gethostname()} than where the study began; "
            "give all workers the same files"
        )
    return model
