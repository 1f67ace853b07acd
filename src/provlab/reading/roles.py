"""Which tensor of a checkpoint plays which role, as `provlab.reading.anatomy` finds it, and how a role is read.

An `Anatomy` reads a role whatever the file's layout: fused projections are split, ``Conv1D`` matrices turned, so that
rows are always output units.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError, MissingRoleError
from provlab.reading import experts
from provlab.reading.architectures import Segment

if TYPE_CHECKING:
    import torch

#: of numpy or of torch
Tensor = TypeVar("Tensor", NDArray[Any], "torch.Tensor")


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
    norm_offset
        What the norms add to their weights before multiplying; 0 where the file keeps them with it.
    part_name
        Name of the part of a model that was read by its shapes alone (`provlab.reading.part`); else None.
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
    norm_offset: float = 0.0
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

    def path_of(self, block: int) -> str:
        """Path of a transformer block's module: the longest that all of its tensors share, up to its number there.

        That is another number than the block's where some blocks have no MLP, or stand in a decoder.
        """
        paths = [part.module.split(".") for part in self.parts if part.block == block]
        together = [words[0] for words in zip(*paths, strict=False) if len(set(words)) == 1]
        number = next((place for place, word in enumerate(together) if word.isdigit()), len(together))
        return ".".join(together[: number + 1])

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
