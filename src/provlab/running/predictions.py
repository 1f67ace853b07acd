"""What a model predicts: log probabilities of the next token on given tokens."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from provlab.errors import InvalidWeightsError, MissingRoleError, NotComparableError
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.forms import PLAIN, Form
from provlab.reading.steps import BATCH, batch_with_logits
from provlab.running.forward import (
    advance,
    all_finite,
    anatomy_of,
    checked_tokens,
    name_of,
    network_of,
    not_finite,
    run,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def next_token_log_probs(
    model: "Checkpoint | PreTrainedModel",
    tokens: NDArray[np.integer[Any]],
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    form: Form = PLAIN,
) -> Iterator[NDArray[np.float32]]:
    """Yield the model's log probabilities, ``(positions, vocabulary)`` float32 for each batch of sequences.

    Those of the text are given, whatever stands around it (`form`).

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
    ids = checked_tokens(tokens, anatomy, BATCH, form)
    batches = ids.split(batch_with_logits(ids.shape[1], anatomy.vocab_size))
    for log_probs in _log_probs(model, network_of(model, device, dtype), batches, form):
        advance(model, 1 / len(batches))
        yield log_probs


def log_probs_of(logits: torch.Tensor, form: Form) -> NDArray[np.float32] | None:
    """Log probabilities, ``(positions, vocabulary)``, of a batch's logits on its text; None if one is NaN or Inf.

    They are taken in float32 on the device on which the model runs.
    """
    wide = logits[:, len(form.before) : logits.shape[1] - len(form.after)].to(torch.float32)
    if not all_finite(wide):
        return None
    log_probs: NDArray[np.float32] = torch.log_softmax(wide, dim=-1).reshape(-1, wide.shape[-1]).cpu().numpy()
    return log_probs


def _log_probs(
    model: "Checkpoint | PreTrainedModel", network: "PreTrainedModel", batches: Iterable[torch.Tensor], form: Form
) -> Iterator[NDArray[np.float32]]:
    for batch in batches:
        with torch.inference_mode():
            if (log_probs := log_probs_of(run(network, batch, network).logits, form)) is None:
                raise not_finite(model, "the logits", network)
        yield log_probs


def rounded_log_probs(
    model: "Checkpoint | PreTrainedModel",
    tokens: NDArray[np.integer[Any]],
    unit: float,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    form: Form = PLAIN,
) -> NDArray[np.float32]:
    """Return log probabilities of a model that rounds more, ``(positions, vocabulary)`` float32.

    Each number that a module gives is off by a normal draw whose standard deviation is `unit` times the size of the
    number, or the median size at that position if larger, as if weights and sums were rounded to `unit`. So a
    unit that is made loud, and read as faintly, is rounded by its own size and drowns no other. A few sequences are
    enough.

    Raises
    ------
    NotComparableError
        The numbers overflow with the draws, of a model whose own predictions are finite.
    """
    network = network_of(model, device, dtype)
    generator = torch.Generator(network.device).manual_seed(0)

    def shake(_: nn.Module, __: object, output: object) -> object:
        if not (isinstance(output, torch.Tensor) and output.is_floating_point()):
            return output
        drawn = torch.randn(output.shape, generator=generator, device=output.device, dtype=torch.float32)
        size = output.float().abs()
        size = torch.maximum(size, size.median(dim=-1, keepdim=True).values)
        return (output.float() + unit * size * drawn).to(output.dtype)

    with ExitStack() as hooks:
        for module in network.modules():
            if not any(True for _ in module.children()):
                hooks.callback(module.register_forward_hook(shake).remove)
        ids = torch.from_numpy(form.around(tokens))
        try:
            return np.concatenate(list(_log_probs(model, network, ids.split(BATCH), form)))
        except InvalidWeightsError as error:  # the draws overflow, and the file is as it was
            raise NotComparableError(
                f"how much {name_of(model)} rounds could not be measured: its numbers are near the largest of "
                f"{str(dtype).removeprefix('torch.')}, and overflow with a draw beside them; try dtype float64"
            ) from error
