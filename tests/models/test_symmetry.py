"""Permutations leave the outputs of every architecture as they are, in float64 to 1e-9.

Outputs come from transformers' own model, loaded from the folder that `save` writes, and run in float64 for real:
its norms cast to float32 even in a float64 model, which alone makes differences of 3e-7.
"""

import numpy as np
import pytest
import tiny_models
import torch
from tiny_models import BLOCKS, MLP_WIDTH, TINY, WIDTH

from provlab.errors import InputError
from provlab.models import anatomy, symmetry
from provlab.models.activations import mlp_activations, random_tokens
from provlab.models.anatomy import TensorPart
from provlab.models.checkpoint import Checkpoint
from provlab.models.precision import Float64
from provlab.models.symmetry import EmbeddingPermutations, MlpPermutations, read_all, save

TOKENS = random_tokens(tiny_models.VOCABULARY, 3, 9, seed=1)


def outputs(folder):
    model = Checkpoint.open(folder).load_model(dtype=torch.float64)
    if "Mixtral" in type(model).__name__:
        model.set_experts_implementation("eager")  # the default one has no float64
    ids = torch.from_numpy(TOKENS)
    with torch.no_grad(), Float64():
        result = model(input_ids=ids, attention_mask=torch.ones_like(ids))
    return model, result.logits if "logits" in result else result.last_hidden_state


def families(outcome):
    return {
        "mlp": MlpPermutations(outcome),
        "embedding": EmbeddingPermutations(outcome),
    }


@pytest.mark.parametrize("kind", ["mlp", "embedding"])
@pytest.mark.parametrize("label", sorted(TINY))
def test_outputs_are_preserved(label, kind, tiny, tmp_path):
    checkpoint = Checkpoint.open(tiny(label))
    outcome = anatomy.of(checkpoint)
    weights = read_all(checkpoint, outcome)
    transformation = families(outcome)[kind].sample(np.random.default_rng(5))
    changed = transformation(weights)
    assert any(not torch.equal(changed[name], weights[name]) for name in weights)
    folder = save(changed, checkpoint, tmp_path / "changed")
    model, after = outputs(folder)
    _, before = outputs(checkpoint.folder())
    if not hasattr(model, "lm_head") and after.shape[-1] == WIDTH and kind != "mlp":
        # a base model's output is the residual stream itself: permuted alike
        order = dict(_orders(transformation))["model", None]
        before = before[..., torch.from_numpy(order)]
    assert float((after - before).abs().max()) < 1e-9
    assert float(before.abs().max()) > 0.1


def _orders(transformation):
    for part in getattr(transformation, "transformations", [transformation]):
        yield from part.orders.items()


@pytest.mark.parametrize("label", ["llama", "gpt2", "phi3", "bert_masked"])
@pytest.mark.parametrize("axis", ["mlp", "model"])
def test_one_axis_left_out_is_noticed(label, axis, tiny, tmp_path, monkeypatch):
    """Plants the fault: one tensor keeps its order along one axis. The check above must then fail."""
    checkpoint = Checkpoint.open(tiny(label))
    outcome = anatomy.of(checkpoint)
    family = MlpPermutations(outcome) if axis == "mlp" else EmbeddingPermutations(outcome)
    real = symmetry.Permutation._permuted
    spared = outcome.tensor_name("down", 1)

    def forgetful(self, part: TensorPart, tensor):
        return tensor if part.name == spared else real(self, part, tensor)

    monkeypatch.setattr(symmetry.Permutation, "_permuted", forgetful)
    changed = family.sample(np.random.default_rng(5))(read_all(checkpoint, outcome))
    _, after = outputs(save(changed, checkpoint, tmp_path / "changed"))
    _, before = outputs(checkpoint.folder())
    assert float((after - before).abs().max()) > 1e-3


def test_llama_as_in_table_4(tiny):
    """Each line of the paper's Table 4, written with permutation matrices (rows of P are the new units)."""
    checkpoint = Checkpoint.open(tiny("llama"))
    outcome = anatomy.of(checkpoint)
    weights = read_all(checkpoint, outcome, torch.float64)
    embedding = EmbeddingPermutations(outcome).sample(np.random.default_rng(0))
    mlp = MlpPermutations(outcome).sample(np.random.default_rng(0))
    pi = torch.eye(WIDTH, dtype=torch.float64)[embedding.orders["model", None]].T
    of_emb, of_mlp = embedding(weights), mlp(weights)
    block = "model.layers.1."
    right = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"]
    for name in ["model.embed_tokens", "lm_head", "model.norm", *(block + r for r in right)]:
        assert torch.equal(of_emb[f"{name}.weight"], weights[f"{name}.weight"] @ pi)
    for name in (f"{block}input_layernorm", f"{block}post_attention_layernorm"):
        assert torch.equal(of_emb[f"{name}.weight"], weights[f"{name}.weight"] @ pi)
    for name in (f"{block}self_attn.o_proj", f"{block}mlp.down_proj"):
        assert torch.equal(of_emb[f"{name}.weight"], pi.T @ weights[f"{name}.weight"])
    xi = torch.eye(MLP_WIDTH, dtype=torch.float64)[mlp.orders["mlp", 1]]
    for name in weights:
        expected = weights[name]
        if name.startswith(f"{block}mlp."):
            expected = expected @ xi.T if "down" in name else xi @ expected
        if "layers.0.mlp" not in name:
            assert torch.equal(of_mlp[name], expected)


