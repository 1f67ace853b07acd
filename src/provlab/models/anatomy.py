"""Roles of the tensors of a checkpoint, their axes, and the shapes that the config promises.

`of` compares a checkpoint with its entry in the table of `provlab.models.architectures`. The resulting `Anatomy` reads
a role whatever the file's layout: fused projections are split, ``Conv1D`` matrices turned, so that rows are always
output units.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, InputError, InvalidWeightsError, MissingRoleError, UnknownArchitectureError
from provlab.models import diagnose, experts
from provlab.models.architectures import (
    Architecture,
    Part,
    Segment,
    axis_sizes,
    config_axis,
    described,
    for_expert,
    instances,
    sees,
    without_mlps,
)
from provlab.models.language import language_part
from provlab.models.layouts import by_tensors
from provlab.models.part import LANGUAGE, below
from provlab.models.part import Part as PartOfModel
from provlab.models.part_by_shapes import by_shapes

if TYPE_CHECKING:
    import torch


#: of numpy or of torch
Tensor = TypeVar("Tensor", NDArray[Any], "torch.Tensor")

# Buffers that old files keep: recomputed by transformers, no weights.
_BUFFERS = re.compile(r"(^|\.)(rotary_emb\.inv_freq|inv_freq|position_ids|masked_bias|attn\.bias|attention\.bias)$")
_PLAIN = ("float32", "bfloat16", "float16", "float64")


class Tensors(Protocol):
    """The part of a `Checkpoint` that the anatomy needs."""

    @property
    def name(self) -> str:
        """Short label."""

    @property
    def config(self) -> dict[str, Any]:
        """Content of ``config.json``."""

    @property
    def architecture(self) -> str:
        """As named in the config."""

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of all tensors."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""

    def dtype(self, name: str) -> str:
        """Return its dtype in the file, by torch's name."""


class Weights(Tensors, Protocol):
    """The part of a `Checkpoint` that reading a role needs."""

    def array(self, name: str, rows: range | None = None) -> NDArray[np.float32]:
        """Read a tensor, or some of its rows."""


#: axes of the roles of a part that shapes alone show
_AXES = {
    "up": ("mlp", "model"), "gate": ("mlp", "model"), "down": ("model", "mlp"), "up_bias": ("mlp",),
    "gate_bias": ("mlp",), "down_bias": ("model",), "embedding": ("vocab", "model"), "key_bias": ("key",),
}  # fmt: skip


@dataclass(frozen=True)
class TensorPart:
    """One tensor of a checkpoint, with what it holds.

    Attributes
    ----------
    name
        The tensor's name in the file.
    block
        Index of its block, ``None`` outside the blocks.
    segments
        The roles in it, in order; axes are named with output units first.
    sizes
        Rows that each segment takes.
    shape
        The tensor's shape in the file.
    head_size
        Dimensions of one attention head, for interleaved segments.
    experts
        How many lie along the first axis; 0 unless they are stacked.
    module
        Path of its module in the model that transformers makes.
    """

    name: str
    block: int | None
    segments: tuple[Segment, ...]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    transposed: bool
    interleaved: bool
    head_size: int
    experts: int = 0
    module: str = ""

    def split(self, tensor: Tensor) -> dict[str, Tensor]:
        """Take the tensor apart: role -> ``(output units, input units)``, or ``(units,)``."""
        rows = tensor.mT if self.transposed else tensor
        if self.experts:
            kinds = len(self.segments) // self.experts
            apart = experts.split(rows, self.experts, kinds, interleaved=self.interleaved)
            return {segment.role: apart[i] for i, segment in enumerate(self.segments)}
        columns: tuple[int, ...] = tuple(rows.shape[1:])
        if self.interleaved and len(self.segments) > 1:
            heads = rows.reshape((-1, len(self.segments), self.head_size, *columns))
            pieces = [heads[:, i].reshape((-1, *columns)) for i in range(len(self.segments))]
        else:
            pieces = [rows[end - size : end] for end, size in zip(accumulate(self.sizes), self.sizes, strict=True)]
        return {segment.role: piece for segment, piece in zip(self.segments, pieces, strict=True)}

    def join(self, pieces: Mapping[str, Tensor]) -> Tensor:
        """Put together again what `split` took apart."""
        parts = [pieces[segment.role] for segment in self.segments]
        rows = experts.joined(parts, self.experts, self.head_size, interleaved=self.interleaved)
        return rows.mT if self.transposed else rows


