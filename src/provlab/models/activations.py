"""What flows through a model's MLPs, and what it predicts, on given tokens."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from provlab.errors import InputError, InvalidWeightsError, MissingRoleError
from provlab.models import anatomy as anatomy_module
from provlab.models.anatomy import Anatomy
from provlab.models.checkpoint import Checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: kinds of activations: the input of the down projection, the outputs of gate and up projection
KINDS = ("hidden", "gate", "up")


def random_tokens(vocab_size: int, n_sequences: int, length: int, *, seed: int) -> NDArray[np.int64]:
    """Draw uniformly random tokens, ``(n_sequences, length)`` (the inputs of phi_H; paper, Sec. 4.1)."""
    for name, value in (("vocab_size", vocab_size), ("n_sequences", n_sequences), ("length", length)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {value}")
    return np.random.default_rng(seed).integers(0, vocab_size, size=(n_sequences, length))


def mlp_activations(
    model: "Checkpoint | PreTrainedModel",
    tokens: NDArray[np.integer[Any]],
    *,
    kinds: Sequence[str] = ("hidden",),
    blocks: Sequence[int] | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    batch_size: int = 16,
) -> dict[str, list[NDArray[np.float32]]]:
    """Record MLP activations of all blocks in one pass over the data.

    Parameters
    ----------
    model
        A checkpoint, or a model already loaded, in evaluation mode (it stays on its device, in its dtype).
    tokens
        Token ids, ``(n_sequences, length)``.
    kinds
        Of ``"hidden"`` (input of the down projection), ``"gate"`` and ``"up"`` (their outputs).
    blocks
        Block indices, all by default.
    device, dtype, batch_size
        Where and how a checkpoint is run, and how many sequences at a time.

    Returns
    -------
    dict
        kind -> one float32 array ``(hidden units, n_sequences * length)`` per block, ordered as `blocks`.

    Raises
    ------
    MissingRoleError
        The architecture lacks a kind (no gate in GPT-2) or has experts in place of one MLP.
    InvalidWeightsError
        An activation is NaN or Inf.
    """
    anatomy = _anatomy(model)
    wanted = list(range(anatomy.n_blocks)) if blocks is None else list(blocks)
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise InputError(f"kinds must be of {', '.join(KINDS)}, not {unknown[0]!r}")
    if len(set(wanted)) < len(wanted):
        raise InputError(f"blocks must name each block once, not {wanted}")
    # asked before the model is loaded, so that a refusal comes at once
    places = {(kind, b): _place(anatomy, kind, b) for kind in kinds for b in wanted}
    ids = _checked_tokens(tokens, anatomy, batch_size)
    network = _network(model, device, dtype)
    result = {kind: [np.empty((anatomy.mlp_width, ids.numel()), dtype=np.float32) for _ in wanted] for kind in kinds}
    column = 0

    def keep(kind: str, position: int, values: torch.Tensor) -> None:
        block = values.detach().reshape(-1, values.shape[-1]).to("cpu", torch.float32)
        if not bool(torch.isfinite(block).all()):
            raise _not_finite(model, f"the {kind} activations of block {wanted[position]}", network)
        result[kind][position][:, column : column + len(block)] = block.T.numpy()

    with ExitStack() as hooks, torch.inference_mode():
        for (kind, b), (path, rows) in places.items():
            _hook(hooks, network.get_submodule(path), keep, kind, wanted.index(b), rows)
        # the base model alone: the head's logits are not needed
        for batch in ids.split(batch_size):
            network.base_model(**_inputs(batch, network))
            column += batch.numel()
    return result


def next_token_log_probs(
    model: "Checkpoint | PreTrainedModel",
    tokens: NDArray[np.integer[Any]],
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    batch_size: int = 16,
) -> Iterator[NDArray[np.float32]]:
    """Yield the model's log probabilities, ``(positions, vocabulary)`` float32 for each batch of sequences.

    Raises
    ------
    MissingRoleError
        The model has no head.
    InvalidWeightsError
        A logit is NaN or Inf.
    """
    anatomy = _anatomy(model)
    if not anatomy.has("head"):
        raise MissingRoleError(f"{anatomy.architecture} has no head, so it predicts no token")
    ids = _checked_tokens(tokens, anatomy, batch_size)
    network = _network(model, device, dtype)
    for batch in ids.split(batch_size):
        with torch.inference_mode():
            logits = network(**_inputs(batch, network)).logits.to("cpu", torch.float32)
            if not bool(torch.isfinite(logits).all()):
                raise _not_finite(model, "the logits", network)
            log_probs = torch.log_softmax(logits, dim=-1)
        yield log_probs.reshape(-1, log_probs.shape[-1]).numpy()


def _not_finite(model: "Checkpoint | PreTrainedModel", what: str, network: "PreTrainedModel") -> InvalidWeightsError:
    """Say whose numbers they are, and what may help: more precision, or other weights."""
    name = model.source if isinstance(model, Checkpoint) else type(model).__name__
    wide = network.dtype in (torch.float32, torch.float64)
    way_out = "its weights hold NaN, Inf or numbers too large; copy it again" if wide else "try dtype float32"
    return InvalidWeightsError(f"{name}: {what} hold NaN or Inf; {way_out}")


def _hook(
    hooks: ExitStack,
    module: nn.Module,
    keep: Callable[[str, int, torch.Tensor], None],
    kind: str,
    position: int,
    rows: slice | None,
) -> None:
    """Record what enters (`rows` None) or leaves a module, until `hooks` closes."""

    def before(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        keep(kind, position, inputs[0])

    def after(_: nn.Module, __: object, output: torch.Tensor) -> None:
        keep(kind, position, output[..., rows])

    if rows is None:
        hooks.callback(module.register_forward_pre_hook(before).remove)
    else:
        hooks.callback(module.register_forward_hook(after).remove)


def _place(anatomy: Anatomy, kind: str, block: int) -> tuple[str, slice | None]:
    """Find the module path and the slice of its output that holds the kind (None: its input)."""
    role = "down" if kind == "hidden" else kind
    part = anatomy.part(role, block)
    if kind == "hidden":
        return anatomy.module(role, block), None
    start = 0
    for segment, size in zip(part.segments, part.sizes, strict=True):
        if segment.role == role:
            return anatomy.module(role, block), slice(start, start + size)
        start += size
    raise AssertionError(role)


def _checked_tokens(tokens: NDArray[np.integer[Any]], anatomy: Anatomy, batch_size: int) -> torch.Tensor:
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, not {batch_size}")
    array = np.asarray(tokens)
    if array.ndim != 2 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"tokens must be a non-empty integer array (n_sequences, length), not {array.dtype} {array.shape}"
        )
    if array.min() < 0 or array.max() >= anatomy.vocab_size:
        raise InputError(f"tokens must lie in 0 to {anatomy.vocab_size - 1}, not {array.min()} to {array.max()}")
    if anatomy.has("position_embedding") and array.shape[1] > (longest := anatomy.shape("position_embedding")[0]):
        raise InputError(f"tokens must have at most {longest} in a sequence for this model, not {array.shape[1]}")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))


def _inputs(batch: torch.Tensor, network: "PreTrainedModel") -> dict[str, torch.Tensor]:
    """Arguments of a forward pass over full sequences; some models warn when no mask says so."""
    ids = batch.to(network.device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _network(model: "Checkpoint | PreTrainedModel", device: str, dtype: torch.dtype) -> "PreTrainedModel":
    return model.load_model(dtype=dtype, device=device) if isinstance(model, Checkpoint) else model


def _anatomy(model: "Checkpoint | PreTrainedModel") -> Anatomy:
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

    def tensor(self, name: str) -> torch.Tensor:
        return self._state[name]
