"""Tensors of the place at hand, held so that each is read once for all statistics of a study.

Statistics know nothing of it: `Checkpoint.array` asks here first, and so does what several statistics make of the same
tensors or activations (`once`). A study opens `holding` around its jobs, which come place by place, and lets go of a
place when the next one begins (`Held.at`). Arrays may be dropped at any time, and are read again then: so they take no
memory from features, which come first.

Outside `holding` nothing is held, nor by a study in a process of its own. Threads of the study hold with it: those that
read two models side by side, and those in which comparisons go on beside the reading (`provlab.engine.jobs`).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import is_dataclass
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Made = TypeVar("Made")


class Held:
    """Arrays of one place, by model and name, as many as there is room for.

    Parameters
    ----------
    room
        Bytes.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.nbytes = 0
        self._place: object = None
        self._arrays: dict[tuple[int, Hashable], tuple[object, Any]] = {}
        self._changing = Lock()  # threads hold here

    def at(self, place: object) -> None:
        """Go to a place: what is held of another one is dropped."""
        if place != self._place:
            self.clear()
        self._place = place

    def clear(self) -> None:
        """Drop everything; features that have some of the arrays keep them."""
        with self._changing:
            self._arrays.clear()
            self.nbytes = 0

    def get(self, owner: object, what: Hashable, make: Callable[[], Made]) -> Made:
        """Return what was made for an owner before, or make it, and hold it if there is room.

        An array, and arrays by name, are read-only then. Features are as they were made: torch, which multiplies them
        on a device, takes no array that cannot be written to.
        """
        key = id(owner), what  # the owner is held beside it, so that no other object gets this id
        if (entry := self._arrays.get(key)) is not None:  # one look: another thread may go to the next place
            known: Made = entry[1]
            return known
        made = make()
        size = sum(0 if isinstance(array, np.memmap) else array.nbytes for array in _arrays(made))
        with self._changing:
            if self.nbytes + size > self.room or key in self._arrays:
                return made
            for array in _arrays(made) if isinstance(made, np.ndarray | dict) else ():
                array.setflags(write=False)
            self._arrays[key] = owner, made
            self.nbytes += size
        return made


def _arrays(made: object) -> Iterator[NDArray[Any]]:
    """All arrays in what was made: an array, or a mapping, a tuple or a dataclass of such."""
    if isinstance(made, np.ndarray):
        yield made
        return
    parts = vars(made) if is_dataclass(made) else made
    for part in parts.values() if isinstance(parts, Mapping) else parts if isinstance(parts, tuple) else ():
        yield from _arrays(part)


_open: ContextVar[Held | None] = ContextVar("provlab_held", default=None)


@contextmanager
def holding(room: int) -> Iterator[Held]:
    """Hold what is read within the block, up to so many bytes."""
    held = Held(room)
    token = _open.set(held)
    try:
        yield held
    finally:
        _open.reset(token)


def once(owner: object, what: Hashable, make: Callable[[], Made]) -> Made:
    """Return `make()`, made once an owner and place within a study that holds what it reads, and each time elsewhere.

    Parameters
    ----------
    owner
        What it is made of: a checkpoint, or features.
    what
        A name for it, the same for all callers.
    make
        Gives an array, or arrays by name, or features that have some.
    """
    held = _open.get()
    return make() if held is None else held.get(owner, what, make)


def make_room(needed: int, of: int) -> None:
    """Drop what is held unless `needed` bytes fit beside it into so many."""
    held = _open.get()
    if held is not None and needed + held.nbytes > of:
        held.clear()
