"""Recorded activations against the arithmetic of each architecture's MLP, written out."""

import numpy as np
import pytest
import tiny_models
import torch
from tiny_models import BLOCKS, MLP_WIDTH, TINY, VOCABULARY
from torch.nn import functional as F

from provlab.errors import InputError, InvalidWeightsError, MissingRoleError
from provlab.reading import anatomy, steps
from provlab.reading.checkpoint import Checkpoint
from provlab.running.activations import mlp_activations, random_tokens
from provlab.running.predictions import next_token_log_probs

DENSE = sorted(label for label in TINY if label != "mixtral")
TOKENS = random_tokens(VOCABULARY, 5, 7, seed=0)


def n_hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_random_tokens_are_uniform_and_reproducible():
    tokens = random_tokens(10, 1000, 20, seed=3)
    assert tokens.shape == (1000, 20)
    assert np.array_equal(tokens, random_tokens(10, 1000, 20, seed=3))
    assert not np.array_equal(tokens, random_tokens(10, 1000, 20, seed=4))
    counts = np.bincount(tokens.ravel(), minlength=10)
    # binomial(20000, 0.1): sd 42, so 5 sd
    assert counts.shape == (10,)
    assert np.abs(counts - 2000).max() < 212


@pytest.mark.parametrize("label", DENSE)
def test_activations_fit_the_weights(label, tiny):
    """gate and up are linear in the MLP's input, hidden is act(gate) * up, or act(up) without a gate."""
    checkpoint = Checkpoint.open(tiny(label))
    result = anatomy.of(checkpoint)
    kinds = ("hidden", "gate", "up") if result.has("gate") else ("hidden", "up")
    model = tiny_models.build(label)
    inputs = []
    handle = model.get_submodule(result.module("up", 1)).register_forward_pre_hook(
        lambda _, args: inputs.append(args[0].flatten(0, 1))
    )
    with torch.no_grad():
        model(input_ids=torch.from_numpy(TOKENS), attention_mask=torch.ones(TOKENS.shape))
    handle.remove()
    kept = mlp_activations(checkpoint, TOKENS, kinds=(*kinds, "input"), batch_size=2)
    np.testing.assert_allclose(kept.pop("input")[1], inputs[0].T, atol=2e-6)
    assert set(kept) == set(kinds)
    for arrays in kept.values():
        assert [a.shape for a in arrays] == [(MLP_WIDTH, TOKENS.size)] * BLOCKS
        assert all(a.dtype == np.float32 for a in arrays)
    expected = {}
    for kind in kinds[1:]:
        bias = result.read(checkpoint, f"{kind}_bias", 1) if result.has(f"{kind}_bias") else 0.0
        expected[kind] = torch.from_numpy(inputs[0].numpy() @ result.read(checkpoint, kind, 1).T + bias)
        np.testing.assert_allclose(kept[kind][1], expected[kind].T, atol=2e-6)
    name = checkpoint.config.get("hidden_activation") or checkpoint.config.get("hidden_act") or "gelu_new"
    act = {
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
        "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    }[name]
    hidden = act(expected["gate"]) * expected["up"] if "gate" in expected else act(expected["up"])
    np.testing.assert_allclose(kept["hidden"][1], hidden.T, atol=2e-6)


def test_batches_do_not_change_the_values(tiny):
    checkpoint = Checkpoint.open(tiny("phi3"))
    everything = mlp_activations(checkpoint, TOKENS, kinds=("gate", "up"), batch_size=100)
    some = mlp_activations(checkpoint, TOKENS, kinds=("up",), batch_size=1)
    np.testing.assert_allclose(some["up"], everything["up"], atol=1e-6)


def test_one_pass_for_all_kinds_and_blocks(tiny, monkeypatch):
    model = Checkpoint.open(tiny("llama")).load_model()
    passes = []
    real = type(model.model).forward
    monkeypatch.setattr(type(model.model), "forward", lambda *a, **k: passes.append(1) or real(*a, **k))
    mlp_activations(model, TOKENS, kinds=("hidden", "gate", "up"), batch_size=5)
    assert len(passes) == 1


@pytest.mark.parametrize("label", ["llama", "gpt_neox", "bert_classifier"])
def test_a_loaded_model_gives_the_same(label, tiny):
    checkpoint = Checkpoint.open(tiny(label))
    model = checkpoint.load_model()
    want, got = (mlp_activations(m, TOKENS)["hidden"] for m in (checkpoint, model))
    assert all(np.array_equal(a, b) for a, b in zip(want, got, strict=True))
    assert n_hooks(model) == 0


def test_hooks_are_removed_on_error(tiny):
    model = Checkpoint.open(tiny("llama")).load_model()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0] = 3e38
    with pytest.raises(InvalidWeightsError, match="activations of block 1 hold NaN or Inf"):
        mlp_activations(model, TOKENS, kinds=("gate", "up", "hidden"))
    assert n_hooks(model) == 0


