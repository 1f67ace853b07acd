"""All inputs of a small space, exactly: the ground truth that every estimate of Model-diff is compared with.

The space is cut into units, subtrees of the tree of prefixes. A process takes one unit after the other, sends it
through all the models, and writes every NLL to one file a model. A run that was stopped goes on with the units that are
missing.
"""

import math
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from tqdm.auto import tqdm

from provlab.codehash import code_digest
from provlab.errors import InputError, NotComparableError, ProvlabError
from provlab.files import cache_dir, digest, reading
from provlab.modeldiff import nll
from provlab.modeldiff.moves import Tokens
from provlab.modeldiff.tokens import shared_tokens
from provlab.reading.checkpoint import Checkpoint
from provlab_study.toy_modulo30.prefix_tree import subtree_nll

#: the largest space that is enumerated: hours on two cores already
LARGEST = 4_000_000_000
_UNIT = 1_000_000  # inputs of a unit, at most


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
        First tokens of every sequence; none, for the whole space.
    """

    vocabulary: int
    length: int
    head: tuple[int, ...] = ()

    def __post_init__(self) -> None:
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

    def where(self, rule: Callable[[Tokens], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Which sequences keep a rule, ``(size,)`` in lexicographic order; `rule` maps ``(n, length)`` to ``(n,)``."""
        units, kept = self.units(), []
        tokens = units[0].tokens(np.arange(units[0].size))  # units differ in their heads alone
        for unit in units:
            tokens[:, : len(unit.head)] = unit.head
            kept.append(rule(tokens))
        return np.concatenate(kept)


@dataclass(frozen=True, eq=False)
class Enumeration:
    """The losses of all inputs. Make one with `enumerate_all`.

    Attributes
    ----------
    space
        The inputs.
    names
        The models' names.
    files
        One for each model.
    """

    space: Space
    names: tuple[str, ...]
    files: tuple[Path, ...]

    def nll(self, model: int) -> NDArray[np.float32]:
        """Return the NLL of every input, ``(size,)`` in lexicographic order, read from disk as it is needed."""
        return _opened(self.files[model])

    def lookup(self, model: int) -> Callable[[Tokens], NDArray[np.float64]]:
        """Return a function from ``(n, free)`` tokens to their NLL, as a sampler calls it, at the speed of memory."""
        values = self.nll(model)
        return lambda tokens: values[self.space.index(tokens)].astype(np.float64)


def enumerate_all(checkpoints: Sequence[Checkpoint], space: Space, *, jobs: int) -> Enumeration:
    """Send every input of a space through some models, or read the losses that an earlier run left in provlab's cache.

    Every NLL is kept, 4 bytes for each input and model.

    Parameters
    ----------
    checkpoints
        Models of one tokenizer.
    space
        The inputs.
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
    for checkpoint in checkpoints:
        if checkpoint.config.get("vocab_size") != space.vocabulary:
            raise InputError(
                f"{checkpoint.name} has {checkpoint.config.get('vocab_size')} tokens, the space {space.vocabulary}"
            )
    shared = shared_tokens(checkpoints)
    if shared.moved or any(shared.left_out):
        raise NotComparableError("one id means different tokens in these models: their enumerations are of other texts")
    models = [checkpoint.digest for checkpoint in checkpoints]
    key = digest(
        {"code": code_digest(_fill), "models": models, "space": [space.vocabulary, space.length, list(space.head)]}
    )
    folder = cache_dir() / "enumerations" / key[:16]
    folder.mkdir(parents=True, exist_ok=True)
    files = tuple(folder / f"nll-{model}.npy" for model in range(len(checkpoints)))
    with FileLock(folder / ".lock"):
        _fill(tuple(checkpoint.source for checkpoint in checkpoints), files, space, jobs)
    return Enumeration(space, tuple(checkpoint.name for checkpoint in checkpoints), files)


def _opened(path: Path) -> NDArray[np.float32]:
    with reading(path):
        array: NDArray[np.float32] = np.load(path, mmap_mode="r")
    return array


def _fill(sources: tuple[str, ...], files: tuple[Path, ...], space: Space, jobs: int) -> None:
    """Do the units that some file lacks: a loss of 0, by which a new file is filled, is none of a model's."""
    for path in files:
        if not path.exists():
            np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(space.size,))
    units = dict(enumerate(space.units()))
    each = space.size // len(units)
    arrays = [_opened(path) for path in files]
    missing = [n for n in units if not all(array[n * each : (n + 1) * each].all() for array in arrays)]
    work, jobs = partial(_do, sources, files), min(jobs, len(missing))
    with tqdm(total=space.size, desc="enumerate", unit="input", unit_scale=True, leave=False) as bar:
        bar.update(each * (len(units) - len(missing)))
        if jobs <= 1:
            for number in missing:
                work(number, units[number])
                bar.update(each)
            return
        try:
            # fresh processes: torch's threads do not survive a fork
            with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
                for _ in pool.map(work, missing, [units[number] for number in missing]):
                    bar.update(each)
        except BrokenProcessPool as error:
            raise ProvlabError(
                "a process of the enumeration ended before its time (out of memory?); the same call goes on with the "
                "units that are missing, with jobs=1 in half the memory"
            ) from error


@lru_cache(maxsize=1)
def _models(sources: tuple[str, ...]) -> list[nll.SequenceNll]:
    """Load the models, once in each process."""
    import torch

    torch.set_num_threads(1)
    torch.empty(7_500_000)  # 30 MB, freed at once: glibc then keeps freed memory, and each page is cleared only once
    models = [nll.sequence_nll(Checkpoint.open(source)) for source in sources]
    for model in models:
        model.network.set_attn_implementation("eager")  # faster for ten tokens and seven ancestors
    return models


def _do(sources: tuple[str, ...], files: tuple[Path, ...], number: int, unit: Space) -> None:
    """Send one unit through all models and write its losses."""
    for model, path in zip(_models(sources), files, strict=True):
        with reading(path):
            kept = np.load(path, mmap_mode="r+")
        kept[number * unit.size : (number + 1) * unit.size] = subtree_nll(model, unit.length, unit.head)
        kept.flush()
