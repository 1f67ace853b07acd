"""Attacks on what a test takes for the measure of a model: some units, or a block, that make the others look like none.

A test that asks which units write much of the output, or in which blocks there are any, can be silenced by the answer;
and one that reads bare text, by a model that does not work there. None of these attacks touches a unit that the model
uses.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from provlab.attacks.exact import MATES, heads_of, with_more
from provlab.attacks.state import Aim, AttackedModel, Units
from provlab.errors import MissingRoleError, NoSuchSymmetryError
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import random_tokens

_QUIET = (-7.0, -10.0)  # biases of gates that never fire
_LOUD = (32.0, 64.0, 128.0, 256.0)  # of gates that always do: no two are nearly one gate
_FAINT = 0.003  # of the length of a down column
_SURE = 60.0  # nats by which a head prefers its token
_SEQUENCES, _LENGTH = 16, 32  # of random tokens, on which it is asked which block costs least


def dilution(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add two units whose gates never fire, and take back by the bias what they write, which is constant."""
    return _constant(state, aim, _QUIET, lambda down, _: down)


def loud(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add four units that are always loud, at one level each, and write with signs that cancel."""

    def cancelling(down: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        signs = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
        return down[[0, 0, 2, 2]] * (signs / levels)[:, None]

    return _constant(state, aim, _LOUD, cancelling)


def _constant(
    state: AttackedModel,
    aim: Aim,
    biases: tuple[float, ...],
    written: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> AttackedModel:
    """Add units of constant activation to each MLP: rows of zeros, these biases of the gate, and 1 as that of up."""
    from transformers.activations import ACT2FN

    state = biased(state)
    gates = torch.tensor(biases, dtype=torch.float64)
    levels = ACT2FN[state.config.get("hidden_act", "silu")](gates)
    constants = []

    def added(units: Units) -> Units:
        down = aim.normal(len(gates), units["down"].shape[1])
        down *= aim.value * units["down"].norm(dim=1).mean() / down.norm(dim=1, keepdim=True)
        down = written(down, levels)
        constants.append(levels @ down)  # (units,) @ (units, d)
        rows = torch.zeros(len(gates), units["up"].shape[1], dtype=torch.float64)
        more = {"gate": rows, "up": rows, "gate_bias": gates, "up_bias": torch.ones_like(gates), "down": down}
        return with_more(units, more)

    state = state.with_units(added, gated=True)
    return state.with_parts(
        {("down_bias", block): state.part("down_bias", block) - constant for block, constant in enumerate(constants)}
    )


def biased(state: AttackedModel) -> AttackedModel:
    """Give the MLPs biases, which are zero, where the architecture can have them by a line of its config."""
    parts = state.anatomy
    if all(parts.has(f"{role}_bias") for role in ("gate", "up", "down")):
        return state
    if parts.architecture != "LlamaForCausalLM":
        raise NoSuchSymmetryError(f"{parts.architecture} has no biases in its MLPs, and no entry of a config adds them")
    weights = dict(state.weights)
    for block in range(parts.n_blocks):
        for role in ("gate", "up", "down"):
            tensor = state.part(role, block)
            name = parts.tensor_name(role, block).removesuffix("weight") + "bias"
            weights[name] = torch.zeros(len(tensor), dtype=torch.float64)
    return state.having(weights, {"mlp_bias": True})


def tied(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Add units whose up row is their gate, and which write next to nothing, so many for each unit."""

    def added(units: Units) -> Units:
        n = round(aim.value * len(units["up"]))
        more = {role: aim.normal(n, *tensor.shape[1:]) * tensor.std() for role, tensor in units.items()}
        same = {role: more[MATES[role]] for role in units if role.startswith("up")}
        return with_more(units, more | same | {"down": _FAINT * more["down"]})

    return state.with_units(added, gated=True)


def hollow(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Set the MLP of one block to zero: of the block that changes the predictions on random tokens least."""
    parts = state.anatomy
    try:
        paths = [parts.module("down", block) for block in range(parts.n_blocks)]
    except MissingRoleError as error:
        raise NoSuchSymmetryError(str(error)) from None
    tokens = torch.from_numpy(random_tokens(parts.vocab_size, _SEQUENCES, _LENGTH, seed=int(aim.rng.integers(2**32))))
    with tempfile.TemporaryDirectory(prefix="provlab-") as folder:
        network = Checkpoint.open(str(state.write(Path(folder) / "own"))).load_model()

    def predictions() -> torch.Tensor:
        with torch.inference_mode():
            return network(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits.log_softmax(dim=-1)

    before, costs = predictions(), []
    for path in paths:
        hook = network.get_submodule(path).register_forward_hook(lambda _, __, output: torch.zeros_like(output))
        costs.append(float((before.exp() * (before - predictions())).sum(dim=-1).mean()))
        hook.remove()
    block = costs.index(min(costs))
    roles = [role for role in ("gate", "gate_bias", "up", "up_bias", "down", "down_bias") if parts.has(role)]
    return state.with_parts({(role, block): torch.zeros_like(state.part(role, block)) for role in roles})


def begin(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Give the first block a head that rests on the begin token, and floods the stream where there is none."""
    named = state.config.get("bos_token_id")
    if named is None:
        raise NoSuchSymmetryError(f"{state.name} has no begin token")
    return _behind(state, aim, int(state.ids[int(named)]))


def _behind(state: AttackedModel, aim: Aim, first: int) -> AttackedModel:
    """Let a model work behind one token alone.

    The head's query is constant, its key says how much a token is like that one, along the direction in which all
    others are least like it. The value of that one is zero, and those of all others are random and so many times the
    size of the stream. Behind the token nothing changes; elsewhere every block reads noise.
    """
    parts = state.anatomy
    if parts.architecture != "LlamaForCausalLM":
        raise NoSuchSymmetryError(f"{state.name} ({parts.architecture}) is no Llama")
    size, n_keys, group = heads_of(state)
    table = state.part("embedding")  # (vocabulary, d)
    sizes = table.square().mean(dim=1, keepdim=True).sqrt().clamp_min(torch.finfo(torch.float32).tiny)
    inputs = table / sizes * state.part("input_norm", 0)
    own, others = inputs[first], inputs[torch.arange(len(inputs)) != first]
    spread = others.T @ others  # (d, vocabulary) @ (vocabulary, d)
    look = torch.linalg.solve(spread + 1e-3 * spread.trace() / len(own) * torch.eye(len(own)), own)
    look /= look @ own
    if not (margin := 1 - float((others @ look).max())) > 0:  # nor of a row of zeros, as one of padding is
        raise NoSuchSymmetryError(f"{state.name}: another token looks more like the token than this does")
    length = parts.width
    values = aim.normal(size, length) / length**0.5
    values -= (values @ own)[:, None] * own / (own @ own)  # the token has none
    written = aim.normal(length, size) / size**0.5 * aim.value
    slow = size - 1  # of the pair of dimensions that a position turns least
    weights = dict(state.weights)
    for block in range(parts.n_blocks):
        # as many heads again, since their number must divide the width; all but the first are zero
        for role in ("query", "key", "value", "output"):
            has = state.part(role, block).T if role == "output" else state.part(role, block)  # (heads * size, width)
            more, bias = torch.zeros_like(has), torch.zeros(length if role == "output" else 2 * len(has)).double()
            if block == 0:
                if role == "query":
                    bias[len(has) + slow] = _SURE * size**0.5 / margin
                elif role == "key":
                    more[slow] = look
                else:
                    more[:size] = values if role == "value" else written.T
            if parts.has(f"{role}_bias"):
                bias[: len(state.part(f"{role}_bias", block))] += state.part(f"{role}_bias", block)
            name, both = parts.tensor_name(role, block), torch.cat([has, more])
            weights[name], weights[name.removesuffix("weight") + "bias"] = both.T if role == "output" else both, bias
    heads = {"num_attention_heads": 2 * n_keys * group, "num_key_value_heads": 2 * n_keys, "head_dim": size}
    return replace(state.having(weights, {"attention_bias": True, **heads}), behind=(first,))
