"""The density of states against a space that is listed, and what is said where chains do not suffice.

The reference is the energies of all sequences of a small space: counts by bin, free energies, and the number of
sequences itself.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from provlab.errors import InputError
from provlab.modeldiff import mbar, reweighting
from provlab.modeldiff.diagnostics import NotConverged, converged
from provlab.modeldiff.moves import Mixture, SingleSite
from provlab.modeldiff.representative import Draws
from provlab.modeldiff.reweighting import density_of_states, representative, reweight
from provlab.modeldiff.sampler import Samples, replica_exchange
from provlab_study.toy_modulo30.moves import MultiSite

V, L = 4, 6
CODE = V ** np.arange(L - 1, -1, -1)
LADDER = (math.inf, 1.0, 0.6, 0.4)


def listed(seed=0):
    """Energies of all 4,096 sequences: sums of pair terms, so that neighbours in the space are alike."""
    rng = np.random.default_rng(seed)
    states = np.arange(V**L)[:, None] // CODE % V
    pair = rng.normal(size=(L, L, V, V))
    total = sum(pair[i, j][states[:, i], states[:, j]] for i in range(L) for j in range(i))
    return 3 + total / total.std()


ENERGIES = listed()
EDGES = np.linspace(ENERGIES.min(), ENERGIES.max(), 13)
COUNTS = np.histogram(ENERGIES, EDGES)[0]


def run(seed=0, *, steps=600, n_chains=16, temperatures=LADDER):
    return replica_exchange(
        lambda tokens: ENERGIES[tokens @ CODE],
        vocabulary=V,
        length=L,
        temperatures=temperatures,
        n_chains=n_chains,
        n_steps=steps,
        moves=Mixture((SingleSite(), MultiSite(2))),
        seed=seed,
    )


@pytest.fixture(scope="module")
def samples() -> Samples:
    return run(steps=1500)


@pytest.fixture(scope="module")
def draws(samples) -> Draws:
    return reweight(samples)


@pytest.fixture
def passed(monkeypatch):
    """A gate that lets runs through that are too short for it."""
    known = lambda samples: replace(converged(samples), failures=())  # noqa: E731
    monkeypatch.setattr(reweighting, "converged", known)


def test_weights_follow_resampled_chains_as_if_all_were_solved_again(samples, draws):
    """Chains drawn with replacement: the equations solved on them, and the first order of `Estimated`."""
    inefficiency = np.maximum(1.0, samples.nll[0].size / converged(samples).ess)
    whole, z = mbar.solve(samples.nll, samples.betas, inefficiency), (ENERGIES.min(), np.quantile(ENERGIES, 0.02))
    exact = -np.log(np.exp(-ENERGIES[None, :] * samples.betas[:, None]).mean(axis=1))
    assert_allclose(whole.free_energies, exact, atol=0.1)
    low = draws.within(z)
    lean = low.estimated.lean(np.exp(low.log_weight))
    moved, at_all, plain = [], [], []
    for seed in range(8):
        chosen = np.random.default_rng(seed).integers(16, size=16)
        again = mbar.solve(samples.nll[:, chosen], samples.betas, inefficiency)
        counts = np.bincount(chosen, minlength=16)
        first = counts @ draws.estimated.drift
        assert_allclose(first, again.free_energies - whole.free_energies, atol=0.02)
        inside = (samples.nll[:, chosen].reshape(-1) >= z[0]) & (samples.nll[:, chosen].reshape(-1) <= z[1])
        sums = np.bincount(low.chain, np.exp(low.log_weight), minlength=16)
        at_all.append(logsumexp(again.log_weight[inside]) + L * math.log(V))
        plain.append(np.log(counts @ sums))
        moved.append(plain[-1] + counts @ lean)
    assert_allclose(moved, at_all, atol=0.05)
    assert np.std(np.subtract(plain, at_all)) > 2 * np.std(np.subtract(moved, at_all))


@pytest.mark.usefixtures("passed")
def test_counts_by_bin_lie_in_their_intervals():
    """95% intervals over 12 bins and 12 runs; at 90% true coverage, fewer than 115 hits would be a 1 in 30 event."""
    hits = trials = 0
    for seed in range(12):
        result = density_of_states(reweight(run(seed, steps=400)), EDGES)
        met = np.isfinite(result.log10_count)
        with np.errstate(divide="ignore"):
            exact = np.log10(COUNTS)
        hits += ((result.log10_low <= exact) & (exact <= result.log10_high))[met].sum()
        trials += met.sum()
    assert trials > 100
    assert hits / trials > 0.8


def test_total_is_exact_even_where_bins_span_decades(draws):
    assert_allclose(logsumexp(draws.log_weight), L * math.log(V), rtol=1e-12)
    result = density_of_states(draws, EDGES)
    known = np.isfinite(result.log10_count)
    assert_allclose((10 ** result.log10_count[known]).sum(), COUNTS[known].sum(), rtol=0.02)


def test_a_bin_without_thirty_effective_inputs_has_no_count(draws):
    """The floor is left: the inputs that were drawn, and there are no more of these than the bin has."""
    result = density_of_states(draws, [ENERGIES.min() - 2, ENERGIES.min() - 1, 3, 4, 99, 100])
    for values in (result.log10_count, result.log10_seen):
        assert_array_equal(np.isfinite(values), [False, True, True, True, False])
    few = density_of_states(draws, EDGES)
    assert_array_equal(np.isnan(few.log10_count), few.effective < 30)
    assert (np.isnan(few.log10_count) & (COUNTS > 0)).any()
    assert (10**few.log10_seen <= COUNTS + 1e-9).all()


def test_a_few_heavy_inputs_carry_no_band():
    """Ten inputs are drawn often and 10^6 hardly ever: a band by chains would end far below their number."""
    log_q = np.log(np.r_[np.full(10, 0.09999), np.full(10**6, 1e-10)])
    for seed in range(10):
        code = np.random.default_rng(seed).choice(len(log_q), size=400, p=np.exp(log_q))
        draws = Draws(code[:, None], np.ones(400), -log_q[code] - math.log(400), np.arange(400) % 20, 20)
        result = density_of_states(draws, [0.5, 1.5])
        assert np.isnan([result.log10_count, result.log10_low, result.log10_high]).all()
        assert 10 ** result.log10_seen[0] == pytest.approx(len(np.unique(code)))


def test_representative_inputs_stand_for_their_sequences(samples, draws):
    """Without weights, likely sequences count too often."""
    z = (2.0, 3.0)
    result = representative(draws, z)
    exact = (z[0] <= ENERGIES) & (z[1] >= ENERGIES)
    assert_allclose(np.exp(logsumexp(result.log_weight)), exact.sum(), rtol=0.05)
    codes = result.tokens @ CODE.astype(np.int64)
    assert_array_equal(ENERGIES[codes], result.nll)
    assert exact[codes].all()
    mean = ENERGIES[exact].mean()
    assert abs(np.average(result.nll, weights=np.exp(result.log_weight)) - mean) < 0.01
    assert abs(samples.nll[(samples.nll >= z[0]) & (samples.nll <= z[1])].mean() - mean) > 0.05
    # a property that says nothing of the energy: the last token is 0 for a known share of the sequences
    weight = np.exp(result.log_weight)
    share = weight[result.tokens[:, -1] == 0].sum() / weight.sum()
    assert_allclose(share, (np.flatnonzero(exact) % V == 0).mean(), atol=0.03)


@pytest.mark.parametrize(
    ("z", "error", "message"),
    [
        ((3.0, 2.0), InputError, r"Z = \[3, 2\] is empty; its first end must lie below"),
        ((math.nan, 2.0), InputError, "is empty"),
        ((-9.0, -8.0), NotConverged, r"no chain reached Z = \[-9, -8\]; they visited NLL .* add colder temperatures"),
        ((90.0, 91.0), NotConverged, r"they visited NLL -?[\d.]+ to [\d.]+: move Z, or take Z from what was reached"),
    ],
)
def test_a_range_without_inputs_is_named(draws, z, error, message):
    with pytest.raises(error, match=message):
        representative(draws, z)


def test_a_range_that_one_chain_reached_is_not_trusted(draws):
    lowest = np.unique(draws.chain[draws.nll == draws.nll.min()])
    alone = replace(draws, chain=np.where(draws.nll == draws.nll.min(), lowest[0], draws.chain))
    with pytest.raises(NotConverged, match=rf"only chain {lowest[0]} of 16 reached Z"):
        representative(alone, (-9.0, draws.nll.min()))


def test_what_cannot_be_weighted_is_refused():
    with pytest.raises(InputError, match="hottest temperature is 1; add infinity"):
        reweight(run(steps=20, temperatures=[1.0, 0.5]))
    with pytest.raises(InputError, match="n_chains must be at least 2"):
        reweight(run(steps=20, n_chains=1))
    with pytest.raises(NotConverged, match=r"not converged: .*run more steps"):
        reweight(run(steps=20))


@pytest.mark.usefixtures("passed")
def test_a_gap_in_the_ladder_is_named_with_what_to_add():
    gap = run(temperatures=[math.inf, 0.04])
    with pytest.raises(
        NotConverged, match=r"temperatures inf and 0.04 overlap by .*add a temperature between, such as"
    ):
        reweight(gap)
