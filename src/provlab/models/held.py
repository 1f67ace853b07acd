"""Tensors of the place at hand, held so that each is read once for all statistics of a study.

Statistics know nothing of it: `Checkpoint.array` asks here first, and so does what several statistics make of the same
tensors (`once`). A study opens `holding` around its jobs, which come place by place, and lets go of a place when the
next one begins (`Held.at`). Arrays may be dropped at any time, and are read again then: so they take no memory from
features, which come first.

Outside `holding` nothing is held. In a process, or an executor's thread, of its own a study holds nothing either;
threads in which comparisons go on beside the reading (`provlab.engine.jobs`) ask the same `Held`.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from numpy.typing import NDArray

Made = TypeVar("Made", bound=NDArray[Any] | dict[str, NDArray[Any]])


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

    def at(self, place: object) -> None:
        """Go to a place: what is held of another one is dropped."""
        if place != self._place:
            self.clear()
        self._place = place

    def clear(self) -> None:
        """Drop everything; features that have some of the arrays keep them."""
        self._arrays.clear()
        self.nbytes = 0

    def get(self, owner: object, what: Hashable, make: Callable[[], Made]) -> Made:
        """Return what was made for an owner before, or make it, and hold it if there is room; read-only then."""
        key = id(owner), what  # the owner is held beside it, so that no other object gets this id
        known = self._arrays.get(key)  # one look: a thread may ask while another goes to the next place
        if known is not None:
            before: Made = known[1]
            return before
        made = make()
        arrays = list(made.values()) if isinstance(made, dict) else [made]
        size = sum(array.nbytes for array in arrays)
        if self.nbytes + size <= self.room:
            for array in arrays:
                array.setflags(write=False)
            self._arrays[key] = owner, made
            self.nbytes += size
        return made


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
        The checkpoint that it is made of.
    what
        A name for it, the same for all callers.
    make
        Gives an array, or arrays by name.
    """
    held = _open.get()
    return make() if held is None else held.get(owner, what, make)


def make_room(needed: int, of: int) -> None:
    """Drop what is held unless `needed` bytes fit beside it into so many."""
    held = _open.get()
    if held is not None and needed + held.nbytes > of:
        held.clear()