def test_hidden_units_move_as_the_order_says(tiny, tmp_path):
    checkpoint = Checkpoint.open(tiny("phi3"))
    outcome = anatomy.of(checkpoint)
    permutation = MlpPermutations(outcome).sample(np.random.default_rng(2))
    folder = save(permutation(read_all(checkpoint, outcome)), checkpoint, tmp_path / "changed")
    before = mlp_activations(checkpoint, TOKENS, kinds=("hidden", "gate"))
    after = mlp_activations(Checkpoint.open(folder), TOKENS, kinds=("hidden", "gate"))
    for kind in ("hidden", "gate"):
        for block in range(BLOCKS):
            order = permutation.orders["mlp", block]
            np.testing.assert_allclose(after[kind][block], before[kind][block][order], atol=1e-6)


def test_blocks_are_permuted_each_for_itself(tiny):
    checkpoint = Checkpoint.open(tiny("llama"))
    outcome = anatomy.of(checkpoint)
    permutation = MlpPermutations(outcome).sample(np.random.default_rng(0))
    assert not np.array_equal(permutation.orders["mlp", 0], permutation.orders["mlp", 1])
    item = MlpPermutations(outcome, blocks=[1]).sample(np.random.default_rng(0))
    weights = read_all(checkpoint, outcome)
    changed = item(weights)
    assert {name for name in weights if changed[name] is not weights[name]} == {
        f"model.layers.1.mlp.{m}_proj.weight" for m in ("gate", "up", "down")
    }


def test_experts_are_permuted_each_for_itself(tiny):
    outcome = anatomy.of(Checkpoint.open(tiny("mixtral")))
    orders = MlpPermutations(outcome).sample(np.random.default_rng(0)).orders
    assert set(orders) == {(f"mlp.{expert}", block) for expert in range(3) for block in range(BLOCKS)}


def test_same_seed_same_permutation(tiny):
    outcome = anatomy.of(Checkpoint.open(tiny("mixtral")))
    first, second = (MlpPermutations(outcome).sample(np.random.default_rng(9)).orders for _ in range(2))
    assert all(np.array_equal(first[key], second[key]) for key in first)


def test_save_copies_the_side_files_and_replaces_the_folder_whole(llama, tmp_path):
    (llama / "tokenizer.json").write_text("{}")
    checkpoint = Checkpoint.open(llama)
    weights = read_all(checkpoint, anatomy.of(checkpoint))
    target = tmp_path / "saved"
    for _ in range(2):
        assert save(weights, checkpoint, target) == target
        assert sorted(p.name for p in target.iterdir()) == [
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
        ]
    saved = Checkpoint.open(target)
    assert all(torch.equal(saved.tensor(name), weights[name]) for name in weights)
    with pytest.raises(InputError, match=r"model.norm.weight differs"):
        save({k: v for k, v in weights.items() if k != "model.norm.weight"}, checkpoint, tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["llama", "saved"]


def test_save_shared_memory(llama, tmp_path):
    checkpoint = Checkpoint.open(llama)
    weights = read_all(checkpoint, anatomy.of(checkpoint))
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    saved = Checkpoint.open(save(weights, checkpoint, tmp_path / "saved"))
    assert torch.equal(saved.tensor("lm_head.weight"), saved.tensor("model.embed_tokens.weight"))


def test_tensors_without_a_role_forbid_permuting(llama):
    tiny_models.rewrite(llama, lambda tensors: tensors.update(extra=torch.zeros(3)))
    outcome = anatomy.of(Checkpoint.open(llama))
    for family in (MlpPermutations, EmbeddingPermutations):
        with pytest.raises(InputError, match="its tensor extra has no role"):
            family(outcome)


def test_blocks_out_of_range(tiny):
    with pytest.raises(InputError, match="blocks must lie in 0 to 1, not 2"):
        MlpPermutations(anatomy.of(Checkpoint.open(tiny("llama"))), blocks=[2])
