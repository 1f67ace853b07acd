"""Attacks that leave every output as it is, beside the paper's T1 to T5: other units, heads, blocks, widths, tokens.

Each takes the model as it stands and an `Aim` (random numbers, the attack's number, other models) and returns another
model with the same outputs. h hidden units, d coordinates of the residual stream.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.attacks.bases import check_rotates, gains, orthogonal
from provlab.attacks.state import MLP, Aim, AttackedModel, Units
from provlab.errors import InputError, NoSuchSymmetryError
from provlab.inference.matching import match
from provlab.reading.architectures import Segment, described

# Hidden units ---------------------------------------------------------------------------------------------


def _scaled(units: Units, factor: torch.Tensor) -> Units:
    """Multiply what is there of up rows by factors ``(h,)``, and divide what each unit writes."""
    new = {role: units[role] * factor.reshape(-1, *[1] * (units[role].ndim - 1)) for role in units if role[:2] == "up"}
    return {**units, **new, **({"down": units["down"] / factor[:, None]} if "down" in units else {})}


def _with_factors(state: AttackedModel, drawn: Callable[[int], torch.Tensor]) -> AttackedModel:
    """Scale the units of every MLP by factors ``(h,)``, all drawn now; tensors are made when they are asked for."""
    state.check_gated()
    parts, factors = state.anatomy, {}
    for block in range(parts.n_blocks):
        for expert in state.experts:
            factors[block, expert] = drawn(parts.shape(f"up.{expert}" if expert else "up", block)[0])

    def change(segment: Segment, block: int | None, piece: torch.Tensor) -> torch.Tensor | None:
        kind, _, expert = segment.role.partition(".")
        if kind not in MLP or block is None or (block, expert) not in factors:
            return None
        new = _scaled({kind: piece.T if kind == "down" else piece}, factors[block, expert])[kind]
        return new.T if kind == "down" else new

    return state.turned(change)


def scales(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Multiply the up row of each unit by a number from 1/2 to 2, and divide its down column."""
    return _with_factors(state, lambda h: aim.uniform(0.5, 2, h))


def positive(state: AttackedModel, aim: Aim) -> AttackedModel:
    """T6: multiply the up projection of each MLP by a number from 1/2 to 2, and divide the down projection."""
    return _with_factors(state, lambda h: aim.uniform(0.5, 2, 1).expand(h))


def negative(state: AttackedModel, aim: Aim) -> AttackedModel:
    """T6 with negative numbers: outputs stay, but every up activation changes its sign."""
    return _with_factors(state, lambda h: -aim.uniform(0.5, 2, 1).expand(h))


