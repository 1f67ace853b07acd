"""Moves: what each proposes, and detailed balance, on spaces small enough to list.

The reference is the move's law written down a second way, or the law to be sampled itself: for every pair of sequences
p(x) q(y | x) a(y | x) must equal p(y) q(x | y) a(x | y), with q counted over many proposals and a from the factor that
the move reports.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from provlab.errors import InputError
from provlab.modeldiff.moves import Conditional, Mixture, Proposal, Rewrite, Setting, SingleSite
from provlab.modeldiff.nll import sequence_nll
from provlab_study.toy_modulo30.moves import MultiSite, SumPreserving

V, L = 3, 3
STATES = np.array(list(itertools.product(range(V), repeat=L)))
CODE = V ** np.arange(L - 1, -1, -1)
REPEATS = 4000


def kernel(move, rng=None, repeats=REPEATS, model=None, temper=1.0):
    """Counted q(y | x), ``(state, state)``, and the Hastings factor reported for each pair (NaN if never proposed)."""
    tokens = np.repeat(STATES, repeats, axis=0)
    made = move.propose(tokens, Setting(V, rng or np.random.default_rng(1), model, np.full(len(tokens), temper)))
    x, y = tokens @ CODE, made.tokens @ CODE
    counts = np.zeros((len(STATES), len(STATES)))
    np.add.at(counts, (x, y), 1)
    factor = np.full(counts.shape, np.nan)
    factor[x, y] = made.log_hastings
    return counts / repeats, factor


def asymmetry(q):
    """Largest difference of q(y | x) and q(x | y) in standard errors of the counts."""
    spread = np.sqrt((q + q.T) / REPEATS)
    return (np.abs(q - q.T)[spread > 0] / spread[spread > 0]).max()


MOVES = [SingleSite(), MultiSite(2), MultiSite(3), SumPreserving(2, 3), SumPreserving(3, 2)]
# 702 pairs of sequences, at most: the largest of so many standard normal values stays below this in 999 of 1,000 cases
LIMIT = 4.8


@dataclass(frozen=True)
class DriftsUp(SingleSite):
    """The fault: tokens step up by one more often than down."""

    def propose(self, tokens, setting):
        result, rng = tokens.copy(), setting.rng
        rows, site = np.arange(len(tokens)), rng.integers(tokens.shape[1], size=len(tokens))
        result[rows, site] = (tokens[rows, site] + np.where(rng.random(len(tokens)) < 0.8, 1, 2)) % setting.vocabulary
        return Proposal(result, np.zeros(len(tokens)))


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.name)
def test_moves_that_ask_no_model_are_symmetric(move):
    """Then every law is kept by accepting with the ratio of its probabilities."""
    q, factor = kernel(move)
    assert asymmetry(q) < LIMIT
    assert np.nanmax(np.abs(factor)) == 0
    assert asymmetry(kernel(DriftsUp())[0]) > 3 * LIMIT


# Moves that ask the model: exact transition matrices, place by place ------------------------------------------


class At(np.random.Generator):
    """Chooses one place, and is random in all else."""

    def __init__(self, place):
        super().__init__(np.random.PCG64(place))
        self.place = place

    def random(self, size=None):
        return 1.0 if size is None else super().random(size)

    def integers(self, high, **settings):
        return self.place if high == L else super().integers(high, **settings)


def log_conditionals(network):
    """Log p(token | left context), ``(state, position, token)``, one prefix at a time; uniform for an empty one."""
    table = np.empty((len(STATES), L, V))
    for (i, x), k in itertools.product(enumerate(STATES), range(L)):
        with torch.no_grad():
            logits = network(torch.from_numpy(x[None, :k])).logits[0, -1].double() if k else torch.zeros(V).double()
        table[i, k] = torch.log_softmax(logits, 0).numpy()
    return table


def drawn_by(move, table, temper):
    """q(y | x) at each place, ``(place, state, state)``, by the formula of the move's docstring."""
    tempered = np.exp(temper * table)
    m = tempered / tempered.sum(axis=2, keepdims=True)
    if isinstance(move, Conditional):
        m = (1 - move.uniform) * m + move.uniform / V
    q = np.zeros((L, len(STATES), len(STATES)))
    for place, (i, x), (j, y) in itertools.product(range(L), enumerate(STATES), enumerate(STATES)):
        if (x[:place] != y[:place]).any():
            continue
        if isinstance(move, Rewrite):
            q[place, i, j] = np.prod([m[j, k, y[k]] for k in range(place, L)])
        elif x[place] != y[place] and (x[place + 1 :] == y[place + 1 :]).all():
            q[place, i, j] = m[i, place, y[place]] / (1 - m[i, place, x[place]])
    return q


def unbalanced(p, q, factor):
    """Largest difference of the flows p(x) P(x, y) and p(y) P(y, x), the place uniform."""
    with np.errstate(invalid="ignore"):
        accepted = np.minimum(1, p[None, :] / p[:, None] * np.exp(factor))
    flow = p[:, None] * np.mean(q * np.where(np.isnan(factor), 0, accepted), axis=0)
    return np.abs(flow - flow.T).max()


