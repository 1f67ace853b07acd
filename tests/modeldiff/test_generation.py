"""Generation with known probabilities: against the enumeration of a space small enough to list."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from provlab.errors import InputError
from provlab.modeldiff import nll
from provlab.modeldiff.generation import chain_seeds, join, side_by_side, write
from provlab.modeldiff.reweighting import density_of_states

VOCABULARY, LENGTH = 5, 5


def generate(reader, n, length, *, tempers=(1.0,), n_chains=20, seed=0):
    """What the pipeline does, without keeping."""
    seeds = chain_seeds(seed, n_chains)
    return join([write(reader, -(-n // n_chains), length, tempers=tempers, seed=chain_seed) for chain_seed in seeds])


@pytest.fixture(scope="module")
def model(gpt2):
    made = gpt2(vocab_size=VOCABULARY, n_positions=8, tie_word_embeddings=False)
    with torch.no_grad():
        made.lm_head.weight *= 2  # far from uniform
    return made


@pytest.fixture(scope="module")
def everything(model):
    """All 3,125 sequences and their losses, by the plain forward pass."""
    tokens = np.array(list(itertools.product(range(VOCABULARY), repeat=LENGTH)))
    return tokens, nll.sequence_nll(model)(tokens)


@pytest.mark.parametrize("tempers", [(1.0,), (0.7, 1.0, 2.0)])
def test_counts_agree_with_the_enumeration(model, everything, tempers):
    """Numbers of inputs in ranges of low loss; the last has none where draws of it are rare."""
    _, losses = everything
    edges = np.quantile(losses, [0.0, 0.05, 0.15, 0.3])
    edges[0] -= 1e-6
    truth, _ = np.histogram(losses, edges)
    counts = []
    for seed in range(4):  # the draws of one seed are worth 30 in the second bin, so that their error is a fifth
        drawn = generate(nll.sequence_nll(model), 20_000, LENGTH, tempers=tempers, seed=seed)
        states = density_of_states(drawn, edges)
        known = np.isfinite(states.log10_count)
        assert (states.log10_low <= states.log10_count)[known].all()
        assert (states.log10_count <= states.log10_high)[known].all()
        counts.append(10**states.log10_count)
    assert np.isfinite(counts)[:, :2].all()
    np.testing.assert_allclose(np.mean(counts, axis=0)[:2], truth[:2], rtol=0.12)


@pytest.mark.parametrize("start", [(), (1, 4)])
def test_losses_are_those_of_the_plain_forward_pass(model, start):
    """The cache of keys and values changes nothing but rounding, and draws count the whole space."""
    reader = nll.sequence_nll(model, start=start)
    drawn = generate(reader, 200, LENGTH, tempers=(0.5, 1.0), seed=2)
    np.testing.assert_allclose(drawn.nll, reader(drawn.tokens), atol=1e-5)
    assert np.log(np.exp(drawn.log_weight).sum()) == pytest.approx(LENGTH * np.log(VOCABULARY), abs=0.7)


def test_at_temper_one_the_probability_is_that_of_the_loss(model):
    """q(x) = exp(-(length - 1) z) / vocabulary, the law of Equation 4 at T = 1 / (length - 1)."""
    drawn = generate(nll.sequence_nll(model), 300, LENGTH, seed=3)
    expected = (LENGTH - 1) * drawn.nll + np.log(VOCABULARY) - np.log(len(drawn))
    np.testing.assert_allclose(drawn.log_weight, expected, atol=1e-4)


def test_colder_draws_reach_lower_losses(model):
    warm, cold = (generate(nll.sequence_nll(model), 2000, LENGTH, tempers=(1.0, t), seed=4) for t in (0.5, 3.0))
    assert cold.nll.mean() < warm.nll.mean() - 0.1
    assert cold.nll.min() < warm.nll.min() + 1e-6


def test_seeds_repeat_and_chains_differ(model):
    reader = nll.sequence_nll(model)
    first, second, other = (generate(reader, 100, LENGTH, n_chains=4, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.tokens, second.tokens)
    assert (first.tokens != other.tokens).any()
    assert (first.tokens[:25] != first.tokens[25:50]).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tempers": ()}, "tempers must be positive"),
        ({"tempers": (2.0,)}, "at most 1"),
        ({"n": 0}, "n must be at least 1"),
        ({"n_chains": 1}, "two or more chains"),
        ({"length": 9}, "from 2 to 8, the context of"),
    ],
)
def test_refusals(model, settings, message):
    with pytest.raises(InputError, match=message):
        generate(nll.sequence_nll(model), **{"n": 10, "length": LENGTH, **settings})


def test_a_prompt_that_fills_the_context_is_said_to(model):
    with pytest.raises(InputError, match="what stands before an input has 8 tokens and fills the context"):
        generate(nll.sequence_nll(model, start=[1] * 8), n=10, length=LENGTH)


def test_a_large_vocabulary_is_written_in_smaller_batches(model, monkeypatch):
    """Which changes the random numbers, not the law; no more logits are held than fit."""
    batches = []
    reader = nll.sequence_nll(model)
    monkeypatch.setitem(nll.LOGITS, "cpu", 7 * VOCABULARY)
    read = reader.read
    monkeypatch.setattr(reader, "read", lambda tokens, **k: batches.append(len(tokens)) or read(tokens, **k))
    few = write(reader, 20, LENGTH, tempers=(1.0,), seed=0)
    assert set(batches) == {7, 6}
    assert len(few["nll"]) == 20
    monkeypatch.setitem(nll.HELD, "cpu", 1)
    assert reader.at_once(LENGTH, VOCABULARY) == 1


@pytest.mark.parametrize(("device", "chains"), [("cpu", 2), ("cuda", 10), ("mps", 2)])
def test_a_gpu_writes_more_chains_side_by_side(device, chains):
    """A step of few sequences takes it as long as one of many: 20 chains of 200 are two groups of steps, not ten."""
    network = SimpleNamespace(device=SimpleNamespace(type=device))
    reader = SimpleNamespace(vocabulary=32_000, network=network, at_once=lambda length, logits: 10**6)
    assert side_by_side(reader, 200, 25, 20, 1) == chains
