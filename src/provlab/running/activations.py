"""What flows through a model's MLPs on given tokens.

How much memory activations take is bounded, whatever the number of tokens. There are two ways to do that. One streams
the products that are wanted, such as the Gram matrix of two models' units; but that must be asked pair of blocks by
pair of blocks, with both models running, and all blocks against all blocks of a 32-block and a 28-block model would be
1,792 matrices of 11,008 x 8,192. The other, taken here, keeps a fixed, seeded sample of the positions of the text
(`sample_positions`), the same for every model, so that one pass over the data serves all blocks and all pairs; what is
kept goes into temporary files, batch by batch, where it is large.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from provlab.arrays import There, Values, here, of, on, sum_of_squares
from provlab.errors import InputError, MissingRoleError
from provlab.reading.anatomy import Anatomy
from provlab.reading.canonical import SEEN, merged, shares
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.forms import PLAIN, Form
from provlab.reading.steps import BATCH, batch_with_logits
from provlab.running.forward import advance, all_finite, anatomy_of, checked_tokens, network_of, not_finite, run
from provlab.running.predictions import log_probs_of
from provlab.running.room import Room, Stack

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: kinds of activations: the input of the down projection, the outputs of gate and up projection, their input, what the
#: MLP or all experts add to the stream, and the stream behind the block
KINDS = ("hidden", "gate", "up", "input", "output", "stream")
_OF_STREAM = ("input", "output", "stream")  # as wide as it
UNITS = "units"  # what these are activations of: see `provlab.reading.canonical`
WRITTEN = "written"  # how much of the MLP's output each of them writes
LOG_PROBS = "log_probs"  # what the model predicts on all of the tokens


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
    blocks: Sequence[int] | None = None,
    form: Form = PLAIN,
) -> dict[str, list[NDArray[Any]]]:
    """Record MLP activations of all blocks, or of some, in one pass over the data.

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
        enters these two), ``"output"`` (what MLP or experts add) and ``"stream"`` (what leaves the block). Besides,
        ``"units"`` says which hidden units there really are, by weights and activations, and ``"written"``, beside
        these, gate and up, what share of the MLP's output each of them writes; ``"log_probs"`` gives one array of all
        positions, ``(positions, vocabulary)``, and none where a logit is NaN or Inf.
    device, dtype, batch_size
        Where and how a checkpoint is run, and how many sequences at a time.
    positions
        Which positions are kept, counted through all sequences, ascending (see `sample_positions`); all by default.
    in_memory
        Bytes, of all kinds and blocks together, beyond which the arrays are read-only maps of temporary files, which
        vanish with the last of them; `provlab.running.room.IN_MEMORY` if not given.
    blocks
        Which blocks are recorded; all by default. Those above the last one do not run.
    form
        What stands around each sequence when the model runs; nothing is recorded there, and positions do not count it.

    Returns
    -------
    dict
        kind -> one float32 array ``(hidden units, positions)`` per block, or ``(width, positions)`` for inputs, outputs
        and streams, or what `provlab.reading.canonical.merged` and `shares` give for units and what is written; empty
        for a block that was not asked for.

    Raises
    ------
    MissingRoleError
        The architecture lacks a kind (no gate in GPT-2) or has experts in place of one MLP.
    InvalidWeightsError
        An activation is NaN or Inf.
    OSError
        The disk has no room for the temporary files.
    """
    anatomy = anatomy_of(model)
    chosen_blocks = sorted(set(range(anatomy.n_blocks) if blocks is None else blocks) & set(range(anatomy.n_blocks)))
    if not chosen_blocks:
        raise InputError(f"blocks must be some of 0 to {anatomy.n_blocks - 1}, not {blocks}")
    recorded_kinds = [kind for kind in kinds if kind not in (UNITS, WRITTEN, LOG_PROBS)]
    if unknown := [kind for kind in recorded_kinds if kind not in KINDS]:
        raise InputError(f"kinds must be of {', '.join(KINDS)}, not {unknown[0]!r}")
    # asked before the model is loaded, so that a refusal comes at once
    places = {(kind, b): _place(anatomy, kind, b) for kind in recorded_kinds for b in chosen_blocks}
    key = "gate" if anatomy.has("gate") else "up"
    by_units = [(b, _place(anatomy, "hidden", b)[0], _place(anatomy, key, b)) for b in chosen_blocks if UNITS in kinds]
    ids = checked_tokens(tokens, anatomy, batch_size, form)
    text = form.places(*np.shape(tokens))
    kept = text if positions is None else text[_checked_positions(positions, len(text))]  # counted through `ids`
    network = network_of(model, device, dtype)
    rows_of = {(kind, b): anatomy.width if kind in _OF_STREAM else _hidden_units(anatomy, b) for kind, b in places}
    room = Room([(rows, len(kept)) for rows in rows_of.values()], in_memory=in_memory)
    of_batch = torch.empty(0, dtype=torch.int64)  # positions kept of the batch that runs, counted from its first
    column = 0  # where they go
    predicted = Stack(len(text)) if LOG_PROBS in kinds else None
    if predicted is not None:
        batch_size = min(batch_size, batch_with_logits(ids.shape[1], anatomy.vocab_size))
    looks = {b: _Look.at(_hidden_units(anatomy, b), anatomy.width, kept) for b, *_ in by_units}

    def chosen(values: torch.Tensor, kind: str, b: int) -> Values:
        block = values.detach().reshape(-1, values.shape[-1])
        if len(of_batch) < len(block):
            block = block[of_batch.to(block.device)]
        block = block.to(torch.float32)
        if not all_finite(block):
            raise not_finite(model, f"the {kind} activations of block {b}", network)
        return of(block)

    def keep(place: int, values: torch.Tensor) -> None:
        room.write(place, column, here(chosen(values, *list(places)[place])).T)
        advance(model, 1 / (n_batches * len(places)))

    def fired(b: int, values: torch.Tensor) -> None:
        looks[b].fired(chosen(values, "hidden", b))

    def wrote(b: int, values: torch.Tensor) -> None:
        looks[b].wrote(chosen(values, "output", b))

    def gave(b: int, values: torch.Tensor) -> None:
        looks[b].gave(chosen(values, key, b), column)

    def stop(_: int, __: torch.Tensor) -> None:
        raise _Enough

    n_batches = -(-len(ids) // batch_size)
    with ExitStack() as hooks, torch.inference_mode():
        for place, ((kind, _), (path, rows)) in enumerate(places.items()):
            module = _module(network, path)
            _hook(hooks, _of_experts(module) if kind == "output" else module, keep, place, rows)
        for b, path, (of_key, rows) in by_units:
            _hook(hooks, _module(network, path), fired, b, None)
            _hook(hooks, _module(network, path), wrote, b, slice(None))
            _hook(hooks, _module(network, of_key), gave, b, rows)
        if chosen_blocks[-1] + 1 < anatomy.n_blocks and predicted is None:
            _hook(hooks, _module(network, anatomy.path_of(chosen_blocks[-1] + 1)), stop, 0, None)
        first = 0
        for batch in ids.split(batch_size):
            inside = kept[np.searchsorted(kept, first) : np.searchsorted(kept, first + batch.numel())]
            of_batch = torch.from_numpy(inside - first)
            if predicted is not None:
                log_probs = log_probs_of(run(network, batch, network).logits, form)
                with suppress(OSError):  # no room: a statistic that needs it runs the model itself, and says so
                    if log_probs is not None:
                        predicted.add(log_probs)
            elif len(inside):
                with suppress(_Enough):
                    run(network.base_model, batch, network)  # without the head
            first += batch.numel()
            column += len(inside)
    arrays = dict(zip(places, room.arrays(), strict=True))
    everywhere = range(anatomy.n_blocks)
    nothing = np.empty((0, 0), np.float32)
    recorded: dict[str, list[NDArray[Any]]] = {
        kind: [arrays.get((kind, b), nothing) for b in everywhere] for kind in recorded_kinds
    }
    if UNITS in kinds:
        there = on(str(network.device))
        units = {b: _units(anatomy, network, b, looks.pop(b), there) for b, *_ in by_units}
        recorded[UNITS] = [units.get(b, np.empty((0, 5))) for b in everywhere]
    if WRITTEN in kinds:
        made = {
            b: _shares(anatomy, network, b, units[b], arrays["gate", b], arrays["up", b], there) for b in chosen_blocks
        }
        recorded[WRITTEN] = [made.get(b, np.empty(0)) for b in everywhere]
    if predicted is not None and predicted.whole:
        recorded[LOG_PROBS] = [predicted.array()]
    return recorded


class _Enough(Exception):
    """No block is asked for from here on."""


@dataclass
class _Look:
    """Sums over the text of what one block's units do while a model runs, each taken where the activations lie.

    Attributes
    ----------
    squares : array
        ``(h,)``: of what enters the down projection, added up.
    on_text : array
        ``(h, positions)``: what the gates give at `columns` of the kept positions.
    total, of_total
        ``(width,)``: what the MLP writes, added up; and its squares.
    """

    squares: NDArray[np.float64]
    total: NDArray[np.float64]
    columns: NDArray[np.int64]
    on_text: NDArray[np.float32]
    of_total: float = field(default=0.0, init=False)
    n: int = field(default=0, init=False)

    @classmethod
    def at(cls, units: int, width: int, kept: NDArray[np.int64]) -> "_Look":
        columns = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), SEEN)).astype(np.int64))
        on_text = np.empty((units, len(columns)), np.float32)
        return cls(np.zeros(units), np.zeros(width), columns, on_text)

    def fired(self, block: Values) -> None:
        self.squares += sum_of_squares(block, 0)

    def wrote(self, block: Values) -> None:
        xp = array_api_compat.array_namespace(block)
        self.total += here(xp.sum(block, axis=0, dtype=xp.float64))
        self.of_total += float(sum_of_squares(block))
        self.n += len(block)

    def gave(self, block: Values, column: int) -> None:
        """`column` is the number of the first of these positions among those that are kept."""
        places = np.flatnonzero((self.columns >= column) & (self.columns < column + len(block)))
        self.on_text[:, places] = here(block[self.columns[places] - column]).T

    @property
    def output(self) -> float:
        """Length of what was written, its mean taken out."""
        return max(self.of_total - float(self.total @ self.total) / max(self.n, 1), 0.0) ** 0.5


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
    except AttributeError:  # a class of which only the tensors are known, or which renames them as it loads
        raise MissingRoleError(
            f"transformers calls the modules of {type(network).__name__} other than the file, which has {path}: it is "
            "compared by its weights, and not run"
        ) from None


def _place(anatomy: Anatomy, kind: str, block: int) -> tuple[str, slice | None]:
    """Find the module path and the slice of its output that holds the kind (None: its input)."""
    if kind == "stream":
        return anatomy.path_of(block), slice(None)
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


def _hidden_units(anatomy: Anatomy, block: int) -> int:
    """Hidden units of one block's MLP: a decoder may have others than its encoder."""
    return anatomy.shape("up", block)[0] if ("up", block) in anatomy._index else anatomy.mlp_width


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
    there: There,
) -> NDArray[np.float64]:
    """Shares of the output by the units that there really are in one block of a loaded model, ``(hidden units,)``."""
    weight = network.get_submodule(anatomy.module("down", block)).get_parameter("weight")
    down = anatomy.part("down", block).split(there(weight))["down"].T
    return shares(gate, up, down, units, _activation(network))


