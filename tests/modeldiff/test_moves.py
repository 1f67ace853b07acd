"""Moves: what each proposes, and detailed balance, on spaces small enough to list.

The reference is the move's law written down a second way, or the law to be sampled itself: for every pair of sequences
p(x) q(y | x) a(y | x) must equal p(y) q(x | y) a(x | y), with q counted over many proposals and a from the factor that
the move reports.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from provlab.errors import InputError
from provlab.modeldiff.moves import Conditional, Mixture, MultiSite, Proposal, SingleSite, SumPreserving

V, L = 3, 3
STATES = np.array(list(itertools.product(range(V), repeat=L)))
CODE = V ** np.arange(L - 1, -1, -1)
REPEATS = 4000


def law(seed=0, temperature=0.7):
    energies = np.random.default_rng(seed).gumbel(size=len(STATES))
    p = np.exp(-energies / temperature)
    return p / p.sum()


def conditionals(seed=0):
    """Log p(token | left context) at each position of each state: a table of an autoregressive model."""
    rng = np.random.default_rng(seed)
    logits = {left: rng.normal(scale=1.5, size=V) for k in range(L) for left in itertools.product(range(V), repeat=k)}
    table = np.array([[logits[tuple(x[:k])] for k in range(L)] for x in STATES])
    return table - np.log(np.exp(table).sum(axis=2, keepdims=True))


def propose(move, tokens, rng, table=None):
    context = None if table is None else (lambda rows, sites: table[tokens[rows] @ CODE, sites])
    made = move.propose(tokens, vocabulary=V, rng=rng, left_context=context)
    return made[0] if isinstance(made, tuple) else made


def kernel(move, table=None, repeats=REPEATS):
    """Counted q(y | x), ``(state, state)``, and the Hastings factor reported for each pair (NaN if never proposed)."""
    tokens = np.repeat(STATES, repeats, axis=0)
    made = propose(move, tokens, np.random.default_rng(1), table)
    x, y = tokens @ CODE, made.tokens @ CODE
    counts = np.zeros((len(STATES), len(STATES)))
    np.add.at(counts, (x, y), 1)
    factor = np.full(counts.shape, np.nan)
    factor[x, y] = made.log_hastings
    return counts / repeats, factor


def imbalance(p, q, factor):
    """Largest violation of detailed balance in standard errors of the counts."""
    ratio = p[None, :] / p[:, None] * np.exp(np.nan_to_num(factor))
    flow = p[:, None] * q * np.minimum(1, ratio)
    noise = p[:, None] * np.sqrt(q / REPEATS) * np.minimum(1, ratio)
    spread = np.sqrt(noise**2 + noise.T**2)
    off = ~np.eye(len(p), dtype=bool) & (spread > 0)
    return (np.abs(flow - flow.T)[off] / spread[off]).max()


MOVES = [SingleSite(), MultiSite(2), MultiSite(3), SumPreserving(2, 3), SumPreserving(3, 2), Conditional(0.2, 0.7)]
# 702 pairs of sequences, at most: the largest of so many standard normal values stays below this in 999 of 1,000 cases
LIMIT = 4.8


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.name)
def test_detailed_balance(move):
    q, factor = kernel(move, conditionals())
    assert imbalance(law(), q, factor) < LIMIT


@dataclass(frozen=True)
class NoHastings(Conditional):
    """The fault: a proposal that favours likely tokens, accepted as if it did not."""

    def propose(self, tokens, **settings):
        made = super().propose(tokens, **settings)
        return Proposal(made.tokens, np.zeros(len(tokens)))


@dataclass(frozen=True)
class DriftsUp(SingleSite):
    """Another: tokens step up by one more often than down."""

    def propose(self, tokens, *, vocabulary, rng, left_context=None):
        result = tokens.copy()
        rows, site = np.arange(len(tokens)), rng.integers(tokens.shape[1], size=len(tokens))
        result[rows, site] = (tokens[rows, site] + np.where(rng.random(len(tokens)) < 0.8, 1, 2)) % vocabulary
        return Proposal(result, np.zeros(len(tokens)))


@pytest.mark.parametrize("move", [NoHastings(0.2, 0.7), DriftsUp()], ids=["no Hastings factor", "drifts"])
def test_a_planted_imbalance_is_seen(move):
    q, factor = kernel(move, conditionals())
    assert imbalance(law(), q, factor) > 3 * LIMIT


def test_the_conditional_move_draws_what_it_says():
    """q(y | x) = m(y) / (1 - m(x)) / L at one site, m the tempered conditional mixed with the uniform law."""
    table, move = conditionals(), Conditional(uniform=0.2, temper=0.7)
    tempered = np.exp(0.7 * table)
    m = 0.8 * tempered / tempered.sum(axis=2, keepdims=True) + 0.2 / V
    q = np.zeros((len(STATES), len(STATES)))
    for (i, x), (j, y) in itertools.product(enumerate(STATES), repeat=2):
        if (x != y).sum() == 1:
            (site,) = np.flatnonzero(x != y)
            q[i, j] = m[i, site, y[site]] / (1 - m[i, site, x[site]]) / L
    assert_allclose(q.sum(axis=1), 1)
    counted, factor = kernel(move, table, repeats=20_000)
    assert_allclose(counted, q, atol=5 * np.sqrt(0.25 / 20_000))
    some = q > 0
    assert_allclose(factor[some], np.log(q.T[some]) - np.log(q[some]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("move", "changed"), [(SingleSite(), 1), (MultiSite(2), 2), (MultiSite(3), 3)])
def test_sites_change_as_many_as_they_say_and_all_alike(move, changed):
    q, factor = kernel(move)
    distance = (STATES[:, None] != STATES[None]).sum(axis=2)
    assert_array_equal(q > 0, distance == changed)
    assert_allclose(q[q > 0], 1 / (distance == changed).sum(axis=1)[0], atol=0.03)
    assert np.nanmax(np.abs(factor)) == 0


@pytest.mark.parametrize("modulus", [100, 2])  # the sum itself, and its parity
def test_sums_are_kept_and_every_tuple_with_the_sum_is_reached(modulus):
    q, _ = kernel(SumPreserving(3, modulus))
    total = STATES.sum(axis=1) % modulus
    same = total[:, None] == total[None, :]
    alone = same.sum(axis=1) == 1  # 000 and 222 keep their sum only as they are
    assert_array_equal(q > 0, same & (~np.eye(len(STATES), dtype=bool) | alone[:, None]))


def test_digits_keep_their_sum_modulo_thirty():
    tokens = np.random.default_rng(2).integers(10, size=(500, 8)).astype(np.uint8)
    made = SumPreserving(5, 30).propose(tokens, vocabulary=10, rng=np.random.default_rng(3))
    assert_array_equal(made.tokens.sum(axis=1) % 30, tokens.sum(axis=1) % 30)
    assert (made.tokens.sum(axis=1) != tokens.sum(axis=1)).any()  # not the sum itself
    assert ((made.tokens != tokens).sum(axis=1) <= 5).all()
    assert made.tokens.dtype == np.uint8


def test_a_mixture_draws_by_weight_and_keeps_detailed_balance():
    mixture = Mixture((SingleSite(), MultiSite(2), Conditional(0.2, 0.7)), (1, 2, 5))
    tokens = np.repeat(STATES, 300, axis=0)
    table = conditionals()
    context = lambda rows, sites: table[tokens[rows] @ CODE, sites]  # noqa: E731
    _, which = mixture.propose(tokens, vocabulary=V, rng=np.random.default_rng(0), left_context=context)
    assert_allclose(np.bincount(which) / len(which), [1 / 8, 2 / 8, 5 / 8], atol=0.02)
    assert mixture.names == ("single site", "2 sites", "conditional")
    assert mixture.informed


def test_proposals_leave_the_present_sequences_alone():
    tokens = STATES.copy()
    for move in MOVES:
        propose(move, tokens, np.random.default_rng(0), conditionals())
        assert_array_equal(tokens, STATES)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MultiSite(0), "sites must be at least 1"),
        (lambda: SumPreserving(1, 2), "sites must be at least 2"),
        (lambda: SumPreserving(2, 1), "modulus must be at least 2"),
        (lambda: Conditional(uniform=0.0), "uniform must lie in"),
        (lambda: Conditional(temper=-1.0), "temper must be at least 0"),
        (lambda: Mixture((SumPreserving(2, 3), MultiSite(2))), r"cannot reach all sequences; add SingleSite"),
        (lambda: Mixture((SingleSite(),), (1, 2)), "weights must hold one number for each of 1 moves"),
        (lambda: Mixture((SingleSite(),), (0,)), "weights must be positive"),
        (lambda: propose(MultiSite(4), STATES, np.random.default_rng(0)), "at most the length of the sequences, 3"),
        (lambda: propose(Conditional(), STATES, np.random.default_rng(0)), "needs an nll that has .conditionals"),
        (
            lambda: SumPreserving(8, 30).propose(np.zeros((1, 8), int), vocabulary=10, rng=np.random.default_rng(0)),
            "100,000,000 tuples; SumPreserving lists at most 1,000,000: take fewer sites",
        ),
    ],
)
def test_bad_parameters_are_named(make, said):
    with pytest.raises(InputError, match=said):
        make()
