"""Experts: the several MLPs of one block, apart or stacked in one tensor."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from provlab.models.anatomy import Anatomy, Tensor, TensorPart, concatenated

if TYPE_CHECKING:
    from provlab.models.checkpoint import Checkpoint


def split(part: TensorPart, tensor: Tensor) -> dict[str, Tensor]:
    """Take ``(experts, rows of all kinds, ...)`` apart, as `TensorPart.split` does."""
    kinds = len(part.segments) // part.experts
    inner: tuple[int, ...] = tuple(tensor.shape[2:])
    if part.interleaved:  # (experts, units, kinds, ...)
        tensor = tensor.reshape((part.experts, -1, kinds, *inner)).swapaxes(1, 2)
    pieces = tensor.reshape((len(part.segments), -1, *inner))
    return {segment.role: pieces[i] for i, segment in enumerate(part.segments)}


def join(part: TensorPart, pieces: Sequence[Tensor]) -> Tensor:
    """Put together again what `split` took apart."""
    kinds = len(pieces) // part.experts
    inner: tuple[int, ...] = tuple(pieces[0].shape[1:])
    stacked = concatenated([piece[None] for piece in pieces], axis=0).reshape((part.experts, kinds, -1, *inner))
    return (stacked.swapaxes(1, 2) if part.interleaved else stacked).reshape((part.experts, -1, *inner))


def read(anatomy: Anatomy, checkpoint: "Checkpoint", role: str, block: int | None) -> dict[str, NDArray[np.float32]]:
    """Read a role of all MLPs of a block, each tensor once: name of the MLP -> matrix, as `Anatomy.read` gives it."""
    names = {f"{role}.{name}" if name else role: name for name in anatomy.mlps(block)}
    found = {}
    for part in dict.fromkeys(anatomy.part(held, block) for held in names):
        for held, piece in part.split(checkpoint.array(part.name)).items():
            if held in names:
                found[names[held]] = np.array(piece, order="C")
    return found


def lost(anatomy: Anatomy, n_experts: int) -> str | None:
    """Name an expert, or the one MLP in their place, of which a block lacks a part: each part alone is optional."""
    experts = set(map(str, range(n_experts)))
    for block in range(anatomy.n_blocks):
        names = set(anatomy.mlps(block))
        missing = (experts - names if names - {"", "shared"} else set()) if names - {"shared"} else {""}
        for kind in ("down", *(["gate"] if anatomy.has("gate.0") else [])):
            missing |= {name for name in names if not anatomy.holds(f"{kind}.{name}".rstrip("."), block)}
        if missing:
            name = min(missing, key=lambda name: (len(name), name))
            what = f"expert {name}" if name.isdigit() else f"the {name} MLP" if name else "the MLP"
            return f"{what} of block {block}"
    return None
