"""The steps of a run of a model over a text: which of its weights and sequences at a time, and what is kept."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from provlab.reading.files.dtypes import exact_from

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BATCH = 16  # sequences that run through a model at a time
_LOGITS = 1 << 27  # held at a time, so that a large vocabulary takes no more memory than a small one


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

    Files that transformers does not read are written for it in float32. See `provlab.reading.by_blocks`.
    """
    floating = {stored for name in weights.tensor_names if "float" in (stored := weights.dtype(name))}
    return exact_from(floating if weights.plain else {"float32"}, dtype)


def batch_with_logits(length: int, vocab_size: int) -> int:
    """How many sequences of a length run at a time where logits of all of them are held."""
    return max(1, min(BATCH, _LOGITS // (length * vocab_size)))


@dataclass
class SharedRun:
    """A model, loaded once and run for several callers until the last of them is done (`Checkpoint.loaded_once`).

    Attributes
    ----------
    advance : callable or None
        Called with each share of a run over inputs that is done: a run of 7 billion weights takes minutes.
    predicts : bool
        Somebody will ask what the model predicts on the text, so that the first run over it is to keep that.
    log_probs : array or None
        That: log probabilities of the next token, ``(positions, vocabulary)`` float32.
    tokens : array or None
        The ids that these follow: a statistic may run over a part of the text, which says nothing of the rest.
    form : tuple or None
        What stands around a text that it reads, a `provlab.reading.forms.Form`, once `read_as` of
        `provlab.statistics.text` knows it.
    loaded : dict
        The model, by its dtype, its device and whether it runs block by block.
    """

    advance: Callable[[float], object] | None = None
    predicts: bool = False
    log_probs: NDArray[np.float32] | None = None
    tokens: NDArray[np.int64] | None = None
    form: tuple[Any, ...] | None = None
    loaded: dict[tuple[str, str, bool], "PreTrainedModel"] = field(default_factory=dict)
