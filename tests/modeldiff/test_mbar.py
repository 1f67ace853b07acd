"""The MBAR equations on draws that need no sampler: independent ones, of a law that is known.

Energies are exponentially distributed under the uniform law; then they are at every temperature, and free energies and
overlaps have closed forms.
"""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import logsumexp

from provlab.modeldiff.mbar import solve

BETAS = np.array([0.0, 1.0, 4.0])


def drawn(seed=0, betas=BETAS, chains=10, draws=2000):
    """Energies of rate 1 + beta at inverse temperature beta, ``(level, chain, draw)``."""
    shape = (len(betas), chains, draws)
    return np.random.default_rng(seed).exponential(size=shape) / (1 + betas[:, None, None])


@pytest.fixture(scope="module")
def solution():
    return solve(drawn(), BETAS, np.ones(3))


def test_free_energies_are_logarithms_of_rates(solution):
    """The mean of exp(-beta e) over e exponential of rate 1 is 1 / (1 + beta)."""
    assert solution.solved
    assert_allclose(solution.free_energies, np.log1p(BETAS), atol=0.02)


def test_weights_average_over_the_first_level(solution):
    weight = np.exp(solution.log_weight)
    energies = drawn().reshape(-1)
    assert_allclose(logsumexp(solution.log_weight), 0, atol=1e-12)
    assert_allclose(weight @ energies, 1, atol=0.02)
    assert_allclose(weight[energies < 0.1].sum(), 1 - np.exp(-0.1), rtol=0.02)  # by the colder levels: 1 in 10 is hot


def test_a_first_level_that_is_not_flat_is_taken_off():
    """The colder two levels alone: weights are numbers in units of the first level's sum."""
    solution = solve(drawn(betas=BETAS[1:]), BETAS[1:], np.ones(2))
    assert_allclose(solution.free_energies, np.log([1, 5 / 2]), atol=0.02)
    energies, weight = drawn(betas=BETAS[1:]).reshape(-1), np.exp(solution.log_weight)
    assert_allclose(weight @ np.exp(-energies), 1, atol=1e-9)
    assert_allclose(weight[energies < 0.1].sum() / 2, 1 - np.exp(-0.1), rtol=0.03)


def test_standard_errors_are_the_spread_over_repeats():
    runs = [solve(drawn(seed, draws=100), BETAS, np.ones(3)) for seed in range(60)]
    for level in (1, 2):
        spread = np.std([run.free_energies[level] for run in runs])
        assert np.sqrt(np.mean([run.error(level) ** 2 for run in runs])) == pytest.approx(spread, rel=0.3)
    assert runs[0].error(0) == 0


def test_overlaps_are_integrals(solution):
    def both(e, a, b):
        p, q = (1 + a) * np.exp(-(1 + a) * e), (1 + b) * np.exp(-(1 + b) * e)
        return p * q / (p + q)

    exact = [quad(both, 0, 60, args=pair)[0] for pair in ((0.0, 1.0), (1.0, 4.0))]
    assert_allclose(solution.overlap, exact, atol=0.01)


def test_pymbar_finds_the_same_free_energies(solution):
    with warnings.catch_warnings(action="ignore"):  # of its own options, and a banner about JAX
        from pymbar import MBAR

        energies = MBAR(BETAS[:, None] * drawn().reshape(-1), [20_000] * 3).f_k
    assert_allclose(solution.free_energies, energies - energies[0], atol=1e-6)


def test_draws_that_come_twice_count_once():
    """Each draw repeated, with a statistical inefficiency of 2: the solution stays, to the last digits."""
    once = solve(drawn(draws=300), BETAS, np.ones(3))
    twice = solve(np.repeat(drawn(draws=300), 2, axis=2), BETAS, np.full(3, 2.0))
    assert_allclose(twice.free_energies, once.free_energies, atol=1e-8)


def test_levels_too_far_apart_show_no_overlap():
    far = solve(drawn(betas=np.array([0.0, 1e6]), draws=50), np.array([0.0, 1e6]), np.ones(2))
    assert far.overlap[0] < 0.01


def test_levels_without_a_draw_in_common_are_not_solved():
    """Energies of two levels that never meet: the equations hold for any free energy between, and pymbar's is another.

    The same step with draws on the way is solved.
    """
    rng, betas = np.random.default_rng(0), np.array([0.0, 10.0, 20.0])
    apart = np.array([50.0, 25.0, 10.0])[:, None, None] + rng.normal(size=(3, 4, 100))
    solution = solve(apart, betas, np.ones(3))
    with warnings.catch_warnings(action="ignore"):
        from pymbar import MBAR

        theirs = MBAR(betas[:, None] * apart.reshape(-1), [400] * 3).f_k
    assert not solution.solved
    assert np.abs(solution.free_energies - (theirs - theirs[0])).max() > 10
    close = np.array([0.0, 0.1, 0.2])
    assert solve(apart, close * 0.01, np.ones(3)).solved


def test_a_long_ladder_is_solved_from_its_steps():
    """Seven levels over decades: from zeros Newton's steps do not arrive."""
    betas = np.array([0.0, 1.0, 3.0, 9.0, 27.0, 81.0, 243.0])
    energies = 3 + drawn(betas=betas, draws=400)  # a bound below them adds 3 beta
    exact = np.log1p(betas) + 3 * betas
    solution = solve(energies, betas, np.ones(7))
    assert solution.solved
    assert_allclose(solution.free_energies, exact, atol=0.1)
