"""What flows through a model's MLPs, and what it predicts, on given tokens.

How much memory activations take is bounded, whatever the number of tokens. There are two ways to do that. One streams
the products that are wanted, such as the Gram matrix of two models' units; but that must be asked pair of blocks by
pair of blocks, with both models running, and all blocks against all blocks of a 32-block and a 28-block model would be
1,792 matrices of 11,008 x 8,192. The other, taken here, keeps a fixed, seeded sample of the positions of the text
(`sample_positions`), the same for every model, so that one pass over the data serves all blocks and all pairs; what is
kept goes into temporary files, batch by batch, where it is large.
"""

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
from provlab.models.room import Room

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: kinds of activations: the input of the down projection, the outputs of gate and up projection, their input, and what
#: the MLP or all experts add to the stream
KINDS = ("hidden", "gate", "up", "input", "output")
UNITS = "units"  # what these are activations of: see `provlab.models.canonical`
WRITTEN = "written"  # how much of the MLP's output each of them writes

BATCH = 16  # sequences that run through a model at a time


def random_tokens(vocab_size: int, n_sequences: int, length: int, *, seed: int) -> NDArray[np.int64]:
    """Draw uniformly random tokens, ``(n_sequences, length)`` (the inputs of phi_H; paper, Sec. 4.1)."""
    for name, value in (("vocab_size", vocab_size), ("n_sequences", n_sequences), ("length", length)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, not {value}")
    return np.random.default_rng(seed).integers(0, vocab_size, size=(n_sequences, length))


def sample_positions(n_positions: int, n_kept: int, *, seed: int) -> NDArray[np.int64] | None:
    """Draw which positions of a text are kept: all (None) if there are no more than asked for, else a seeded sample.

    Parameters
    ----------
    n_positions, n_kept
        Positions there are, counted through all sequences, and positions to keep.

    Returns
    -------
    array or None
        ``(n_kept,)`` int64, ascending, without repetition.
    """
    if n_positions < 1 or n_kept < 1:
        raise InputError(f"n_positions and n_kept must be at least 1, not {n_positions} and {n_kept}")
    if n_positions <= n_kept:
        return None
    drawn = np.random.default_rng([seed, n_positions, n_kept]).choice(n_positions, n_kept, replace=False, shuffle=False)
    return np.sort(drawn).astype(np.int64)


def mlp_activations(
    model: "Checkpoint | PreTrainedModel",
    tokens: NDArray[np.integer[Any]],
    *,
    kinds: Sequence[str] = ("hidden",),
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    batch_size: int = BATCH,
    positions: NDArray[np.int64] | None = None,
    in_memory: int | None = None,
) -> dict[str, list[NDArray[Any]]]:
    """Record MLP activations of all blocks in one pass over the data.

    Memory above the model is one batch of activations, and `in_memory` bytes of kept ones: what is larger is written to
    temporary files batch by batch.

    Parameters
    ----------
    model
        A checkpoint, or a model already loaded, in evaluation mode (it stays on its device, in its dtype).
    tokens
        Token ids, ``(n_sequences, length)``.
    kinds
        Some of ``"hidden"`` (input of the down projection), ``"gate"`` and ``"up"`` (their outputs), ``"input"`` (what
        enters these two) and ``"output"`` (what MLP or experts add). Besides, ``"units"`` says which hidden units there
        really are, by weights and activations, and ``"written"``, beside these, gate and up, what share of the MLP's
        output each of them writes.
    device, dtype, batch_size
        Where and how a checkpoint is run, and how many sequences at a time.
    positions
        Which positions are kept, counted through all sequences, ascending (see `sample_positions`); all by default.
    in_memory
        Bytes, of all kinds and blocks together, beyond which the arrays are read-only maps of temporary files, which
        vanish with the last of them; `provlab.models.room.IN_MEMORY` if not given.

    Returns
    -------
    dict
        kind -> one float32 array ``(hidden units, positions)`` per block; ``(width, positions)`` for inputs and
        outputs, and what `provlab.models.canonical.merged` and `shares` give for units and what is written.

    Raises
    ------
    MissingRoleError
        The architecture lacks a kind (no gate in GPT-2) or has experts in place of one MLP.
    InvalidWeightsError
        An activation is NaN or Inf.
    OSError
        The disk has no room for the temporary files.
    """
    anatomy = _anatomy(model)
    blocks = range(anatomy.n_blocks)
    recorded_kinds = [kind for kind in kinds if kind not in (UNITS, WRITTEN)]
    if unknown := [kind for kind in recorded_kinds if kind not in KINDS]:
        raise InputError(f"kinds must be of {', '.join(KINDS)}, not {unknown[0]!r}")
    # asked before the model is loaded, so that a refusal comes at once
    places = {(kind, b): _place(anatomy, kind, b) for kind in recorded_kinds for b in blocks}
    hidden = [_place(anatomy, "hidden", b)[0] for b in blocks] if len(recorded_kinds) < len(kinds) else []
    ids = _checked_tokens(tokens, anatomy, batch_size)
    kept = np.arange(ids.numel()) if positions is None else _checked_positions(positions, ids.numel())
    network = _network(model, device, dtype)
    rows_of = dict.fromkeys(("input", "output"), anatomy.width)
    room = Room([(rows_of.get(kind, anatomy.mlp_width), len(kept)) for kind, _ in places], in_memory=in_memory)
    of_batch = torch.empty(0, dtype=torch.int64)  # positions kept of the batch that runs, counted from its first
    column = 0  # where they go
    squares = np.zeros((len(hidden), anatomy.mlp_width))  # of hidden activations, added up

    def chosen(values: torch.Tensor, kind: str, b: int) -> NDArray[np.float32]:
        block = values.detach().reshape(-1, values.shape[-1])
        if len(of_batch) < len(block):
            block = block[of_batch.to(block.device)]
        block = block.to("cpu", torch.float32)
        if not _finite(block):
            raise _not_finite(model, f"the {kind} activations of block {b}", network)
        array: NDArray[np.float32] = block.numpy()
        return array

    def keep(place: int, values: torch.Tensor) -> None:
        room.write(place, column, chosen(values, *list(places)[place]).T)

    def add(b: int, values: torch.Tensor) -> None:
        block = chosen(values, "hidden", b)
        squares[b] += np.einsum("ij,ij->j", block, block, dtype=np.float64)

    with ExitStack() as hooks, torch.inference_mode():
        for place, ((kind, _), (path, rows)) in enumerate(places.items()):
            module = _module(network, path)
            _hook(hooks, _of_experts(module) if kind == "output" else module, keep, place, rows)
        for b, path in enumerate(hidden):
            _hook(hooks, _module(network, path), add, b, None)
        first = 0
        # the base model alone: the head's logits are not needed
        for batch in ids.split(batch_size):
            inside = kept[np.searchsorted(kept, first) : np.searchsorted(kept, first + batch.numel())]
            of_batch = torch.from_numpy(inside - first)
            if len(inside):
                network.base_model(**_inputs(batch, network))
            first += batch.numel()
            column += len(inside)
    arrays = iter(room.arrays())
    recorded: dict[str, list[NDArray[Any]]] = {kind: [next(arrays) for _ in blocks] for kind in recorded_kinds}
    if UNITS in kinds:
        recorded[UNITS] = [_units(anatomy, network, b, squares[b] ** 0.5) for b in blocks]
    if WRITTEN in kinds:
        by_block = zip(blocks, recorded[UNITS], recorded["gate"], recorded["up"], strict=True)
        recorded[WRITTEN] = [_shares(anatomy, network, *block) for block in by_block]
    return recorded


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
    anatomy = _anatomy(model)
    if not anatomy.has("head"):
        raise MissingRoleError(f"{anatomy.architecture} has no head, so it predicts no token")
    ids = _checked_tokens(tokens, anatomy, BATCH)
    network = _network(model, device, dtype)
    for batch in ids.split(BATCH):
        with torch.inference_mode():
            logits = network(**_inputs(batch, network)).logits.to("cpu", torch.float32)
            if not _finite(logits):
                raise _not_finite(model, "the logits", network)
            log_probs = torch.log_softmax(logits, dim=-1)
        yield log_probs.reshape(-1, log_probs.shape[-1]).numpy()


def _finite(values: torch.Tensor) -> bool:
    """Whether no number is NaN or Inf; their sum, which takes a tenth of the time, says so unless it overflows."""
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())


