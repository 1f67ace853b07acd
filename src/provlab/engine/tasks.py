"""The pieces that a study is done in, and how one is done, in this process or by workers.

A `PassTask` runs one model over the inputs of several statistics and leaves their features on the shelf. A `UnitTask`
is one statistic on one block for all pairs of models. Both are small descriptions: names, pairs and options. `results`
does a piece on models that are open already; a worker opens them itself, compares their digests with those that the
study began with, and sends back results (`do`). No tensor travels.

Activation statistics are cut in these two because one forward pass gives all blocks: a unit that ran the models itself
would run each of them once a block.
"""

import os
import shutil
import socket
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from provlab.engine.memory import Budget, Pair, gigabytes, in_rounds, nbytes, traced
from provlab.errors import PAIR_FAILURES, CheckpointError, InputError, NotComparableError, ProvlabError, reason
from provlab.models.counting import Count, counting
from provlab.models.formats.dtypes import itemsize
from provlab.statistics import get as get_statistic
from provlab.statistics.base import BlockResult, Features, Model, Options, numel

#: where a unit lies: one block of both models, a block of each, or the whole models
Place = int | tuple[int, int] | None


class Shelf:
    """Where passes leave features until their units are done: in memory, or in files (`provlab.models.room`).

    Files of a study with a store lie beside it and stay until the study is done: stopped in between, it need not run
    its models again.

    Parameters
    ----------
    root
        Folder for features that do not stay in memory.
    room
        Bytes that may stay in memory: 0 where other processes must find them.
    """

    def __init__(self, root: Path, room: int) -> None:
        self.root, self.room = root, room
        self.held: dict[str, Features] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.held or (self.root / key).is_dir()

    def put(self, key: str, features: Features) -> None:
        """Keep the features of one model."""
        if self.room and self.nbytes + nbytes(features) <= self.room:
            self.held[key] = features
        else:
            from provlab.models import room

            room.save(self.root / key, features.as_arrays())

    def get(self, key: str, kind: type[Features], model: Model) -> Features:
        """Return the features of one model; their arrays are mapped if they lie in files.

        Raises
        ------
        ProvlabError
            If they are not there: another machine may not see the folder.
        """
        if key in self.held:
            return self.held[key]
        if key not in self:
            raise ProvlabError(
                f"the features of {model.name} are not in {self.root / key}; let all workers see that folder"
            )
        from provlab.models import room

        return kind.of_arrays(room.load(self.root / key), model)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(map(nbytes, self.held.values()))

    def clear(self, keys: Iterable[str]) -> None:
        """Remove the features of a study that is done."""
        for key in keys:
            shutil.rmtree(self.root / key, ignore_errors=True)
        if self.root.is_dir() and not any(self.root.iterdir()):
            self.root.rmdir()


@dataclass(frozen=True)
class Reference:
    """Serialisable model reference: how to open it, and the digest that it must have."""

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
    budget: Budget

    @property
    def place(self) -> str:
        """Name for a reader."""
        return f"a pass of {self.model.source}"


@dataclass(frozen=True)
class UnitTask:
    """Compare `pairs` under one statistic on one block.

    Attributes
    ----------
    models : mapping
        Source -> reference, of all models of the pairs.
    features : mapping
        Source -> key on the shelf, for statistics that a pass records; empty for others.
    """

    statistic: str
    block: int | None
    pairs: tuple[Pair, ...]
    models: Mapping[str, Reference]
    features: Mapping[str, str]
    shelf: Shelf
    options: Options
    budget: Budget

    @property
    def place(self) -> str:
        """Name for a reader."""
        return place(self.statistic, self.block)


Task = PassTask | UnitTask
Result = BlockResult | BaseException


class Failed(ProvlabError):
    """Why there is no result, in one line: an error as it travels."""


@dataclass(frozen=True)
class Done:
    """Results of a piece.

    Attributes
    ----------
    results : iterable
        A result or its exception for each pair of a unit; for each statistic of a pass that failed. In the caller's own
        process each is computed when it is taken.
    count : Count
        Bytes that another process read.
    worker : str
        Host and process.
    """

    results: Iterable[tuple[Any, Result]]
    count: Count
    worker: str


def do(task: Task) -> Done:
    """Do one piece as a worker, from nothing but its description."""
    with counting() as count:
        finished = tuple(
            (what, result if isinstance(result, BlockResult) else Failed(reason(result)))
            for what, result in results(task, _opened, {})
        )
    return Done(finished, count, f"{socket.gethostname()}:{os.getpid()}")


