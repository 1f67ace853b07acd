"""The walk through the tree of prefixes against plain forward passes of transformers."""

import numpy as np
import pytest
import torch

from provlab.chapters.toy_modulo30 import prefix_tree
from provlab.chapters.toy_modulo30.enumeration import Space
from provlab.chapters.toy_modulo30.prefix_tree import Gpt2Tree, subtree_nll
from provlab.errors import InputError, InvalidWeightsError
from provlab.modeldiff import nll

SHAPES = [
    {"activation_function": "gelu_new"},
    {"activation_function": "gelu", "n_head": 4, "n_layer": 3},
    {"activation_function": "relu", "n_embd": 32, "n_head": 2, "vocab_size": 5},
]


@pytest.mark.parametrize("settings", SHAPES)
def test_the_tree_gives_the_losses_of_a_plain_forward_pass(gpt2, settings, monkeypatch):
    model = nll.sequence_nll(gpt2(3, **settings))
    monkeypatch.setattr(prefix_tree, "_NODES", 37)
    space = Space(model.vocabulary, 5)
    np.testing.assert_allclose(subtree_nll(model, 5), model(space.tokens(np.arange(space.size))), atol=1e-5)


@pytest.mark.parametrize("head", [(3,), (0, 2), (1, 1, 3, 0)])
def test_a_subtree_holds_the_sequences_with_its_head(gpt2, head):
    model = nll.sequence_nll(gpt2(5))
    space = Space(4, 5, head)
    sequences = space.tokens(np.arange(space.size))
    assert (sequences[:, : len(head)] == head).all()
    np.testing.assert_allclose(subtree_nll(model, 5, head), model(sequences), atol=1e-5)


def test_random_subtrees_of_a_model_of_the_toys_shape(gpt2):
    network = gpt2(1, vocab_size=10, n_positions=8, n_embd=64, n_layer=6, n_head=4, activation_function="gelu")
    model = nll.sequence_nll(network)
    for head in np.random.default_rng(0).integers(0, 10, (3, 5)):
        space = Space(10, 8, tuple(head))
        plain = model(space.tokens(np.arange(space.size)))
        assert np.abs(subtree_nll(model, 8, tuple(head)) - plain).max() < 1e-5


def test_each_prefix_goes_through_the_network_once(gpt2, monkeypatch):
    counted, plain = [], Gpt2Tree.extend

    def counting(self, state, tokens, *, grow):
        logits, grown = plain(self, state, tokens, grow=grow)
        counted.append(len(logits))
        return logits, grown

    monkeypatch.setattr(Gpt2Tree, "extend", counting)
    subtree_nll(nll.sequence_nll(gpt2()), 5)
    assert sum(counted) == Space(4, 5).prefixes == 4 + 4**2 + 4**3 + 4**4


def test_large_scores_do_not_overflow(gpt2):
    """Attention scores of some hundreds, whose exp is infinite in float32 unless the row's largest is taken off."""
    network = gpt2(2)
    with torch.no_grad():
        network.transformer.h[0].attn.c_attn.weight[:, :32] *= 30
    model, space = nll.sequence_nll(network), Space(4, 5)
    np.testing.assert_allclose(subtree_nll(model, 5), model(space.tokens(np.arange(space.size))), atol=1e-4)


def test_damaged_weights_and_other_architectures_are_refused(gpt2, models):
    from provlab.models.checkpoint import Checkpoint

    network = gpt2()
    with torch.no_grad():
        network.transformer.wpe.weight[1] = float("nan")
    with pytest.raises(InvalidWeightsError, match="NaN or Inf"):
        subtree_nll(nll.sequence_nll(network), 4)
    with pytest.raises(InputError, match="LlamaForCausalLM is no plain GPT-2 in float32 on the CPU"):
        subtree_nll(nll.sequence_nll(Checkpoint.open(models["base"])), 3)