def _not_finite(model: "Checkpoint | PreTrainedModel", what: str, network: "PreTrainedModel") -> InvalidWeightsError:
    """Say whose numbers they are, and what may help: more precision, or other weights."""
    name = model.source if isinstance(model, Checkpoint) else type(model).__name__
    wide = network.dtype in (torch.float32, torch.float64)
    way_out = "its weights hold NaN, Inf or numbers too large; copy it again" if wide else "try dtype float32"
    return InvalidWeightsError(f"{name}: {what} hold NaN or Inf; {way_out}")


def _hook(
    hooks: ExitStack,
    module: nn.Module,
    keep: Callable[[int, torch.Tensor], None],
    place: int,
    rows: slice | None,
) -> None:
    """Record what enters (`rows` None) or leaves a module, until `hooks` closes."""

    def before(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        keep(place, inputs[0])

    def after(_: nn.Module, __: object, output: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        values = output[0] if isinstance(output, tuple) else output  # beside it, what the router chose
        keep(place, values[..., rows])

    if rows is None:
        hooks.callback(module.register_forward_pre_hook(before).remove)
    else:
        hooks.callback(module.register_forward_hook(after).remove)


def _module(network: "PreTrainedModel", path: str) -> nn.Module:
    try:
        return network.get_submodule(path)
    except AttributeError:  # a class of which only the tensors are known
        raise MissingRoleError(f"transformers' {type(network).__name__} has no module {path}, by its tensors") from None


def _place(anatomy: Anatomy, kind: str, block: int) -> tuple[str, slice | None]:
    """Find the module path and the slice of its output that holds the kind (None: its input)."""
    if kind in ("input", "output") and anatomy.mlps(block) != ("",):
        if (norm := anatomy.norm_before("up")) is None:
            raise MissingRoleError(
                f"{anatomy.architecture} has no norm before its experts, so what they read is unknown"
            )
        path = anatomy.module(norm, block)  # all experts, and the router, read what the norm gives
        return path if kind == "input" else path.rpartition(".")[0], slice(None)
    role = {"hidden": "down", "input": "up", "output": "down"}.get(kind, kind)
    part = anatomy.part(role, block)
    if kind in ("hidden", "input", "output"):
        return anatomy.module(role, block), slice(None) if kind == "output" else None
    n = [segment.role for segment in part.segments].index(role)
    start = sum(part.sizes[:n])
    return anatomy.module(role, block), slice(start, start + part.sizes[n])


def _of_experts(module: nn.Module) -> nn.Module:
    """The module that adds up the experts of a transformer block; a module without experts is what it is."""
    return next((child for child in module.children() if hasattr(child, "experts")), module)


def _shares(
    anatomy: Anatomy,
    network: "PreTrainedModel",
    block: int,
    units: NDArray[np.float64],
    gate: NDArray[np.float32],
    up: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Shares of the output by the units that there really are in one block of a loaded model, ``(hidden units,)``."""
    from provlab.models.canonical import applied, shares

    weight = network.get_submodule(anatomy.module("down", block)).get_parameter("weight").detach()
    down = anatomy.part("down", block).split(weight.to("cpu", torch.float32))["down"].numpy().T
    kinds = {"gate": gate, "up": up, "down": down}
    return shares(*(applied(units, rows, role) for role, rows in kinds.items()))


def _units(
    anatomy: Anatomy, network: "PreTrainedModel", block: int, activity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Hidden units that there really are in one block of a loaded model, which is not read again."""
    from provlab.models.canonical import merged

    def tensor(role: str, name: str) -> torch.Tensor:
        parameter = network.get_submodule(anatomy.module(role, block)).get_parameter(name)
        held = role if name == "weight" else f"{role}_bias"
        return anatomy.part(held, block).split(parameter.detach().to("cpu", torch.float32))[held]

    def rows(role: str) -> NDArray[np.float32]:
        biased = anatomy.has(f"{role}_bias") and role != "down"
        pieces = [tensor(role, name).numpy() for name in ("weight", "bias")[: 1 + biased]]
        return np.column_stack(pieces)

    return merged(rows("gate") if anatomy.has("gate") else None, rows("up"), rows("down").T, activity)


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


def _checked_positions(positions: NDArray[np.int64], n_positions: int) -> NDArray[np.int64]:
    array = np.asarray(positions)
    if array.ndim != 1 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"positions must be a non-empty list of whole numbers, not {array.dtype} {array.shape}")
    if array.min() < 0 or array.max() >= n_positions or (np.diff(array) <= 0).any():
        raise InputError(f"positions must ascend without repetition from 0 up to {n_positions - 1}")
    return array.astype(np.int64)


def _inputs(batch: torch.Tensor, network: "PreTrainedModel") -> dict[str, torch.Tensor]:
    """Arguments of a forward pass over full sequences; some models warn when no mask says so."""
    ids = batch.to(network.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    # some decoders make no input of their own from the encoder's
    return inputs | ({"decoder_input_ids": ids} if network.config.is_encoder_decoder else {})


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

    def dtype(self, name: str) -> str:
        return str(self._state[name].dtype).removeprefix("torch.")
