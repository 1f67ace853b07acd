"""What a model predicts: log probabilities of the next token on given tokens."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from provlab.errors import MissingRoleError
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.steps import BATCH, batch_with_logits
from provlab.running.forward import advance, all_finite, anatomy_of, checked_tokens, network_of, not_finite, run

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
    batches = ids.split(batch_with_logits(ids.shape[1], anatomy.vocab_size))
    for log_probs in _log_probs(model, network_of(model, device, dtype), batches):
        advance(model, 1 / len(batches))
        yield log_probs


def log_probs_of(logits: torch.Tensor) -> NDArray[np.float32] | None:
    """Log probabilities, ``(positions, vocabulary)``, of a batch's logits; None if one of these is NaN or Inf.

    They are taken in float32 on the device on which the model runs.
    """
    wide = logits.to(torch.float32)
    if not all_finite(wide):
        return None
    log_probs: NDArray[np.float32] = torch.log_softmax(wide, dim=-1).reshape(-1, wide.shape[-1]).cpu().numpy()
    return log_probs


def _log_probs(
    model: "Checkpoint | PreTrainedModel", network: "PreTrainedModel", batches: Iterable[torch.Tensor]
) -> Iterator[NDArray[np.float32]]:
    for batch in batches:
        with torch.inference_mode():
            if (log_probs := log_probs_of(run(network, batch, network).logits)) is None:
                raise not_finite(model, "the logits", network)
        yield log_probs


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
        if not size.isfinite().all():  # numbers whose squares float32 does not hold: as parts of the largest
            peak = output.float().abs().amax(dim=-1, keepdim=True).clamp_min(1.0)
            size = peak * (output.float() / peak).square().mean(dim=-1, keepdim=True).sqrt()
        return (output.float() + unit * size * drawn).to(output.dtype)

    with ExitStack() as hooks:
        for module in network.modules():
            if not any(True for _ in module.children()):
                hooks.callback(module.register_forward_hook(shake).remove)
        ids = torch.from_numpy(np.ascontiguousarray(tokens, dtype=np.int64))
        return np.concatenate(list(_log_probs(model, network, ids.split(BATCH))))
