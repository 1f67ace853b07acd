"""The pieces that a study is done in, and how one is done, by whoever does it.

A `PassTask` runs one model over the inputs of several statistics and leaves their features on the shelf. A `UnitTask`
is one statistic on one block for one group of models. Both are small descriptions: names, pairs and options. `results`
does a piece, given who opens the checkpoints: in the caller's process they are open already; a worker opens them
itself, holds their digests against those that the study began with, and sends back results (`do`). No tensor travels.

Activation statistics are cut in these two because one forward pass gives all blocks: a unit that ran the models itself
would run each of them once a block.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from provlab.engine.schedule import Group, Pair, Place
from provlab.engine.shelf import Shelf
from provlab.errors import PAIR_FAILURES, CheckpointError, InputError, NotComparableError, ProvlabError, reason
from provlab.models.counting import Count, counting
from provlab.statistics import get as get_statistic
from provlab.statistics.base import BlockResult, Features, Model, Options


@dataclass(frozen=True)
class Reference:
    """A model as a worker is told of it: how to open it, and what must be found there."""

    source: str
    digest: str
    allow_pickle: bool = False


@dataclass(frozen=True)
class PassTask:
    """Run one model, and leave the features of some statistics on the shelf.

    Attributes
    ----------
    features : mapping
        Statistic -> key on the shelf.
    """

    model: Reference
    features: Mapping[str, str]
    shelf: Shelf
    options: Options

    @property
    def place(self) -> str:
        """Say for a reader what this is."""
        return f"a pass of {self.model.source}"


@dataclass(frozen=True)
class UnitTask:
    """Compare `pairs` of one group of models under one statistic on one block.

    Attributes
    ----------
    features : mapping
        Source -> key on the shelf, for statistics that a pass records; empty for others.
    """

    statistic: str
    block: int | None
    group: Group
    pairs: tuple[Pair, ...]
    models: Mapping[str, Reference]
    features: Mapping[str, str]
    shelf: Shelf
    options: Options

    @property
    def place(self) -> str:
        """Say for a reader what this is."""
        return place(self.statistic, self.block)


Task = PassTask | UnitTask
Result = BlockResult | BaseException


class Failed(ProvlabError):
    """Why there is no result, in one line: an error as it travels."""


@dataclass(frozen=True)
class Done:
    """What comes of a piece.

    Attributes
    ----------
    found : iterable
        A result, or what befell it, for each pair of a unit; each statistic of a pass that failed. In the caller's own
        process the work is done as they are asked for.
    count : Count
        What was read elsewhere.
    worker : str
        Who did it.
    """

    found: Iterable[tuple[Any, Result]]
    count: Count
    worker: str


def do(task: Task) -> Done:
    """Do one piece as a worker, from nothing but its description."""
    with counting() as count:
        found = tuple(
            (what, result if isinstance(result, BlockResult) else Failed(reason(result)))
            for what, result in results(task, _opened, {})
        )
    return Done(found, count, f"{socket.gethostname()}:{os.getpid()}")


def results(
    task: Task, opened: Callable[[Reference], Model], prepared: dict[tuple[str, str], Features]
) -> Iterator[tuple[Any, Result]]:
    """Do one piece, and yield each result as it comes.

    Parameters
    ----------
    task
        A unit yields (pair, result or error); a pass (statistic, error) where it has left no features.
    opened
        Opens a model, or has it open.
    prepared
        Features by (statistic, source) that were made before, on their own, for other blocks; added to.
    """
    return _passed(task, opened) if isinstance(task, PassTask) else _compared(task, opened, prepared)


def _passed(task: PassTask, opened: Callable[[Reference], Model]) -> Iterator[tuple[str, Result]]:
    """Load one model once, and run it for each statistic."""
    try:
        model = opened(task.model)
    except PAIR_FAILURES as error:
        yield from ((name, error) for name in task.features)
        return
    with model.checkpoint.loaded_once():
        for name, key in task.features.items():
            try:
                with said_of(f"{name} of {model.name}"):
                    if key not in task.shelf:  # else a statistic that records the same was run already
                        task.shelf.put(key, get_statistic(name).prepare(model, task.options))
            except PAIR_FAILURES as error:
                yield name, error


def _compared(
    task: UnitTask, opened: Callable[[Reference], Model], prepared: dict[tuple[str, str], Features]
) -> Iterator[tuple[Pair, Result]]:
    """Compare the pairs of a group: those held first, then those of each model that comes by, which is then let go."""
    statistic = get_statistic(task.statistic)
    at_hand: dict[str, Any] = {}  # features of this block by source, or why there are none: no tensor is read twice

    def of_all_blocks(source: str, model: Model) -> Features:
        if statistic.recorded:
            return task.shelf.get(task.features[source], statistic.recorded, model)
        if (statistic.name, source) not in prepared:
            prepared[statistic.name, source] = statistic.prepare(model, task.options)
        return prepared[statistic.name, source]

    def features(source: str) -> Any:
        if source not in at_hand:
            try:
                model = opened(task.models[source])
                with said_of(f"{task.place} of {model.name}"):
                    at_hand[source] = of_all_blocks(source, model).block(task.block)
            except PAIR_FAILURES as error:
                at_hand[source] = error
        if isinstance(at_hand[source], BaseException):
            raise at_hand[source]
        return at_hand[source]

    def compare(a: str, b: str) -> BlockResult:
        of_a, of_b = features(a), features(b)
        names = [opened(task.models[source]).name for source in (a, b)]
        with said_of(task.place, *names):
            return statistic.compare_block(of_a, of_b, task.block, task.options)

    for passing in (None, *task.group.passing):
        for pair in task.pairs:
            if (passing in pair) if passing else not set(pair) & set(task.group.passing):
                try:
                    result: Result = compare(*pair)
                except PAIR_FAILURES as error:
                    result = error
                yield pair, result
        at_hand.pop(passing or "", None)


def place(statistic: str, block: Place) -> str:
    """Where a unit lies, for a reader: ``phi_u on block 3``."""
    return statistic if block is None else f"{statistic} on block {' and '.join(map(str, np.atleast_1d(block)))}"


@contextmanager
def said_of(what: str, *pair: str) -> Iterator[None]:
    """Say whose arrays they are if they do not fit: inference sees arrays only and calls those of a pair W1 and W2.

    Raises
    ------
    NotComparableError
        In place of an `InputError`.
    """
    try:
        yield
    except InputError as error:
        whose = " of {} (W1) and {} (W2)".format(*pair) if pair else ""
        raise NotComparableError(f"{what}{whose}: {error}") from error


@lru_cache(maxsize=1024)
def _opened(reference: Reference) -> Model:
    """Open a model once a process, and hold it against what the study began with."""
    model = Model.open(reference.source, allow_pickle=reference.allow_pickle)
    if model.checkpoint.digest != reference.digest:
        raise CheckpointError(
            f"{reference.source} holds other weights on {socket.gethostname()} than where the study began; "
            "give all workers the same files"
        )
    return model