@dataclass(frozen=True)
class Anatomy:
    """The roles of one checkpoint's tensors.

    Attributes
    ----------
    architecture
        As named in the config.
    n_blocks, width, vocab_size
        Number of blocks, width of the residual stream, number of tokens.
    mlp_width
        Hidden units of one block's MLP.
    parts
        Every tensor that has a role.
    unnamed
        Tensors that the architecture's entry does not describe.
    tied
        The head is the embedding.
    within
        The class of a model that does more than language, of which this is the language part; else None.
    named
        The class that the config names, where the table lacks it and the model was read by its tensors; else None.
    inputs
        What the model reads.
    first_position
        The row of the table of positions at which a sequence begins.
    part_name
        Name of the part of a model that was read by its shapes alone (`provlab.models.part`); else None.
    """

    architecture: str
    n_blocks: int
    width: int
    vocab_size: int
    parts: tuple[TensorPart, ...]
    unnamed: tuple[str, ...]
    tied: bool
    within: str | None
    mlp_width: int
    named: str | None = None
    inputs: str = "tokens"
    first_position: int = 0
    part_name: str | None = None

    @cached_property
    def _index(self) -> dict[tuple[str, int | None], TensorPart]:
        return {(segment.role, part.block): part for part in self.parts for segment in part.segments}

    @property
    def roles(self) -> tuple[str, ...]:
        """All roles of the checkpoint, in the order of the table, each once."""
        roles = dict.fromkeys(role for role, _ in self._index)
        return tuple(roles | {"head": None} if self.tied else roles)

    def has(self, role: str) -> bool:
        """Whether some tensor plays this role."""
        return role in self.roles

    @property
    def gated(self) -> bool:
        """Whether its MLPs, or their experts, have gates."""
        return any(role.partition(".")[0] == "gate" for role in self.roles)

    def part(self, role: str, block: int | None = None) -> TensorPart:
        """Return the tensor that holds `role`.

        Raises
        ------
        MissingRoleError
            The architecture has no such role.
        InputError
            `block` is missing, superfluous or out of range.
        """
        if (role, block) in self._index:
            return self._index[role, block]
        if role == "head" and self.tied and block is None:
            return self._index["embedding", None]
        if self.has(f"{role}.0") and not (self.has(role) and (block is None or block >= self.n_blocks)):
            raise MissingRoleError(
                f"{self.architecture} has no one tensor in the role {role!r}, but one for each expert ({role}.0, ...); "
                "experts see different tokens, and phi_u compares them one by one"
            )
        if not self.has(role):
            raise MissingRoleError(
                f"{self.architecture} has no tensor in the role {role!r}; it has {', '.join(self.roles)}"
            )
        if (role, 0) not in self._index and block is not None:
            raise InputError(f"the role {role!r} of {self.architecture} belongs to no block: leave block out")
        raise InputError(f"block must be 0 to {self.n_blocks - 1} for {role!r} of {self.architecture}, not {block}")

    def tensor_name(self, role: str, block: int | None = None) -> str:
        """Name, in the file, of the tensor that holds `role`."""
        return self.part(role, block).name

    def shape(self, role: str, block: int | None = None) -> tuple[int, ...]:
        """Shape of what `read` returns: ``(output units, input units)`` or ``(units,)``."""
        part = self.part(role, block)
        held = self._held(part, role)
        size = next(n for s, n in zip(part.segments, part.sizes, strict=True) if s.role == held)
        inner = part.shape[1:] if part.experts else part.shape
        return (size, *(inner[:-1] if part.transposed else inner[1:]))

    def mlps(self, block: int | None) -> tuple[str, ...]:
        """Names of a block's MLPs: ``""`` for the one that most have; of experts their numbers, and ``shared``."""
        return tuple(self._mlps.get(block, ()))

    @cached_property
    def _mlps(self) -> dict[int | None, list[str]]:
        names: dict[int | None, list[str]] = {}
        for role, block in self._index:
            kind, _, name = role.partition(".")
            if kind == "up":
                names.setdefault(block, []).append(name)
        return names

    def module(self, role: str, block: int | None = None) -> str:
        """Path of the module with this role in the model that transformers makes, for hooks.

        Raises
        ------
        MissingRoleError
            The role is an expert's: transformers keeps all experts in one module. Or it is of the language part of
            another model.
        """
        part = self.part(role, block)
        if "." in role:
            raise MissingRoleError(f"{self.architecture} has no module of its own for the role {role!r}")
        if self.within:
            raise MissingRoleError(
                f"{self.within} is compared by the weights of its language part ({self.architecture}) and not run"
            )
        self.require_tokens()
        return part.module

    def require_tokens(self) -> None:
        """Raise MissingRoleError if the model reads something else than tokens."""
        if self.inputs != "tokens":
            raise MissingRoleError(
                f"{self.architecture} reads {self.inputs} and no tokens: it is compared by its weights, and not run"
            )

    @property
    def longest(self) -> int | None:
        """Tokens that a sequence may have by the table of positions; None where the model has none."""
        if not self.has("position_embedding"):
            return None
        return self.shape("position_embedding")[0] - self.first_position

    def read(
        self, checkpoint: Weights, role: str, block: int | None = None, *, units: int | None = None
    ) -> NDArray[np.float32]:
        """Read a role from a checkpoint.

        Parameters
        ----------
        checkpoint, role, block
            From where, what, and of which block.
        units
            So many output units, the first: nothing else is read where they lie together in the file (`first`). All if
            None.

        Returns
        -------
        array
            float32, ``(output units, input units)`` for a matrix whatever the file's layout, ``(units,)``
            for a norm or bias.
        """
        part = self.part(role, block)
        held = self._held(part, role)
        if units is not None and (rows := self.first(role, block, units)):
            return checkpoint.array(part.name, rows)
        return np.ascontiguousarray(part.split(checkpoint.array(part.name))[held][:units])

    def first(self, role: str, block: int | None, units: int) -> range | None:
        """Rows of a role's tensor that are its first so many output units; None where these lie apart in the file.

        They do where output units are columns, and where the roles of a tensor alternate.

        Raises
        ------
        InputError
            There are fewer.
        """
        part, there = self.part(role, block), self.shape(role, block)[0]
        if units > there:
            raise InputError(f"{part.name} has {there} units, fewer than {units}: give fewer, or leave units out")
        roles = [segment.role for segment in part.segments]
        start = sum(part.sizes[: roles.index(self._held(part, role))])
        apart = part.transposed or (part.interleaved and len(roles) > 1)
        return None if apart else range(start, start + units)

    def norm_before(self, role: str) -> str | None:
        """Return the norm through which a matrix reads the stream; None if there is none, or one without weights."""
        kind = role.partition(".")[0]
        if kind in ("query", "key", "value"):
            norm = "input_norm"
        elif kind == "head":
            norm = "final_norm"
        elif self.has("pre_mlp_norm"):
            norm = "pre_mlp_norm"
        else:  # with a norm behind the MLP as well, the one behind the attention is not before the MLP
            norm = "" if self.has("post_mlp_norm") else "post_attention_norm"
        return norm if self.has(norm) else None

    def _held(self, part: TensorPart, role: str) -> str:
        """Role under which the part knows `role`: a tied head is the embedding."""
        return "embedding" if role == "head" and part is self._index["embedding", None] else role


