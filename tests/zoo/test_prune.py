"""Models cut out of others. Reference: the parent with all that was dropped silenced, computed by transformers."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from provlab.errors import ZooError
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import mlp_activations
from provlab.zoo import prune, reading, recipes

BLOCKS, WIDTH, HIDDEN, HEADS, HEAD = 4, 16, 24, 4, 4
ALL = prune.Kept(
    blocks=list(range(BLOCKS)),
    model=list(range(WIDTH)),
    mlp=[list(range(HIDDEN))] * BLOCKS,
    heads=[list(range(HEADS))] * BLOCKS,
)
TOKENS = torch.arange(40).reshape(2, 20) * 7 % 50


def network(groups=HEADS):
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": BLOCKS, "vocab_size": 50}
    sizes |= {"num_attention_heads": HEADS, "num_key_value_heads": groups, "max_position_embeddings": 32}
    # a norm over fewer dimensions differs by a factor alone
    return LlamaForCausalLM(LlamaConfig(**sizes, rms_norm_eps=1e-12, initializer_range=0.4)).eval()


@pytest.fixture
def folder(tmp_path):
    network().save_pretrained(tmp_path / "parent")
    return tmp_path / "parent"


def cut(folder, kept):
    source = Checkpoint.open(folder)
    return prune.cut(source, anatomy.of(source), kept).eval()


def logits(model):
    with torch.inference_mode():
        return model(input_ids=TOKENS, use_cache=False).logits


def silenced(kept):
    """The parent whose dropped blocks, units and heads write nothing, and whose dropped dimensions stay empty."""
    model = network()
    dropped = sorted(set(range(WIDTH)) - set(kept.model))
    with torch.no_grad():
        model.model.embed_tokens.weight[:, dropped] = 0
        for old, layer in enumerate(model.model.layers):
            out, down = layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight
            if old not in kept.blocks:
                out.zero_()
                down.zero_()
                continue
            new = kept.blocks.index(old)
            for head in set(range(HEADS)) - set(kept.heads[new]):
                out[:, head * HEAD : (head + 1) * HEAD] = 0
            down[:, sorted(set(range(HIDDEN)) - set(kept.mlp[new]))] = 0
            out[dropped] = down[dropped] = 0
        for name, tensor in model.named_parameters():
            if "norm" in name:  # a mean square over all dimensions is smaller than one over those that are not empty
                tensor.mul_((len(kept.model) / WIDTH) ** 0.5)
    return model


UNITS, FEW_HEADS = [[0, 5, 6, 20], [1, 2, 3, 23], [4, 9, 10, 11], [7, 8, 12, 13]], [[0, 3], [1, 2], [2, 3], [0, 1]]
CUTS = {
    "nothing dropped": {},
    "blocks": {"blocks": [0, 3]},
    "units": {"mlp": UNITS},
    "heads": {"heads": FEW_HEADS},
    "dimensions": {"model": [0, 1, 3, 4, 8, 9, 10, 15]},
    "all": {"blocks": [1, 2], "model": [2, 3, 5, 7, 11, 13], "mlp": UNITS, "heads": FEW_HEADS},
}


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_is_the_parent_with_the_rest_silenced(folder, name):
    kept = replace(ALL, **CUTS[name])
    per_block = {key: [getattr(kept, key)[new] for new in range(len(kept.blocks))] for key in ("mlp", "heads")}
    kept = replace(kept, **per_block)
    child = cut(folder, kept)
    assert child.config.num_hidden_layers == len(kept.blocks)
    assert child.lm_head.weight.shape == (50, len(kept.model))
    assert torch.allclose(logits(child), logits(silenced(kept)), atol=1e-4)
    if name == "nothing dropped":
        assert torch.equal(logits(child), logits(network()))
    else:
        assert not torch.allclose(logits(child), logits(network()), atol=1e-2)


def test_what_was_kept_is_noted_and_survives_the_file(folder, tmp_path):
    kept = replace(ALL, blocks=[0, 2], mlp=UNITS[:2], heads=FEW_HEADS[:2])
    cut(folder, kept).save_pretrained(tmp_path / "child")
    child = Checkpoint.open(tmp_path / "child")
    assert prune.Kept.of(child) == kept
    assert prune.Kept.of(Checkpoint.open(folder)) is None
    sizes = anatomy.of(child)  # the config agrees with every tensor, or this would refuse
    assert (sizes.n_blocks, sizes.mlp_width, sizes.shape("query", 0)) == (2, 4, (8, WIDTH))


# Which units ----------------------------------------------------------------------------------------------


def weighed(model, folder):
    return prune.importance(model, anatomy.of(Checkpoint.open(folder)), TOKENS)


def test_hidden_units_weigh_what_they_do(folder):
    """Against the activations that phi_H reads, by another path."""
    model = network()
    units = weighed(model, folder)
    hidden = mlp_activations(model, TOKENS.numpy(), kinds=("hidden",))["hidden"]
    for block in range(BLOCKS):
        assert units["mlp", block] == pytest.approx(np.abs(hidden[block]).mean(axis=1), rel=1e-5)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_what_is_made_loud_is_kept(folder):
    model = network()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "norm" in name:
                tensor[[2, 9]] *= 50
        model.model.layers[1].self_attn.v_proj.weight[HEAD : 2 * HEAD] *= 50
    source = Checkpoint.open(folder)
    pruning = recipes.Pruning(by="activations", keep_blocks=[1], hidden_size=2, num_attention_heads=1)
    kept = prune.chosen("x", pruning, source, anatomy.of(source), weighed(model, folder))
    assert (kept.model, kept.heads, kept.mlp) == ([2, 9], [[1]], [list(range(HIDDEN))])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_blocks": [2, 1]}, "keep_blocks must ascend from 0 to 3 at most"),
        ({"keep_blocks": [1, 1]}, "must ascend"),
        ({"keep_blocks": []}, "must ascend"),
        ({"keep_blocks": [0, 4]}, "must ascend"),
        ({"keep_blocks": [-1, 0]}, "must ascend"),
        ({"hidden_size": 17}, "hidden_size must be from 1 to its parent's 16, not 17"),
        ({"intermediate_size": 0}, "intermediate_size must be from 1"),
        ({"num_attention_heads": 5}, "num_attention_heads must be from 1 to its parent's 4"),
        ({"hidden_size": 10, "num_attention_heads": 3}, "hidden_size 10 must be a multiple of the 3 heads"),
    ],
)
def test_more_than_there_is_cannot_be_kept(folder, settings, message):
    source = Checkpoint.open(folder)
    units = weighed(network(), folder)
    with pytest.raises(ZooError, match=message):
        prune.chosen("x", recipes.Pruning(by="seed", **settings), source, anatomy.of(source), units)


def test_heads_that_share_keys_stay(tmp_path):
    shared = network(groups=2)
    shared.save_pretrained(tmp_path)
    source = Checkpoint.open(tmp_path)
    parts = anatomy.of(source)
    units = prune.importance(shared, parts, TOKENS)
    with pytest.raises(ZooError, match="heads can be cut only where each has its own key"):
        prune.chosen("x", recipes.Pruning(by="seed", num_attention_heads=2), source, parts, units)
    kept = prune.chosen("x", recipes.Pruning(by="seed", keep_blocks=[0, 3]), source, parts, units)
    assert prune.cut(source, parts, kept).config.num_key_value_heads == 2


# As a kind of the zoo ---------------------------------------------------------------------------------------


def child_of(tiny, by, seed=2):
    pruning = recipes.Pruning(by=by, keep_blocks=[1], hidden_size=12, intermediate_size=20, num_attention_heads=1)
    made = replace(tiny["child"], name="cut", kind="pruned", parent="root", seed=seed, pruning=pruning)
    return {**tiny, "cut": recipes.parse(recipes.plain(made))}


def test_a_made_child_is_opened_like_any_checkpoint(cache, tiny, make_all):
    (root,) = make_all(tiny, "root")
    report = {}
    for by, seed in (("activations", 2), ("seed", 2), ("seed", 3)):
        recipe = child_of(tiny, by, seed)
        (folder,) = make_all(recipe, "cut")
        kept = prune.Kept.of(Checkpoint.open(folder))
        begun = prune.start(recipe["cut"], root)
        assert kept == prune.Kept(**begun.config.pruned_from)  # the same choice each time
        assert (len(kept.model), len(kept.mlp[0]), len(kept.heads[0])) == (12, 20, 1)
        ended = Checkpoint.open(folder).tensor("lm_head.weight")
        assert not torch.equal(begun.lm_head.weight, ended)  # it was trained on
        assert json.loads((folder / "card.json").read_text())["recipe"]["pruning"]["by"] == by
        report[by, seed] = kept.mlp
        kept_of_parent = f"| pruning | {{'by': '{by}', 'keep_blocks': [1], 'hidden_size': 12,"
        assert kept_of_parent in (folder / "README.md").read_text()
    assert len({str(units) for units in report.values()}) == 3


def test_the_zoo_s_children_fit_their_parent():
    """Blocks and sizes in the recipes against the parent's shape, without training anything."""
    result = recipes.collection("pruning", reading.families())
    cut_out = [recipe for recipe in result.values() if recipe.kind == "pruned"]
    assert cut_out
    for recipe in cut_out:
        shape = result[recipe.parent].shape
        for key in ("hidden_size", "intermediate_size", "num_attention_heads"):
            assert (getattr(recipe.pruning, key) or 1) <= getattr(shape, key)
        assert max(recipe.pruning.keep_blocks or [0]) < shape.num_hidden_layers
