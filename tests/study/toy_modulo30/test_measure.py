"""Steps of the page on the toy, against sums over all inputs of a made-up space and against hand-made draws."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from provlab.modeldiff.comparison import BothDirections, from_enumeration
from provlab.modeldiff.diagnostics import NotConverged, converged
from provlab.modeldiff.moves import Mixture, SingleSite
from provlab.modeldiff.representative import Direction, Draws
from provlab.modeldiff.sampler import Samples, replica_exchange
from provlab.zoo.toy import is_valid
from provlab_study.toy_modulo30 import measure

RNG = np.random.default_rng(7)
A = RNG.gamma(4, 0.5, 20_000).astype(np.float32)
B = (A + RNG.normal(0, 0.1, len(A))).clip(0).astype(np.float32)
VALID = RNG.random(len(A)) < 0.3
Z = (0.8, 1.93)


def test_all_valid_sequences_are_counted():
    assert measure.n_valid() == 3_785_821  # of which the paper draws its training sequences (Appendix C)


def test_the_range_is_of_the_valid_inputs_and_ends_on_the_grid():
    low, high = measure.range_by_rule(A[VALID], [0.01, 0.99])
    assert 0 < low - np.quantile(A[VALID], 0.01, method="inverted_cdf") <= measure.WIDTH
    assert 0 < high - np.quantile(A[VALID], 0.99, method="inverted_cdf") <= measure.WIDTH
    assert (low, high) == (measure.on_grid(low), measure.on_grid(high))
    assert (measure.on_grid(1.7349), measure.on_grid(2.0)) == (1.73, 2.0)


def test_other_ranges_are_rules_each_once_and_moves_of_the_range():
    ranges = measure.other_ranges(A[VALID], (1.0, 2.0))
    assert [tail for tail, _ in ranges] == [*measure.TAILS, *[None] * 4]
    assert [z for tail, z in ranges if tail is None] == [(0.8, 1.8), (0.9, 1.9), (1.1, 2.1), (1.2, 2.2)]
    few = measure.other_ranges(np.full(50, 1.0), (1.0, 2.0))  # where all losses are alike no rule gives a range
    assert len(few) == 4


def test_draws_are_weighted_to_the_law_of_another_temperature():
    """Three valid draws and one that is not, of weight 1 each at T = 1, by hand at T = 1/3."""
    tokens = np.array([[5, 5, 5, 5, 5, 5, 0, 0]] * 3 + [[1] + [0] * 7])
    loss = np.array([1.0, 2.0, 2.0, 1.0])
    draws = Draws(tokens, loss, loss, np.arange(4), 4)
    weight = np.exp(-2 * loss)
    assert measure.valid_at(draws, 1.0) == pytest.approx(3 / 4)
    assert measure.valid_at(draws, 1 / 3) == pytest.approx(1 - weight[3] / weight.sum())


def test_the_output_value_takes_the_place_of_the_difference():
    draws = Draws(np.arange(4)[:, None], np.array([1.0, 1.1, 1.2, 1.3]), np.zeros(4), np.arange(4), 4)
    sides = (Direction.from_draws(draws, draws.nll + 0.1, side, (0.9, 1.25 + 0.1)) for side in "AB")
    by_loss = measure.by_loss(BothDirections(*sides, (0.9, 1.35)))
    assert by_loss.a.difference.tolist() == by_loss.b.difference.tolist() == [1.0, 1.1, 1.2, 1.3]


def test_distances_are_zero_to_the_enumeration_itself_and_grow_with_a_bias():
    exact = from_enumeration(A, B, Z)
    edges = measure.bins_of_difference(exact)
    assert np.abs(edges).min() < 1e-12
    rho = [exact.rho(side, edges)[0] for side in "AB"]
    assert measure.distances(exact, rho, edges) == pytest.approx([0, 0], abs=1e-12)
    biased = from_enumeration(A[A < 1.2], B[A < 1.2], Z)
    assert min(measure.distances(biased, rho, edges)) > 0.005


def samples(nll):
    """Two levels of two chains with these losses at the colder one."""
    nll = np.stack([np.zeros((2, 3)), nll])
    tokens = np.arange(nll.size).reshape(2, 2, 3, 1).astype(np.uint8)
    none = np.zeros((2, 1), dtype=int)
    return Samples(
        tokens, nll, np.array([1.0, 0.5]), 20, ("m",), np.zeros(nll.shape, np.int16), none, none, np.ones(1), none[0]
    )


def test_draws_without_weights_are_the_coldest_in_z():
    draws = measure.unweighted(samples([[1.0, 1.5, 9.0], [1.9, 0.1, 1.2]]), Z)
    assert draws.tokens.ravel().tolist() == [6, 7, 9, 11]
    assert draws.chain.tolist() == [0, 0, 1, 1]
    assert not draws.counted
    for share, kept in ((0.01, [6, 9]), (1 / 3, [6, 9]), (2 / 3, [6, 7, 9]), (1, [6, 7, 9, 11])):
        first = measure.first_draws(samples([[1.0, 1.5, 9.0], [1.9, 0.1, 1.2]]), share)
        assert measure.unweighted(first, Z).tokens.ravel().tolist() == kept


def test_precision_and_recall_by_hand():
    """Weights 1, 3 below zero and 2, 4 above, the second and the last good."""
    side = Direction(
        "B", np.array([-1.0, -0.5, 0.1, 0.2]), np.array([1.0, 3, 2, 4]), np.ones(4, bool), np.zeros(4, int), 1
    )
    good = np.array([False, True, False, True])
    assert measure.precision_recall(side, good, below=True) == (3 / 4, 3 / 7)
    assert measure.precision_recall(side, good, below=False) == (4 / 6, 4 / 7)
    first, second = measure.oracle_rows(side, good, side, good, Z)
    assert (first["term"], second["term"]) == ("PA_BA", "PD_BA")
    assert (first["precision"], first["exact_recall"], first["plain_precision"]) == (3 / 4, 3 / 7, 1 / 2)


@pytest.mark.parametrize(("needed", "steps"), [(50, [100]), (350, [100, 200, 400]), (9_999, [100, 200, 400, 800])])
def test_a_run_goes_on_from_where_it_ended_until_it_has_converged(monkeypatch, needed, steps):
    """Twice as long each time, with other random numbers, and no further than it may."""
    said = []

    def run(*, n_steps, seed, start=None):
        drawn = replace(samples(np.zeros((2, 3))), vocabulary=n_steps)
        said.append((n_steps, seed, start, drawn))
        return drawn

    monkeypatch.setattr(measure, "converged", lambda drawn: SimpleNamespace(ok=drawn.vocabulary >= needed))
    assert measure.until_converged(run, 100, seed=7, doublings=3) is said[-1][3]
    assert [n_steps for n_steps, *_ in said] == steps
    assert len({seed for _, seed, *_ in said}) == len(steps)
    assert said[0][2] is None
    for (*_, before), (_, _, start, _) in pairwise(said):
        assert start.tolist() == before.tokens[:, :, -1].reshape(4, 1).tolist()  # of each level and chain the last one


def test_a_run_begins_where_the_last_one_ended():
    """On a real sampler: the first stretch has not converged, and the next ones begin with its last sequences."""
    moves = Mixture((SingleSite(),))
    go = partial(
        replica_exchange,
        lambda tokens: (tokens != 0).mean(axis=1) * 3.0,
        vocabulary=6,
        length=4,
        temperatures=[np.inf, 0.5, 0.2],
        n_chains=8,
        moves=moves,
    )
    short = go(n_steps=20, seed=3)
    assert not converged(short).ok
    stretches = []

    def watched(**settings):
        drawn = go(**settings)
        stretches.append((settings, drawn))
        return drawn

    long = measure.until_converged(watched, 20, seed=3, doublings=8)
    assert converged(long).ok
    assert long.nll.shape[2] > short.nll.shape[2]
    for (_, before), (settings, _) in pairwise(stretches):
        energies = (settings["start"] != 0).mean(axis=1) * 3.0  # in the sampler's order: levels, then chains
        assert energies.reshape(3, 8).tolist() == before.nll[:, :, -1].tolist()
    assert measure.until_converged(go, 20, seed=3, doublings=0).nll.tolist() == short.nll.tolist()


def test_no_two_stretches_of_a_study_have_one_seed(monkeypatch):
    """Of runs that a page tells apart by a thousand seeds and more, in two draws that follow each other."""
    monkeypatch.setattr(measure, "converged", lambda drawn: SimpleNamespace(ok=False))
    seeds = []

    def run(*, n_steps, seed, start=None):
        seeds.append(seed)
        return samples(np.zeros((2, 3)))

    firsts = [
        each * (draw * 100_000 + 1) + k for draw in (9_998, 9_999) for each in (1000, 2000, 500_000) for k in range(99)
    ]
    for first in firsts:
        measure.until_converged(run, 1, seed=first, doublings=5)
    assert len(set(seeds)) == len(seeds) == 6 * len(firsts)


def test_runs_that_do_not_converge_are_left_out_and_counted():
    def run(number):
        if number % 3 == 0:
            raise NotConverged("not converged")
        return number

    assert measure.repeated(run, 4) == ([1, 2, 4, 5], 2)
    assert measure.repeated(lambda number: run(3 - number % 4), 4) == ([2, 1, 2, 1], 3)  # of 3, 2, 1, 0, 3, 2, 1
    # a world in which short runs do not converge is no reason to lose the page
    assert measure.repeated(lambda number: run(0), 4) == ([], 8)
    with pytest.raises(NotConverged):  # of the long runs one at least is needed
        measure.repeated(lambda number: run(0), 4, least=1)


def test_coverage_is_said_by_term_and_left_out_where_no_run_converged():
    rows = [{"low": [0.9, 0, 0, 0], "high": [1.1, 1, 1, 0.1]}, {"low": [0.9, 0, 0, 0], "high": [1.1, 1, 0.1, 0.1]}]
    assert measure.covered(rows, np.array([1, 0.5, 0.5, 0.5])) == ["100%", "100%", "50%", "0%"]
    assert measure.covered([], np.ones(4)) == [""] * 4


def test_toys_that_write_valid_sequences_only_are_compared_by_their_draws(monkeypatch):
    """Each of 400 draws stands for 3,785,821 / 400 inputs; A loses 0.01 nats against B on each of them, and B to A."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 10, (20_000, 8))
    tokens = tokens[is_valid(tokens)][:400]
    nll, weight = rng.uniform(1.8, 1.9, 400), np.full(400, np.log(3_785_821 / 400))
    draws = Draws(tokens, nll, weight, np.arange(400) % 20, 20)
    monkeypatch.setattr(measure.pipeline, "judged", lambda model, tokens, kept: within_z(draws, tokens) + 0.01)
    models = [SimpleNamespace(name="small"), SimpleNamespace(name="large")]
    table = measure.surely_valid(models, [draws, draws], None, (0.0, 1.0), seed=0)
    assert list(table["valid"]) == ["100.000%"] * 2
    assert list(table["valid inputs, by its draws"]) == ["3,785,821"] * 2
    assert list(table["D, 1% to 99%"]) == ["-0.0100 to -0.0100", "+0.0100 to +0.0100"]
    assert table["ratio by numbers of inputs"][0].startswith("1.00 : 0.00")


def within_z(draws, tokens):
    """Losses of these rows, which are all of the draws' in their order."""
    assert len(tokens) == len(draws)
    return draws.nll
