"""Intervals by resampled chains: how often they hold the truth, on laws and on a space that are known."""

import importlib.util
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from provlab.modeldiff.bootstrap import chain_counts, percentiles, tail
from provlab.modeldiff.comparison import BothDirections
from provlab.modeldiff.pipeline import one_sample
from provlab.modeldiff.representative import Direction, within

SPEC = importlib.util.spec_from_file_location(
    "coverage_of_intervals", Path(__file__).parents[2] / "benchmarks" / "intervals.py"
)
coverage = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = coverage
SPEC.loader.exec_module(coverage)


@pytest.mark.parametrize("n_chains", [8, 20])
def test_intervals_of_a_mean_cover_as_they_say(n_chains):
    """A mean over few chains: Student's t covers exactly 95%, and so do these; the plain percentiles do not."""
    rng = np.random.default_rng(0)
    hits, plain = 0, 0
    for _ in range(1500):
        chains = rng.normal(size=n_chains)
        drawn = chain_counts(n_chains, 2000, rng) @ chains / n_chains
        low, high = percentiles(drawn, n_chains)
        hits += low <= 0 <= high
        low, high = np.quantile(drawn, [0.025, 0.975])
        plain += low <= 0 <= high
    assert 0.93 <= hits / 1500 <= 0.97
    assert plain / 1500 < 0.93


def test_the_share_left_out_is_the_normal_tail_at_students_reach():
    for n in (2, 8, 48):
        reach = -stats.norm.ppf(tail(n)) * np.sqrt((n - 1) / n)
        assert reach == pytest.approx(stats.t.ppf(0.975, n - 1))
    assert tail(1) == pytest.approx(0.025)


def least(n_repeats):
    """What a true coverage of 93% falls below once in 1,000 times."""
    return stats.binom.ppf(0.001, n_repeats, 0.93) / n_repeats


@pytest.mark.parametrize("joint", [False, True])
def test_intervals_by_generation_cover_the_enumeration(joint):
    """Draws of each model apart, and of both as one sample of their mixture."""
    rates = coverage.coverage(60, coverage.by_generation, joint=joint)
    assert min(share for share, _, _ in rates.values()) >= least(60)


@pytest.mark.parametrize("joint", [False, True])
def test_shares_near_zero_are_covered(joint):
    """Agreement is 0.4% of A's inputs and 0.6% of B's, where 120 effective draws mostly show none: the bootstrap's
    interval alone is then a point at 0 and held the truth in a third of the repeats."""
    rates = coverage.coverage(40, partial(coverage.generated, n=500), **coverage.NEAR_ZERO, joint=joint)
    for name in ("share with D < 0, A", "term 2 by count", "term 3 by count"):
        assert rates[name][0] >= least(40), name
        assert rates[name][1] < 0.08, name


def test_smoothed_weights_at_100_tokens_count_right():
    """Several times the effective draws (in the place of the width), by intervals that cover nearly as often."""
    rates = coverage.long_inputs(20)
    for name in ("log10 number of A", "log10 of B for one of A", "term 4 by count"):
        assert rates[f"{name}, smoothed"][0] >= least(20), name
        assert rates[f"{name}, smoothed"][1] > 2.5 * rates[f"{name}, plain"][1]


def test_intervals_by_exchange_cover_the_enumeration():
    """Where the free energies are held fixed those of counts are too narrow."""
    rates = coverage.coverage(12, coverage.by_exchange)
    converged = rates["density of states"][2]
    assert converged >= 8
    resampled = {name: row for name, row in rates.items() if not name.endswith("fixed")}
    assert min(share for share, _, _ in resampled.values()) >= least(converged) - 0.05
    for name in ("log10 number of A", "density of states"):
        assert rates[name][1] > 1.15 * rates[f"{name}, fixed"][1]


def test_the_ratio_of_numbers_is_held_at_tiny_noise():
    """B is A with noise of 1e-4: few draws lie in Z for one of them alone, often none, and 1 in 15 held the truth."""
    base = coverage.Table(0, vocabulary=6, length=5)
    rng, held, plain = np.random.default_rng(0), 0, 0
    for repeat in range(60):
        copy = coverage.Table(0, vocabulary=6, length=5)
        noise = 1e-4 * rng.standard_normal(len(copy.energies))
        copy.energies, copy.log_q = base.energies + noise, base.log_q - 4 * noise
        copy.log_q = copy.log_q - np.logaddexp.reduce(copy.log_q)
        z = tuple(np.quantile(base.energies, [0.1, 0.6]))
        truth = [np.log10(((model.energies >= z[0]) & (model.energies <= z[1])).sum()) for model in (base, copy)]
        drawn = [coverage.generated(model, 2 * repeat + k, 1000) for k, model in enumerate((base, copy))]
        tokens = np.concatenate([draws.tokens for draws in drawn])
        place = tokens @ 6 ** np.arange(4, -1, -1)
        losses = [model.energies[place] for model in (base, copy)]
        both = one_sample(drawn, losses, [model.log_q[place] for model in (base, copy)])
        sides = [
            Direction.from_draws(own.within(z), other.nll[within(own.nll, z)], side, z)
            for side, own, other in zip("AB", both, both[::-1], strict=True)
        ]
        _, low, high = BothDirections(*sides, z, joint=True).log10_more()
        held += low <= truth[1] - truth[0] <= high
        numbers = [side.log10_numbers(np.random.default_rng(0)) for side in sides]
        ends = np.quantile((numbers[1] - numbers[0])[1:], [0.025, 0.975])
        plain += ends[0] <= truth[1] - truth[0] <= ends[1]
    assert held / 60 >= least(60)
    assert plain / 60 < 0.7  # by resampled chains alone
