"""The calibration check: its own level by simulation, and each fault that it must find, planted."""

import math

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import cosine_similarity
from provlab_study.calibration import shipped
from provlab_study.calibration.trained import train_residual_pairs
from provlab_study.shared import calibration
from provlab_study.shared.example_one import permtest_pairs, train_pairs


@pytest.fixture(scope="module")
def networks():
    """Pairs of two-layer networks with PERMTEST's copies: the short version of the null by training."""
    pairs = train_pairs(300, dependent=False, seed=11, steps=60)
    return pairs, permtest_pairs(pairs, n_permutations=99, seed=12)


@pytest.fixture(scope="module")
def residual_pairs():
    return train_residual_pairs(300, seed=13, hidden_units=16, steps=40, n_inputs=32)


def log10_p_of(first, second):
    return shipped.log10_p(shipped.match_rows(first, second, seed=14))


# Its own level --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "n_permutations"),
    [((100,), None), ((40, 4), None), ((100,), 19)],
    ids=["one block", "four blocks", "PERMTEST"],
)
def test_valid_p_values_are_flagged_no_more_often_than_the_level(shape, n_permutations):
    """150 sets of exact p-values at level 0.1: the binomial's bound P(more than 28 of 150 at 0.1) = 5e-4."""
    rng = np.random.default_rng(0)
    flagged = 0
    for _ in range(150):
        p = 1 - rng.random(shape) if n_permutations is None else rng.integers(1, 21, shape) / 20
        flagged += calibration.check(np.log10(p), n_permutations=n_permutations, level=0.1).flagged
    assert flagged <= 28


def test_conservative_p_values_are_not_called_too_small():
    p = np.sqrt(np.random.default_rng(1).random(500))
    report = calibration.check(np.log10(p))
    assert report.reasons == (f"not uniform (p = {report.ks:.2g})",)


# What passes ----------------------------------------------------------------------------------------------------------


def test_networks_trained_apart_pass(networks, residual_pairs):
    pairs, l2 = networks
    rows = [(statistic, shipped.AS_TRAINED, shipped.COMPILED) for statistic in ("phi_u", "phi_h")]
    blocks = shipped.compare(residual_pairs, rows, seed=14).blocks
    reports = [
        calibration.check(np.log10(l2.p), n_permutations=99),
        calibration.check(log10_p_of(pairs.theta1[..., :-1], pairs.theta2[..., :-1])),
        *map(calibration.check, blocks.values()),
    ]
    assert [report.reasons for report in reports] == [()] * 4
    assert [(report.n, report.n_blocks) for report in reports] == [(300, 1), (300, 1), (300, 3), (300, 3)]


# What must be flagged -------------------------------------------------------------------------------------------------


def test_fisher_over_parameters_that_share_a_renumbering_is_flagged(residual_pairs):
    """phi_H of one block on three sets of inputs: dependent, as a table of blocks and as Fisher's aggregate alone.

    In a block with a gate, phi_U and phi_H are hardly correlated between independent networks.
    """
    dependent = shipped.same_block(residual_pairs, seed=14)
    as_blocks = calibration.check(dependent)
    assert as_blocks.correlation > 0.2
    assert any("blocks are correlated" in reason for reason in as_blocks.reasons)
    # each column on its own is valid; the fault is in putting them together
    assert not any(calibration.check(column).flagged for column in dependent.T)
    assert calibration.check(pvalues.fisher(dependent, axis=1)).flagged


def test_the_printed_algorithm_is_flagged(networks):
    """Algorithm 1 as printed returns 1 - q, which is zero for one independent pair in T + 1."""
    _, l2 = networks
    with np.errstate(divide="ignore"):
        printed = np.log10((l2.permuted[:, :19] > l2.observed[:, None]).sum(axis=1) / 20)
    assert any("p-values are 0" in reason for reason in calibration.check(printed).reasons)
    # nor does it pass with the zeros moved up to the grid
    assert calibration.check(np.maximum(printed, math.log10(0.05)), n_permutations=19).flagged


def test_the_better_of_two_sides_is_flagged():
    p = 1 - np.random.default_rng(2).random(900)
    assert not calibration.check(np.log10(p)).flagged
    assert calibration.check(np.log10(p / 2)).flagged


def test_ties_broken_by_order_are_flagged_and_ties_broken_at_random_are_not(networks):
    """Rows cut to their signs: at most 16 different rows among 16 units, so that most of them tie."""
    pairs, _ = networks
    signs = [np.sign(theta[..., :-1]) for theta in (pairs.theta1, pairs.theta2)]
    in_order = [linear_sum_assignment(cosine_similarity(a, b), maximize=True)[1] for a, b in zip(*signs, strict=True)]
    assert calibration.check([pvalues.spearman(matching).log10_p for matching in in_order]).flagged
    assert not calibration.check(log10_p_of(*signs)).flagged


# The numbers in it ----------------------------------------------------------------------------------------------------


