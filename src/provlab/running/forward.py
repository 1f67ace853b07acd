"""Running a loaded model over tokens: what any reading of it needs, whatever is read."""

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from provlab.errors import InputError, InvalidWeightsError, one_line
from provlab.reading import anatomy as anatomy_module
from provlab.reading.anatomy import Anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.forms import PLAIN, Form

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def checked_tokens(
    tokens: NDArray[np.integer[Any]], anatomy: Anatomy, batch_size: int, form: Form = PLAIN
) -> torch.Tensor:
    """Return sequences as the model is given them, ``(n_sequences, length)`` with what stands around each text."""
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, not {batch_size}")
    array = np.asarray(tokens)
    if array.ndim != 2 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"tokens must be a non-empty integer array (n_sequences, length), not {array.dtype} {array.shape}"
        )
    if array.min() < 0 or array.max() >= anatomy.vocab_size:
        raise InputError(f"tokens must lie in 0 to {anatomy.vocab_size - 1}, not {array.min()} to {array.max()}")
    ids = form.around(array)
    if (longest := anatomy.longest) is not None and ids.shape[1] > longest:
        raise InputError(f"tokens must have at most {longest} in a sequence for this model, not {ids.shape[1]}")
    return torch.from_numpy(ids)


def all_finite(values: torch.Tensor) -> bool:
    """Whether no number is NaN or Inf; their sum, which takes a tenth of the time, says so unless it overflows."""
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def name_of(model: "Checkpoint | PreTrainedModel") -> str:
    """What a message calls a model."""
    return model.source if isinstance(model, Checkpoint) else type(model).__name__


def not_finite(model: "Checkpoint | PreTrainedModel", what: str, network: "PreTrainedModel") -> InvalidWeightsError:
    """Say whose numbers they are, and what may help: more precision, or other weights."""
    wide = network.dtype in (torch.float32, torch.float64)
    way_out = "its weights hold NaN, Inf or numbers too large; copy it again" if wide else "try dtype float32"
    return InvalidWeightsError(f"{name_of(model)}: {what} hold NaN or Inf; {way_out}")


#: what torch says where a sequence has more tokens than a table has positions
_TOO_LONG = re.compile(r"out of (range|bounds)|size of tensor|expanded size|must match|device-side assert")


def run(part: nn.Module, batch: torch.Tensor, network: "PreTrainedModel") -> Any:
    """Run a model, or its base model, over full sequences.

    Raises
    ------
    InputError
        It reads no sequences of this length. Few configs say so truly, and not each table of positions has a role.
    """
    try:
        return part(**_inputs(batch, network))
    except (IndexError, RuntimeError) as error:
        if not _TOO_LONG.search(text := one_line(error)):
            raise
        raise InputError(
            f"{type(network).__name__} does not run on sequences of {batch.shape[1]} tokens ({text}); lower "
            "sequence_length"
        ) from error


def _inputs(batch: torch.Tensor, network: "PreTrainedModel") -> dict[str, torch.Tensor]:
    """Arguments of a forward pass over full sequences; some models warn when no mask says so."""
    ids = batch.to(network.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    # some decoders make no input of their own from the encoder's
    return inputs | ({"decoder_input_ids": ids} if network.config.is_encoder_decoder else {})


def advance(model: "Checkpoint | PreTrainedModel", share: float) -> None:
    """Say to whom it concerns that one more share of a run of a checkpoint is done."""
    if isinstance(model, Checkpoint) and model.run and model.run.advance:
        model.run.advance(share)


def network_of(model: "Checkpoint | PreTrainedModel", device: str, dtype: torch.dtype) -> "PreTrainedModel":
    return model.load_model(dtype, device, by_blocks=True) if isinstance(model, Checkpoint) else model


def anatomy_of(model: "Checkpoint | PreTrainedModel") -> Anatomy:
    return anatomy_module.of(model if isinstance(model, Checkpoint) else _Loaded(model))


class _Loaded:
    """A loaded model, seen as the anatomy sees a checkpoint."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self.name = self.architecture = type(model).__name__
        self.config: dict[str, Any] = model.config.to_dict()
        self._state = model.state_dict()

    @property
    def tensor_names(self) -> tuple[str, ...]:
        return tuple(self._state)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._state[name].shape)

    def dtype(self, name: str) -> str:
        return str(self._state[name].dtype).removeprefix("torch.")
