"""The toy of Model-diff: its data by counting, its optimiser by linear algebra, its training on a few steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from provlab.zoo import reading, recipes, toy


def ways(length):
    """Number of sequences of digits with each sum."""
    counts = np.ones(1, dtype=np.int64)
    for _ in range(length):
        counts = np.convolve(counts, np.ones(10, dtype=np.int64))
    return counts


@pytest.fixture(scope="module")
def data():
    return toy.valid_sequences()


def tiny(steps=12):
    recipe = reading.families()["toy-early-third"]
    return replace(recipe, steps=steps, batch=64, shape=replace(recipe.shape, num_hidden_layers=1))


def test_the_rule_by_counting_all_sequences_of_a_shorter_length():
    """All sums of 4 digits: multiples of 30 are 0 and 30, by stars and bars 1 and 84 ways (9 - digit: sum 6)."""
    digits = np.indices((10,) * 4).reshape(4, -1).T
    assert toy.is_valid(digits).sum() == 1 + 84


def test_training_sequences_are_valid_distinct_and_apart_from_those_held_out(data):
    training, held_out = data
    assert training.shape == (500_000, 8)
    assert toy.is_valid(training).all()
    assert toy.is_valid(held_out).all()
    numbers = [rows.astype(np.int64) @ 10 ** np.arange(8) for rows in data]
    assert len(np.unique(numbers[0])) == len(training)
    assert not np.intersect1d(*numbers).size
    # small first digits are more common: most valid sums are 30, below the mean of 36; 6 standard deviations are 1,300
    rest = ways(toy.LENGTH - 1)
    expected = np.array([rest[-digit % toy.MODULUS :: toy.MODULUS].sum() for digit in range(10)]) / 3_785_821
    assert np.abs(np.bincount(training[:, 0], minlength=10) - 500_000 * expected).max() < 1_300


def test_the_law_of_the_next_digit_by_counting_valid_sequences(data):
    """Its first row is that of first digits by stars and bars; its last names the digit that completes, if one does."""
    law = toy.next_digit()
    rest = ways(toy.LENGTH - 1)
    first = [rest[-digit % toy.MODULUS :: toy.MODULUS].sum() / 3_785_821 for digit in range(10)]
    np.testing.assert_allclose(law[0, 0], first)
    last = np.array([np.arange(10) == -total % 30 for total in range(30)])
    np.testing.assert_array_equal(law[7], last)
    digits = data[0].astype(np.int64)
    for place in (3, 6):
        sums = digits[:, :place].sum(axis=1) % toy.MODULUS
        counts = np.zeros((toy.MODULUS, 10))
        np.add.at(counts, (sums, digits[:, place]), 1)
        total = counts.sum(axis=1, keepdims=True)
        deviation = (counts - total * law[place]) / np.sqrt(total * law[place] * (1 - law[place]) + 1e-9)
        assert np.abs(deviation[law[place] > 0]).max() < 5  # of at most 300 cells, in standard deviations
        assert not counts[law[place] == 0].any()


def test_muon_moves_along_the_nearest_orthogonal_matrix():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(5, 16, 40, generator=generator)
    left, _, right = torch.linalg.svd(inputs, full_matrices=False)
    result = toy.orthogonal(inputs)
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.6
    assert values.max() < 1.3
    # the singular vectors stay: only the values go to 1
    np.testing.assert_allclose((left.mT @ result @ right.mT).diagonal(dim1=1, dim2=2), values.numpy(), atol=0.5)
    np.testing.assert_allclose(toy.orthogonal(7 * inputs), result, atol=1e-4)


def test_muon_takes_the_matrices_of_the_blocks_and_moves_each_by_its_own():
    recipe = tiny()
    model = toy.start(recipe, None)
    muon = toy.Muon(model)
    chosen = {name for name, parameter in model.named_parameters() if id(parameter) in muon.taken}
    assert chosen == {
        f"transformer.h.0.{matrix}.weight" for matrix in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    }
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model(input_ids=torch.zeros(2, 7, dtype=torch.long)).logits[..., 3].sum().backward()
    assert not model.transformer.h[0].attn.c_attn.weight[:, :128].any()  # query and key begin at zero
    muon.step(0.1)
    after = model.state_dict()
    for name in chosen:
        moved = (after[name] - before[name]).chunk(3 if "c_attn" in name else 1, dim=1)
        for part in moved:
            largest = torch.linalg.svdvals(part)[0].item()
            assert largest == pytest.approx(0.1, rel=0.35) or largest < 1e-6  # a gradient may vanish


def test_a_few_steps_learn_and_repeat():
    recipe = tiny()
    steps = []

    def trained(recipe):
        return toy.train(toy.start(recipe, None), recipe, steps.append)

    (first, curve), (second, again) = trained(recipe), trained(recipe)
    assert steps == [*range(1, 13), *range(1, 13)]
    assert curve == again
    assert toy.held_out_loss(first, recipe) < toy.held_out_loss(toy.start(recipe, None), recipe)
    weights, other = first.state_dict(), trained(replace(recipe, seed=4))[0].state_dict()
    for name, tensor in second.state_dict().items():
        assert torch.equal(tensor, weights[name]), name
    by_law = trained(replace(recipe, mixture={toy.LAW: 1.0}))[0].state_dict()
    for different in (other, by_law):
        assert not torch.equal(weights["lm_head.weight"], different["lm_head.weight"])


def test_the_rate_rises_and_falls_to_zero():
    recipe = tiny(steps=200)
    rates = [toy.rate_at(step, recipe) for step in range(200)]
    assert rates[0] == pytest.approx(recipe.learning_rate / 10)
    assert max(rates) == recipe.learning_rate
    assert rates[-1] < 0.001 * recipe.learning_rate
    assert toy.rate_at(105, replace(recipe, schedule="linear")) == pytest.approx(recipe.learning_rate / 2, rel=0.01)


def test_the_shapes_are_those_of_the_paper():
    """Section 4.1 and Appendix C: 4 heads and 6 layers, 8 heads and 8 layers, embeddings of 64."""
    zoo = recipes.collection("toy", reading.families())
    papers = {"small": (4, 6, 64), "large": (8, 8, 64)}
    for size, shape in papers.items():
        for name in (f"toy-{size}", f"toy-early-{size}"):
            s = zoo[name].shape
            assert s is not None
            assert (s.num_attention_heads, s.num_hidden_layers, s.hidden_size) == shape
        sure = zoo[f"toy-{size}-sure"]  # trained on from the toy of that size, so that it has its shape
        assert (sure.shape, sure.parent, sure.kind) == (None, f"toy-{size}", "polished")
