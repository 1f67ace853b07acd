"""All inputs of a small space, exactly: the ground truth that every estimate of Model-diff is compared with.

The space is cut into units, subtrees of the tree of prefixes. A process takes one unit after the other, sends it
through all the models, and writes what is kept of it: the joint histogram of each pair of models, some sums, and on
request every single NLL. A run that was stopped, however, goes on with the units that are missing.
"""

import math
import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from tqdm.auto import tqdm

from provlab.chapters.toy_modulo30.joint import WIDTH, Joint
from provlab.chapters.toy_modulo30.prefix_tree import subtree_nll
from provlab.errors import InputError, NotComparableError, ProvlabError
from provlab.files import cache_dir, digest
from provlab.kept import read_arrays, reading, write_arrays
from provlab.modeldiff import nll
from provlab.modeldiff.moves import Tokens
from provlab.modeldiff.tokens import shared_tokens
from provlab.models.checkpoint import Checkpoint

#: the largest space that is enumerated: hours on two cores already
LARGEST = 4_000_000_000
_UNIT = 1_000_000  # inputs of a unit, at most
_CELLS = "cells.npz"  # written when every unit is done
_SCHEME = 1  # raised when the same models and space would leave other numbers

Label = Callable[[Tokens], NDArray[np.bool_]]