@pytest.mark.parametrize("temper", [0.0, 0.6, 1.0, 2.5])
@pytest.mark.parametrize("move", [Conditional(0.2), Rewrite()], ids=lambda move: move.name)
def test_informed_moves_are_in_balance_exactly(gpt2, move, temper):
    """The proposal's law is the formula's, and with the factor that the move reports the level's law is kept."""
    network = gpt2(3, vocab_size=V, n_embd=8, n_layer=1)
    model, table = sequence_nll(network), log_conditionals(network)
    q = drawn_by(move, table, temper)
    np.testing.assert_allclose(q.sum(axis=2), 1)
    kernels = [kernel(move, At(place), model=model, temper=temper) for place in range(L)]
    counted, factor = (np.stack(part) for part in zip(*kernels, strict=True))
    assert np.abs(counted - q).max() < 5 * np.sqrt(0.25 / REPEATS)
    assert q[np.isnan(factor)].max(initial=0) < 10 / REPEATS  # every pair that can come has come
    back, some = q.transpose(0, 2, 1), np.isfinite(factor) & ~np.eye(len(STATES), dtype=bool)
    assert_allclose(factor[some], np.log(back[some]) - np.log(q[some]), atol=1e-5)
    beta = temper * (L - 1)
    p = np.exp(-beta * model(STATES))
    p /= p.sum()
    exact = np.log(back, where=back > 0, out=np.full(q.shape, np.nan)) - np.log(q, where=q > 0, out=np.zeros(q.shape))
    factor = np.where(np.isnan(factor), exact, factor)
    assert unbalanced(p, q, factor) < 1e-7
    if isinstance(move, Rewrite) and temper == 1:
        # what is proposed is a draw from the law, whatever stood there
        assert_allclose(p[None, :] / p[:, None] * np.exp(factor[0]), 1, atol=1e-5)


@pytest.mark.parametrize("fault", ["no factor", "no normalisers", "another temper"])
def test_a_fault_in_the_hastings_factor_is_seen(gpt2, fault):
    network = gpt2(3, vocab_size=V, n_embd=8, n_layer=1)
    model, temper = sequence_nll(network), 2.5
    q = drawn_by(Rewrite(), log_conditionals(network), temper)
    factors = [kernel(Rewrite(), At(place), model=model, temper=temper)[1] for place in range(L)]
    factor, energies = np.stack(factors), model(STATES)
    beta = temper * (L - 1)
    if fault == "no factor":
        factor = np.where(np.isnan(factor), factor, 0.0)
    elif fault == "no normalisers":  # p^t of both sides, so that everything is accepted
        factor = np.where(np.isnan(factor), factor, beta * (energies[None, :] - energies[:, None]))
    else:
        q = drawn_by(Rewrite(), log_conditionals(network), 1.0)
    p = np.exp(-beta * energies)
    assert unbalanced(p / p.sum(), q, factor) > 1e-4


@pytest.mark.parametrize(("move", "changed"), [(SingleSite(), 1), (MultiSite(2), 2), (MultiSite(3), 3)])
def test_sites_change_as_many_as_they_say_and_all_alike(move, changed):
    q, _ = kernel(move)
    distance = (STATES[:, None] != STATES[None]).sum(axis=2)
    assert_array_equal(q > 0, distance == changed)
    assert_allclose(q[q > 0], 1 / (distance == changed).sum(axis=1)[0], atol=0.03)


@pytest.mark.parametrize("modulus", [100, 2])  # the sum itself, and its parity
def test_sums_are_kept_and_every_tuple_with_the_sum_is_reached(modulus):
    q, _ = kernel(SumPreserving(3, modulus))
    total = STATES.sum(axis=1) % modulus
    same = total[:, None] == total[None, :]
    alone = same.sum(axis=1) == 1  # 000 and 222 keep their sum only as they are
    assert_array_equal(q > 0, same & (~np.eye(len(STATES), dtype=bool) | alone[:, None]))


def test_a_mixture_draws_all_alike():
    mixture = Mixture((SingleSite(), MultiSite(2), Conditional(0.2)))
    rng = np.random.default_rng(0)
    drawn = [mixture.draw(rng) for _ in range(8000)]
    assert_allclose(np.bincount(drawn) / len(drawn), [1 / 3] * 3, atol=0.02)
    assert mixture.names == ("single site", "2 sites", "conditional")
    assert mixture.informed


def test_proposals_leave_the_present_sequences_alone(gpt2):
    tokens, model = STATES.copy(), sequence_nll(gpt2(3, vocab_size=V, n_embd=8, n_layer=1))
    for move in (*MOVES, Conditional(), Rewrite()):
        move.propose(tokens, Setting(V, np.random.default_rng(0), model, np.ones(len(tokens))))
        assert_array_equal(tokens, STATES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiSite(0), "sites must be at least 1"),
        (lambda: SumPreserving(1, 2), "sites must be at least 2"),
        (lambda: SumPreserving(2, 1), "modulus must be at least 2"),
        (lambda: Conditional(uniform=0.0), "uniform must lie in"),
        (lambda: Mixture((SumPreserving(2, 3), MultiSite(2))), r"cannot reach all sequences; add SingleSite"),
        (lambda: kernel(MultiSite(4)), "at most the length of the sequences, 3"),
        (lambda: kernel(Conditional()), "needs an nll that predicts tokens"),
        (
            lambda: SumPreserving(8, 30).propose(np.zeros((1, 8), int), Setting(10, np.random.default_rng(0))),
            "100,000,000 tuples; SumPreserving lists at most 1,000,000: take fewer sites",
        ),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()
