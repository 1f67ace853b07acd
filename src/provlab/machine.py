"""What this machine offers: cores and threads, memory, devices."""

__makes_no_numbers__ = True

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Generic, TypeVar

from provlab.errors import ParameterError, one_line

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
T = TypeVar("T")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """Threads that this process should use: ``NUMBA_NUM_THREADS``, else ``OMP_NUM_THREADS``, else one a core."""
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        if (value := os.environ.get(name, "")).isdigit():
            return max(1, int(value))
    return cores()


class Beside(Generic[T]):
    """A call in a thread of its own, for whose end a user who stops does not wait, as for that of a pool's threads.

    Parameters
    ----------
    call
        Runs at once, in a copy of this context.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._result: T
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        assert self._call is not None
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 (it is raised where the result is asked for)
            self._error = error
        finally:
            self._call = None  # what it held may be large

    def wait(self) -> None:
        """Wait for the end of the call."""
        self._thread.join()

    def result(self) -> T:
        """Wait for what the call returns, or raise what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result


def side_by_side(*calls: Callable[[], T]) -> list[T]:
    """Results of calls in their order, each in a thread of its own where this process uses several.

    An error is that of the first call that has one, when those before it have ended.
    """
    if threads() == 1:
        return [call() for call in calls]
    beside = [Beside(call) for call in calls[1:]]
    return [*(call() for call in calls[:1]), *(thread.result() for thread in beside)]


@functools.cache
def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees for the next array, where the C library can (glibc).

    By default arrays of some 10 MB and more are given back to the system when they are freed, and taken again page by
    page: with a vocabulary of 32,000 that was a third of the time of Model-diff.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@contextmanager
def using_device(device: str) -> Iterator[None]:
    """Within, what torch has against a device becomes one line.

    Raises
    ------
    ParameterError
        If torch knows no such device, has none, or has no room left there.
    """
    try:
        yield
    except (RuntimeError, AssertionError, ImportError) as error:
        why = one_line(error)
        raise ParameterError(f"device {device!r} cannot be used on this machine ({why}); use cpu") from error
