"""What this machine offers."""

__makes_no_numbers__ = True

import ctypes
import functools
import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Generic, TypeVar

from provlab.errors import ParameterError, one_line

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
#: environment variables that say how many threads a library uses, read when it is loaded
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
#: what glibc reads where a process starts, and other C libraries leave alone: ask Linux for large pages, and keep freed
#: memory, in arrays of up to 32 MB, for the next one
LARGE_PAGES = {
    "GLIBC_TUNABLES": ":".join(
        ("glibc.malloc.hugetlb=1", "glibc.malloc.mmap_threshold=33554432", "glibc.malloc.trim_threshold=268435456")
    )
}
_COLLECTED = 1000  # looks at objects of middle age for one at all; Python's own number is 10
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
def large_pages() -> Iterator[None]:
    """Within, processes that start ask for large pages of memory, unless the environment says otherwise.

    Where Linux gives them when they are asked for, as most distributions have it, training small models beside each
    other takes 3 to 13% less time. Numbers are the same.
    """
    added = {name: value for name, value in LARGE_PAGES.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def collect_seldom() -> None:
    """Let Python look through *all* objects for garbage a hundred times more seldom than it is set to do.

    torch and transformers make a million objects that stay: to look through them again and again while they are
    imported takes 0.7 of 4.4 CPU seconds. Young objects, and so nearly all garbage, are looked at as before.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _COLLECTED)


def end_with_parent() -> None:
    """Let this process end when its parent does: where the parent was killed, a worker takes up no other task."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


def work_for_parent() -> None:
    """Let this process end with its parent, and without a word at a Ctrl-C, which the parent answers.

    Libraries log what they saw of an interrupt, as asyncio does long after it. Errors are raised, so they are heard of.
    """
    end_with_parent()
    collect_seldom()
    logging.disable(logging.ERROR)
    signal.signal(signal.SIGINT, _leave)


def _leave(*_: object) -> None:
    os._exit(130)


@contextmanager
def stoppable() -> Iterator[None]:
    """Within, a Ctrl-C is an interrupt again in a process that `work_for_parent`, so that what runs there is ended."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _leave)


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
