"""Replica exchange: against the exact law of a space that can be listed, with faults planted, and stopped and resumed.

The reference is exp(-NLL / T) over all sequences. The spread that chance allows comes from the chains themselves, which
are independent of each other.
"""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from provlab.errors import CheckpointError, InputError
from provlab.modeldiff import nll, reweighting, sampler
from provlab.modeldiff.diagnostics import NotConverged
from provlab.modeldiff.moves import WRITING, Conditional, Mixture, SingleSite
from provlab.modeldiff.sampler import own_temperature, replica_exchange
from provlab_study.toy_modulo30.moves import MultiSite, SumPreserving

V, L = 3, 3
STATES = np.array(list(itertools.product(range(V), repeat=L)))
CODE = V ** np.arange(L - 1, -1, -1)
LADDER = (math.inf, 1.0, 0.4)
MIXED = Mixture((SingleSite(), MultiSite(2), SumPreserving(2, 2)))


class Autoregressive:
    """A model as a table: random conditionals, and the NLL that they imply."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        rows = {left: rng.normal(scale=1.5, size=V) for k in range(L) for left in itertools.product(range(V), repeat=k)}
        table = np.array([[rows[tuple(x[:k])] for k in range(L)] for x in STATES])
        table[:, 0] = 0.0  # nothing predicts the first token
        self.table = table - np.log(np.exp(table).sum(axis=2, keepdims=True))
        picked = np.take_along_axis(self.table, STATES[..., None], axis=2)[..., 0]
        self.energies = -picked[:, 1:].mean(axis=1)
        self.calls = 0

    def __call__(self, tokens):
        self.calls += 1
        return self.energies[tokens @ CODE]

    def next_log_probs(self, prefix):
        self.calls += 1
        place = prefix.shape[1]
        return self.table[np.pad(prefix, ((0, 0), (0, L - place))) @ CODE, place]

    def rewrite(self, tokens, cut, temper, seed):
        self.calls += 1
        rng, new, factor = np.random.default_rng(seed), tokens.copy(), np.zeros(len(tokens))
        for place in range(cut, L):
            for sign, row in ((1, tokens), (-1, new)):
                tempered = np.exp(temper[:, None] * self.table[row @ CODE, place])
                tempered /= tempered.sum(axis=1, keepdims=True)
                if row is new:
                    drawn = (tempered.cumsum(axis=1) < rng.random(len(new))[:, None]).sum(axis=1)
                    new[:, place] = np.minimum(drawn, V - 1)
                factor += sign * np.log(tempered[np.arange(len(new)), row[:, place]])
        return new, self.energies[new @ CODE], factor


SINGLE = SingleSite()


def run(model, moves=SINGLE, *, steps=1500, **settings):
    settings = {"n_chains": 24, "seed": 0, "temperatures": LADDER} | settings
    return replica_exchange(model, vocabulary=V, length=L, n_steps=steps, moves=moves, **settings)


def misfit(samples, energies):
    """Largest deviation of a state's frequency from the law, in standard errors over chains."""
    worst = 0.0
    for level, temperature in zip(samples.tokens, samples.temperatures, strict=True):
        p = np.exp(-energies / temperature)
        p /= p.sum()
        share = np.stack([np.bincount(chain @ CODE, minlength=len(STATES)) / len(chain) for chain in level])
        error = share.std(axis=0, ddof=1) / np.sqrt(len(share))
        enough = p * level.shape[1] * len(share) > 50
        worst = max(worst, np.abs((share.mean(axis=0) - p)[enough] / error[enough]).max())
    return worst


# 81 frequencies over 24 chains: Student's t of 23 degrees of freedom exceeds this once in 1,000 such tables
LIMIT = 5.4


@pytest.mark.parametrize(
    "moves",
    [SingleSite(), MIXED, Conditional(0.3), Mixture((Conditional(), MultiSite(3))), WRITING],
    ids=["single site", "mixture", "conditional", "conditional and sites", "writing"],
)
def test_every_level_follows_its_law(moves):
    model = Autoregressive()
    assert misfit(run(model, moves), model.energies) < LIMIT