def signs(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Negate up row and down column of a share of the units, drawn at random."""

    def turned(h: int) -> torch.Tensor:
        chosen = torch.from_numpy(aim.rng.permutation(h) < round(aim.value * h))
        return 1 - 2 * chosen.double()

    return _with_factors(state, turned)


def in_order(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Sort the units of each MLP by a number of their own."""

    def ordered(units: Units) -> Units:
        flat = {role: units[role].double().flatten(1) for role in ("gate", "up", "down") if role in units}
        up, lengths = flat["up"], torch.stack([rows.norm(dim=1) for rows in flat.values()])
        unit = up / up.norm(dim=1, keepdim=True)
        component = unit @ torch.linalg.svd(unit, full_matrices=False)[2][0]  # (h, d) @ (d,)
        keys = up.mean(1), component, up.norm(dim=1), lengths.prod(0)
        order = keys[int(aim.value)].argsort()
        return {role: tensor[order] for role, tensor in units.items()}

    return state.with_units(ordered)


def with_more(units: Units, more: Units) -> Units:
    return {role: torch.cat([tensor, more[role]]) for role, tensor in units.items()}


def duplicates(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Let several copies of each unit share what it writes, in unequal parts."""

    def copied(units: Units) -> Units:
        share = aim.uniform(0.5, 1.5, int(aim.value), len(units["up"]), 1)
        down = (share / share.sum(0) * units["down"]).flatten(0, 1)
        return {role: torch.cat([tensor] * int(aim.value)) for role, tensor in units.items()} | {"down": down}

    return state.with_units(copied)


def dead(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add units with random rows that write nothing, so many for each one."""

    def added(units: Units) -> Units:
        many = {role: torch.cat([tensor] * int(aim.value)) for role, tensor in units.items()}
        more = {role: aim.normal(*tensor.shape) * tensor.std() for role, tensor in many.items()}
        return with_more(units, more | {"down": torch.zeros_like(many["down"])})

    return state.with_units(added)


def impostors(units: Units, aim: Aim) -> Units:
    """Units that listen as live ones do, the gate as one and the up row as another; they write as they did."""
    drawn = []
    for _ in range(int(aim.value)):
        order = {role: torch.from_numpy(aim.rng.permutation(len(units["up"]))) for role in ("gate", "up", "down")}
        drawn.append({role: tensor[order[role.removesuffix("_bias")]] for role, tensor in units.items()})
    return {role: torch.cat([copy[role] for copy in drawn]) for role in units}


def decoys(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add units with the gate of one live unit and the up row of another, which write nothing, so many for each one."""

    def added(units: Units) -> Units:
        more = impostors(units, aim)
        return with_more(units, more | {"down": torch.zeros_like(more["down"])})

    return state.with_units(added)


def cancelling(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add the same decoys twice, writing with opposite signs: none of them is dead, and together they write nothing."""

    def added(units: Units) -> Units:
        more = impostors(units, aim)
        return with_more(with_more(units, more), more | {"down": -more["down"]})

    return state.with_units(added)


def zeros(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add units that are zero throughout."""
    more = int(aim.value)
    return state.with_units(
        lambda units: {role: torch.cat([t, t.new_zeros(more, *t.shape[1:])]) for role, t in units.items()}
    )


def split_units(units: Units, aim: Aim, length: float, gate_noise: float = 0.0) -> Units:
    """Split each unit: d a(gx) (ux) = d a(gx) ((u + w)x) - d a(gx) (wx), w random and `length` times as long as u."""
    gate, up = units["gate"], units["up"]
    w = aim.normal(*up.shape)
    w *= length * up.norm(dim=1, keepdim=True) / w.norm(dim=1, keepdim=True)
    more = {role: torch.zeros_like(units[role]) if role == "up_bias" else units[role] for role in units}
    noise = aim.normal(*gate.shape) * gate_noise * gate.std() if gate_noise else 0.0
    return with_more({**units, "up": up + w}, more | {"gate": gate + noise, "up": w, "down": -units["down"]})


def split(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Write each unit as the difference of two that share its gate."""
    return state.with_units(lambda units: split_units(units, aim, aim.value), gated=True)


MATES = {"gate": "up", "up": "gate", "gate_bias": "up_bias", "up_bias": "gate_bias"}


def _crossed(units: Units) -> Units:
    """Let gate and up row change places."""
    return {role: units[MATES.get(role, role)] for role in units}


def _opposite(units: Units, writes: int) -> Units:
    """Negate the gates, and what is written if `writes` is -1."""
    turned = {role: -tensor for role, tensor in units.items() if role.startswith("gate")}
    return {**units, **turned, "down": writes * units["down"]}


def _product(units: Units) -> Units:
    """Write d (gx) (ux), the product without an activation, as d a(gx) (ux) - d a(-gx) (ux), twice as many units.

    That holds, as all that follows here, where a(z) - a(-z) = z, as of SiLU, GELU and ReLU.
    """
    return with_more(units, _opposite(units, -1))


def _three(units: Units) -> Units:
    """Write each unit as three whose gates are others: d a(g) u = d a(-g) u + d a(u) g - d a(-u) g.

    g and u stand for what gate and up give.
    """
    return with_more(_opposite(units, 1), _product(_crossed(units)))


def turned(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Write each unit as three whose gates are others."""
    return state.with_units(_three, gated=True)


def mirror(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Write each unit as the difference of two that share its gate, and the second as three with other gates."""

    def four(units: Units) -> Units:
        both = split_units(units, aim, aim.value)
        first, second = ({role: tensor.chunk(2)[n] for role, tensor in both.items()} for n in (0, 1))
        return with_more(first, _three(second))

    return state.with_units(four, gated=True)


def quadratic(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add six decoys for each unit, none of them dead, which together write nothing: pq + qr - (p + r)q = 0.

    p and r are gates of live units, q is the up row of one.
    """

    def added(units: Units) -> Units:
        decoy, other = (impostors(units, replace(aim, value=1)) for _ in range(2))
        gates = [role for role in units if role.startswith("gate")]
        second = _crossed(decoy | {role: other[role] for role in gates})
        sums = {role: decoy[role] + other[role] for role in gates}
        third = decoy | sums | {"down": -decoy["down"]}
        return with_more(units, _product(with_more(with_more(decoy, second), third)))

    return state.with_units(added, gated=True)


def align(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Put the hidden units in the order in which MATCH finds those of another model, by their up rows."""
    other, parts = aim.others[0], state.anatomy
    if not (parts.has("up") and other.anatomy.has("up")):
        raise NoSuchSymmetryError(f"{parts.architecture} has its units in experts, and which is whose is not matched")
    orders: dict[tuple[str, int | None], NDArray[np.int64]] = {}
    for block in range(parts.n_blocks):
        rows = [
            model.part("up", block).numpy() if block < model.anatomy.n_blocks else np.empty((0, 0))
            for model in (other, state)
        ]
        if rows[0].shape != rows[1].shape:
            raise InputError(f"{other.name} has not the blocks and widths of {state.name}, so units cannot be aligned")
        orders["mlp", block] = match(*rows).indices
    return state.reordered(orders)


# Heads ----------------------------------------------------------------------------------------------------


def heads_of(state: AttackedModel) -> tuple[int, int, int]:
    """Dimensions of a head, heads of keys, and heads of queries for each of these."""
    head = state.anatomy.part("query", 0).head_size
    keys = state.anatomy.shape("key", 0)[0] // head
    return head, keys, state.anatomy.shape("query", 0)[0] // head // keys


def heads(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Put the heads of each block in another order: key heads with their queries, and queries within these."""
    head, n_keys, group = heads_of(state)
    orders: dict[tuple[str, int | None], NDArray[np.int64]] = {}
    for block in range(state.anatomy.n_blocks):
        keys = aim.rng.permutation(n_keys)
        queries = np.concatenate([group * key + aim.rng.permutation(group) for key in keys])
        for axis, order in (("key", keys), ("query", queries)):
            orders[axis, block] = (head * order[:, None] + np.arange(head)).ravel()
    return state.reordered(orders)


def values(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Write the values of each head in another basis, which the output projection undoes: A V and O A^-1."""
    head, n_keys, group = heads_of(state)
    new: dict[tuple[str, int | None], torch.Tensor] = {}
    for block in range(state.anatomy.n_blocks):
        # invertible and well conditioned: singular values from 1/2 to 2
        turns = [
            orthogonal(head, aim.rng) * aim.rng.uniform(0.5, 2, head) @ orthogonal(head, aim.rng) for _ in range(n_keys)
        ]
        A = torch.from_numpy(np.stack(turns))  # (key heads, head, head)
        for role in ("value", "value_bias"):
            if state.anatomy.has(role):
                piece = state.part(role, block)
                # (key heads, head, head) @ (key heads, head, inputs)
                new[role, block] = (A @ piece.reshape(n_keys, head, -1)).reshape(piece.shape)
        output = state.part("output", block)
        by_head = output.reshape(len(output), n_keys, group, head)  # (d, key heads, queries of each, head)
        new["output", block] = torch.einsum("okgi,kij->okgj", by_head, torch.linalg.inv(A)).reshape(output.shape)
    return state.with_parts(new)


# Widths and depth -----------------------------------------------------------------------------------------


_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps")
_HEADS_FROM_WIDTH = ("GPT2LMHeadModel", "GPTNeoXForCausalLM")


def pad(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Widen the residual stream by coordinates that carry nothing, and give them rows that look like others.

    They are zero, or, where norms subtract the mean, equal to it. The normalised stream then grows by
    sqrt((d + k) / d), which the weights of the norm take back, or the matrices where it has none. Their number is
    rounded up until the heads divide the new width, which transformers asks for.
    """
    parts, (_, n_keys, group) = state.anatomy, heads_of(state)
    more = int(aim.value) + -(state.anatomy.width + int(aim.value)) % (n_keys * group)
    check_rotates(parts)
    epsilons = [key for key in _EPSILONS if key in state.config]
    for holds, why in (
        (not parts.architecture.startswith("Gemma"), "multiplies its embedding by the root of the width"),
        (parts.architecture not in _HEADS_FROM_WIDTH, "takes the size of its heads from the width"),
        (not parts.has("q_norm"), "has norms in its heads, with the same epsilon as those of the stream"),
        (epsilons, "has no epsilon in its config, which must shrink with the normalised stream"),
    ):
        if not holds:
            raise NoSuchSymmetryError(f"{parts.architecture} {why}")
    centred, shrink = described(parts.architecture).centred, (parts.width / (parts.width + more)) ** 0.5

    def padded(segment: Segment, block: int | None, piece: torch.Tensor) -> torch.Tensor | None:
        role, axes = segment.role, segment.axes
        if "model" not in axes:
            return None
        if role.endswith("norm"):
            own = gains(state, role, block)
            gain, offset = own * shrink, piece[0] - own[0]  # what the norm adds of its own
            return torch.cat([gain, gain[torch.from_numpy(aim.rng.integers(len(gain), size=more))]]) + offset
        if role.endswith("norm_bias"):
            return torch.cat([piece, piece.new_zeros(more)])
        axis = axes.index("model")
        if axis == 0 or role.endswith("embedding"):  # it writes: the mean over the coordinates, or nothing
            extra = (piece.mean(axis, keepdim=True) * centred).repeat_interleave(more, axis)
        else:
            extra = aim.normal(len(piece), more) * piece.std()
            if parts.norm_before(role) is None:
                piece = piece * shrink
        return torch.cat([piece, extra], axis)

    config = {"head_dim": parts.part("query", 0).head_size, **state.sized("model", parts.width + more)}
    return state.edited(padded, config | {key: state.config[key] * shrink**2 for key in epsilons})


def identity(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Insert blocks that read the stream and write nothing to it, at random places."""
    for _ in range(int(aim.value)):
        state = _with_identity(state, int(aim.rng.integers(state.anatomy.n_blocks)), aim)
    return state


def _with_identity(state: AttackedModel, place: int, aim: Aim) -> AttackedModel:
    """Insert one behind the block `place`: the numbers of that block in any order, and zeros in what it writes."""
    parts = state.anatomy
    if parts.has("embedding_norm"):
        raise NoSuchSymmetryError(
            f"{parts.architecture} has a norm on the stream itself, so no block leaves it as it is"
        )
    weights = {}
    for part in parts.parts:
        tensor = state.weights[part.name]
        if part.block is not None and part.block > place:
            weights[renamed(part.name, part.block, part.block + 1)] = tensor
        else:
            weights[part.name] = tensor
        if part.block == place:
            shuffled = tensor.flatten()[torch.from_numpy(aim.rng.permutation(tensor.numel()))].reshape(tensor.shape)
            silent = part.segments[0].role.removesuffix("_bias").partition(".")[0] in ("output", "down")
            weights[renamed(part.name, place, place + 1)] = torch.zeros_like(tensor) if silent else shuffled
    config = state.sized("blocks", parts.n_blocks + 1)
    if isinstance(kinds := state.config.get("layer_types"), list):
        config["layer_types"] = [*kinds[: place + 1], kinds[place], *kinds[place + 1 :]]
    return state.having(weights, config)


def renamed(name: str, old: int, new: int) -> str:
    return name.replace(f".{old}.", f".{new}.", 1)


# Tokens ---------------------------------------------------------------------------------------------------


def vocabulary(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Number the tokens otherwise, in the weights and in the files of the tokenizer: text in and out stays."""
    order = aim.rng.permutation(state.anatomy.vocab_size)
    return replace(state.reordered({("vocab", None): order}), ids=np.argsort(order)[state.ids])


def extend(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add tokens that no text has, their rows like those of others."""
    more = int(aim.value)
    weights = dict(state.weights)
    for part in state.anatomy.parts:
        tensor = weights[part.name]
        if part.segments[0].axes[0] == "vocab":
            rows = tensor[torch.from_numpy(aim.rng.integers(len(tensor), size=more))]
            weights[part.name] = torch.cat([tensor, rows + 0.1 * rows.std() * aim.normal(*rows.shape)])
    return state.having(weights, {"vocab_size": state.anatomy.vocab_size + more})