@pytest.mark.parametrize(
    ("label", "kinds", "message"),
    [("gpt2", ("gate",), r"GPT2LMHeadModel.*'gate'"), ("mixtral", ("hidden",), r"MixtralForCausalLM.*'down'")],
)
def test_what_the_architecture_lacks(label, kinds, message, tiny):
    with pytest.raises(MissingRoleError, match=message):
        mlp_activations(Checkpoint.open(tiny(label)), TOKENS, kinds=kinds)


@pytest.mark.parametrize(
    ("tokens", "named"),
    [
        (np.zeros((2, 3)), "float64"),
        (np.zeros(3, dtype=int), r"\(3,\)"),
        (np.zeros((0, 3), dtype=int), r"\(0, 3\)"),
        (np.full((1, 3), VOCABULARY), "0 to 49"),
        (np.full((1, 3), -1), "0 to 49"),
    ],
)
def test_bad_tokens(tiny, tokens, named):
    with pytest.raises(InputError, match=f"tokens must.*{named}"):
        mlp_activations(Checkpoint.open(tiny("llama")), tokens)


def test_other_bad_input(tiny):
    checkpoint = Checkpoint.open(tiny("llama"))
    with pytest.raises(InputError, match="kinds must be of hidden, gate, up, input, output, stream, not 'down'"):
        mlp_activations(checkpoint, TOKENS, kinds=("down",))
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        mlp_activations(checkpoint, TOKENS, batch_size=0)
    with pytest.raises(InputError, match="device 'nowhere' cannot be used"):
        mlp_activations(checkpoint, TOKENS, device="nowhere")
    with pytest.raises(InputError, match="at most 32 in a sequence"):
        mlp_activations(Checkpoint.open(tiny("gpt2")), np.zeros((1, 33), dtype=int))
    with pytest.raises(InputError, match="length must be at least 1"):
        random_tokens(10, 1, 0, seed=0)


def test_log_probs(tiny, monkeypatch):
    monkeypatch.setattr(steps, "BATCH", 2)
    checkpoint = Checkpoint.open(tiny("gemma2"))
    chunks = list(next_token_log_probs(checkpoint, TOKENS))
    assert [c.shape for c in chunks] == [(14, VOCABULARY), (14, VOCABULARY), (7, VOCABULARY)]
    with torch.no_grad():
        logits = tiny_models.build("gemma2").double()(torch.from_numpy(TOKENS)).logits.flatten(0, 1)
    np.testing.assert_allclose(np.concatenate(chunks), torch.log_softmax(logits, -1), atol=1e-5)
    np.testing.assert_allclose(np.exp(np.concatenate(chunks)).sum(1), 1, rtol=1e-5)


def test_log_probs_need_a_head(tiny):
    with pytest.raises(MissingRoleError, match="BertModel has no head"):
        next(next_token_log_probs(Checkpoint.open(tiny("bert_base")), TOKENS))


def test_log_probs_refuse_nan(tiny):
    model = Checkpoint.open(tiny("llama")).load_model()
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    with pytest.raises(InvalidWeightsError, match="logits hold NaN or Inf"):
        next(next_token_log_probs(model, TOKENS))
