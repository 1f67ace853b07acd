"""phi_MATCH and units in common: the exact law of renumbered matchings, and actual sizes."""

from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats
from two_matchings import table_of, two_matchings

from provlab.inference import pvalues
from provlab_study.robust_null import small
from provlab_study.robust_null.common_units import (
    ABLATIONS,
    actual_sizes,
    alignment,
    centred,
    common_units,
    fisher_draws,
    pair_matchings,
    predicted_size,
    renumbered,
)
from provlab_study.shared.calibration import jackknife
from provlab_study.shared.joint_null import joint_null

H = 64


def test_renumbered_law_is_that_of_all_orders():
    """Seven units can be put into all 5,040 orders; phi_MATCH of each by the library's own p-value."""
    gate, up = np.arange(7), np.array([0, 1, 3, 2, 5, 6, 4])
    every = [pvalues.spearman(np.array(pi)[gate], np.array(pi)[up]) for pi in permutations(range(7))]
    drawn = renumbered(np.stack([gate, up])[None], 20_000, rng=np.random.default_rng(0))[0]
    exact = np.array([result.paper_log10_p for result in every])
    for level in (0.5, 0.2, 0.05):
        size = np.mean(exact <= np.log10(level) + 1e-9)
        assert abs(np.mean(drawn <= np.log10(level) + 1e-9) - size) < 4 * np.sqrt(size / 20_000)
    common = common_units({("a", "b"): [np.stack([gate, up])]})
    assert np.mean([result.rho for result in every]) == pytest.approx((common.item() - 1) / 6)


def test_each_renumbering_is_a_pvalue_of_the_statistic():
    rng = np.random.default_rng(3)
    matchings = two_matchings(rng, 5, H)
    orders = np.random.default_rng(9)  # the block's own, and the one behind it
    own, behind = (orders.permuted(np.arange(H)[None], axis=1)[0] for _ in range(2))
    order = behind[own]
    drawn = renumbered(matchings[None], 1, rng=np.random.default_rng(9))[0, 0]
    assert drawn == pytest.approx(pvalues.spearman(order[matchings[0]], order[matchings[1]]).paper_log10_p, abs=1e-9)


def test_chance_keeps_the_level_and_common_units_do_not():
    rng = np.random.default_rng(0)
    levels = (0.05, 0.01)
    for aggregated in (False, True):
        fair = actual_sizes(table_of(12, 3, None, 1), levels, n_draws=300, rng=rng, aggregated=aggregated)
        assert all(abs(actual.size / actual.level - 1) < 0.12 for actual in fair)
        assert all(actual.low < actual.size < actual.high for actual in fair)
        planted = actual_sizes(table_of(12, 3, 16, 2), levels, n_draws=100, rng=rng, aggregated=aggregated)
        assert all(actual.low > 2 * actual.level for actual in planted)


def test_prediction_from_counts_agrees_with_the_drawn_size():
    rng = np.random.default_rng(4)
    for common in (4, 12, 20):
        matchings = table_of(9, 1, common, common, h=256)
        drawn = actual_sizes(matchings, (0.05, 0.01), n_draws=700, rng=rng)
        for actual in drawn:
            predicted = predicted_size([common] * 10, 256, actual.level)
            assert predicted == pytest.approx(actual.size, rel=0.1)
    assert predicted_size([1], 256, 0.01) == pytest.approx(0.01)


def test_fisher_over_many_blocks_gathers_what_a_block_hides():
    rng = np.random.default_rng(5)
    fair = fisher_draws([1], 256, 32, 40_000, rng=rng)
    assert [np.mean(fair <= np.log10(level)) for level in (0.05, 0.01)] == pytest.approx([0.05, 0.01], rel=0.12)
    alone, many = (np.mean(fisher_draws([8], 256, n, 40_000, rng=rng) <= -2) for n in (1, 64))
    assert alone == pytest.approx(predicted_size([8], 256, 0.01), rel=0.12)
    assert many > 2 * alone
    # noncentral chi-square: a sum of squares has the same mean shift; Fisher lies within a factor of it
    shift = 64 * 49 / 255
    assert many == pytest.approx(stats.ncx2.sf(stats.chi2.isf(0.01, 64), 64, shift), rel=0.5)


def test_alignment_is_the_absolute_correlation_of_each_unit():
    rng = np.random.default_rng(6)
    gate = rng.normal(size=(3, 400)) + 5
    up = np.stack([2 * gate[0] - 1, 3 - gate[1], rng.normal(size=400)])
    aligned = alignment(gate, up)
    assert aligned[:2] == pytest.approx([1, 1])
    assert aligned[2] == pytest.approx(abs(np.corrcoef(gate[2], up[2])[0, 1]))
    assert centred(gate).mean(axis=1) == pytest.approx([0, 0, 0], abs=1e-12)


