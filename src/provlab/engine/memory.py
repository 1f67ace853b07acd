"""How much memory a study may take, and how much features of models take."""

import re
import threading
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from provlab.errors import ParameterError
from provlab.reading.anatomy import Anatomy
from provlab.reading.held import make_room
from provlab.statistics.model import Model

#: bytes that Python and the libraries take in a process that has done a little of everything: measured by the tests
LIBRARIES = 600 * 10**6
#: of what is free, without a limit; of what is given, with one: numpy returns memory late, and pieces are left over
SHARE_OF_FREE, SHARE_OF_GIVEN = 0.6, 0.9

CONTAINER = Path("/sys/fs/cgroup")  # where Linux keeps the limits of the container that this process is in

_UNITS = {"": 1, "b": 1, **{p + u: 10 ** (3 * i) for i, p in enumerate("kmgt", 1) for u in ("", "b")}}
_UNITS |= {p + "ib": 2 ** (10 * i) for i, p in enumerate("kmgt", 1)}

Pair = tuple[str, str]


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
        given = gigabytes(total) if total >= 10**6 else f"{total} bytes"
        raise ParameterError(
            f"memory: {given} is less than the libraries take in {workers} "
            f"process{'es' if workers > 1 else ''}; give more than {gigabytes(fixed)}"
            + (" or fewer workers" if workers > 1 else "")
        )
    return Budget(process, True, fixed, workers)


@dataclass
class Allowance:
    """Memory that the features of one job may take: what fits is measured as it is read, not foretold.

    Attributes
    ----------
    limit : int
        Bytes of arrays.
    working : int or None
        Bytes that the first comparison took at most, beside the features of its sides: others take about as many.
    """

    limit: int
    working: int | None = None

    def room_for(self, sides: Sequence[Any]) -> bool:
        """Whether these features may be held while one more side is read, and compared with one of them.

        Beside that side there is a copy of it, and what is made of it. Tensors that are held for other statistics give
        way (`provlab.reading.held`).
        """
        sizes = [nbytes(side) for side in sides]
        needed = sum(sizes) + max(sizes) + max(2 * max(sizes), self.working or 0)
        make_room(needed, self.limit)
        return needed <= self.limit

    @contextmanager
    def first_comparison(self) -> Iterator[None]:
        """Within, measure the peak of the bytes that numpy's arrays take, beyond those that are there before.

        0 in any thread but the main one: `tracemalloc.stop` may end the process while another thread allocates without
        Python's lock, as compiled kernels do.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            self.working = 0
            return
        already = tracemalloc.is_tracing()
        if not already:
            tracemalloc.start()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        try:
            yield
            self.working = tracemalloc.get_traced_memory()[1] - before
        finally:
            if not already:
                tracemalloc.stop()


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
