"""`behaves_like_pvalue` holds on matchings by chance between strangers, and fails for each of its reasons.

Faults are planted in the matchings: units that gate and up give the same partner, in every block of every pair.
"""

from dataclasses import asdict, replace

import numpy as np
import planted
import pytest
from two_matchings import table_of

from provlab.inference import pvalues
from provlab_study.robust_null.common_units import actual_sizes
from provlab_study.robust_null.measure import LEVELS
from provlab_study.robust_null.predicates import Uniformity
from provlab_study.shared.joint_null import joint_null

ROW = planted.row("I17")


def rows_of(common, seed=1):
    """Records of two collections of ten models each, as the notebook makes them."""
    rows = []
    for i, kind in enumerate(("bases", "tree")):
        matchings = table_of(10, 2, common, [seed, i], h=256)
        origins = {model: model for pair in matchings for model in pair}
        copies = joint_null(matchings, origins, n_draws=499, seed=seed)
        table = np.array(list(matchings.values()))  # (pairs, blocks, 2, h)
        log10_p = pvalues.log10_p_t(pvalues.distances(table[:, :, 0], table[:, :, 1]), table.shape[-1])
        for per, values in (("block", log10_p), ("pair", pvalues.fisher(log10_p, axis=1))):
            orders, aggregated = np.random.default_rng([seed, len(rows)]), per == "pair"
            ks_p = copies.ks(aggregated=aggregated, law=pvalues.log10_p_t).p
            sizes = actual_sizes(matchings, LEVELS, n_draws=150, rng=orders, aggregated=aggregated, trees=origins)
            columns = {key: [getattr(size, key) for size in sizes] for key in ("level", "size", "low", "high")}
            rows.append(Uniformity("prose", kind, per, len(matchings), values.min(), ks_p, 499, **columns))
    return rows


KIN = [
    {"pair": "a fine-tune", "statistic": "phi_match", "agree": 200, "n": 256, "paper": -99.0, "allowed": -90.0},
    {"pair": "a fine-tune", "statistic": "phi_match_unsigned", "agree": 9, "n": 256, "paper": -0.1, "allowed": 0.0},
    {"pair": "much noise", "statistic": "phi_match", "agree": 3, "n": 256, "paper": -0.7, "allowed": 0.0},
]


def judge(rows, profile="smoke", kin=KIN, **changes):
    kept = {"uniformity": [asdict(row) for row in rows], "allowance_power": kin}
    return planted.judged(ROW, kept, profile, **{"texts": 1} | changes)


@pytest.fixture(scope="module")
def chance():
    return rows_of(None)


@pytest.mark.parametrize("common", [None, 0, 1])
def test_matchings_by_chance_hold(common):
    """At 0.001 so few pairs leave room for twice the level, not for four times."""
    verdict = judge(rows_of(common), at_most=4.0)
    assert verdict.status == "holds", verdict
    assert " at 0.01 (prose: " in verdict.ours
    assert " at 0.001 (prose: " in verdict.ours


@pytest.mark.parametrize("common", [16, 32, 64])
def test_common_units_fail(common):
    """64 of 256 make the level 0.01 worth 0.90 in one block, and copies that relabel gate and up alike keep them."""
    verdict = judge(rows_of(common))
    assert verdict.status == "fails"
    assert "actual size" in verdict.why
    assert "not uniform: prose: bases, per block, prose: bases, aggregated, prose: tree" in verdict.why


