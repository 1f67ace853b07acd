"""What the parts of a study take: running a model, reading a side, comparing a pair.

>>> with timing() as parts:
...     run_pairs(opened, ["phi_u"], options)
>>> parts["compare", "phi_u", ("a", "b")].cpu

Parts within ``with`` are added up, in this thread and in those that have a copy of its context. Nothing is kept
outside.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

#: what is done, for which statistic, and the sources of the models
Part = tuple[Literal["run", "read", "compare"], str, tuple[str, ...]]


@dataclass
class Taken:
    """What one part took.

    Attributes
    ----------
    clock, cpu : float
        Seconds by the clock, and of the processors, all threads together.
    nbytes : int
        Bytes of the features that it left in memory, at most.
    """

    clock: float = 0.0
    cpu: float = 0.0
    nbytes: int = 0


_open: ContextVar[dict[Part, Taken] | None] = ContextVar("provlab_timing", default=None)


@contextmanager
def timing() -> Iterator[dict[Part, Taken]]:
    """Add up what the parts of a study within the block take."""
    parts: dict[Part, Taken] = {}
    token = _open.set(parts)
    try:
        yield parts
    finally:
        _open.reset(token)


@contextmanager
def timed(what: Literal["run", "read", "compare"], statistic: str, *sources: str) -> Iterator[Taken]:
    """Count the time within the block as one part."""
    parts = _open.get()
    if parts is None:
        yield Taken()
        return
    taken = parts.setdefault((what, statistic, sources), Taken())
    clock, cpu = time.perf_counter(), time.process_time()
    try:
        yield taken
    finally:
        taken.clock += time.perf_counter() - clock
        taken.cpu += time.process_time() - cpu
