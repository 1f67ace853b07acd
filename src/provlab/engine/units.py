"""The pieces that a study is done in, and how one is done: here, or by a worker that is sent a description of it.

A `PassTask` runs one model over the inputs of several statistics and leaves their features in a folder. A `UnitTask` is
one statistic on one block for one group of models. Both are small: names, pairs and options. A worker opens the
checkpoints itself, holds their digests against those that the study began with, and sends back results; no tensor
travels.

Activation statistics are cut in these two because one forward pass gives all blocks: a unit that ran the models itself
would run each of them once a block.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from provlab.engine import shelf
from provlab.engine.schedule import Group, Pair, Place
from provlab.errors import CheckpointError, InputError, NotComparableError, ProvlabError
from provlab.models.counting import Count, counting
from provlab.statistics import get as get_statistic
from provlab.statistics.base import BlockResult, Features, Model, Options, Statistic

# what may befall one pair without being a fault of the study: refusals, and the machine's own limits
PAIR_FAILURES = (ProvlabError, MemoryError, OSError, RuntimeError)


@dataclass(frozen=True)
class Reference:
    """A model as a worker is told of it: how to open it, and what must be found there."""

    source: str
    digest: str
    allow_pickle: bool = False


@dataclass(frozen=True)
class PassTask:
    """Run one model and leave the features of `statistics` in `folders`, in the same order."""

    model: Reference
    statistics: tuple[str, ...]
    folders: tuple[str, ...]
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
    folders : mapping
        Source -> folder of its features, for statistics that a pass records.
    """

    statistic: str
    block: int | None
    group: Group
    pairs: tuple[Pair, ...]
    models: Mapping[str, Reference]
    folders: Mapping[str, str]
    options: Options

    @property
    def place(self) -> str:
        """Say for a reader what this is."""
        return self.statistic if self.block is None else f"{self.statistic} on block {self.block}"


@dataclass(frozen=True)
class Failed:
    """Why there is no result, in one line."""

    reason: str


@dataclass(frozen=True)
class Done:
    """What a worker sends back: a result or failure for each pair or statistic, what it read, and who it was."""

    found: tuple[tuple[Any, BlockResult | Failed | None], ...]
    count: Count
    worker: str


def do(task: PassTask | UnitTask) -> Done:
    """Do one piece of work in this process, from nothing but its description."""
    with counting() as count:
        found: list[tuple[Any, BlockResult | Failed | None]] = []
        if isinstance(task, PassTask):
            for name, features in _pass_of(task):
                found.append((name, Failed(reason(features)) if isinstance(features, BaseException) else None))
        else:
            for pair, result in _unit_of(task):
                found.append((pair, Failed(reason(result)) if isinstance(result, BaseException) else result))
    return Done(tuple(found), count, f"{socket.gethostname()}:{os.getpid()}")


def reason(error: BaseException) -> str:
    """One line for a record: our own errors speak for themselves, others are named."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ProvlabError) else f"{type(error).__name__}: {text}"


def run_pass(model: Model, statistics: Sequence[Statistic], options: Options) -> Iterator[tuple[str, Any]]:
    """Load one model once and yield each statistic's name with its features, or with the error in their place."""
    with model.checkpoint.loaded_once():
        for statistic in statistics:
            try:
                with _said_of(f"{statistic.name} of {model.name}"):
                    features = statistic.prepare(model, options)
                yield statistic.name, features
            except PAIR_FAILURES as error:
                yield statistic.name, error


def compare_group(
    statistic: Statistic,
    block: int | None,
    group: Group,
    pairs: Sequence[Pair],
    models: Mapping[str, Model],
    features: Callable[[str], Features],
    options: Options,
) -> Iterator[tuple[Pair, BlockResult | BaseException]]:
    """Yield each pair of a group with its result, or with what befell it.

    Parameters
    ----------
    features
        Gives the features of a source, or raises; asked once for each.
    """
    at_hand: dict[str, Any] = {}

    def get(source: str) -> Any:
        """One model's features, made once; a failure is kept, so that no damaged tensor is read again."""
        if source not in at_hand:
            try:
                with _said_of(f"{statistic.name}{_where(block)} of {models[source].name}"):
                    at_hand[source] = features(source).block(block)
            except PAIR_FAILURES as error:
                at_hand[source] = error
        if isinstance(at_hand[source], BaseException):
            raise at_hand[source]
        return at_hand[source]

    def compared(a: str, b: str) -> BlockResult:
        compare = partial(statistic.compare_block, get(a), get(b), block, options)
        return comparable(statistic, models[a], models[b], block, compare)

    for passing in (None, *group.passing):
        for a, b in pairs:
            if (passing in (a, b)) if passing else not {a, b} & set(group.passing):
                try:
                    yield (a, b), compared(a, b)
                except PAIR_FAILURES as error:
                    yield (a, b), error
        if passing:
            at_hand.pop(passing, None)


def comparable(
    statistic: Statistic, a: Model, b: Model, block: Place, compare: Callable[[], BlockResult]
) -> BlockResult:
    """Compare, and say whose arrays they are if they do not fit: inference sees arrays only and calls them W1 and W2.

    Raises
    ------
    NotComparableError
        In place of an `InputError`.
    """
    with _said_of(f"{statistic.name}{_where(block)} of {a.name} (W1) and {b.name} (W2)"):
        return compare()


@contextmanager
def _said_of(what: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise NotComparableError(f"{what}: {error}") from error


def _where(block: Place) -> str:
    return "" if block is None else f" on block {' and '.join(map(str, np.atleast_1d(block)))}"


def _pass_of(task: PassTask) -> Iterator[tuple[str, Any]]:
    statistics = [get_statistic(name) for name in task.statistics]
    try:
        model = _opened(task.model)
    except PAIR_FAILURES as error:
        yield from ((name, error) for name in task.statistics)
        return
    folders = dict(zip(task.statistics, task.folders, strict=True))
    for name, features in run_pass(model, statistics, task.options):
        if isinstance(features, BaseException):
            yield name, features
            continue
        try:
            shelf.save(features, Path(folders[name]))
            yield name, None
        except OSError as error:
            yield name, error


def _unit_of(task: UnitTask) -> Iterator[tuple[Pair, BlockResult | BaseException]]:
    statistic = get_statistic(task.statistic)
    models: dict[str, Model] = {}
    shut: dict[str, BaseException] = {}
    for source, reference in task.models.items():
        try:
            models[source] = _opened(reference)
        except PAIR_FAILURES as error:
            shut[source] = error
    pairs = []
    for pair in task.pairs:
        if closed := [shut[source] for source in pair if source in shut]:
            yield pair, closed[0]
        else:
            pairs.append(pair)

    def features(source: str) -> Features:
        if statistic.recorded:
            return shelf.load(statistic.recorded, Path(task.folders[source]), models[source])
        return statistic.prepare(models[source], task.options)

    yield from compare_group(statistic, task.block, task.group, pairs, models, features, task.options)


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