@dataclass(frozen=True)
class Space:
    """All sequences of one length, or those of them that begin with `head`.

    Attributes
    ----------
    vocabulary
        Tokens are from 0 to ``vocabulary - 1``.
    length
        Tokens of a sequence, `head` included.
    head
        What every sequence begins with; nothing, for the whole space.
    """

    vocabulary: int
    length: int
    head: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.vocabulary < 2 or self.length < 2:
            raise InputError(f"a space needs 2 tokens and a length of 2, not {self.vocabulary} and {self.length}")
        if len(self.head) >= self.length:
            raise InputError(f"head must leave some of the {self.length} tokens free, not fix {len(self.head)}")
        if not all(0 <= token < self.vocabulary for token in self.head):
            raise InputError(f"head must hold tokens from 0 to {self.vocabulary - 1}, not {list(self.head)}")

    @property
    def free(self) -> int:
        """Tokens that are not fixed."""
        return self.length - len(self.head)

    @property
    def size(self) -> int:
        """Number of sequences."""
        return self.vocabulary**self.free

    @property
    def prefixes(self) -> int:
        """Number of tokens that must go through a network: the inner nodes of the tree, without the root."""
        inner = sum(self.vocabulary**depth for depth in range(self.free))
        return inner - (not self.head)  # the empty prefix sends no token of its own

    def index(self, tokens: Tokens) -> NDArray[np.int64]:
        """Return the place of sequences, given by their free tokens ``(n, free)``, in lexicographic order."""
        powers = self.vocabulary ** np.arange(self.free - 1, -1, -1, dtype=np.int64)
        return np.asarray(tokens, dtype=np.int64) @ powers

    def tokens(self, index: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the whole sequences ``(n, length)`` at the places `index`."""
        left = np.asarray(index, dtype=np.int64)
        tokens = np.empty((len(left), self.length), dtype=np.int64)
        tokens[:, : len(self.head)] = self.head
        for place in reversed(range(len(self.head), self.length)):
            above = left // self.vocabulary  # division by one number is several times as fast as by an array
            tokens[:, place] = left - self.vocabulary * above
            left = above
        return tokens

    def units(self) -> list["Space"]:
        """Cut the space into subtrees, in order, each of at most a million sequences if the vocabulary allows."""
        depth = 0
        while self.vocabulary ** (self.free - depth) > _UNIT and depth < self.free - 1:
            depth += 1
        heads = np.ndindex(*(self.vocabulary,) * depth)
        return [Space(self.vocabulary, self.length, (*self.head, *map(int, head))) for head in heads]


@dataclass(frozen=True, eq=False)
class Enumeration:
    """What an enumeration left. Make one with `enumerate_all`.

    Attributes
    ----------
    space
        What was enumerated.
    names
        Of the models.
    joints
        Joint histogram of each pair of models ``(i, j)``, i < j.
    totals
        ``(models, 2, 3)``, over inputs without and with the label: their number, the sum of their NLLs, and the
        probability that plain sampling at temperature 1 gives one of them, its first token drawn uniformly.
    folder
        Where it lies.
    """

    space: Space
    names: tuple[str, ...]
    joints: dict[tuple[int, int], Joint]
    totals: NDArray[np.float64]
    folder: Path

    def joint(self, first: int, second: int) -> Joint:
        """Return the joint histogram of two models by their places, the smaller first."""
        if (first, second) not in self.joints:
            raise InputError(f"there is no pair ({first}, {second}) of the {len(self.names)} models, the smaller first")
        return self.joints[first, second]

    def nll(self, model: int) -> NDArray[np.float32]:
        """Return the NLL of every input, ``(size,)`` in lexicographic order, read from disk as it is needed."""
        path = self.folder / f"nll-{model}.npy"
        with reading(path):
            array: NDArray[np.float32] = np.load(path, mmap_mode="r")
        return array

    def table(self, model: int) -> "TableNll":
        """Return the model's NLL as a table: what a sampler calls, at the speed of memory."""
        return TableNll(self.space, self.nll(model), self.names[model])


class TableNll:
    """The NLL of enumerated inputs, looked up: like `provlab.modeldiff.nll.SequenceNll`, on the space's free tokens.

    Attributes
    ----------
    vocabulary, length
        Of what is looked up: ``(n, length)`` free tokens.
    evaluations
        Sequences looked up so far.
    """

    def __init__(self, space: Space, values: NDArray[np.float32], name: str) -> None:
        self.space, self.values, self.name = space, values, name
        self.vocabulary, self.length = space.vocabulary, space.free
        self.evaluations = 0

    def __call__(self, tokens: Tokens) -> NDArray[np.float64]:
        """Return the mean token NLL (nats) of ``(n, length)`` free tokens."""
        tokens = np.asarray(tokens)
        if tokens.ndim != 2 or tokens.shape[1] != self.length:
            raise InputError(f"tokens must be of shape (n, {self.length}), not {tokens.shape}")
        if tokens.size and (tokens.min() < 0 or tokens.max() >= self.vocabulary):
            raise InputError(f"tokens must be from 0 to {self.vocabulary - 1}")
        self.evaluations += len(tokens)
        return self.values[self.space.index(tokens)].astype(np.float64)


def enumerate_all(checkpoints: Sequence[Checkpoint], space: Space, label: Label, *, jobs: int) -> Enumeration:
    """Send every input of a space through some models, or read what an earlier run left in provlab's cache.

    Every NLL is kept, 4 bytes for each input and model.

    Parameters
    ----------
    checkpoints
        Models of one tokenizer.
    space
        The inputs.
    label
        What distinguishes two kinds of inputs, such as valid and not: from tokens ``(n, length)`` to ``(n,)`` bool. A
        function of a module, since other processes call it.
    jobs
        Processes, each on one thread.

    Raises
    ------
    InputError
        The space is larger than can be enumerated, or is not one of the models'.
    NotComparableError
        The models' tokenizers differ.
    """
    if space.size > LARGEST:
        raise InputError(
            f"{space.vocabulary}^{space.free} = 10^{space.free * math.log10(space.vocabulary):.1f} inputs are too many "
            f"to enumerate ({len(checkpoints)} x {4 * space.size / 1e9:.3g} GB of NLLs; the limit is {LARGEST:,} "
            "inputs); fix a longer head, or sample (provlab.modeldiff.sampler)"
        )
    if not checkpoints or jobs < 1:
        raise InputError("an enumeration needs at least one model and one process")
    for checkpoint in checkpoints:
        if checkpoint.config.get("vocab_size") != space.vocabulary:
            raise InputError(
                f"{checkpoint.name} has {checkpoint.config.get('vocab_size')} tokens, the space {space.vocabulary}"
            )
    if not shared_tokens(checkpoints).identical:
        raise NotComparableError("one id means different tokens in these models: their enumerations are of other texts")
    task = _Task(
        sources=tuple(checkpoint.source for checkpoint in checkpoints),
        space=space,
        units=tuple(space.units()),
        label=label,
        folder=_folder(checkpoints, space, label),
    )
    task.folder.mkdir(parents=True, exist_ok=True)
    with FileLock(task.folder / ".lock"):
        if not (task.folder / _CELLS).is_file():
            _run(task, jobs)
    return _read(task.folder, space, tuple(checkpoint.name for checkpoint in checkpoints))


# Inside ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """What a process must know to do a unit."""

    sources: tuple[str, ...]
    space: Space
    units: tuple[Space, ...]
    label: Label
    folder: Path

    def unit_file(self, number: int) -> Path:
        return self.folder / "units" / f"{number:06d}.npz"


def _folder(checkpoints: Sequence[Checkpoint], space: Space, label: Label) -> Path:
    key = digest(
        {
            "scheme": _SCHEME,
            "models": [checkpoint.digest for checkpoint in checkpoints],
            "space": [space.vocabulary, space.length, list(space.head)],
            "label": f"{label.__module__}.{label.__qualname__}",
            "start_token": None,  # what an enumeration could once leave open is part of the key of those kept since
            "keep_nll": True,
            "width": WIDTH,
        }
    )
    return cache_dir() / "enumerations" / key[:16]


def _run(task: _Task, jobs: int) -> None:
    units = task.units
    for model in range(len(task.sources)):
        path = task.folder / f"nll-{model}.npy"
        if not path.exists():
            shutil.rmtree(task.folder / "units", ignore_errors=True)  # they were of a file that is gone
            np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(task.space.size,))
    missing = [number for number in range(len(units)) if not task.unit_file(number).is_file()]
    with tqdm(total=task.space.size, desc="enumerate", unit="input", unit_scale=True, leave=False) as bar:
        bar.update(task.space.size // len(units) * (len(units) - len(missing)))
        for _ in _done(task, missing, min(jobs, len(missing))):
            bar.update(task.space.size // len(units))
    _finish(task, len(units))


def _done(task: _Task, missing: list[int], jobs: int) -> Iterator[int]:
    """Do the missing units, and yield the number of each when it is written."""
    if jobs <= 1:
        _begin(task)
        for number in missing:
            yield _do(number)
        return
    # fresh processes: torch's threads do not survive a fork
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(task,)) as pool:
            waiting = [pool.submit(_do, number) for number in missing]
            try:
                for finished in as_completed(waiting):
                    yield finished.result()
            finally:
                pool.shutdown(cancel_futures=True)
    except BrokenProcessPool as error:
        raise ProvlabError(
            "a process of the enumeration ended before its time (out of memory?); the same call goes on with the "
            "units that are missing, with jobs=1 in half the memory"
        ) from error


_task: _Task
_models: list[nll.SequenceNll]


def _begin(task: _Task) -> None:
    """Load the models, once in each process."""
    import torch

    global _task, _models
    torch.set_num_threads(1)
    torch.empty(7_500_000)  # 30 MB, freed at once: glibc then keeps freed memory, and each page is cleared only once
    _task = task
    _models = [nll.sequence_nll(Checkpoint.open(source)) for source in task.sources]


def _do(number: int) -> int:
    """Send one unit through all models and write what is kept of it."""
    unit = _task.units[number]
    losses = [subtree_nll(model, unit.length, unit.head) for model in _models]
    labels = _task.label(unit.tokens(np.arange(unit.size)))
    content: dict[str, NDArray[Any]] = {"totals": np.stack([_totals(one, labels, _task) for one in losses])}
    for i, j in _pairs(len(losses)):
        joint = Joint.of(losses[i], losses[j], labels)
        content[f"key-{i}-{j}"], content[f"count-{i}-{j}"] = joint.key, joint.count.astype(np.int32)
    for model, values in enumerate(losses):
        kept = np.load(_task.folder / f"nll-{model}.npy", mmap_mode="r+")
        kept[number * unit.size : (number + 1) * unit.size] = values
        kept.flush()
    write_arrays(_task.unit_file(number), content)
    return number


def _pairs(n_models: int) -> list[tuple[int, int]]:
    """All pairs of models; a single model is paired with itself, so that its density of states is kept."""
    return list(combinations(range(n_models), 2)) or [(0, 0)]


def _totals(losses: NDArray[np.float32], labels: NDArray[np.bool_], task: _Task) -> NDArray[np.float64]:
    """Number, sum of NLL and probability of the inputs without and with the label, ``(2, 3)``."""
    predicted, first = task.space.length - 1, 1.0 / task.space.vocabulary  # nothing stands left of the first token
    rows = []
    for sort in (False, True):
        chosen = losses[labels == sort].astype(np.float64)
        rows.append([len(chosen), chosen.sum(), first * np.exp(-predicted * chosen).sum()])
    return np.array(rows)


def _finish(task: _Task, n_units: int) -> None:
    """Add up the units, and remove them once the sum is written."""
    parts = [read_arrays(task.unit_file(number)) for number in range(n_units)]
    content = {"totals": np.sum([part["totals"] for part in parts], axis=0)}
    for i, j in _pairs(len(task.sources)):
        joint = Joint.merged(Joint(part[f"key-{i}-{j}"], part[f"count-{i}-{j}"].astype(np.int64)) for part in parts)
        content[f"key-{i}-{j}"], content[f"count-{i}-{j}"] = joint.key, joint.count
    write_arrays(task.folder / _CELLS, content)
    shutil.rmtree(task.folder / "units", ignore_errors=True)


def _read(folder: Path, space: Space, names: tuple[str, ...]) -> Enumeration:
    content = read_arrays(folder / _CELLS)
    with reading(folder / _CELLS):
        joints = {(i, j): Joint(content[f"key-{i}-{j}"], content[f"count-{i}-{j}"]) for i, j in _pairs(len(names))}
        return Enumeration(space, names, joints, content["totals"], folder)
