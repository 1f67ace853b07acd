"""How much memory a study may take, and how models are held within it: measured as they are read, not foretold."""

import re
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil

from provlab.errors import ParameterError
from provlab.models.anatomy import Anatomy
from provlab.statistics.base import Model

#: bytes that Python and the libraries take in a process that has done a little of everything: measured by the tests
LIBRARIES = 600 * 10**6
#: of what is free, without a limit; of what is given, with one: numpy returns memory late, and pieces are left over
SHARE_OF_FREE, SHARE_OF_GIVEN = 0.6, 0.9

CONTAINER = Path("/sys/fs/cgroup")  # where Linux keeps the limits of the container that this process is in

_UNITS = {"": 1, "b": 1, **{p + u: 10 ** (3 * i) for i, p in enumerate("kmgt", 1) for u in ("", "b")}}
_UNITS |= {p + "ib": 2 ** (10 * i) for i, p in enumerate("kmgt", 1)}

Pair = tuple[str, str]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Budget:
    """Memory of each process of a study.

    Attributes
    ----------
    process : int
        Bytes of arrays that each process may hold, beside the libraries.
    given : bool
        The user set the limit: what does not fit is refused instead of tried.
    fixed : int
        Bytes taken before any work, over all processes.
    workers : int
        Processes that compute.
    """

    process: int
    given: bool
    fixed: int
    workers: int

    def limit_for(self, needed: int) -> int:
        """Limit at which each process may hold `needed` bytes."""
        return int(self.fixed + self.workers * needed / SHARE_OF_GIVEN) + 1


def budget_for(memory: int | str | None, workers: int = 1) -> Budget:
    """Divide the memory given, or most of what is free, among the processes.

    Parameters
    ----------
    memory
        Bytes, or text such as ``8GB`` or ``512MiB``, for the whole study with its libraries; None for most of what is
        free now.
    workers
        Processes that compute; 1 is this process itself.

    Raises
    ------
    ParameterError
        If `memory` is no size, or less than the libraries take.
    """
    own = int(psutil.Process().memory_info().rss)
    fixed = max(own, LIBRARIES) + (workers * LIBRARIES if workers > 1 else 0)  # some are loaded only when they are used
    if memory is None:
        return Budget(max(own + int(SHARE_OF_FREE * free()) - fixed, 0) // workers, False, fixed, workers)
    total = parse(memory)
    process = int(SHARE_OF_GIVEN * (total - fixed)) // workers
    if process <= 0:
        raise ParameterError(
            f"memory: {gigabytes(total)} is less than the libraries take in {workers} "
            f"process{'es' if workers > 1 else ''}; give more than {gigabytes(fixed)}"
            + (" or fewer workers" if workers > 1 else "")
        )
    return Budget(process, True, fixed, workers)


def parse(memory: int | str) -> int:
    """Bytes of ``8GB``, ``512 MiB`` or a number.

    Raises
    ------
    ParameterError
        If it is no size.
    """
    if isinstance(memory, int) and not isinstance(memory, bool) and memory > 0:
        return memory
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", memory) if isinstance(memory, str) else None
    if match and match[2].lower() in _UNITS and float(match[1]) > 0:
        return int(float(match[1]) * _UNITS[match[2].lower()])
    raise ParameterError(f"memory must be a size such as 8GB or 512MiB, not {memory!r}")


def gigabytes(n: int) -> str:
    """Bytes for a reader, ``1.2 GB``."""
    return f"{n / 1e9:.1f} GB" if n >= 9.5e8 else f"{n / 1e6:.0f} MB"


def free() -> int:
    """Bytes that are free on this machine, or within the limit of its container."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = (CONTAINER / "memory.max").read_text().strip()
        if limit != "max":
            available = min(available, int(limit) - int((CONTAINER / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no such container
    return max(available, 0)


def in_rounds(
    pairs: Sequence[Pair],
    load: Callable[[str], Any],
    compare: Callable[[Pair, Any, Any], Result],
    fits: Callable[[Sequence[Any]], bool],
) -> Iterator[tuple[Pair, Result]]:
    """Compare each pair once, holding as many models as fit.

    A round loads one model after the other and compares it with those that are held. It is then held too, as long as
    models fit; once they do not, the later ones are compared and dropped, and a next round loads them again. So each
    model is loaded once where all fit.

    Parameters
    ----------
    load
        Features of a model, by its source.
    compare
        A pair, and the features of both.
    fits
        Whether these features may be held together while another model is read and compared with them.
    """
    left = dict.fromkeys(pairs)
    while left:
        held: dict[str, Any] = {}
        full = False
        for source in dict.fromkeys(source for pair in left for source in pair):
            mine = [pair for pair in left if source in pair and not held.keys().isdisjoint(pair)]
            if full and not mine:
                continue
            features = load(source)
            for pair in mine:
                del left[pair]
                yield pair, compare(pair, *(features if side == source else held[side] for side in pair))
            needed = {side for pair in left for side in pair}
            held = {side: held[side] for side in held if side in needed}
            if source in needed and (not held or (not full and fits([*held.values(), features]))):
                held[source] = features
            elif source in needed:
                full = True
            del features


def nbytes(features: Any) -> int:
    """Bytes of the arrays in memory that features of one model hold; files that are mapped take none."""
    if isinstance(features, np.ndarray):
        if isinstance(features, np.memmap):
            return 0
        return nbytes(features.base) if isinstance(features.base, np.ndarray) else features.nbytes
    if isinstance(features, Mapping):
        return sum(map(nbytes, features.values()))
    if isinstance(features, list | tuple):
        return sum(map(nbytes, features))
    if is_dataclass(features) and not isinstance(features, Model | Anatomy):
        return sum(map(nbytes, vars(features).values()))
    return 0


@contextmanager
def traced() -> Iterator[list[int]]:
    """Peak of the bytes that numpy's arrays take within, beyond those that are there before: the one entry of a list.

    0 in any thread but the main one: `tracemalloc.stop` may end the process while another thread allocates without
    Python's lock, as compiled kernels do.
    """
    peak = [0]
    if threading.current_thread() is not threading.main_thread():
        yield peak
        return
    already = tracemalloc.is_tracing()
    if not already:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield peak
    finally:
        peak[0] = tracemalloc.get_traced_memory()[1] - before
        if not already:
            tracemalloc.stop()
