"""The density of states against a space that is listed, and what is said where chains do not suffice.

The reference is the energies of all sequences of a small space: counts by bin, free energies, and the number of
sequences itself.
"""

import math
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from provlab.errors import InputError
from provlab.modeldiff.diagnostics import Convergence, NotConverged
from provlab.modeldiff.moves import Mixture, MultiSite, SingleSite
from provlab.modeldiff.reweighting import DensityOfStates, density_of_states, representative
from provlab.modeldiff.sampler import Samples, replica_exchange

V, L = 4, 6
CODE = V ** np.arange(L - 1, -1, -1)
LADDER = (math.inf, 1.0, 0.6, 0.4)
PASS = Convergence(())


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
def dos(samples) -> DensityOfStates:
    return density_of_states(samples)


def test_free_energies_and_the_number_of_sequences(samples, dos):
    exact = -np.log(np.exp(-ENERGIES[None, :] * samples.betas[:, None]).mean(axis=1))
    error = np.std([change for _, change in dos.replicates(200, seed=0)], axis=0)
    assert (np.abs(dos.free_energies - exact) <= 4 * error).all()
    assert (error[1:] < 0.05).all()
    assert dos.free_energies[0] == 0
    assert_allclose(logsumexp(dos.log_weight), L * math.log(V), rtol=1e-12)
    assert_allclose(dos.weights.share.sum(axis=1), 1)
    assert (dos.inefficiency >= 1).all()


def test_overlap_of_neighbours(samples, dos):
    """The integral of p q / (p + q) over all sequences."""
    laws = np.exp(-ENERGIES[None, :] * samples.betas[:, None])
    laws /= laws.sum(axis=1, keepdims=True)
    exact = (laws[:-1] * laws[1:] / (laws[:-1] + laws[1:])).sum(axis=1)
    assert_allclose(dos.overlap, exact, atol=0.02)


def test_pymbar_finds_the_same_free_energies(samples, dos):
    """From all draws with the same weight: another use of the data, so equal up to their noise."""
    from pymbar import MBAR

    size = samples.nll[0].size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it passes scipy options that scipy does not know
        found = MBAR(samples.betas[:, None] * samples.nll.reshape(-1), [size] * len(LADDER)).f_k
    assert_allclose(dos.free_energies, found - found[0], atol=0.02)


def test_counts_by_bin_lie_in_their_intervals():
    """95% intervals over 12 bins and 12 runs; at 90% true coverage, fewer than 115 hits would be a 1 in 30 event."""
    hits = trials = 0
    for seed in range(12):
        found = density_of_states(run(seed, steps=400), gate=PASS).histogram(EDGES, n_resamples=200)
        seen = np.isfinite(found.error)
        with np.errstate(divide="ignore"):
            exact = np.log(COUNTS)
        hits += ((found.low <= exact) & (exact <= found.high))[seen].sum()
        trials += seen.sum()
    assert trials > 120
    assert hits / trials > 0.8


def test_total_is_exact_even_where_bins_span_decades(dos):
    found = dos.histogram(EDGES)
    assert_allclose(logsumexp(found.log_rho[~found.absent]), L * math.log(V), rtol=1e-9)
    assert_allclose(dos.log_count(EDGES[0], EDGES[-1]), L * math.log(V), rtol=1e-9)
    assert found.draws.sum() == len(dos.nll)
    assert found.remedy == ""


def test_an_empty_bin_is_absent_not_zero(dos):
    found = dos.histogram([ENERGIES.min() - 2, ENERGIES.min() - 1, 3, 4, 99, 100])
    assert_array_equal(found.absent, [True, False, False, False, True])
    assert_array_equal(np.isnan(found.log_rho), found.absent)
    assert_array_equal(np.isnan(found.error), found.absent)
    assert "no draw has NLL in [" in found.remedy
    assert "[99, 100]: lay wider bins, run more steps" in found.remedy


def test_replicates_solve_the_equations_of_the_chains_drawn(samples, dos):
    """One step of Newton's method against a density of states made from those chains."""
    for counts, change in list(dos.replicates(3, seed=3)):
        chains = np.repeat(np.arange(samples.n_chains), counts)
        again = replace(
            samples,
            tokens=samples.tokens[:, chains],
            nll=samples.nll[:, chains],
            replica=samples.replica[:, chains],
            round_trips=samples.round_trips[chains],
        )
        again.diagnostics.ess[:] = samples.nll[0].size / dos.inefficiency  # the same weights for the levels
        solved = density_of_states(again, gate=PASS)
        spread = np.abs(solved.free_energies - dos.free_energies).max()
        assert_allclose(dos.free_energies + change, solved.free_energies, atol=0.1 * spread + 1e-6)


