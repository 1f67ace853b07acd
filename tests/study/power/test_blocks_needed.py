"""Power: the model against simulation, against known limits, and against Fisher's method itself."""

import math

import numpy as np
import pytest

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import match
from provlab_study.power import blocks_needed as power
from provlab_study.power import planted

LN10 = math.log(10.0)


def simulated_matchings(width, columns, correlation, n_draws, rng):
    """What MATCH makes of Gaussian rows with planted partners, ``(n_draws, width)``."""
    rows = (planted.planted_rows(width, columns, correlation, rng=rng) for _ in range(n_draws))
    return np.array([match(first, second).indices for first, second in rows])


def simulated_log10_p(width, columns, correlation, n_draws, rng):
    matchings = simulated_matchings(width, columns, correlation, n_draws, rng)
    return np.array([pvalues.spearman(matching).log10_p for matching in matchings])


def shuffled_in_part(width, share, rng):
    """A permutation that keeps each index with probability `share` and permutes the rest at random."""
    others = np.flatnonzero(rng.random(width) >= share)
    permutation = np.arange(width)
    permutation[others] = rng.permutation(others)
    return permutation


@pytest.mark.parametrize(
    ("width", "columns", "separation", "n_draws"),
    [(64, 64, 2.0, 150), (256, 64, 1.5, 40), (256, 64, 3.0, 40), (256, 256, 2.5, 40), (512, 128, 2.0, 8)],
)
def test_the_cavity_equation_predicts_the_share_that_match_finds(width, columns, separation, n_draws):
    correlation = separation / math.sqrt(columns)
    matchings = simulated_matchings(width, columns, correlation, n_draws, np.random.default_rng(width + columns))
    shares = (matchings == np.arange(width)).mean(axis=1)
    predicted = planted.recovered_share(planted.gaussian_separation(width, columns, correlation))
    assert predicted == pytest.approx(shares.mean(), abs=0.02 + 3 * shares.std() / math.sqrt(n_draws))


def test_partners_like_strangers_are_found_by_chance():
    """Exact by symmetry: of h equally likely partners, one is the own one."""
    for width in (64, 1024):
        chance = planted.recovered_share(planted.Separation(width, 0.0, 1.0, 1e9))
        assert chance == pytest.approx(1 / width, rel=0.02)


def test_more_separation_finds_more_up_to_all():
    shares = [planted.recovered_share(planted.gaussian_separation(11_008, 4096, s / 64)) for s in (1, 2, 3, 4, 6, 8)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0, abs=1e-6)
    # a partner must stand out from the best of h - 1 strangers, which is at sqrt(2 ln h) = 4.3
    assert 0.2 < shares[3] < 0.9


def test_a_measured_separation_is_that_of_its_rows():
    a, b = planted.planted_rows(300, 50, 0.4, rng=np.random.default_rng(3))
    measured, drawn = planted.measured_separation(a, b), planted.gaussian_separation(300, 50, 0.4)
    assert measured.mean == pytest.approx(drawn.mean, rel=0.05)
    assert measured.spread == pytest.approx(drawn.spread, rel=0.15)
    assert measured.dimensions == pytest.approx(50, rel=0.05)


def test_without_dependence_the_evidence_is_exponential():
    """-ln p of a uniform p has mean and standard deviation 1."""
    block = power.evidence(1024, 0.0)
    assert (block.mean, block.sd) == pytest.approx((1.0, 1.0), abs=0.03)


@pytest.mark.parametrize(("width", "share"), [(64, 0.5), (256, 0.1), (256, 0.8), (1024, 0.3)])
def test_the_evidence_of_a_partly_found_matching(width, share):
    rng = np.random.default_rng(width)
    drawn = -LN10 * np.array([pvalues.spearman(shuffled_in_part(width, share, rng)).log10_p for _ in range(1500)])
    block = power.evidence(width, share)
    assert block.mean == pytest.approx(drawn.mean(), rel=0.04, abs=3 * drawn.std() / math.sqrt(drawn.size))
    assert block.sd == pytest.approx(drawn.std(), rel=0.1)


def test_blocks_that_are_all_alike_are_counted_by_fisher():
    """With no spread the answer is the least L at which Fisher's own p of L equal values reaches the target."""
    for each in (-0.6, -1.5, -7.0):
        answer = power.blocks_needed(-20.0, pilot=[each] * 3)
        assert answer.blocks == answer.low == answer.high
        assert pvalues.fisher([each] * answer.blocks) <= -20.0 < pvalues.fisher([each] * (answer.blocks - 1))


