"""How far two models are apart, beside references: against definitions, and against laws that are known."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import special

from provlab.kept import Kept
from provlab.modeldiff import excess, where
from provlab.modeldiff.nll import sequence_nll
from provlab.modeldiff.representative import Direction, Draws

LENGTH = 4
EVERYTHING = np.array(list(itertools.product(range(4), repeat=LENGTH)))


@pytest.fixture(scope="module")
def models(gpt2):
    """Three tiny models behind a start token, so that laws of whole sequences sum to one."""
    return [SimpleNamespace(nll=sequence_nll(gpt2(k), start=[1]), key={"k": k}, source=f"m{k}") for k in range(3)]


def test_divergences_are_those_of_the_laws(models, tmp_path):
    """Weighted by A's own law, the divergences of next tokens add up to the divergence of whole sequences."""
    a, b, c = models
    both = excess.divergences(a, b, EVERYTHING, Kept(tmp_path))
    log_a, log_b = (-LENGTH * model.nll(EVERYTHING) for model in (a, b))
    whole = np.exp(log_a) @ (log_a - log_b)
    assert LENGTH * np.exp(log_a) @ both[:, 0] == pytest.approx(whole, rel=1e-4)
    np.testing.assert_allclose(excess.divergences(b, a, EVERYTHING, Kept(tmp_path)), both[:, ::-1], atol=1e-6)
    ones, losses = np.zeros(len(EVERYTHING)), [model.nll(EVERYTHING) for model in models]
    draws = Draws(EVERYTHING, losses[0], ones, np.arange(len(ones)) % 20, 20)
    inputs = Direction.from_draws(draws, losses[1], "A", (0.0, 99.0))
    distance = excess.apart(a, b, [c, c], EVERYTHING, "all", inputs, Kept(tmp_path))
    farther = losses[1] > losses[2]
    assert distance.references[0].beyond[0] == pytest.approx(farther.mean())
    assert distance.references[0].log10_beyond == pytest.approx(np.log10(farther.sum()))
    of_c = excess.divergences(a, c, EVERYTHING, Kept(tmp_path)).mean()
    assert distance.both[0] == pytest.approx(both.mean())
    assert distance.excess[0] == pytest.approx(both.mean() - of_c)
    assert distance.rank_p == (1 / 3 if both.mean() > of_c else 1)


def test_what_a_model_writes_costs_the_other_their_divergence(models):
    """Drawn by a third law and weighted, as draws at other tempers are."""
    a, b, _ = models
    log = [-LENGTH * model.nll(EVERYTHING) for model in models]
    rows = np.random.default_rng(0).choice(len(EVERYTHING), 20_000, p=np.exp(log[2]) / np.exp(log[2]).sum())
    tokens = EVERYTHING[rows]
    draws = Draws(tokens, a.nll(tokens), -log[2][rows], np.arange(20_000) % 20, 20)
    price = excess.price(excess.written(draws, b.nll(tokens), "A", LENGTH), LENGTH, seed=0)
    law = np.exp(log[0])
    whole = law @ (log[0] - log[1])
    assert price["extra"][1] < whole / LENGTH < price["extra"][2]
    assert price["less_likely"][1] < law[log[0] > log[1]].sum() < price["less_likely"][2]
    assert price["by_gibbs"] == pytest.approx(special.ndtr(np.sqrt(whole / 2)), abs=0.02)


def test_intervals_allow_for_neighbours_that_resemble_each_other():
    """Pieces of a text drift together: an interval that takes them as independent covers far too seldom."""
    rng, n, held, plain = np.random.default_rng(1), 500, 0, 0
    for _ in range(400):
        values = np.repeat(rng.normal(size=100), 5) + rng.normal(size=n)
        _, low, high = excess.mean_of(values)
        held += low < 0 < high
        plain += abs(values.mean()) < 1.96 * values.std(ddof=1) / n**0.5
    assert 0.92 < held / 400 < 0.98
    assert plain / 400 < 0.85


def test_groups_are_told_by_the_tokens_that_carry_the_difference(gpt2):
    """B has lost token 2 in the one half of the space, 3 in the other: two groups, each with its tokens."""
    a, b = sequence_nll(gpt2(vocab_size=6), start=[0]), sequence_nll(gpt2(vocab_size=6), start=[0])
    with torch.no_grad():
        b.network.lm_head.weight = torch.nn.Parameter(a.network.lm_head.weight.clone())
    answer = b.read

    def without(tokens, **settings):
        logits, past = answer(tokens, **settings)
        return logits - 6.0 * torch.isin(torch.arange(6), torch.tensor([2, 3])), past

    b.read = without
    rng = np.random.default_rng(0)
    plain = rng.choice([0, 1, 4, 5], (900, 5))
    plain[:100, 2:4], plain[100:200, 2:4] = 2, 3
    draws = Draws(plain, a(plain), np.zeros(900), np.arange(900) % 20, 20)
    inputs = Direction.from_draws(draws, b(plain), "A", (0.0, 20.0))
    groups = where.groups(inputs, a, b, n_members=2, seed=0)
    of_2, of_3 = (sum(g.share[0] for g in groups if g.tokens[0] == token) for token in (2, 3))
    assert of_2 == pytest.approx(1 / 9, abs=0.01)
    assert of_3 == pytest.approx(1 / 9, abs=0.01)
    assert all((plain[g.rows] == g.tokens[0]).any(axis=1).all() for g in groups)