def test_a_ladder_can_hang_from_the_models_own_text():
    """The hottest level is written at each step, and its total is known."""
    model, own = Autoregressive(), own_temperature(L)
    samples = run(model, WRITING, temperatures=(own, own / 2), steps=800)
    assert misfit(samples, model.energies) < LIMIT
    assert samples.attempted[0].sum() == 0
    assert samples.log_total(0) == pytest.approx(np.log(np.exp(-model.energies / own).sum()), abs=1e-9)
    assert samples.log_total(1) is None
    series = samples.nll[0] - samples.nll[0].mean()
    assert abs((series[:, 1:] * series[:, :-1]).mean() / series.var()) < 0.05


def test_counts_from_the_models_own_text_are_those_from_infinity():
    model, own = Autoregressive(), own_temperature(L)
    z = (model.energies.min() - 1e-9, np.quantile(model.energies, 0.3))
    truth = np.log10(((model.energies >= z[0]) & (model.energies <= z[1])).sum())
    for ladder in ((math.inf, own, own / 2), (own, own / 2)):
        drawn = reweighting.reweight(run(model, WRITING, temperatures=ladder, steps=1500))
        # too few distinct inputs for a density of states with intervals: the sum of the weights is the count
        count = np.exp(drawn.log_weight[(drawn.nll >= z[0]) & (drawn.nll <= z[1])]).sum()
        assert np.log10(count) == pytest.approx(truth, abs=0.05)


def test_a_free_energy_that_is_known_and_missed_gives_no_number():
    """A function that says it were a model of probabilities, and is none."""

    class Loud(Autoregressive):
        def __call__(self, tokens):
            return 1.3 * super().__call__(tokens)

    model, own = Loud(), own_temperature(L)
    with pytest.raises(NotConverged, match=r"the model's own, the free energy comes out as .* and is 2\.20"):
        reweighting.reweight(run(model, SINGLE, temperatures=(math.inf, 2 * own, own), steps=4000))


def test_swaps_of_the_wrong_sign_are_seen(monkeypatch):
    plain = sampler._Chains._swap

    def reversed_gap(self, parity):
        self.betas, kept = -self.betas, self.betas
        plain(self, parity)
        self.betas = kept

    monkeypatch.setattr(sampler._Chains, "_swap", reversed_gap)
    model = Autoregressive()
    assert misfit(run(model, MIXED), model.energies) > 2 * LIMIT


def test_energies_follow_the_sequences(monkeypatch):
    """Energies belong to the present sequences, after acceptances, rejections and swaps."""
    plain = sampler._Chains.advance
    model, steps = Autoregressive(), 0

    def checked(self):
        nonlocal steps
        plain(self)
        assert_array_equal(self.energies, model.energies[self.tokens @ CODE])
        assert_array_equal(np.sort(self.at.ravel()), np.arange(self.rows))
        steps += 1

    monkeypatch.setattr(sampler._Chains, "advance", checked)
    run(model, WRITING, steps=50)
    assert steps == 50


def test_a_network_is_sampled_as_its_listed_law(gpt2):
    model = nll.sequence_nll(gpt2(3, vocab_size=V, n_embd=8, n_layer=1))
    samples = run(model, WRITING, steps=400, n_chains=16)
    assert misfit(samples, model(STATES)) < LIMIT
    np.testing.assert_allclose(samples.nll[1, 2], model(samples.tokens[1, 2]), atol=1e-6)


def test_what_comes_back():
    model = Autoregressive()
    samples = run(model, MIXED, steps=103, burn_in=21, n_chains=4, temperatures=[0.4, math.inf, 1.0])
    assert_array_equal(samples.temperatures, LADDER)
    assert samples.tokens.shape == (3, 4, 82, 3)  # steps 22 to 103
    assert samples.tokens.dtype == np.uint8
    assert_array_equal(model(samples.tokens.reshape(-1, L).astype(int)), samples.nll.reshape(-1))
    assert samples.attempted[0].sum() == 0  # infinity is drawn from directly
    assert samples.attempted[1:].sum() == 2 * 4 * 82
    assert ((samples.swap_rate > 0) & (samples.swap_rate < 1)).all()
    # in each chain and draw the three replicas stand at three levels
    assert_array_equal(np.sort(samples.replica, axis=0), np.broadcast_to(np.arange(3)[:, None, None], (3, 4, 82)))


