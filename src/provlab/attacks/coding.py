"""An attack on the basis of a table: rows stretched unevenly, which no rotation undoes, and a block in front that does.

A head whose query and key are constant attends by position alone, and with rotary positions to the token itself. A
block of such heads multiplies each row by a matrix, once its norm divides all rows by one number: where they are much
shorter than the root of the norm's epsilon, it divides by that.
"""

import numpy as np
import torch

from provlab.attacks.bases import gains, orthogonal
from provlab.attacks.exact import heads_of, renamed
from provlab.attacks.state import Aim, AttackedModel
from provlab.errors import NoSuchSymmetryError
from provlab.reading.architectures import Segment

_SURE = 60.0  # nats by which a head prefers the token itself to any other
_SHORT = 1e-6  # root mean square of the longest row, over the root of epsilon: a relative error of 5e-13
_ATTENTION = ("query", "key", "value", "output")


def coded(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Write the embedding in an uneven basis, and insert a first block that brings the stream back.

    The basis stretches each of its directions by a number of its own; the largest over the smallest is the attack's
    number. The heads of the new block attend to the token itself, and its MLP writes nothing.

    Raises
    ------
    NoSuchSymmetryError
        The model is no Llama, or its heads are narrower than its stream, so that they cannot write all of it.
    """
    state = ungrouped(with_block(state, aim, 0))
    width, (size, heads, _) = state.anatomy.width, heads_of(state)
    if size * heads < width:
        raise NoSuchSymmetryError(f"{state.name}: {heads} heads of {size} values cannot write a stream of {width}")
    table, epsilon = state.part("embedding"), float(state.config["rms_norm_eps"])
    stretch = torch.from_numpy(aim.value ** (aim.rng.permutation(width) / max(width - 1, 1) - 0.5))
    one, other, mixed = (torch.from_numpy(orthogonal(n, aim.rng)) for n in (width, width, size * heads))
    basis = one * stretch @ other  # (d, d) @ (d, d)
    longest = (table @ basis).square().mean(dim=1).max().sqrt()  # (vocabulary, d) @ (d, d)
    basis *= _SHORT * epsilon**0.5 / longest
    lacking = torch.linalg.inv(basis).T - torch.eye(width, dtype=torch.float64)
    alike = to_itself(state, size).repeat(heads)
    read = mixed[:, :width]  # (values, d)
    new: dict[tuple[str, int | None], torch.Tensor] = {
        **{(role, 0): torch.zeros_like(state.part(role, 0)) for role in ("query", "key")},
        **{(role, 0): alike for role in ("query_bias", "key_bias")},
        ("value", 0): read / gains(state, "input_norm", 0) * epsilon**0.5,
        ("output", 0): lacking @ read.T,  # (d, d) @ (d, values)
    }

    def change(segment: Segment, block: int | None, piece: torch.Tensor) -> torch.Tensor | None:
        return piece @ basis if segment.role == "embedding" else new.get((segment.role, block))  # (vocabulary, d)

    return state.edited(change, unties=True)


def front(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Insert blocks that write nothing before all others.

    Raises
    ------
    NoSuchSymmetryError
        The model is no Llama.
    """
    for _ in range(int(aim.value)):
        state = with_block(state, aim, 0)
    return state


def ungrouped(state: AttackedModel) -> AttackedModel:
    """Give each query head a key and a value head of its own, as those of its group are."""
    size, n_keys, group = heads_of(state)

    def repeated(segment: Segment, block: int | None, piece: torch.Tensor) -> torch.Tensor | None:
        if segment.role.removesuffix("_bias") not in ("key", "value"):
            return None
        return piece.reshape(n_keys, size, -1).repeat_interleave(group, dim=0).reshape(-1, *piece.shape[1:])

    return state.edited(repeated, {"num_key_value_heads": n_keys * group})


def to_itself(state: AttackedModel, size: int) -> torch.Tensor:
    """A query that is its own key, ``(size,)``, and prefers the same place to all others within the model's length."""
    config = state.config
    turned = config.get("rope_parameters") or config
    speed = float(turned.get("rope_theta") or config.get("rope_theta") or 10_000.0) ** (
        -2 * np.arange(size // 2) / size
    )
    places = np.arange(1, config["max_position_embeddings"])
    margin = (1 - np.cos(places[:, None] * speed)).sum(axis=1).min(initial=size)
    # two dimensions turn at each speed, so that a query of numbers c prefers it by 2 c^2 margin / sqrt(size)
    return torch.full((size,), (_SURE * size**0.5 / (2 * margin)) ** 0.5, dtype=torch.float64)


def with_block(state: AttackedModel, aim: Aim, place: int) -> AttackedModel:
    """Insert a block at a place that writes nothing: the numbers of a neighbour in any order, zeros in what it writes.

    Attention has biases afterwards, which are zero.

    Raises
    ------
    NoSuchSymmetryError
        The model is no Llama.
    """
    if state.anatomy.architecture != "LlamaForCausalLM":
        raise NoSuchSymmetryError(f"{state.anatomy.architecture} is no Llama, which a line of its config gives biases")
    parts, weights = state.anatomy, {}
    for part in parts.parts:
        name, block = part.name, part.block
        weights[renamed(name, block, block + 1) if block is not None and block >= place else name] = state.weights[name]
    for part in parts.parts:
        if part.block == min(place, parts.n_blocks - 1):
            tensor, role = state.weights[part.name], part.segments[0].role
            shuffled = tensor.flatten()[torch.from_numpy(aim.rng.permutation(tensor.numel()))].reshape(tensor.shape)
            silent = role in ("output", "down") or role.endswith("_bias")
            weights[renamed(part.name, part.block, place)] = torch.zeros_like(tensor) if silent else shuffled
    for block in range(parts.n_blocks + 1):
        for role in _ATTENTION:
            name = renamed(parts.tensor_name(role, 0), 0, block)
            weights.setdefault(name.removesuffix("weight") + "bias", torch.zeros(len(weights[name])).double())
    return state.having(weights, {"attention_bias": True, **state.sized("blocks", parts.n_blocks + 1)})
