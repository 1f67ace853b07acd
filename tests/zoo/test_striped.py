"""The hybrid: causal, opened by transformers and the library, and grafted as the recipe says. No outside values."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from provlab.errors import ZooError
from provlab.reading.checkpoint import Checkpoint
from provlab.zoo import reading, recipes, striped

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")

EMBEDDING, UP = "model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"
TAKEN = {
    EMBEDDING: EMBEDDING,
    UP: "model.layers.0.mlp.up_proj.weight",
    "model.layers.0.hyena.value_proj.weight": "model.layers.1.self_attn.v_proj.weight",
}
GRAFT = recipes.Graft(attention_blocks=[1], taken=TAKEN)


@pytest.fixture
def parent(cache, tiny, make_all):
    return make_all(tiny, "root")[0]


@pytest.fixture
def hybrid(tiny):
    made = replace(tiny["child"], name="hybrid", kind="hybrid", parent="root", graft=GRAFT)
    return {**tiny, "hybrid": recipes.parse(recipes.plain(made))}


def test_no_position_sees_a_later_one(parent):
    model = striped.graft(parent, [1], {}, seed=1).eval()
    torch.manual_seed(0)
    tokens = torch.randint(0, 512, (2, 24))
    changed = tokens.clone()
    changed[:, 12:] = 7
    with torch.inference_mode():
        before, after = (model(input_ids=ids).logits for ids in (tokens, changed))
    assert (before - after)[:, :12].abs().max() < 1e-5  # the transform rounds
    assert (before - after)[:, 12:].abs().max() > 1e-3


def test_the_long_filter_is_the_sum_it_says():
    """Against a plain convolution, term by term."""
    torch.manual_seed(0)
    long_filter = striped.LongFilter(3, longest=16)
    signal = torch.randn(2, 3, 10)
    taps = torch.zeros(3, 10)
    for t in range(10):
        taps[:, t] = (long_filter.residues * torch.exp(-t / long_filter.log_tau.exp())).sum(dim=1)
    expected = long_filter.skip[:, None] * signal
    for t in range(10):
        for back in range(t + 1):
            expected[..., t] += taps[:, back] * signal[..., t - back]
    assert torch.allclose(long_filter(signal), expected, atol=1e-5)


def test_a_graft_holds_the_parent_s_tensors_and_fresh_ones(parent):
    old = Checkpoint.open(parent)
    first, again, other = (striped.graft(parent, [1], TAKEN, seed).state_dict() for seed in (1, 1, 2))
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])
        if name in TAKEN:
            assert torch.equal(tensor, old.tensor(TAKEN[name]))
        elif tensor.ndim == 2 and "log_tau" not in name:
            assert not torch.equal(tensor, other[name]), name
            assert name not in old.tensor_names or not torch.equal(tensor, old.tensor(name)), name


def test_a_made_hybrid_is_opened_like_any_checkpoint(parent, hybrid, make_all):
    (folder,) = make_all(hybrid, "hybrid")
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.architecture == "StripedForCausalLM"
    assert not list(folder.glob("*.py"))  # no code travels with it
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert isinstance(model, striped.StripedForCausalLM)
    assert model.config.attention_blocks == [1]
    begun, ended = Checkpoint.open(parent).tensor(EMBEDDING), checkpoint.tensor(EMBEDDING)
    assert torch.equal(model.state_dict()[EMBEDDING], ended)
    assert not torch.equal(begun, ended)  # it was trained on
    with pytest.raises(ValueError, match="keeps no past"):
        model(input_ids=torch.zeros(1, 3, dtype=torch.long), use_cache=True)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"model.layers.0.self_attn.q_proj.weight": EMBEDDING}, "the hybrid has no tensor 'model.layers.0.self_attn"),
        ({EMBEDDING: "model.nothing"}, "has no tensor 'model.nothing'"),
        ({EMBEDDING: UP}, "take a tensor of equal shape"),
    ],
)
def test_a_graft_that_does_not_fit_is_refused(parent, chosen, message):
    with pytest.raises(ZooError, match=message):
        striped.graft(parent, [1], chosen, seed=1)


def test_the_zoo_s_hybrids_take_tensors_that_are_there():
    """Names in the recipes against the layout of a Llama of four blocks, without training anything."""
    result = recipes.collection("striped", reading.families())
    assert {recipe.kind for recipe in result.values()} == {"hybrid"}
    for recipe in result.values():
        for name, origin in recipe.graft.taken.items():
            block = int(name.split(".")[2]) if "layers" in name else None
            assert ("self_attn" not in name) or block in recipe.graft.attention_blocks
            assert ("hyena" not in name) or block not in recipe.graft.attention_blocks
            assert "hyena" not in origin
