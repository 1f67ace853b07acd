"""What a piece of work costs: seconds by the clock and of the processors, and the peak of memory.

CPU seconds count all threads of this process and tell how much was done, however busy the machine; seconds by the clock
tell how long one waits. Memory is the resident set, mapped files included.
"""

import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_PROC = Path("/proc/self")  # Linux alone can reset the peak of a process


@dataclass(frozen=True)
class Cost:
    """What `measure` found.

    Attributes
    ----------
    seconds, cpu_seconds
        By the clock, and of all threads of this process.
    memory
        Peak of resident memory during the work, in bytes, above what was resident when it began.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        """One after the other: times add up, of the peaks the higher one counts."""
        return Cost(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds, max(self.memory, other.memory))

    def times(self, factor: float) -> "Cost":
        """Return the cost of the same work `factor` times over, one after the other."""
        return Cost(self.seconds * factor, self.cpu_seconds * factor, self.memory)


def mean(costs: Sequence[Cost]) -> Cost:
    """Mean times, and the highest peak."""
    return sum(costs, Cost()).times(1 / len(costs))


def measure(work: Callable[[], T]) -> tuple[T, Cost]:
    """Do a piece of work and say what it cost.

    As far as memory goes measurements do not nest: the inner one resets the peak.
    """
    resident = _start_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    return result, Cost(seconds, cpu_seconds, max(0, peak_memory() - resident))


def peak_memory() -> int:
    """Peak of this process's resident memory in bytes, since `measure` last began; since its start if not on Linux."""
    if (peak := _status("VmHWM")) is not None:
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _start_peak() -> int:
    """Reset the peak, and return what is resident now."""
    with suppress(OSError):
        (_PROC / "clear_refs").write_text("5")
    resident = _status("VmRSS")
    return peak_memory() if resident is None else resident


def _status(field: str) -> int | None:
    """One field of /proc/self/status in bytes."""
    with suppress(OSError):
        for line in (_PROC / "status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return 1024 * int(line.split()[1])
    return None
