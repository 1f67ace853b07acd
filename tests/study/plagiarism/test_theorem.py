"""The identity behind one-sided patterns: against the enumeration of every input, of chains and of a GPT-2."""

import itertools

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from provlab.modeldiff.nll import sequence_nll
from provlab_study.plagiarism import theorem


def enumerated(loss_a, loss_b, exponent):
    """By all inputs: Lambda, both divergences and both means, each from its definition."""
    logs = [-exponent * loss for loss in (loss_a, loss_b)]
    normalisers = [logsumexp(log) for log in logs]
    p, q = (np.exp(log - z) for log, z in zip(logs, normalisers, strict=True))
    d, ratio = loss_b - loss_a, np.log(p / q)
    return normalisers[0] - normalisers[1], p @ ratio, -(q @ ratio), p @ d, q @ d


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 4.0])
def test_chains_agree_with_the_enumeration(exponent):
    rng = np.random.default_rng(0)
    a = theorem.chain(5, 0.7, seed=0) + rng.standard_normal((5, 5))
    b = a + 0.3 * rng.standard_normal((5, 5))
    exact = theorem.sides(a, b, length=5, exponent=exponent)
    tokens = np.array(list(itertools.product(range(5), repeat=5)))
    losses = [-log_softmax(table, axis=1)[tokens[:, :-1], tokens[:, 1:]].sum(axis=1) for table in (a, b)]
    values = exact.ratio, exact.forth, exact.back, exact.mean_a, exact.mean_b
    np.testing.assert_allclose(values, enumerated(*losses, exponent), atol=1e-9)
    assert exact.off < 1e-6


@pytest.mark.parametrize("exponent", [0.7, 1.0, 3.0])
def test_the_identity_holds_for_a_network(gpt2, exponent):
    """Two untrained GPT-2 of four tokens, every one of 256 inputs listed."""
    tokens = np.array(list(itertools.product(range(4), repeat=4)))
    losses = [3 * sequence_nll(gpt2(seed))(tokens) for seed in (0, 1)]
    ratio, forth, back, mean_a, mean_b = enumerated(*losses, exponent)
    assert exponent * mean_a == pytest.approx(ratio + forth, abs=1e-6)
    assert exponent * mean_b == pytest.approx(ratio - back, abs=1e-6)
    if exponent == 1.0:
        assert abs(ratio) < 1e-6
        assert mean_a > 0 > mean_b


def test_one_side_is_where_the_theorem_says_and_never_at_an_exponent_of_one():
    worlds = {"near-certain": 0.99, "uncertain": 0.5}
    rows = theorem.table(worlds, [1e-5, 1.0], [1.0, 2.0], copies=8, length=25, seed=0)
    assert max(row.off for row in rows) < 1e-6
    assert all(row.side == row.predicted for row in rows)
    own = [row for row in rows if row.exponent == 1.0]
    assert all(abs(row.ratio) < 1e-9 for row in own)
    assert {row.side for row in own} == {0}
    of = {(world, noise): [r.side for r in rows if (r.world, r.noise, r.exponent) == (world, noise, 2.0)]
          for world in worlds for noise in (1e-5, 1.0)}  # fmt: skip
    assert set(of["near-certain", 1e-5]) == {1, -1}  # a coin that the noise throws
    assert set(of["near-certain", 1.0]) == {1}
    assert set(of["uncertain", 1.0]) == {0}