def of(checkpoint: Tensors) -> Anatomy:
    """Compare a checkpoint with the table of architectures, and every shape with its config.

    Raises
    ------
    UnknownArchitectureError
        No entry for the architecture that the config names.
    InvalidWeightsError
        A tensor is missing, superfluous (a block too many), or has a shape that contradicts the config.
    """
    piece = getattr(checkpoint, "piece", None)  # a model without files has none
    if piece and (piece.name != LANGUAGE or piece.prefix):
        return _of_part(checkpoint, piece)
    try:
        name = checkpoint.architecture
        config: Mapping[str, Any] = checkpoint.config
        if sees(config):
            name, config = language_part(name, config)
        architecture = described(name)
    except UnknownArchitectureError as error:
        if without_mlps(name):
            raise UnknownArchitectureError(f"{checkpoint.name}: {error}") from None

        return by_tensors(checkpoint, config, _compared, UnknownArchitectureError(f"{checkpoint.name}: {error}"))
    return _compared(checkpoint, name, architecture, config)


def _compared(checkpoint: Tensors, name: str, architecture: Architecture, config: Mapping[str, Any]) -> Anatomy:
    """Compare a checkpoint with one entry of the table, errors as of `of`."""
    sizes = axis_sizes(checkpoint.name, config, architecture.keys)
    counted = sizes["blocks"]
    # the usual name of each tensor -> its name in the file; those that have got a role go
    left = {_usual(name, architecture): name for name in checkpoint.tensor_names}
    prefix, outer = _prefixes(left, architecture)
    # where some blocks have no MLP, those that have one are counted from 0
    only = architecture.only.split()
    numbers = [n for n in range(counted) if not only or any(prefix + name.format(block=n) in left for name in only)]
    sizes["blocks"] = len(numbers)
    parts: list[TensorPart] = []
    for part, block, number, expert in instances(architecture, sizes):
        bare = part.called(number if number is None or part.decodes else numbers[number], expert)
        usual = bare if part.outside else prefix + bare
        stored = left.pop(usual, None) or (left.pop(outer + bare, None) if part.outside else None)
        if stored is None:
            if part.optional:
                continue
            _refuse_codes(checkpoint)
            _refuse_broken_promise(checkpoint, bare)
            raise InvalidWeightsError(_lacks(checkpoint.name, usual, name, left))
        loaded = bare if part.outside else ((architecture.prefix and prefix) or architecture.prefix) + bare
        module = part.module or loaded.rpartition(".")[0]
        parts.append(_measured(checkpoint, stored, part, (block, expert, module), sizes))
    if any(checkpoint.dtype(part.name) not in _PLAIN for part in parts):
        _refuse_codes(checkpoint)
    decoders = sizes.get("decoders", 0) if any(part.decodes for part in architecture.parts) else 0
    _check_blocks(checkpoint, architecture, left, counted + (config.get("num_nextn_predict_layers") or 0), decoders)
    anatomy = Anatomy(
        architecture=name,
        n_blocks=sizes["blocks"] + decoders,
        width=sizes["model"],
        vocab_size=sizes["vocab"],
        parts=tuple(parts),
        unnamed=tuple(sorted(name for usual, name in left.items() if not _BUFFERS.search(usual))),
        tied=_tied(checkpoint, config, architecture, parts),
        within=checkpoint.architecture if sees(checkpoint.config) else None,
        mlp_width=sizes.get("mlp", sizes["expert"]),
        inputs=architecture.inputs,
        first_position=_first_position(architecture, config),
    )
    some = any("experts" in part.name for part in architecture.parts)
    if some and (missing := experts.missing(anatomy._index.keys(), anatomy.n_blocks, sizes["experts"])):
        _refuse_codes(checkpoint)
        raise InvalidWeightsError(f"{checkpoint.name} lacks tensors of {missing}; copy it again")
    return anatomy