def test_joint_copies_know_shared_models():
    """Twelve copies of one model against twelve others: a plain test takes 144 repetitions for 144 draws."""
    rng = np.random.default_rng(8)
    gate, up = two_matchings(rng, None, H)
    order = rng.permutation(H)
    repeated = {(f"a{i}", f"b{j}"): [np.stack([order[gate], order[up]])] for i in range(12) for j in range(12)}
    trees = {name: name[0] for pair in repeated for name in pair}
    values = [10 ** pvalues.spearman(*blocks[0]).paper_log10_p for blocks in repeated.values()]
    naive = stats.kstest(values, "uniform").pvalue
    joint = joint_null(repeated, trees, n_draws=199, seed=0).ks(law=pvalues.log10_p_t)
    assert naive < 1e-6
    assert joint.p > 0.01
    own = table_of(8, 2, None, 3)
    copies = joint_null(own, {m: m for pair in own for m in pair}, n_draws=99, seed=0)
    per_block = copies.ks(law=pvalues.log10_p_t, aggregated=False)
    values = [10 ** pvalues.spearman(*b).paper_log10_p for blocks in own.values() for b in blocks]
    assert per_block.statistic == pytest.approx(stats.kstest(values, "uniform").statistic, abs=1e-9)


def test_jackknife_leaves_out_what_belongs_together():
    rng = np.random.default_rng(9)
    effects = {f"t{i}": rng.normal() for i in range(8)}
    models = {f"{tree}-{n}": tree for tree in effects for n in range(3)}
    values = {
        (a, b): effects[models[a]] + effects[models[b]] for a, b in combinations(models, 2) if models[a] != models[b]
    }
    (mean, low, high), narrow = jackknife(values, groups=models), jackknife(values)
    assert mean == pytest.approx(narrow[0])
    assert high - low > 1.5 * (narrow[2] - narrow[1])  # models of one tree repeat each other


def test_aligned_units_are_found_in_common_and_taking_them_away_ends_it():
    """Two models with features in common: half of their units have parallel gate and up, half have unrelated ones."""
    rng = np.random.default_rng(11)
    features = rng.normal(size=(40, 600))

    def model():
        own = np.repeat([True, False], 20)[:, None]
        mixed = rng.normal(size=(40, 40)) / 40**0.5 @ features  # what unaligned ups look at is each model's own affair
        up = np.where(own, features, mixed)
        order = rng.permutation(40)
        return features[order] + 0.1 * rng.normal(size=(40, 600)), up[order] + 0.1 * rng.normal(size=(40, 600))

    a, b = model(), model()
    common = {}
    for name, ablate in ABLATIONS.items():
        sides = [ablate(*side, np.random.default_rng(0)) for side in (a, b)]
        common[name] = common_units({("a", "b"): [pair_matchings(*sides, seed=0)]}).item()
        assert all(np.shape(half)[0] == (20 if "half" in name or "least" in name else 40) for half in sides[0])
    assert common["all units"] >= 19
    assert common["the half most aligned"] >= 19
    assert common["the half least aligned"] <= 4
    assert common["means removed, least aligned"] <= 4


# The allowance: ten of 200 units --------------------------------------------------------------------------------------


def ten(h):
    return 10


def none(h):
    return 0


@pytest.mark.parametrize("common", [0, 8, 10])
def test_sizes_keep_the_level_up_to_the_allowance(common):
    """A little below it: chance leaves one unit in common on average, the allowance none."""
    matchings, rng = table_of(8, 1, common, 0, h=200), np.random.default_rng(1)
    for actual in actual_sizes(matchings, (0.05, 0.01), n_draws=1500, rng=rng, allowance=ten):
        without_any = stats.norm.sf(stats.norm.isf(actual.level) + 1 / np.sqrt(199))
        assert actual.size == pytest.approx(without_any, abs=4 * np.sqrt(actual.level / (28 * 1500)))
        assert actual.size < actual.level


@pytest.mark.parametrize(("common", "allowance"), [(8, none), (40, ten)])
def test_sizes_pass_the_level_without_the_allowance_and_beyond_it(common, allowance):
    matchings, rng = table_of(8, 1, common, 0, h=200), np.random.default_rng(1)
    assert actual_sizes(matchings, (0.05,), n_draws=300, rng=rng, allowance=allowance)[0].size > 0.1


def test_a_copy_keeps_nearly_all_of_its_evidence():
    copy = np.stack([np.arange(200)] * 2)[None]
    with_all, allowed = (renumbered(copy, 3, rng=np.random.default_rng(0), allowance=some)[0] for some in (none, ten))
    assert len(set(allowed)) == 1  # every renumbering of a copy is a copy
    assert allowed[0] == pytest.approx(-np.log10(np.arange(1, 191, dtype=float)).sum(), rel=1e-9)  # 1/190!
    assert 0.9 < allowed[0] / with_all[0] < 1


def test_small_networks_of_one_recipe_have_units_in_common():
    """Untrained ones have one on average; trained on one task they have more, in pairs that share nothing."""
    by_chance, learned = (
        common_units(small.trained_pairs(40, seed=0, hidden_units=32, steps=steps)["phi_match"]).mean()
        for steps in (1, 300)
    )
    assert by_chance == pytest.approx(1.0, abs=4 / np.sqrt(40))
    assert learned > by_chance