def test_each_reason_is_enough(chance):
    odd = [replace(chance[0], ks_p=0.0002, n_copies=4999), *chance[1:]]
    assert "not uniform: prose: bases, per block" in judge(odd).why
    assert judge([replace(chance[0], ks_p=0.004), *chance[1:]]).status != "fails"  # one of four: no surprise
    large = replace(chance[3], size=[0.06, 0.03, 0.01], low=[0.05, 0.025, 0.0], high=[0.07, 0.035, 0.02])
    verdict = judge([*chance[:3], large])
    assert "over 1.5 times its level: 0.0300 [0.0250, 0.0350] at 0.01 (prose: tree, agg" in verdict.why
    assert verdict.margin.endswith("at 0.001 (prose: tree, aggregated); bar 1.5 times")
    assert "above the level itself in 1 of 12 cases: 0.0300 [0.0250, 0.0350] at 0.01" in verdict.ours
    rare = replace(chance[3], size=[0.05, 0.01, 0.009], low=[0.04, 0.009, 0.007], high=[0.06, 0.011, 0.011])
    assert "over 1.5 times its level: 0.0090 [0.0070, 0.0110] at 0.001 (prose" in judge([*chance[:3], rare]).why


@pytest.mark.parametrize("size", [0.014, 0.016])
def test_a_size_whose_interval_reaches_the_bar_neither_holds_nor_fails(chance, size):
    near = replace(chance[3], size=[0.06, size, 0.001], low=[0.05, 0.012, 0.0], high=[0.07, 0.018, 0.001])
    verdict = judge([*chance[:3], near])
    assert verdict.status == "within_its_spread"
    assert f"{size:.4f} [0.0120, 0.0180] at 0.01 (prose: tree, aggregated)" in verdict.ours
    assert f"{size:.4f} [0.0120, 0.0180] at 0.01 (prose: tree, aggregated)" in verdict.why


def test_one_and_nine_tenths_of_every_level_fail(chance):
    levels = np.array(chance[0].level)
    columns = {"size": 1.9 * levels, "low": 1.85 * levels, "high": 1.95 * levels}
    rows = [replace(row, **{name: values.tolist() for name, values in columns.items()}) for row in chance]
    verdict = judge(rows)
    assert verdict.status == "fails"
    assert "actual size over 1.5 times its level" in verdict.why


def test_a_dead_test_fails(chance):
    """It rejects no independent pair, and no related one either; the interval of 0 in so few reaches the bar."""
    nothing = {"size": [0.0] * 3, "low": [0.0] * 3, "high": [0.02, 0.016, 0.015]}
    dead = [replace(row, smallest=0.0, ks_p=1.0, **nothing) for row in chance]
    kin = [row | {"agree": 1, "paper": 0.0} for row in KIN]
    verdict = judge(dead, kin=kin)
    assert verdict.status == "fails"
    assert "as of a dead test: 0.0000 [0.0000, 0.0200] at 0.05 (prose: bases, per block)" in verdict.why
    assert "the smallest p-value is none that chance gives: prose: bases, per block (log10 p 0.00 of 45" in verdict.why
    assert "a related pair, a fine-tune, is not found: log10 p 0.0, 1 of 256 units agree" in verdict.why
    assert judge(chance, at_most=4.0, kin=kin).status == "fails"
    assert judge(chance, at_most=4.0, kin=[]).status == "not run"


def test_a_stranger_far_out_fails(chance):
    """One of 45 at 1e-9: no size at 0.001 sees it, nor a distance over the whole interval."""
    rows = [replace(row, smallest=-9.0) if row.per == "pair" else row for row in chance]
    assert "prose: bases, aggregated (log10 p -9.00 of 45 pairs)" in judge(rows, at_most=4.0).why


def test_too_little_is_said(chance):
    assert "only 1 texts" in judge(chance, texts=2).why
    assert "only 45 pairs of bases, fewer than 700" in judge(chance, "default").why
    few = judge([replace(row, n_copies=199) for row in chance], at_most=4.0)
    assert few.status == "not run"
    assert "199 joint copies let none of 4 tests reject at 0.01: it takes 399 (n_copies)" in few.why
    assert judge([replace(row, n_copies=399) for row in chance], at_most=4.0).status == "holds"
    refuted = [replace(row, smallest=-9.0, n_copies=199) for row in chance]
    assert judge(refuted, at_most=4.0).status == "fails"  # what refutes the claim needs no copies
    assert judge([row for row in chance if row.models == "tree"]).status == "not run"