def test_sizes_by_hand():
    """Two of ten up to 0.05: the binomial tail 1 - 0.95^10 - 10 0.05 0.95^9."""
    log10_p = np.log10([0.01, 0.05, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    size = calibration.check(log10_p).sizes[0]
    assert (size.k, size.n, size.share, size.expected) == (2, 10, 0.2, 0.05)
    assert 10**size.log10_p == pytest.approx(1 - 0.95**10 - 10 * 0.05 * 0.95**9)
    assert (size.low, size.high) == calibration.size_interval(2, 10)


def test_sizes_of_permtest_are_held_against_its_grid():
    """T = 29: the last step up to 0.05 is 1/30; nothing can reach 0.01, so it is not asked."""
    p = np.arange(1, 31) / 30
    report = calibration.check(np.log10(p), n_permutations=29)
    assert [(size.level, size.expected, size.k) for size in report.sizes] == [(0.05, pytest.approx(1 / 30), 1)]
    assert not report.flagged


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibration.check([]), "log10_p has shape"),
        (lambda: calibration.check(np.zeros((2, 2, 2))), "log10_p has shape"),
        (lambda: calibration.check([math.nan]), "NaN or a value above 0"),
        (lambda: calibration.check([0.1]), "NaN or a value above 0"),
        (lambda: calibration.check([math.log10(0.051)], n_permutations=19), "off the grid"),
        (lambda: calibration.tournament(["a", "b", "c"]), "even number"),
        (lambda: calibration.tournament(["a", "a"]), "even number"),
    ],
)
def test_what_cannot_be_checked_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


# Pairs that share models ----------------------------------------------------------------------------------------------


def test_a_tournament_plays_each_pair_once_and_nobody_twice_in_a_round():
    models = [f"m{i}" for i in range(10)]
    rounds = calibration.tournament(models)
    assert len(rounds) == 9
    assert all(len({model for pair in pairs for model in pair}) == 10 for pairs in rounds)
    played = [pair for pairs in rounds for pair in pairs]
    assert len(set(played)) == 45
    assert all(models.index(a) < models.index(b) for a, b in played)


def table_of(models, p):
    return {(a, b): p(a, b) for i, a in enumerate(models) for b in models[i + 1 :]}


def test_rounds_keep_their_level_where_pairs_share_models_and_find_what_is_not_uniform():
    """Matchings of 12 random orders: p-values of pairs that share models. Level 0.1, 60 tables; at most 14 by chance.

    P(more than 14 of 60 at 0.1) = 1e-3; twice the mean is cautious, so far fewer are expected.
    """
    rng = np.random.default_rng(3)
    models = list(range(12))
    rejected = 0
    for _ in range(60):
        orders = [rng.permutation(30) for _ in models]
        table = table_of(models, lambda a, b: pvalues.spearman(np.argsort(orders[b])[orders[a]]).log10_p)  # noqa: B023
        rejected += calibration.round_robin(table).p <= 0.1
    assert rejected <= 14
    halved = {pair: value - math.log10(4) for pair, value in table.items()}
    assert calibration.round_robin(halved).p < 0.05


def test_the_jackknife_by_hand():
    """Six models; of 15 pairs the five with the first are small. Without it no share, without another 4 of 10."""
    wide = calibration.round_robin(table_of("abcdef", lambda a, b: -3.0 if a == "a" else -0.1))
    assert wide.share == pytest.approx(1 / 3)
    error = math.sqrt(5 / 6 * (5 * (0.4 - 1 / 3) ** 2 + (0.0 - 1 / 3) ** 2))
    # 2.570582: Student's t, 5 degrees of freedom, 0.975
    assert wide.high == pytest.approx(min(1.0, 1 / 3 + 2.570582 * error), rel=1e-6)
    narrow = calibration.round_robin(
        table_of("abcdef", lambda a, b: -3.0 if (a, b) in (("a", "b"), ("c", "d")) else -0.1)
    )
    error = math.sqrt(5 / 6 * (4 * (0.1 - 2 / 15) ** 2 + 2 * (0.2 - 2 / 15) ** 2))
    assert narrow.high == pytest.approx(2 / 15 + 2.570582 * error, rel=1e-6)
    assert narrow.low == pytest.approx(max(0.0, 2 / 15 - 2.570582 * error), abs=1e-9)


def test_the_jackknife_where_one_model_is_in_every_pair():
    """One base and its tunes: without the base no pair is left, and so no interval."""
    star = {("base", other): value for other, value in zip("abcd", (0.0, 1.0, 0.0, 1.0), strict=True)}
    assert calibration.jackknife(star) == (0.5, -math.inf, math.inf)


def test_blocks_are_compared_where_one_is_constant():
    rng = np.random.default_rng(4)
    column, other = np.log10(rng.random((2, 200)))
    constant = np.full(200, -0.3)
    alike = calibration.check(np.stack([column, column, other, constant], axis=1))
    assert alike.correlation == pytest.approx(1.0)
    assert "blocks are correlated (up to 1.00)" in alike.reasons
    free = calibration.check(np.stack([column, constant], axis=1))
    assert (free.correlation, free.tests["blocks"]) == (0.0, 0.0)