def test_round_trips_are_counted_along_the_replicas():
    samples = run(Autoregressive(), steps=300, burn_in=0, n_chains=3)
    for chain in range(3):
        trips = 0
        heading = [1, 0, 0]  # the replica at the hottest level has begun; no draw is kept of step 0
        for draw in range(300):
            at = samples.replica[:, chain, draw]
            trips += heading[at[0]] == 2
            heading[at[0]] = 1
            if heading[at[-1]] == 1:
                heading[at[-1]] = 2
        assert samples.round_trips[chain] == trips > 5


@pytest.mark.parametrize("moves", [MIXED, WRITING], ids=["mixture", "writing"])
def test_stopped_and_resumed_is_the_same_bit_by_bit(tmp_path, moves):
    whole = run(Autoregressive(), moves, steps=320, n_chains=5)
    model, plain = Autoregressive(), sampler._Chains.advance
    settings = {"steps": 320, "n_chains": 5, "checkpoint": tmp_path / "state.npz"}

    def advance(self):
        if self.step == 140:
            raise KeyboardInterrupt
        plain(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler._Chains, "advance", advance)
        with pytest.raises(KeyboardInterrupt):
            run(model, moves, **settings)
    before = model.calls
    resumed = run(model, moves, **settings)
    assert (model.calls - before) / 2 < 230  # steps 101 to 320 of two calls at most, not all
    assert (run(model, moves, steps=320, n_chains=5, seed=1).nll != whole.nll).any()
    for name in ("tokens", "nll", "replica", "accepted", "attempted", "swap_rate", "round_trips"):
        assert_array_equal(getattr(resumed, name), getattr(whole, name), err_msg=name)
    before = model.calls
    again = run(model, moves, **settings)  # finished: read, not run
    assert model.calls - before <= 2
    assert_array_equal(again.nll, whole.nll)
    longer = run(model, moves, **settings | {"steps": 350})
    assert_array_equal(longer.nll, run(Autoregressive(), moves, steps=350, n_chains=5).nll)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    path = tmp_path / "state.npz"
    run(Autoregressive(), steps=20, checkpoint=path)
    with pytest.raises(InputError, match="other settings"):
        run(Autoregressive(), steps=20, checkpoint=path, seed=1)
    with pytest.raises(InputError, match="another model"):
        run(Autoregressive(seed=1), steps=20, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"damaged .* delete that file"):
        run(Autoregressive(), steps=20, checkpoint=path)


def test_a_start_is_taken_up():
    start = np.tile(STATES[[7]], (6, 1))
    cold = run(Autoregressive(), steps=1, burn_in=0, n_chains=6, temperatures=[1e-9], start=start)
    moved = (cold.tokens[0, :, 0] != STATES[7]).any(axis=1)
    better = cold.nll[0, :, 0] < Autoregressive().energies[7]
    assert_array_equal(moved, better)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperatures": [1, 0]}, "temperatures must be a list of positive"),
        ({"temperatures": [1, math.nan]}, "temperatures must be a list of positive"),
        ({"temperatures": [1, 1]}, "must differ"),
        ({"n_chains": 0}, "n_chains must be at least 1"),
        ({"burn_in": 10}, "burn_in must leave at least one draw"),
        ({"moves": Conditional()}, "needs an nll that predicts tokens"),
        ({"model": lambda tokens: np.full(len(tokens), np.nan)}, "nll must be finite"),
    ],
)
def test_bad_parameters_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        run(**{"model": lambda tokens: np.zeros(len(tokens)), "steps": 10} | settings)


def test_tokens_are_kept_in_the_smallest_type():
    space = {"vocabulary": 512, "length": 4, "temperatures": [math.inf, 1.0], "n_chains": 2, "n_steps": 20}
    samples = replica_exchange(lambda tokens: tokens.mean(axis=1) / 100, moves=SINGLE, seed=0, **space)
    assert samples.tokens.dtype == np.uint16
    assert samples.tokens.max() > 255
