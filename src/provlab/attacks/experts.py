"""A dense model written as one of experts, all of which see every token."""

import torch

from provlab.attacks.state import Aim, AttackedModel
from provlab.errors import NoSuchSymmetryError

#: architectures that a Mixtral computes, as it has their attention
_DENSE = ("LlamaForCausalLM", "MistralForCausalLM")
_PATH = "model.layers.{block}.block_sparse_moe"
_ROLES = {"gate": "w1", "down": "w2", "up": "w3"}


def experts(state: AttackedModel, aim: Aim) -> AttackedModel:
    """Deal the units of each MLP out to so many experts, which a router of zeros weighs alike.

    The router's softmax over all n experts gives each 1/n, so that what a unit writes is multiplied by n. Where n does
    not divide the units, some that are zero are added.

    Raises
    ------
    NoSuchSymmetryError
        Experts of transformers have not the attention, the biases or the norms of this architecture.
    """
    parts, n = state.anatomy, int(aim.value)
    if parts.architecture not in _DENSE:
        raise NoSuchSymmetryError(f"{parts.architecture} is not of the kind that a Mixtral computes")
    if bias := next((role for role in parts.roles if role.endswith("_bias")), None):
        raise NoSuchSymmetryError(f"{parts.architecture} of this kind has {bias}, which a Mixtral has not")
    weights = {part.name: state.weights[part.name] for part in parts.parts}
    width = -(-parts.mlp_width // n)
    for block in range(parts.n_blocks):
        path = _PATH.format(block=block)
        order = torch.from_numpy(aim.rng.permutation(width * n))
        for role, name in _ROLES.items():
            del weights[parts.tensor_name(role, block)]
            rows = state.part(role, block)
            rows = n * rows.T if role == "down" else rows
            filled = torch.cat([rows, rows.new_zeros(width * n - len(rows), rows.shape[1])])[order]
            for expert, piece in enumerate(filled.split(width)):
                weights[f"{path}.experts.{expert}.{name}.weight"] = piece.T if role == "down" else piece
        weights[f"{path}.gate.weight"] = torch.zeros(n, parts.width, dtype=torch.float64)
    config = {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_local_experts": n,
        "num_experts_per_tok": n,
        "sliding_window": state.config.get("sliding_window"),
        **state.sized("mlp", width),
    }
    return state.having(weights, config)
