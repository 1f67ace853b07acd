"""The joint null over trees: its statistic from the parts, its level on shared models, the faults it must find."""

from itertools import combinations

import numpy as np
import pytest

from provlab.errors import InputError
from provlab.inference import calibration, pvalues
from provlab.inference.joint_null import joint_ks
from provlab.inference.matching import match

H, D, BLOCKS = 12, 4, 2


def table(rng, models_per_tree, offset=0.0):
    """Matchings across four trees whose later models are close copies of the first; `offset` plants a common order."""
    common = offset * rng.normal(size=(BLOCKS, H, D))
    trees, weights = {}, {}
    for tree in "abcd":
        base = common + rng.normal(size=(BLOCKS, H, D))
        for k in range(models_per_tree):
            trees[f"{tree}{k}"] = tree
            weights[f"{tree}{k}"] = base + 0.05 * k * rng.normal(size=base.shape)
    pairs = [pair for pair in combinations(trees, 2) if trees[pair[0]] != trees[pair[1]]]
    matchings = {(a, b): [match(weights[a][i], weights[b][i]).indices for i in range(BLOCKS)] for a, b in pairs}
    return matchings, trees


def test_distance_is_that_of_fisher_over_blocks():
    matchings, trees = table(np.random.default_rng(0), 1)
    log10_p = [pvalues.fisher([pvalues.spearman(m).log10_p for m in blocks]) for blocks in matchings.values()]
    found = joint_ks(matchings, trees, n_draws=9, seed=0)
    assert found.statistic == pytest.approx(calibration.ks_uniform(log10_p).statistic, abs=1e-9)
    assert (found.n_pairs, found.n_draws, found.copies.size) == (6, 9, 9)


def test_level_holds_where_pairs_share_models_and_the_naive_test_loses_it():
    """80 tables of 54 pairs that are really 6: the joint p is uniform, the naive KS rejects far too often."""
    rng = np.random.default_rng(1)
    joint, naive = [], []
    for k in range(80):
        matchings, trees = table(rng, 3)
        joint.append(joint_ks(matchings, trees, n_draws=19, seed=k).p)
        log10_p = [pvalues.fisher([pvalues.spearman(m).log10_p for m in blocks]) for blocks in matchings.values()]
        naive.append(calibration.ks_uniform(log10_p).p)
    assert calibration.discrete_uniform_excess(joint, 19).p_two_sided > 0.001
    assert np.mean(np.array(naive) <= 0.05) > 0.3


def test_trees_with_a_common_order_are_found():
    matchings, trees = table(np.random.default_rng(2), 2, offset=3.0)
    assert joint_ks(matchings, trees, n_draws=99, seed=0).p == 0.01


def test_same_seed_same_copies():
    matchings, trees = table(np.random.default_rng(3), 1)
    first, second = (joint_ks(matchings, trees, n_draws=9, seed=4) for _ in range(2))
    assert first.copies.tolist() == second.copies.tolist()


@pytest.mark.parametrize(
    ("matchings", "message"),
    [
        ({}, "matchings is empty"),
        ({("a", "b"): [np.arange(3)]}, "one tree"),
        ({("a", "c"): [np.arange(3)], ("b", "c"): [np.arange(4)]}, "same number"),
        ({("a", "c"): [np.arange(3), np.arange(4)]}, "same number"),
    ],
)
def test_tables_without_a_joint_null_are_refused(matchings, message):
    with pytest.raises(InputError, match=message):
        joint_ks(matchings, {"a": "x", "b": "x", "c": "y"}, n_draws=9, seed=0)