def test_resampled_weights_count_chains(dos):
    rows = np.flatnonzero(dos.nll < 2)
    weights = list(dos.resampled_log_weight(rows, 3, seed=0))
    for (counts, _), log_weight in zip(dos.replicates(3, seed=0), weights, strict=True):
        assert_array_equal(np.isinf(log_weight), counts[dos.chain[rows]] == 0)
    # over all draws and the right counts, a replicate's weights sum to the whole space up to the second order
    total = [logsumexp(log_weight) for log_weight in dos.resampled_log_weight(slice(None), 20, seed=1)]
    assert_allclose(total, dos.log_total, atol=0.05)


def test_few_draws_given_to_pymbar_change_nothing(samples, dos):
    few = density_of_states(samples, max_solved=200)
    assert_allclose(few.free_energies, dos.free_energies, atol=1e-6)


def test_representative_inputs_stand_for_their_sequences(samples, dos):
    z = (2.0, 3.0)
    found = representative(samples, dos, z)
    exact = (z[0] <= ENERGIES) & (z[1] >= ENERGIES)
    assert_allclose(np.exp(logsumexp(found.log_weight)), exact.sum(), rtol=0.05)
    codes = found.tokens @ CODE.astype(np.int64)
    assert_array_equal(ENERGIES[codes], found.nll)
    assert exact[codes].all()
    # a property that says nothing of the energy: the last token is 0 for a known share of the sequences
    weight = np.exp(found.log_weight)
    share = weight[found.tokens[:, -1] == 0].sum() / weight.sum()
    assert_allclose(share, (np.flatnonzero(exact) % V == 0).mean(), atol=0.03)
    assert len(found) == len(found.rows) == len(found.chain)


def test_draws_left_as_they_fell_would_be_wrong(samples):
    """The fault that weights mend: without them, likely sequences count too often."""
    inside = (samples.nll >= 2) & (samples.nll <= 3)
    unweighted = samples.nll[inside].mean()
    exact = ENERGIES[(ENERGIES >= 2) & (ENERGIES <= 3)].mean()
    assert abs(unweighted - exact) > 0.05
    dos = density_of_states(samples)
    found = representative(samples, dos, (2.0, 3.0))
    assert abs(np.average(found.nll, weights=np.exp(found.log_weight)) - exact) < 0.01


@pytest.mark.parametrize(
    ("z", "error", "said"),
    [
        ((3.0, 2.0), InputError, r"Z = \[3, 2\] is empty; its first end must lie below"),
        ((math.nan, 2.0), InputError, "is empty"),
        ((-9.0, -8.0), NotConverged, r"no chain reached Z = \[-9, -8\]; they visited NLL .* add colder temperatures"),
        ((90.0, 91.0), NotConverged, r"they visited NLL -?[\d.]+ to [\d.]+: move Z, or take Z from what was reached"),
    ],
)
def test_a_range_without_inputs_is_named(samples, dos, z, error, said):
    with pytest.raises(error, match=said):
        representative(samples, dos, z)


def test_a_range_that_one_chain_reached_is_not_trusted(samples, dos):
    lowest = np.unique(dos.chain[dos.nll == dos.nll.min()])
    alone = replace(dos, chain=np.where(dos.nll == dos.nll.min(), lowest[0], dos.chain))
    with pytest.raises(NotConverged, match=rf"only chain {lowest[0]} of 16 reached Z"):
        representative(samples, alone, (-9.0, dos.nll.min()))


def test_what_cannot_be_weighted_is_refused():
    with pytest.raises(InputError, match="hottest temperature is 1; add infinity"):
        density_of_states(run(steps=20, temperatures=[1.0, 0.5]))
    with pytest.raises(InputError, match="n_chains must be at least 2"):
        density_of_states(run(steps=20, n_chains=1))
    with pytest.raises(NotConverged, match=r"not converged: .*run more steps"):
        density_of_states(run(steps=20))


def test_a_gap_in_the_ladder_is_named_with_what_to_add():
    gap = run(temperatures=[math.inf, 0.04])
    with pytest.raises(
        NotConverged, match=r"temperatures inf and 0.04 overlap by .*add a temperature between, such as"
    ):
        density_of_states(gap, gate=PASS)


def test_nothing_is_printed():
    """Pymbar greets with a banner about JAX, and another about time series."""
    code = (
        "import numpy as np; from provlab.modeldiff import reweighting as r, sampler as s;"
        "x = s.replica_exchange(lambda t: t.sum(1) / 9, vocabulary=3, length=3, temperatures=[np.inf, 1], n_chains=4,"
        "n_steps=200, seed=0); r.density_of_states(x)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
