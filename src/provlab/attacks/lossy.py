"""Attacks that cost the adversary some of the model's quality: merging, noise, compression, other blocks."""

from dataclasses import replace

import torch

from provlab.attacks.exact import impostors, split_units, with_more
from provlab.attacks.state import Aim, AttackedModel, Units
from provlab.errors import InputError
from provlab.reading.symmetry import Weights

# Merging --------------------------------------------------------------------------------------------------


def _alike(state: AttackedModel, other: AttackedModel) -> Weights:
    """Return the weights of a model to merge with, after checking that they fit."""
    for name, tensor in state.weights.items():
        if name not in other.weights or other.weights[name].shape != tensor.shape:
            raise InputError(
                f"{other.name} has no {name} of the shape {tuple(tensor.shape)}, so {state.name} cannot merge with it"
            )
    return other.weights


def average(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Mix every weight with that of another model, of which the mixture takes this share."""
    other = _alike(state, aim.others[0])
    return state.having({name: tensor.lerp(other[name], aim.value) for name, tensor in state.weights.items()})


def slerp(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Mix every tensor with that of another model on the arc between the two, at this share of the way."""
    other, t = _alike(state, aim.others[0]), aim.value

    def mixed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        cosine = (a * b).sum() / (a.norm() * b.norm()).clamp(min=1e-300)
        angle = cosine.clamp(-1, 1).arccos()
        if angle.sin() < 1e-6:
            return a.lerp(b, t)
        return (((1 - t) * angle).sin() * a + (t * angle).sin() * b) / angle.sin()

    return state.having({name: mixed(tensor, other[name]) for name, tensor in state.weights.items()})


def ties(state: AttackedModel, aim: Aim) -> AttackedModel:
    """TIES (Yadav et al. 2023): trim what this model and another learned beyond a base to a share, merge by sign."""
    other, base = _alike(state, aim.others[0]), _alike(state, aim.others[1])

    def merged(name: str, tensor: torch.Tensor) -> torch.Tensor:
        learned = torch.stack([tensor - base[name], other[name] - base[name]])  # (2, ...)
        flat = learned.abs().flatten(1)
        kept = max(1, round(aim.value * flat.shape[1]))
        least = flat.kthvalue(flat.shape[1] - kept + 1, dim=1).values.reshape(-1, *[1] * tensor.ndim)
        learned = learned * (learned.abs() >= least)
        agreeing = learned * (learned.sign() == learned.sum(0).sign())
        return base[name] + agreeing.sum(0) / (agreeing != 0).sum(0).clamp(min=1)

    return state.having({name: merged(name, tensor) for name, tensor in state.weights.items()})


def lora(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add to every matrix what another model has beyond this one, as far as an adapter of this rank holds it."""
    other = _alike(state, aim.others[0])
    return state.with_matrices(lambda name, matrix: matrix + _of_rank(other[name] - matrix, int(aim.value)))


def embedding(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Take the embedding of another model, so that this one looks derived from it."""
    other = aim.others[0].part("embedding")
    if other.shape != state.part("embedding").shape:
        raise InputError(f"{aim.others[0].name} has an embedding of another shape than {state.name}")
    return state.with_parts({("embedding", None): other})


# Noise and compression ------------------------------------------------------------------------------------


def noise(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add normal noise to every matrix of the blocks, measured in its standard deviations."""
    return state.with_matrices(lambda _, matrix: matrix + aim.value * matrix.std() * aim.normal(*matrix.shape))


def _of_rank(matrix: torch.Tensor, rank: int) -> torch.Tensor:
    U, s, Vh = torch.linalg.svd(matrix, full_matrices=False)
    return (U[:, :rank] * s[:rank]) @ Vh[:rank]  # (m, rank) @ (rank, n)


def rank(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Keep the largest singular values of every matrix of the blocks, so many."""
    return state.with_matrices(lambda _, matrix: _of_rank(matrix, int(aim.value)))


def bits(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Round every matrix of the blocks to 2^bits - 1 levels for each row."""
    levels = 2 ** (int(aim.value) - 1) - 1

    def rounded(_: str, matrix: torch.Tensor) -> torch.Tensor:
        step = matrix.abs().amax(1, keepdim=True).clamp(min=1e-300) / levels
        return (matrix / step).round() * step

    return state.with_matrices(rounded)


def prune(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Set a share of every matrix of the blocks to zero, its smallest numbers."""

    def pruned(_: str, matrix: torch.Tensor) -> torch.Tensor:
        dropped = round(aim.value * matrix.numel())
        return matrix * (matrix.abs() > matrix.abs().flatten().kthvalue(dropped).values) if dropped else matrix

    return state.with_matrices(pruned)


# Units and blocks -----------------------------------------------------------------------------------------


def jitter(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Split every unit in two whose gates differ a little, in standard deviations of the gate's numbers."""
    return state.with_units(lambda units: split_units(units, aim, 3.0, aim.value), gated=True)


def fan(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Spread every unit over four whose gates are tilted and whose up rows are far off; `value` of a gate's length.

    The gates are g + a, g - a, g + b, g - b, the up rows u + w twice and u - w twice: what these add cancels to first
    order in a and b.
    """

    def four(units: Units) -> Units:
        gate, up = units["gate"], units["up"]

        def drawn(rows: torch.Tensor, length: float) -> torch.Tensor:
            more = aim.normal(*rows.shape)
            return more * length * rows.norm(dim=1, keepdim=True) / more.norm(dim=1, keepdim=True)

        (a, b), w = (drawn(gate, aim.value) for _ in range(2)), drawn(up, 3.0)
        tilted = {
            "gate": torch.cat([gate + a, gate - a, gate + b, gate - b]),
            "up": torch.cat([up + w, up + w, up - w, up - w]),
            "down": torch.cat([units["down"] / 4] * 4),
        }
        return {role: torch.cat([tensor] * 4) for role, tensor in units.items()} | tilted

    return state.with_units(four, gated=True)


_FAINT = 1e-3  # of the length of a down column


def with_decoys(units: Units, aim: Aim, view: str) -> tuple[Units, Units]:
    """Return units whose `view` (gate or up row) is off by `value` of its length, and decoys with the true one.

    All else of a decoy is drawn, and it writes next to nothing; neither looks like the unit in both of its rows.
    """

    def drawn(role: str) -> torch.Tensor:
        more = aim.normal(*units[role].shape)
        return more * units[role].norm(dim=1, keepdim=True) / more.norm(dim=1, keepdim=True)

    other = "gate" if view == "up" else "up"
    off = {**units, view: units[view] + aim.value * drawn(view)}
    return off, {**units, other: drawn(other), "down": _FAINT * drawn("down")}


def imitated(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Let decoys have the up rows of every second unit, and the gates of the others, whose own are off by `value`."""

    def twice(units: Units) -> Units:
        halves = zip(("up", "gate"), (slice(0, None, 2), slice(1, None, 2)), strict=True)
        parts = [
            part for view, half in halves for part in with_decoys({r: t[half] for r, t in units.items()}, aim, view)
        ]
        return {role: torch.cat([part[role] for part in parts]) for role in units}

    return state.with_units(twice, gated=True)


def murmur(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add three decoys for each unit that write a little: too much to pass for dead units, too little to harm."""

    def added(units: Units) -> Units:
        more = impostors(units, replace(aim, value=3))
        return with_more(units, more | {"down": aim.value * more["down"]})

    return state.with_units(added)


def swap(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Exchange a block, counted from 0, with the next one."""
    first = int(aim.value)
    if first + 1 >= state.anatomy.n_blocks:
        raise InputError(
            f"{state.name} has blocks 0 to {state.anatomy.n_blocks - 1}, so {first} has no next one to swap with"
        )
    place: dict[int | None, int | None] = {first: first + 1, first + 1: first}
    new = {
        (segment.role, place[part.block]): state.part(segment.role, part.block)
        for part in state.anatomy.parts
        if part.block in place
        for segment in part.segments
    }
    return state.with_parts(new)


# Tokens ---------------------------------------------------------------------------------------------------


def redraw(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Exchange the shortest rows of the embedding, which tokens keep that no text has."""
    rows = state.part("embedding").clone()
    some = rows.norm(dim=1).argsort()[: round(aim.value * len(rows))]
    rows[some] = rows[some[torch.from_numpy(aim.rng.permutation(len(some)))]]
    return state.with_parts({("embedding", None): rows})
