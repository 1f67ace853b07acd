"""The walk through the tree of prefixes against plain forward passes of transformers."""

import numpy as np
import pytest
import torch

from provlab.errors import InvalidWeightsError
from provlab.modeldiff import nll
from provlab.reading.checkpoint import Checkpoint
from provlab_study.toy_modulo30 import prefix_tree
from provlab_study.toy_modulo30.enumeration import Space
from provlab_study.toy_modulo30.prefix_tree import subtree_nll

TOY = {"vocab_size": 10, "n_positions": 8, "n_embd": 64, "n_layer": 6, "n_head": 4, "activation_function": "gelu"}
CASES = [({}, 5, ()), ({"n_head": 4, "vocab_size": 5}, 5, ()), ({}, 5, (3,)), ({}, 5, (1, 1, 3, 0))]
CASES += [(TOY, 8, tuple(head)) for head in np.random.default_rng(0).integers(0, 10, (2, 5))]


@pytest.mark.parametrize(("settings", "length", "head"), CASES)
def test_the_tree_gives_the_losses_of_a_plain_forward_pass(gpt2, settings, length, head, monkeypatch):
    model = nll.sequence_nll(gpt2(3, **settings))
    monkeypatch.setattr(prefix_tree, "_NODES", 37)
    space = Space(model.vocabulary, length, head)
    sequences = space.tokens(np.arange(space.size))
    assert (sequences[:, : len(head)] == head).all()
    np.testing.assert_allclose(subtree_nll(model, length, head), model(sequences), atol=1e-5)


def test_a_model_of_turning_positions_is_read_as_well(models):
    model = nll.sequence_nll(Checkpoint.open(models["base"]), ids=np.arange(4, 9))
    space = Space(5, 4)
    np.testing.assert_allclose(subtree_nll(model, 4), model(space.tokens(np.arange(space.size))), atol=1e-5)


def test_each_prefix_goes_through_the_network_once(gpt2, monkeypatch):
    model, counted = nll.sequence_nll(gpt2()), []
    read = model.read
    monkeypatch.setattr(model, "read", lambda tokens, **how: counted.append(tokens.numel()) or read(tokens, **how))
    subtree_nll(model, 5)
    assert sum(counted) == Space(4, 5).prefixes == 4 + 4**2 + 4**3 + 4**4


def test_damaged_weights_are_refused(gpt2):
    network = gpt2()
    with torch.no_grad():
        network.transformer.wpe.weight[1] = float("nan")
    with pytest.raises(InvalidWeightsError, match="NaN or Inf"):
        subtree_nll(nll.sequence_nll(network), 4)
