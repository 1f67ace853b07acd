"""Experts: the several MLPs of one block, apart or stacked in one tensor."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeVar

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


def join(pieces: Tensor, n_experts: int, *, interleaved: bool) -> Tensor:
    """Bring back what `split` brought."""
    inner: tuple[int, ...] = tuple(pieces.shape[2:])
    stacked = pieces.reshape((n_experts, -1, pieces.shape[1], *inner))
    return (stacked.swapaxes(1, 2) if interleaved else stacked).reshape((n_experts, -1, *inner))


def missing(roles: Collection[tuple[str, int | None]], n_blocks: int, n_experts: int) -> str | None:
    """Name an expert, or the one MLP in their place, of which a block lacks a part: each part alone is optional.

    `roles` are those that are there, each with its block.
    """
    experts = set(map(str, range(n_experts)))
    gated = any(role == "gate.0" for role, _ in roles)
    for block in range(n_blocks):
        names = {role.partition(".")[2] for role, at in roles if at == block and role.partition(".")[0] == "up"}
        without = (experts - names if names - {"", "shared"} else set()) if names - {"shared"} else {""}
        for kind in ("gate", "down") if gated else ("down",):
            without |= {name for name in names if (f"{kind}.{name}" if name else kind, block) not in roles}
        if without:
            name = min(without, key=lambda name: (len(name), name))
            what = f"expert {name}" if name.isdigit() else f"the {name} MLP" if name else "the MLP"
            return f"{what} of block {block}"
    return None