def _lacks(label: str, usual: str, architecture: str, left: Mapping[str, str]) -> str:
    """Say that a tensor is not there, and which one may be it, with more words in its name."""

    def within(name: str) -> bool:
        words = iter(name.split("."))
        return all(word in words for word in usual.split("."))  # in this order

    there = next((stored for name, stored in sorted(left.items()) if within(name)), "")
    remedy = f"it has {there}: rename its tensors as transformers saves them, or " if there else "its files are whole: "
    return (
        f"{label} lacks the tensor {usual}, which {architecture} needs; {remedy}give the config and the weights of one "
        "model, as transformers saves them"
    )


def _first_position(architecture: Architecture, config: Mapping[str, Any]) -> int:
    """Row of the table of positions at which a sequence begins: in some families behind that of padding."""
    first = architecture.first_position
    if first != "padding":
        return int(first)
    padding = config.get("pad_token_id")
    return padding + 1 if isinstance(padding, int) and padding >= 0 else 2  # transformers' own default is 1


def _prefixes(names: Collection[str], architecture: Architecture) -> tuple[str, str]:
    """Return the prefix of the base model in this file, and that of a wrapper, whose head stands beside the base model.

    Both follow from the name of the embedding.
    """
    embedding = architecture.parts[0].name
    met = (name.removesuffix(embedding) for name in sorted(names, key=len) if f".{name}".endswith(f".{embedding}"))
    prefix = next(met, architecture.prefix)
    return prefix, prefix.removesuffix(architecture.prefix)


def _tied(checkpoint: Tensors, config: Mapping[str, Any], architecture: Architecture, parts: list[TensorPart]) -> bool:
    """Whether the head is the embedding: the architecture has a head, and the file none."""

    def has_head(parts: Iterable[Part | TensorPart]) -> bool:
        return any(segment.role == "head" for part in parts for segment in part.segments)

    tied = has_head(architecture.parts) and not has_head(parts)
    if tied and config.get("tie_word_embeddings") is False:
        for part in (part for part in architecture.parts if part.segments[0].role == "head"):
            _refuse_broken_promise(checkpoint, part.name)
        raise InvalidWeightsError(
            f"{checkpoint.name} lacks the head, although its config says tie_word_embeddings: false"
        )
    return tied


def _refuse_broken_promise(checkpoint: Tensors, name: str) -> None:
    """Raise CheckpointError if a table of shards places a tensor of this name in a file that lacks it."""
    absent: Mapping[str, str] = getattr(checkpoint, "absent", {})  # a model without files has none
    for stored, file in absent.items():
        if f".{stored}".endswith(f".{name}"):
            raise CheckpointError(
                f"{checkpoint.name}: {file} lacks {stored}, which the index places there; copy both again"
            )


