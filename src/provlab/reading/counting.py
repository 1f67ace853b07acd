"""How many bytes were read: of tensors, and of files that were hashed.

>>> with counting() as count:
...     study(models)
>>> count.tensors, count.hashed

Reads within ``with`` are counted, in this thread and in those that have a copy of its context; a caller adds those of
another process by `add`.
"""

__makes_no_numbers__ = True

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Literal


@dataclass
class Count:
    """Bytes read.

    Attributes
    ----------
    tensors : int
        Bytes of tensors, in the dtype of their files; a model that is loaded counts with all its weight files.
    hashed : int
        Bytes of files that were hashed, since no hash was remembered; the larger ones are hashed once a machine.
    """

    tensors: int = 0
    hashed: int = 0


_adding = Lock()
_open: ContextVar[tuple[Count, ...]] = ContextVar("provlab_counts", default=())


@contextmanager
def counting() -> Iterator[Count]:
    """Count the bytes read within the block; counts may be nested."""
    count = Count()
    token = _open.set((*_open.get(), count))
    try:
        yield count
    finally:
        _open.reset(token)


def count_bytes(kind: Literal["tensors", "hashed"], n: int) -> None:
    """Add to every open count."""
    with _adding:  # files are hashed in several threads
        for count in _open.get():
            setattr(count, kind, getattr(count, kind) + n)


def add(count: Count) -> None:
    """Add a count of another process to every open count."""
    count_bytes("tensors", count.tensors)
    count_bytes("hashed", count.hashed)
