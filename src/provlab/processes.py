"""Processes that work for this one: what they begin with, and how they end with it."""

import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

#: environment variables that say how many threads a library uses, read when it is loaded
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
#: what glibc reads where a process starts, and other C libraries leave alone: ask Linux for large pages, and keep freed
#: memory, in arrays of up to 32 MB, for the next one; where Linux gives them when they are asked for, as most
#: distributions have it, training small models beside each other takes 3 to 13% less time, and numbers are the same
LARGE_PAGES = {
    "GLIBC_TUNABLES": ":".join(
        ("glibc.malloc.hugetlb=1", "glibc.malloc.mmap_threshold=33554432", "glibc.malloc.trim_threshold=268435456")
    )
}
_COLLECTED = 1000  # looks at objects of middle age for one at all; Python's own number is 10


@contextmanager
def starting_with(settings: Mapping[str, str]) -> Iterator[None]:
    """Within, processes that start have these environment variables; what the user has set himself stays."""
    added = {name: value for name, value in settings.items() if name not in os.environ}
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