def _refuse_codes(checkpoint: Tensors) -> None:
    """Raise InvalidWeightsError if tensors hold codes of a quantised copy."""
    names = checkpoint.tensor_names
    integers = (name for name in names if "int" in checkpoint.dtype(name) and not _BUFFERS.search(name))
    if message := diagnose.codes(names, checkpoint.config, integers):
        raise InvalidWeightsError(f"{checkpoint.name}: {message}")


def _usual(name: str, architecture: Architecture) -> str:
    """Translate a name to the one that the table uses."""
    for met, usual in architecture.aliases:
        if name.endswith(met):
            return name.removesuffix(met) + usual
    return name


def _measured(
    checkpoint: Tensors, name: str, part: Part, place: tuple[int | None, int | None, str], sizes: dict[str, int]
) -> TensorPart:
    """Compare a tensor's shape with the config; `place` is its block, expert and module."""
    block, expert, module = place
    n_experts = sizes["experts"] if part.stacked else 0
    numbers = range(n_experts) if part.stacked else (expert,)
    segments = tuple(for_expert(segment, number) for number in numbers for segment in part.segments)
    shape = checkpoint.shape(name)
    if len(segments) == 1 and len(shape) == len(segments[0].axes):
        # an axis that the config does not fix takes the length that the first tensor has
        for axis, length in zip(segments[0].axes, shape, strict=True):
            sizes.setdefault(config_axis(axis), length)
    lengths = [tuple(sizes[config_axis(axis)] for axis in segment.axes) for segment in segments]
    rows = tuple(length[0] for length in lengths)
    expected: tuple[int, ...] = (sum(rows) // max(n_experts, 1), *lengths[0][1:])
    if part.transposed:
        expected = expected[::-1]
    if n_experts:
        expected = (n_experts, *expected)
    if shape != expected:
        _refuse_codes(checkpoint)
        grown = "vocab" in segments[0].axes and len(shape) == len(expected) and shape[1:] == expected[1:]
        tokens = f"where tokens were added or cut away, set vocab_size there to {shape[0]}; else " if grown else ""
        raise InvalidWeightsError(
            f"{checkpoint.name}: {name} has the shape {shape}, and its config says {expected}; {tokens}give the config "
            "and the weights of one model"
        )
    return TensorPart(
        name, block, segments, rows, shape, part.transposed, part.interleaved, sizes["head"], n_experts, module
    )


def _check_blocks(
    checkpoint: Tensors, architecture: Architecture, left_over: Mapping[str, str], encoders: int, decoders: int
) -> None:
    """Refuse tensors of blocks that the config does not count."""
    patterns = {
        re.escape(part.name.partition("{decoder}" if part.decodes else "{block}")[0]) + r"(\d+)\.": (
            decoders if part.decodes else encoders
        )
        for part in architecture.parts
        if part.per_block
    }
    for usual, name in left_over.items():
        for pattern, n_blocks in patterns.items():
            match = re.match(f"({re.escape(architecture.prefix)})?{pattern}", usual)
            if match and int(match[2]) >= n_blocks:
                raise InvalidWeightsError(
                    f"{checkpoint.name} has the tensor {name}, but its config counts {n_blocks} blocks; give "
                    "the config and the weights of one model"
                )


def _of_part(checkpoint: Tensors, piece: PartOfModel) -> Anatomy:
    """Name the tensors of a part that shapes alone show."""

    def tensor(name: str, role: str, block: int | None, transposed: bool) -> TensorPart:
        shape = checkpoint.shape(name)
        rows = shape[::-1] if transposed else shape
        axes = _AXES.get(role, tuple(f"{role} {i}" for i in range(len(shape))))
        return TensorPart(name, block, (Segment(role, axes),), (rows[0],), shape, transposed, False, 1)

    parts = tuple(tensor(*each) for each in by_shapes(checkpoint, piece))
    by_role = {role: part for part in parts for role in [part.segments[0].role]}
    units, table = by_role.get("up"), by_role.get("embedding")
    wide = (units.shape[0] if units.transposed else units.shape[1]) if units else table.shape[1] if table else 0
    return Anatomy(
        architecture=piece.name,
        n_blocks=1 + max((part.block for part in parts if part.block is not None), default=-1),
        width=wide,
        vocab_size=table.shape[0] if table else 0,
        parts=parts,
        unnamed=tuple(sorted({*below(checkpoint.tensor_names, piece.prefix)} - {part.name for part in parts})),
        tied=False,
        within=checkpoint.architecture,
        mlp_width=units.sizes[0] if units else 0,
        part_name=piece.name,
    )
