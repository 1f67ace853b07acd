"""Experts: the several MLPs of one block, apart or stacked in one tensor; and how tensors are put together again."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

#: of numpy or of torch
Tensor = TypeVar("Tensor", NDArray[Any], "torch.Tensor")


def split(tensor: Tensor, n_experts: int, kinds: int, *, interleaved: bool) -> Tensor:
    """Bring ``(experts, rows of all kinds, ...)`` to ``(experts times kinds, rows, ...)``."""
    inner: tuple[int, ...] = tuple(tensor.shape[2:])
    if interleaved:  # (experts, units, kinds, ...)
        tensor = tensor.reshape((n_experts, -1, kinds, *inner)).swapaxes(1, 2)
    return tensor.reshape((n_experts * kinds, -1, *inner))


def joined(parts: Sequence[Tensor], n_experts: int, head_size: int, *, interleaved: bool) -> Tensor:
    """Join the roles of one tensor as its file has them: one behind the other, or alternating; experts stacked."""
    inner: tuple[int, ...] = tuple(parts[0].shape[1:])
    if n_experts:
        # (1, rows, ...) of each role, behind one another: (experts, roles, rows, ...)
        together = _concatenated([part[None] for part in parts], axis=0)
        shape: tuple[int, ...] = (n_experts, -1, *tuple(parts[0].shape))
        stacked = together.reshape(shape)
        return (stacked.swapaxes(1, 2) if interleaved else stacked).reshape((n_experts, -1, *inner))
    if interleaved and len(parts) > 1:  # (heads, 1, size of a head, ...) of each role, side by side
        heads = [part.reshape((-1, 1, head_size, *inner)) for part in parts]
        return _concatenated(heads, axis=1).reshape((-1, *inner))
    return _concatenated(parts, axis=0)


def _concatenated(pieces: Sequence[Tensor], axis: int) -> Tensor:
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces, axis)
    import torch

    return torch.cat(tuple(pieces), axis)


def missing(roles: Collection[tuple[str, int | None]], n_blocks: int, n_experts: int) -> str | None:
    """Name an expert, or the one MLP in their place, of which a block lacks a part: each part alone is optional.

    `roles` are those that are there, each with its block.
    """
    experts = set(map(str, range(n_experts)))
    gated = any(role == "gate.0" for role, _ in roles)
    for block in range(n_blocks):
        names = {role.partition(".")[2] for role, at in roles if at == block and role.partition(".")[0] == "up"}
        without = experts - names if names - {"", "shared"} else set()
        if not names or (names == {"shared"} and experts):
            without = {""}
        for kind in ("gate", "down") if gated else ("down",):
            without |= {name for name in names if (f"{kind}.{name}" if name else kind, block) not in roles}
        if without:
            name = min(without, key=lambda name: (len(name), name))
            what = f"expert {name}" if name.isdigit() else f"the {name} MLP" if name else "the MLP"
            return f"{what} of block {block}"
    return None
