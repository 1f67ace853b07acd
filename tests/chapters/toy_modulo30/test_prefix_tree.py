"""The walk through the tree of prefixes against plain forward passes of transformers."""

import numpy as np
import pytest
import torch

from provlab.chapters.toy_modulo30 import prefix_tree
from provlab.chapters.toy_modulo30.enumeration import Space
from provlab.chapters.toy_modulo30.prefix_tree import CachedTree, Gpt2Tree, subtree_nll, tree_of
from provlab.errors import InvalidWeightsError
from provlab.modeldiff import nll

SHAPES = [
    {"activation_function": "gelu_new"},
    {"activation_function": "gelu", "n_head": 4, "n_layer": 3},
    {"activation_function": "relu", "n_embd": 32, "n_head": 2, "vocab_size": 5},
]


@pytest.mark.parametrize("settings", SHAPES)
@pytest.mark.parametrize("start_token", [None, 2])
@pytest.mark.parametrize("kind", [Gpt2Tree, CachedTree])
def test_the_tree_gives_what_a_plain_forward_pass_gives(gpt2, settings, start_token, kind, monkeypatch):
    measured = nll.sequence_nll(gpt2(3, **settings), start_token=start_token)
    monkeypatch.setattr(prefix_tree, "tree_of", kind)
    monkeypatch.setattr(prefix_tree, "_NODES", 37)
    space = Space(measured.vocabulary, 5)
    expected = measured(space.tokens(np.arange(space.size)))
    np.testing.assert_allclose(subtree_nll(measured, 5), expected, atol=1e-5)


@pytest.mark.parametrize("head", [(3,), (0, 2), (1, 1, 3, 0)])
@pytest.mark.parametrize("start_token", [None, 1])
def test_a_subtree_holds_the_sequences_with_its_head(gpt2, head, start_token):
    measured = nll.sequence_nll(gpt2(5), start_token=start_token)
    space = Space(4, 5, head)
    sequences = space.tokens(np.arange(space.size))
    assert (sequences[:, : len(head)] == head).all()
    np.testing.assert_allclose(subtree_nll(measured, 5, head), measured(sequences), atol=1e-5)


def test_random_subtrees_of_a_model_of_the_toys_shape(gpt2):
    model = gpt2(1, vocab_size=10, n_positions=8, n_embd=64, n_layer=6, n_head=4, activation_function="gelu_new")
    measured = nll.sequence_nll(model)
    rng = np.random.default_rng(0)
    for head in rng.integers(0, 10, (3, 5)):
        space = Space(10, 8, tuple(head))
        plain = measured(space.tokens(np.arange(space.size)))
        assert np.abs(subtree_nll(measured, 8, tuple(head)) - plain).max() < 1e-5


def test_each_prefix_goes_through_the_network_once(gpt2, monkeypatch):
    counted, plain = [], Gpt2Tree.extend

    def counting(self, state, tokens, *, grow):
        logits, grown = plain(self, state, tokens, grow=grow)
        counted.append(len(logits))
        return logits, grown

    monkeypatch.setattr(Gpt2Tree, "extend", counting)
    subtree_nll(nll.sequence_nll(gpt2()), 5)
    assert sum(counted) == Space(4, 5).prefixes == 4 + 4**2 + 4**3 + 4**4


def test_other_architectures_go_through_transformers(models):
    from provlab.models.checkpoint import Checkpoint

    measured = nll.sequence_nll(Checkpoint.open(models["base"]))
    assert isinstance(tree_of(measured.network), CachedTree)
    values = subtree_nll(measured, 3, (7,))
    space = Space(measured.vocabulary, 3, (7,))
    some = np.random.default_rng(1).integers(0, space.size, 50)
    np.testing.assert_allclose(values[some], measured(space.tokens(some)), atol=1e-5)


def test_large_scores_do_not_overflow(gpt2):
    """Attention scores of some hundreds, whose exp is infinite in float32 unless the row's largest is taken off."""
    model = gpt2(2)
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight[:, :32] *= 30
    measured = nll.sequence_nll(model)
    space = Space(4, 5)
    expected = measured(space.tokens(np.arange(space.size)))
    np.testing.assert_allclose(subtree_nll(measured, 5), expected, atol=1e-4)


def test_damaged_weights_are_refused(gpt2):
    model = gpt2()
    with torch.no_grad():
        model.transformer.wpe.weight[1] = float("nan")
    with pytest.raises(InvalidWeightsError, match="NaN or Inf"):
        subtree_nll(nll.sequence_nll(model), 4)
