"""HuRef's invariants against their definition, formed in full; what changes them and what does not (Appendix D.1)."""

import dataclasses

import numpy as np
import pytest
import torch

from provlab.attacks.disguise import disguise
from provlab.errors import NotComparableError
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.symmetry import read_all, save
from provlab.statistics import USUAL, get
from provlab.statistics.model import Model
from provlab.statistics.options import Options

WAYS = ("huref_a", "huref_b", "huref_c")
HEADS, SIZE = 4, 6  # of the tiny Llama: four query heads share two key heads


def whole(model, way, block):
    """M over the vocabulary, head by head."""
    read = {
        role: model.anatomy.read(model.checkpoint, role, block).astype(np.float64)
        for role in ("query", "key", "value", "output", "gate", "down")
    }
    embedding = model.anatomy.read(model.checkpoint, "embedding").astype(np.float64)
    if way == "huref_c":
        core = read["gate"].T @ read["down"].T
    else:
        core = 0.0
        for head in range(HEADS):
            mine, shared = slice(head * SIZE, (head + 1) * SIZE), slice(head // 2 * SIZE, (head // 2 + 1) * SIZE)
            if way == "huref_a":
                core = core + read["query"][mine].T @ read["key"][shared]
            else:
                core = core + read["value"][shared].T @ read["output"][:, mine].T
    return embedding @ core @ embedding.T


def value(way, a, b):
    statistic = get(way)
    features = [statistic.prepare(model, Options()) for model in (a, b)]
    return [
        statistic.compare_block(*(f.block(i) for f in features), i, Options()).value for i in statistic.blocks(a, b)
    ]


@pytest.fixture(scope="module")
def pair(new_model, tmp_path_factory):
    """Two random Llamas with grouped queries, norms far from constant."""
    models = []
    for seed in (0, 1):
        network = new_model(seed, vocab_size=50, intermediate_size=40, num_hidden_layers=2)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        folder = tmp_path_factory.mktemp("llama")
        network.save_pretrained(folder)
        models.append(Model.open(str(folder)))
    return models


@pytest.mark.parametrize("way", WAYS)
def test_cosine_is_that_of_the_whole_matrices(way, pair):
    for block, cosine in enumerate(value(way, *pair)):
        first, second = (whole(model, way, block).ravel() for model in pair)
        assert cosine == pytest.approx(first @ second / np.linalg.norm(first) / np.linalg.norm(second), abs=1e-12)
    assert np.allclose(value(way, pair[0], pair[0]), 1.0)


@pytest.mark.parametrize("way", WAYS)
def test_permutations_turned_heads_and_scales_leave_it_and_new_norms_break_it(way, pair, tmp_path):
    for kinds, same in ((("T1", "T2", "T4", "T6"), True), (("T5",), False)):
        new = disguise(pair[0].checkpoint, tmp_path / "-".join(kinds), seed=1, kinds=kinds).folder
        values = value(way, pair[0], Model.open(str(new)))
        # a negative constant in T6 turns the sign of the down projection, and so of M_c
        assert np.allclose(np.abs(values), 1.0, atol=1e-5) == same, values


@pytest.mark.parametrize("way", WAYS)
def test_a_rotation_leaves_it_only_where_norms_are_constant(way, pair, tmp_path):
    """Matrices read the stream through a norm: W diag(g) R^T diag(1/g) is W R^T only if all of g is one number."""
    checkpoint = pair[0].checkpoint
    weights = read_all(checkpoint, anatomy.of(checkpoint), torch.float64)
    flat = {name: torch.full_like(tensor, 0.7) if "norm" in name else tensor for name, tensor in weights.items()}
    constant = Checkpoint.open(str(save(flat, checkpoint, tmp_path / "constant")))
    for original, same in ((checkpoint, False), (constant, True)):
        new = disguise(original, tmp_path / f"turned-{same}", seed=2, kinds=["T3"]).folder
        values = value(way, Model.open(original.source), Model.open(str(new)))
        assert np.allclose(values, 1.0, atol=1e-5) == same, values


def test_embeddings_are_multiplied_once_for_all_blocks_and_ways(pair):
    """Of 7B models this product is nearly all of the work, and a copy in double precision is a gigabyte."""
    first, *others = ([get(way).prepare(model, Options()).block(0).table for model in pair] for way in WAYS)
    product = first[0].times(first[1])
    assert all(a is first[0] and a.times(b) is product for a, b in others)
    read = [model.anatomy.read(model.checkpoint, "embedding").astype(np.float64) for model in pair]
    assert np.allclose(product, read[0].T @ read[1], atol=1e-12)


def test_other_vocabularies_are_refused_and_it_runs_only_when_named(pair):
    assert not set(WAYS) & set(USUAL)
    smaller = Model(pair[1].checkpoint, dataclasses.replace(pair[1].anatomy, vocab_size=7))
    with pytest.raises(NotComparableError, match="one vocabulary"):
        get("huref_a").blocks(pair[0], smaller)
