"""What share of a model's numbers has which role, and what without a role may be hidden units."""

import math

import pytest
import tiny_models
import torch
import transformers

from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.coverage import coverage

D, M, E = tiny_models.WIDTH, tiny_models.MLP_WIDTH, 4
#: of the most used architectures, whose every tensor has a role
TEN = ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "gpt2", "olmo2", "mixtral"]


def covered(path):
    checkpoint = Checkpoint.open(path)
    return checkpoint, coverage(checkpoint, anatomy.of(checkpoint))


@pytest.mark.parametrize("label", TEN)
def test_every_number_of_the_most_used_architectures_has_a_role(label, tiny):
    checkpoint, found = covered(tiny(label))
    sizes = {name: math.prod(checkpoint.shape(name)) for name in checkpoint.tensor_names}
    assert found["numbers"] == sum(found["roles"].values()) == sum(sizes.values())
    assert found["unnamed"] == found["hidden"] == {}
    if "mlp_norm" not in found["roles"] and label != "gpt2":
        assert found["block"] == 3 * D * M  # of experts one: no token need pass more


#: tensors added to each block -> whether they may be hidden units
UNREAD = {
    "experts apart": ({f"moe.experts.{e}.{w}.weight": s for e in range(E) for w, s in
                       (("w1", (M, D)), ("w2", (D, M)), ("w3", (M, D)))}, True),
    "experts stacked, fused": ({"experts.gate_up_proj": (E, 2 * M, D), "experts.down_proj": (E, D, M)}, True),
    "experts stacked, inputs first": ({"experts.gate_up_proj": (E, D, 2 * M), "experts.down_proj": (E, M, D)}, True),
    "a second MLP": ({"mlp_b.up_proj.weight": (M, D), "mlp_b.down_proj.weight": (D, M)}, True),
    "under other names": ({"a.weight": (3 * M, D), "b.weight": (D, 3 * M)}, True),
    "a few units": ({"adapter.up.weight": (4, D), "adapter.down.weight": (D, 4)}, False),
    "another attention": ({"linear_attn.in_proj.weight": (3 * M, D), "linear_attn.out_proj.weight": (D, 3 * M)}, False),
    "one end alone": ({"experts.gate_up_proj": (E, 2 * M, D)}, False),
    "scales": ({"scales.weight": (5 * D * M,)}, False),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREAD)
def test_hidden_units_without_a_role_are_found_by_their_shapes(case, llama):
    """As many as in a whole block; beside the MLP that has roles."""
    added, hides = UNREAD[case]

    def add(tensors):
        for block in range(tiny_models.BLOCKS):
            tensors |= {f"model.layers.{block}.{name}": torch.randn(shape) for name, shape in added.items()}

    tiny_models.rewrite(llama, add)
    _, found = covered(llama)
    assert sum(found["unnamed"].values()) == tiny_models.BLOCKS * sum(map(math.prod, added.values()))
    assert (sum(found["hidden"].values()) >= found["block"] * 2 / 3) == hides  # an MLP without gates has two matrices


@pytest.mark.parametrize("n", [3, 24])
def test_a_part_that_all_tokens_pass_counts_beside_however_many_experts(n, tmp_path):
    """It is a hundredth of the weights beside many, and the whole of what a token needs."""
    name, arguments = tiny_models.TINY["mixtral"]
    kind = getattr(transformers, name)
    kind(kind.config_class(**(arguments | {"num_local_experts": n}))).save_pretrained(tmp_path)
    added = {"shared.up.weight": (M, D), "shared.gate.weight": (M, D), "shared.down.weight": (D, M)}

    def add(tensors):
        for block in range(tiny_models.BLOCKS):
            tensors |= {f"model.layers.{block}.{name}": torch.randn(shape) for name, shape in added.items()}

    tiny_models.rewrite(tmp_path, add)
    _, found = covered(tmp_path)
    assert found["block"] == 3 * D * M
    assert sum(found["hidden"].values()) == tiny_models.BLOCKS * 3 * D * M


def test_what_lies_outside_the_blocks_of_the_model_hides_nothing_of_it(llama):
    """A draft head, and a tower that sees: parts of their own, which the verdict names and does not wait for."""

    def add(tensors):
        blocks = {name: tensor for name, tensor in tensors.items() if ".layers.0." in name}
        for place in ("mtp", "vision.encoder"):
            tensors |= {name.replace("model", place, 1): tensor.clone() for name, tensor in blocks.items()}

    tiny_models.rewrite(llama, add)
    _, found = covered(llama)
    assert found["hidden"] == {}
    assert "mtp.layers.*.mlp.up_proj" in found["unnamed"]


def test_of_a_part_its_own_tensors_count(llama):
    whole, part = covered(llama)[1], covered(f"{llama}::blocks=model.layers")[1]
    outside = sum(size for role, size in whole["roles"].items() if role in ("embedding", "head", "final_norm"))
    assert part["numbers"] == whole["numbers"] - outside
