"""Permutations as the paper's Table 4 has them; that outputs stay on every architecture is in `test_attacks`."""

import numpy as np
import pytest
import tiny_models
import torch
from tiny_models import BLOCKS, MLP_WIDTH, VOCABULARY, WIDTH

from provlab.attacks.disguise import disguise
from provlab.errors import InputError, NoSuchSymmetryError
from provlab.reading import anatomy, symmetry
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.symmetry import EmbeddingPermutations, MlpPermutations, read_all, save
from provlab.running.activations import mlp_activations, random_tokens


@pytest.fixture
def opened(tiny):
    """Open a tiny model: checkpoint, anatomy, weights."""

    def opened(label="llama"):
        checkpoint = Checkpoint.open(tiny(label))
        parts = anatomy.of(checkpoint)
        return checkpoint, parts, read_all(checkpoint, parts)

    return opened


def drawn(family, seed=0):
    return family.sample(np.random.default_rng(seed))


@pytest.mark.parametrize("label", ["llama", "gpt2", "phi3", "bert_masked"])
@pytest.mark.parametrize("kind", ["T1", "T2"])
def test_one_axis_left_out_is_noticed(label, kind, opened, tmp_path, monkeypatch):
    """Plants the fault: one tensor keeps its order along one axis."""
    checkpoint, parts, _ = opened(label)
    real, spared = symmetry.Permutation._permuted, parts.tensor_name("down", 1)
    monkeypatch.setattr(
        symmetry.Permutation, "_permuted", lambda self, part, t: t if part.name == spared else real(self, part, t)
    )
    with pytest.raises(NoSuchSymmetryError, match="does not give the outputs of the original"):
        disguise(checkpoint, tmp_path / "changed", seed=5, kinds=[kind])


def test_llama_as_in_table_4(opened):
    """Each line of the paper's Table 4, written with permutation matrices (rows of P are the new units)."""
    _, parts, weights = opened()
    embedding, mlp = drawn(EmbeddingPermutations(parts)), drawn(MlpPermutations(parts))
    pi = torch.eye(WIDTH)[embedding.orders["model", None]].T
    of_emb, of_mlp = embedding(weights), mlp(weights)
    block = "model.layers.1."
    right = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"]
    right += ["input_layernorm", "post_attention_layernorm"]
    for name in ["model.embed_tokens", "lm_head", "model.norm", *(block + r for r in right)]:
        assert torch.equal(of_emb[f"{name}.weight"], weights[f"{name}.weight"] @ pi)
    for name in (f"{block}self_attn.o_proj", f"{block}mlp.down_proj"):
        assert torch.equal(of_emb[f"{name}.weight"], pi.T @ weights[f"{name}.weight"])
    xi = torch.eye(MLP_WIDTH)[mlp.orders["mlp", 1]]
    for name in weights:
        expected = weights[name]
        if name.startswith(f"{block}mlp."):
            expected = expected @ xi.T if "down" in name else xi @ expected
        if "layers.0.mlp" not in name:
            assert torch.equal(of_mlp[name], expected)


def test_hidden_units_move_as_the_order_says(opened, tmp_path):
    checkpoint, parts, weights = opened("phi3")
    permutation = drawn(MlpPermutations(parts), 2)
    folder = save(permutation(weights), checkpoint, tmp_path / "changed")
    tokens = random_tokens(VOCABULARY, 3, 9, seed=1)
    before, after = (
        mlp_activations(m, tokens, kinds=("hidden", "gate")) for m in (checkpoint, Checkpoint.open(folder))
    )
    for kind in ("hidden", "gate"):
        for block in range(BLOCKS):
            order = permutation.orders["mlp", block]
            np.testing.assert_allclose(after[kind][block], before[kind][block][order], atol=1e-6)


def test_blocks_and_experts_are_permuted_each_for_itself_and_alike_under_one_seed(opened):
    _, parts, weights = opened()
    permutation = drawn(MlpPermutations(parts))
    assert not np.array_equal(permutation.orders["mlp", 0], permutation.orders["mlp", 1])
    changed = permutation(weights)
    assert {name for name in weights if changed[name] is not weights[name]} == {
        f"model.layers.{block}.mlp.{m}_proj.weight" for block in range(BLOCKS) for m in ("gate", "up", "down")
    }
    _, parts, _ = opened("mixtral")
    orders, again = (drawn(MlpPermutations(parts)).orders for _ in range(2))
    assert set(orders) == {(f"mlp.{expert}", block) for expert in range(3) for block in range(BLOCKS)}
    assert all(np.array_equal(orders[key], again[key]) for key in orders)


def test_save_copies_the_side_files_and_replaces_the_folder_whole(llama, tmp_path):
    (llama / "tokenizer.json").write_text("{}")
    checkpoint = Checkpoint.open(llama)
    weights = read_all(checkpoint, anatomy.of(checkpoint))
    target = tmp_path / "saved"
    for _ in range(2):
        assert save(weights, checkpoint, target) == target
        names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
        assert {path.name for path in target.iterdir()} == names
    saved = Checkpoint.open(target)
    assert all(torch.equal(saved.tensor(name), weights[name]) for name in weights)
    with pytest.raises(InputError, match=r"model.norm.weight differs"):
        save({k: v for k, v in weights.items() if k != "model.norm.weight"}, checkpoint, tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["llama", "saved"]
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]  # one piece of memory
    saved = Checkpoint.open(save(weights, checkpoint, target))
    assert torch.equal(saved.tensor("lm_head.weight"), saved.tensor("model.embed_tokens.weight"))


def test_what_cannot_be_permuted(llama):
    tiny_models.rewrite(llama, lambda tensors: tensors.update(extra=torch.zeros(3)))
    for family in (MlpPermutations, EmbeddingPermutations):
        with pytest.raises(InputError, match="its tensor extra has no role"):
            family(anatomy.of(Checkpoint.open(llama)))
