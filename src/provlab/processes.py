"""Processes that work for this one: what they begin with, and how they end with it."""

import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from provlab.errors import one_line

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


def bounded(call: Callable[[], str], *, seconds: int, memory: int) -> str:
    """Return the text that a call makes, in a copy of this process that has so many seconds and so many bytes more.

    For what a stranger wrote and we run: a sandbox keeps it from files, and bounds neither its loops nor its products.
    A copy has all that is loaded here, so it costs milliseconds. Memory is bounded on Linux alone.

    Raises
    ------
    RuntimeError
        The call raised an error, whose words these are; or it took more, or ended the copy.
    """
    ours, theirs = os.pipe()
    with starting_with({"TOKENIZERS_PARALLELISM": "false"}):  # else tokenizers speaks of every copy
        child = os.fork()
    if not child:
        _answer(call, theirs, seconds, memory)
    os.close(theirs)
    try:
        with open(ours, "rb") as pipe:
            said = pipe.read().decode("utf-8", "surrogatepass")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not said.startswith(_MADE):
        raise RuntimeError(said[1:] or f"it takes more than {seconds} seconds, or ends the process")
    return said[1:]


_MADE, _REFUSED = "+", "-"  # before what a copy answers


def _answer(call: Callable[[], str], pipe: int, seconds: int, memory: int) -> NoReturn:
    """Be the copy: write what the call makes, or why it does not, and end without a trace of the process before."""
    try:
        try:
            gc.disable()  # what other threads and devices hold is not the copy's to free
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the copy, also in the middle of a product
            signal.alarm(seconds)
            _more_memory(memory)
            said = _MADE + call()
        except MemoryError:
            said = f"{_REFUSED}it needs more than {memory / 1e9:.1f} GB of memory"
        except BaseException as error:  # noqa: BLE001 (it is raised where the answer is read)
            said = _REFUSED + one_line(error)
        with open(pipe, "wb") as out:
            out.write(said.encode("utf-8", "surrogatepass"))
    finally:
        os._exit(0)


def _more_memory(size: int) -> None:
    """Let this process have so many bytes more than now, where the system says how many it has."""
    import resource  # of Unix alone, as a copy is

    with suppress(OSError, ValueError):  # no Linux; or less than that is allowed already
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + size, resource.getrlimit(resource.RLIMIT_AS)[1]))
