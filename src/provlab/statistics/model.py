"""A model as statistics see it: a checkpoint whose tensors have names by their parts, and how large these are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.files.dtypes import itemsize


@dataclass(frozen=True)
class Model:
    """A checkpoint and which of its tensors plays which part."""

    checkpoint: Checkpoint
    anatomy: anatomy.Anatomy

    @classmethod
    def open(cls, source: str, *, allow_pickle: bool = False, in_part: bool = False) -> "Model":
        """Open a source string (folder, hub id or scheme:name) and read its anatomy; see `Checkpoint.read_in_part`."""
        checkpoint = Checkpoint.open(source, allow_pickle=allow_pickle)
        if in_part:
            checkpoint.read_in_part()
        return cls(checkpoint, anatomy.of(checkpoint))

    @property
    def name(self) -> str:
        """Short label of the checkpoint."""
        return self.checkpoint.name


def tensor_names(of: anatomy.Anatomy, block: int | None, roles: Sequence[str] | None = None) -> list[str]:
    """Tensors of one block, in the order of the anatomy; of some roles, those that hold any of them."""
    return [
        part.name
        for part in of.parts
        if part.block == block and (roles is None or any(segment.role in roles for segment in part.segments))
    ]


def tensor_bytes(model: Model, name: str, rows: int | None = None) -> int:
    """Bytes of a tensor, or of so many of its rows, in its file."""
    return numel(model, name, rows) * itemsize(model.checkpoint.dtype(name))


def numel(model: Model, name: str, rows: int | None = None) -> int:
    """Numbers in a tensor, or in so many of its rows."""
    first, *others = *model.checkpoint.shape(name), 1
    return math.prod((first if rows is None else rows, *others))
