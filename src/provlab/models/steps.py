"""How far a run of a model over a text is: told where it runs, heard where a bar is shown.

A run of 7 billion weights takes minutes, and gives its result at its end.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[tuple[Callable[[float], object], float] | None] = ContextVar("provlab_steps", default=None)


@contextmanager
def hearing(hear: Callable[[float], object], of: float = 1.0) -> Iterator[None]:
    """Within, `hear` is called with each part of a run that is done; the parts of one run add up to `of`."""
    token = _listener.set((hear, of))
    try:
        yield
    finally:
        _listener.reset(token)


def tell(share: float) -> None:
    """Tell who hears that one more share of a run is done."""
    if listener := _listener.get():
        hear, of = listener
        hear(share * of)
