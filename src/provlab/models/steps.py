"""The steps of a run of a model over a text: which of its weights and sequences at a time, and how far it is.

A run of 7 billion weights takes minutes, and gives its result at its end. So the code that runs a model tells, by
`tell`, and the code that shows a bar hears, by `hearing`.
"""

__makes_no_numbers__ = True

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from provlab.models.formats.dtypes import exact_from

BATCH = 16  # sequences that run through a model at a time
_LOGITS = 1 << 27  # held at a time, so that a large vocabulary takes no more memory than a small one
_listener: ContextVar[tuple[Callable[[float], object], float] | None] = ContextVar("provlab_steps", default=None)


class Stored(Protocol):
    """The weights of a model in its files."""

    @property
    def plain(self) -> bool:
        """Whether transformers reads the files as they are read here."""

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """All of them, those that have no role, too."""

    def dtype(self, name: str) -> str:
        """Return the dtype of one tensor."""


def runs_by_blocks(weights: Stored, dtype: str) -> str | None:
    """Return the dtype of all weights in the files if a model may run block by block in `dtype`, else None.

    See `provlab.models.by_blocks`.
    """
    floating = {stored for name in weights.tensor_names if "float" in (stored := weights.dtype(name))}
    return exact_from(floating, dtype) if weights.plain else None


def batch_with_logits(length: int, vocab_size: int) -> int:
    """How many sequences of a length run at a time where logits of all of them are held."""
    return max(1, min(BATCH, _LOGITS // (length * vocab_size)))


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
