"""What a model predicts: log probabilities of the next token on given tokens."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from provlab.errors import MissingRoleError
from provlab.models.checkpoint import Checkpoint
from provlab.models.running import BATCH, all_finite, anatomy_of, checked_tokens, network_of, not_finite, run

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LOGITS = 1 << 25  # at a time, so that a large vocabulary takes no more memory than a small one


def next_token_log_probs(
    model: "Checkpoint | PreTrainedModel",
    tokens: NDArray[np.integer[Any]],
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Iterator[NDArray[np.float32]]:
    """Yield the model's log probabilities, ``(positions, vocabulary)`` float32 for each batch of sequences.

    Raises
    ------
    MissingRoleError
        The model has no head.
    InvalidWeightsError
        A logit is NaN or Inf.
    """
    anatomy = anatomy_of(model)
    anatomy.require_tokens()
    if not anatomy.has("head"):
        raise MissingRoleError(f"{anatomy.architecture} has no head, so it predicts no token")
    ids = checked_tokens(tokens, anatomy, BATCH)
    at_once = max(1, min(BATCH, _LOGITS // (ids.shape[1] * anatomy.vocab_size)))
    yield from _log_probs(model, network_of(model, device, dtype), ids, at_once)


def _log_probs(
    model: "Checkpoint | PreTrainedModel", network: "PreTrainedModel", ids: torch.Tensor, at_once: int = BATCH
) -> Iterator[NDArray[np.float32]]:
    for batch in ids.split(at_once):
        with torch.inference_mode():
            logits = run(network, batch, network).logits.to("cpu", torch.float32)
            if not all_finite(logits):
                raise not_finite(model, "the logits", network)
            log_probs = torch.log_softmax(logits, dim=-1)
        yield log_probs.reshape(-1, log_probs.shape[-1]).numpy()


def rounded_log_probs(
    model: "Checkpoint | PreTrainedModel",
    tokens: NDArray[np.integer[Any]],
    unit: float,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> NDArray[np.float32]:
    """Return log probabilities of a model that rounds more, ``(positions, vocabulary)`` float32.

    The output of each module is off by a normal draw whose standard deviation is `unit` times the root mean square of
    its numbers at that position, as if weights and sums were rounded to `unit`. A few sequences are enough.
    """
    network = network_of(model, device, dtype)
    generator = torch.Generator(network.device).manual_seed(0)

    def shake(_: nn.Module, __: object, output: object) -> object:
        if not (isinstance(output, torch.Tensor) and output.is_floating_point()):
            return output
        drawn = torch.randn(output.shape, generator=generator, device=output.device, dtype=torch.float32)
        size = output.float().square().mean(dim=-1, keepdim=True).sqrt()
        return (output.float() + unit * size * drawn).to(output.dtype)

    with ExitStack() as hooks:
        for module in network.modules():
            if not any(True for _ in module.children()):
                hooks.callback(module.register_forward_hook(shake).remove)
        ids = torch.from_numpy(np.ascontiguousarray(tokens, dtype=np.int64))
        return np.concatenate(list(_log_probs(model, network, ids)))