def test_the_target_is_reached_as_often_as_promised():
    width, columns, correlation = 64, 64, 0.22
    rng = np.random.default_rng(8)
    answer = power.blocks_needed(-10.0, separation=planted.gaussian_separation(width, columns, correlation), power=0.9)
    assert 5 < answer.blocks < 60
    assert answer.low == answer.high == answer.blocks
    pool = simulated_log10_p(width, columns, correlation, 3000, rng)

    def reached(n_blocks):
        return np.mean([pvalues.fisher(rng.choice(pool, n_blocks)) <= -10.0 for _ in range(400)])

    assert 0.8 <= reached(answer.blocks) <= 0.98
    assert reached(answer.blocks // 2) < 0.5


def test_a_pilot_s_interval_holds_the_answer_as_often_as_it_says():
    rng = np.random.default_rng(9)
    pool = np.array([pvalues.spearman(shuffled_in_part(256, 0.2, rng)).log10_p for _ in range(3000)])
    true = power.blocks_needed(-60.0, pilot=pool).blocks
    held = 0
    for _ in range(300):
        answer = power.blocks_needed(-60.0, pilot=rng.choice(pool, 8))
        assert answer.low <= answer.blocks
        held += answer.low <= true <= (math.inf if answer.high is None else answer.high)
    assert held >= 0.9 * 300


def test_no_number_of_independent_blocks_is_enough():
    answer = power.blocks_needed(-20.0, pilot=[-0.1, -0.5, -0.3, -0.2])  # mean -ln p below 1
    assert answer.blocks is answer.high is None


@pytest.mark.parametrize("n_blocks", [1, 8])
def test_the_smallest_correlation_needs_just_so_many_blocks(n_blocks):
    smallest = power.smallest_correlation(256, 64, n_blocks)
    at = power.blocks_needed(-20.0, separation=planted.gaussian_separation(256, 64, smallest)).blocks
    below = power.blocks_needed(-20.0, separation=planted.gaussian_separation(256, 64, smallest - 0.01)).blocks
    assert at <= n_blocks < below


def test_few_rows_never_reach_a_target_below_their_floor():
    assert power.smallest_correlation(8, 64, 1) is None  # 2 / 8! is 10^-4.3


def test_noise_on_one_side_is_a_smaller_correlation():
    """Rows of correlation rho and noise of sigma times their size have the correlation rho / sqrt(1 + sigma^2)."""
    noisy = planted.gaussian_separation(256, 64, 0.8).with_noise(1.5, 64)
    drawn = planted.gaussian_separation(256, 64, 0.8 / math.sqrt(1 + 1.5**2))
    assert (noisy.mean, noisy.dimensions) == pytest.approx((drawn.mean, drawn.dimensions))
    assert noisy.spread == pytest.approx(drawn.spread, rel=0.15)
    a, b = planted.planted_rows(256, 64, 0.8, rng=np.random.default_rng(4))
    louder = b + 1.5 * np.random.default_rng(5).standard_normal(b.shape)
    assert planted.measured_separation(a, louder).mean == pytest.approx(noisy.mean, rel=0.08)
    same = planted.gaussian_separation(256, 64, 0.8)
    assert same.with_noise(0.0, 64).mean == pytest.approx(same.mean)


def test_the_probability_to_reach_a_target_is_that_of_simulation():
    reached = simulated_log10_p(128, 64, 0.3, 300, np.random.default_rng(6)) <= -8.0
    predicted = power.reach_probability(planted.gaussian_separation(128, 64, 0.3), 1, -8.0)
    assert 0.15 < predicted < 0.9
    assert predicted == pytest.approx(reached.mean(), abs=0.12)
    assert power.reach_probability(planted.Separation(64, 50.0, 0.1, 64.0), 1, -80.0) == 1.0


def test_the_noise_that_a_copy_bears():
    """At the limit a copy's expected -ln p over the blocks is Fisher's threshold; simulated copies straddle it."""
    copy = planted.Separation(128, math.sqrt(64), 0.05, 64.0)
    limit = power.noise_limit([copy] * 3, 64, -15.0)
    rng = np.random.default_rng(11)
    for factor, most in ((0.8, True), (1.25, False)):
        weaker = 1 / math.sqrt(1 + (factor * limit) ** 2)
        drawn = simulated_log10_p(128, 64, weaker, 90, rng).reshape(30, 3)
        assert bool(np.mean([pvalues.fisher(blocks) <= -15.0 for blocks in drawn]) > 0.5) is most
    assert 0.1 < 1 / math.sqrt(1 + limit**2) < 0.6
    assert power.noise_limit([planted.gaussian_separation(64, 64, 0.01)], 64) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: power.blocks_needed(pilot=[-1.0]), "at least two blocks"),
        (lambda: power.blocks_needed(pilot=[-1.0, np.nan]), "finite"),
        (lambda: power.blocks_needed(pilot=[-1.0, 0.5]), "at most 0"),
        (lambda: power.blocks_needed(0.0, pilot=[-1, -2]), "target is 0.0"),
        (lambda: power.blocks_needed(pilot=[-1, -2], power=1.0), "power is 1.0"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