def in_place(
    tasks: Iterable[Task], models: Mapping[str, Model], failed: Mapping[str, Container[Pair]]
) -> Generator[tuple[Task, Done], None, None]:
    """Do one piece after the other in this process; each result is computed when it is taken, and is there at once.

    Parameters
    ----------
    models
        Open already, by source.
    failed
        Statistic -> pairs that failed, growing as they do: they are not tried on further blocks.
    """
    prepared: dict[tuple[str, str], Features] = {}
    for task in tasks:
        if isinstance(task, UnitTask):
            task = replace(task, pairs=tuple(pair for pair in task.pairs if pair not in failed[task.statistic]))
            # features prepared for other blocks are kept as long as their models are compared
            current = {(task.statistic, source) for source in task.models}
            prepared = {key: features for key, features in prepared.items() if key in current}
        yield task, Done(results(task, lambda reference: models[reference.source], prepared), Count(), "this process")


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
        Features by (statistic, source) that were made before for other blocks; added to.
    """
    return _passed(task, opened) if isinstance(task, PassTask) else _compared(task, opened, prepared)


def _passed(task: PassTask, opened: Callable[[Reference], Model]) -> Iterator[tuple[str, Result]]:
    """Load one model once, and run it for each statistic."""
    try:
        model = opened(task.model)
        if task.budget.given and (needed := loaded_bytes(model, task.options)) > task.budget.process:
            raise NotComparableError(too_large(next(iter(task.features)), model.name, needed, task.budget))
    except PAIR_FAILURES as error:
        yield from ((name, error) for name in task.features)
        return
    with model.checkpoint.loaded_once():
        for name, key in task.features.items():
            try:
                with named(f"{name} of {model.name}"):
                    if key not in task.shelf:  # else a statistic that records the same was run already
                        task.shelf.put(key, get_statistic(name).prepare(model, task.options))
            except PAIR_FAILURES as error:
                yield name, error


def _compared(
    task: UnitTask, opened: Callable[[Reference], Model], prepared: dict[tuple[str, str], Features]
) -> Iterator[tuple[Pair, Result]]:
    """Compare the pairs of a unit, with as many models held as the memory has room for."""
    statistic = get_statistic(task.statistic)
    room = task.budget.process - task.shelf.nbytes
    working: int | None = None  # bytes that the first comparison took at most: the others take about as many

    def prepare(source: str, model: Model) -> Features:
        if statistic.recorded:
            return task.shelf.get(task.features[source], statistic.recorded, model)
        if (statistic.name, source) not in prepared:
            prepared[statistic.name, source] = statistic.prepare(model, task.options)
        return prepared[statistic.name, source]

    def load(source: str) -> Any:
        try:
            model = opened(task.models[source])
            with named(f"{task.place} of {model.name}"):
                return prepare(source, model).block(task.block)
        except PAIR_FAILURES as error:
            return error

    def compare(pair: Pair, a: Any, b: Any) -> Result:
        nonlocal working
        for side in (a, b):
            if isinstance(side, BaseException):
                return side
        names = [opened(task.models[source]).name for source in pair]
        if task.budget.given and (needed := nbytes(a) + nbytes(b)) > room:
            return NotComparableError(too_large(task.statistic, " and ".join(names), needed, task.budget))
        measure = traced() if len(task.models) > 2 and working is None else nullcontext([working or 0])
        try:
            with named(task.place, *names), measure as peak:
                result = statistic.compare_block(a, b, task.block, task.options)
        except PAIR_FAILURES as error:
            return error
        working = peak[0]
        return result

    def fits(features: Any) -> bool:
        sizes = [nbytes(model) for model in features]
        # beside those that are held: one more, and, while that is read, a copy and what is made of it
        return sum(sizes) + max(sizes) + max(2 * max(sizes), working or 0) <= room

    return in_rounds(task.pairs, load, compare, fits)


def loaded_bytes(model: Model, options: Options) -> int:
    """Bytes of a model that is loaded to be run."""
    return itemsize(options.dtype) * sum(numel(model, part.name) for part in model.anatomy.parts)


def too_large(statistic: str, models: str, needed: int, budget: Budget) -> str:
    """Say that the memory given is too small, and which limit would do."""
    return (
        f"{statistic} of {models} needs about {gigabytes(needed)} beside the libraries, and "
        f"{gigabytes(budget.process)} of the memory given are left for it in each process; raise the limit to "
        f"{gigabytes(budget.limit_for(needed))}"
    )


def place(statistic: str, block: Place) -> str:
    """Name a unit for a reader: ``phi_u on block 3``."""
    return statistic if block is None else f"{statistic} on block {' and '.join(map(str, np.atleast_1d(block)))}"


@contextmanager
def named(what: str, *pair: str) -> Iterator[None]:
    """Name the models in errors about arrays: inference calls those of a pair W1 and W2.

    Raises
    ------
    NotComparableError
        In place of an `InputError`.
    """
    try:
        yield
    except InputError as error:
        models = " of {} (W1) and {} (W2)".format(*pair) if pair else ""
        raise NotComparableError(f"{what}{models}: {error}") from error


@lru_cache(maxsize=1024)
def _opened(reference: Reference) -> Model:
    """Open a model once a process, and compare its digest with that of the study."""
    model = Model.open(reference.source, allow_pickle=reference.allow_pickle)
    if model.checkpoint.digest != reference.digest:
        raise CheckpointError(
            f"{reference.source} holds other weights on {socket.gethostname()} than where the study began; "
            "give all workers the same files"
        )
    return model