def _activation(network: "PreTrainedModel") -> Callable[[Values], Values]:
    """Activation function of a model's MLPs, by its config; SiLU where that names none."""
    from transformers.activations import ACT2FN

    names = (getattr(network.config, key, None) for key in ("hidden_activation", "hidden_act", "activation_function"))
    function = ACT2FN[next((name for name in names if isinstance(name, str) and name in ACT2FN), "silu")]

    def act(z: Values) -> Values:
        with torch.no_grad():
            return of(function(torch.from_numpy(np.ascontiguousarray(z)) if isinstance(z, np.ndarray) else z))

    return act


def _units(anatomy: Anatomy, network: "PreTrainedModel", block: int, look: _Look, there: There) -> NDArray[np.float64]:
    """Hidden units that there really are in one block of a loaded model, which is not read again."""

    def tensor(role: str, name: str) -> Values:
        parameter = network.get_submodule(anatomy.module(role, block)).get_parameter(name)
        held = role if name == "weight" else f"{role}_bias"
        return anatomy.part(held, block).split(there(parameter))[held]

    def rows(role: str) -> Values:
        weight = tensor(role, "weight")
        if role == "down" or not anatomy.has(f"{role}_bias"):
            return weight
        bias = tensor(role, "bias")[:, None]
        return array_api_compat.array_namespace(weight).concat([weight, bias], axis=1)  # (h, d + 1)

    gate = rows("gate") if anatomy.has("gate") else None
    return merged(gate, rows("up"), rows("down").T, look.squares**0.5, on_text=look.on_text, output=look.output)


def _checked_positions(positions: NDArray[np.int64], n_positions: int) -> NDArray[np.int64]:
    array = np.asarray(positions)
    if array.ndim != 1 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"positions must be a non-empty list of whole numbers, not {array.dtype} {array.shape}")
    if array.min() < 0 or array.max() >= n_positions or (np.diff(array) <= 0).any():
        raise InputError(f"positions must ascend without repetition from 0 up to {n_positions - 1}")
    return array.astype(np.int64)
