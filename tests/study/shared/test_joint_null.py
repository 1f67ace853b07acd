"""The joint null of a table of matchings, compared with simulated trees whose models repeat each other."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab_study.shared.joint_null import joint_ks, joint_null, of_all_units

H, BLOCKS = 40, 2
TREES = {f"{tree}{i}": tree for tree in "ABCD" for i in range(5 if tree == "A" else 2)}


def clustered(rng, strays=2):
    """Matchings across independent trees, in each of which all models have nearly the same hidden units.

    Model m of tree T numbers the features 0..h-1 in the tree's own random order, but for a few units that moved; the
    matching of two models sends each unit to the one with the same feature.
    """
    orders = {}
    tree_order = {(tree, b): rng.permutation(H) for tree in "ABCD" for b in range(BLOCKS)}
    for model, tree in TREES.items():
        for b in range(BLOCKS):
            order = tree_order[tree, b].copy()
            moved = rng.choice(H, size=strays, replace=False)
            order[moved] = np.roll(order[moved], 1)
            orders[model, b] = order
    return {
        (x, y): [np.argsort(orders[y, b])[orders[x, b]] for b in range(BLOCKS)]
        for x, y in combinations(TREES, 2)
        if TREES[x] != TREES[y]
    }


def fisher_by_scipy(matchings):
    """Fisher's aggregate of each pair, by scipy alone."""
    identity = np.arange(H)
    return [
        stats.combine_pvalues([stats.spearmanr(identity, block).pvalue for block in blocks], method="fisher").pvalue
        for blocks in matchings.values()
    ]


def test_the_distance_is_that_of_scipy():
    rng = np.random.default_rng(0)
    matchings = clustered(rng)
    expected = stats.kstest(fisher_by_scipy(matchings), "uniform").statistic
    assert joint_null(matchings, TREES, n_draws=3, seed=0).ks(law=pvalues.log10_p_t).statistic == pytest.approx(
        expected, rel=1e-9
    )


def test_the_naive_test_rejects_far_too_often_and_the_joint_one_keeps_its_level():
    """100 tables under the null at level 0.05: the joint test rejects 5 of them on average.

    The bound is the binomial's: P(more than 13 of 100 at rate 0.05) = 4e-4. For the joint p-values, multiples of
    1/50 by construction, all of the distribution is compared with the uniform as well.
    """
    rng = np.random.default_rng(1)
    naive, joint = [], []
    for seed in range(100):
        matchings = clustered(rng)
        result = joint_null(matchings, TREES, n_draws=49, seed=seed).ks(law=pvalues.log10_p_t)
        joint.append(result.p)
        naive.append(stats.kstest(fisher_by_scipy(matchings), "uniform").pvalue if seed < 40 else np.nan)
    assert np.mean(np.array(naive[:40]) <= 0.05) > 0.3
    assert sum(p <= 0.05 for p in joint) <= 13
    counts = np.bincount(np.ceil(np.array(joint) * 5 - 1e-9).astype(int), minlength=6)[1:]
    assert stats.chisquare(counts).pvalue > 1e-3, counts


def near_identity(matchings, trees, rng):
    """Let the models of these trees share the order of their units, but for a third of them."""
    for (x, y), blocks in matchings.items():
        if {TREES[x], TREES[y]} <= set(trees):
            for block in blocks:
                moved = rng.choice(H, size=H // 3, replace=False)
                block[:] = np.arange(H)
                block[moved] = rng.permutation(moved)
    return matchings


def test_matchings_near_the_identity_are_rejected():
    rng = np.random.default_rng(2)
    matchings = near_identity(clustered(rng), "ABCD", rng)
    assert joint_null(matchings, TREES, n_draws=199, seed=0).ks(law=pvalues.log10_p_t).p == 1 / 200


def test_one_hidden_link_may_escape_the_distance_and_not_holm():
    """In a table that clusters like this one, ten small p-values of 42 are no large distance: Holm is for those."""
    rng = np.random.default_rng(2)
    matchings = near_identity(clustered(rng), "AB", rng)
    assert joint_null(matchings, TREES, n_draws=199, seed=0).ks(law=pvalues.log10_p_t).p > 0.05
    assert min(fisher_by_scipy(matchings)) * len(matchings) < 0.01


def test_copies_differ_and_follow_the_seed():
    matchings = clustered(np.random.default_rng(3))
    first, again, other = (joint_ks(matchings, TREES, n_draws=20, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.copies, again.copies)
    assert len(set(first.copies)) == 20
    assert not np.array_equal(first.copies, other.copies)
    assert (first.n_draws, first.n_pairs) == (20, len(matchings))
    assert first.p == (1 + (first.copies >= first.statistic).sum()) / 21


def test_a_single_pair_is_as_good_as_a_table():
    """With one pair the distance is max(p, 1 - p) of its aggregate, and the copies are those of random matchings."""
    rng = np.random.default_rng(4)
    matchings = {("A0", "B0"): [rng.permutation(H) for _ in range(BLOCKS)]}
    result = joint_null(matchings, TREES, n_draws=9, seed=0).ks(law=pvalues.log10_p_t)
    (p,) = fisher_by_scipy(matchings)
    assert result.statistic == pytest.approx(max(p, 1 - p), rel=1e-9)
    assert ((result.copies >= 0.5) & (result.copies <= 1)).all()


PERMUTATION = [np.arange(H)] * BLOCKS


@pytest.mark.parametrize(
    ("matchings", "draws", "message"),
    [
        ({}, 9, "matchings is empty"),
        ({("A0", "B0"): PERMUTATION, ("A0", "C0"): PERMUTATION[:1]}, 9, "same number of blocks and units"),
        ({("A0", "B0"): [np.arange(H), np.arange(H - 1)]}, 9, "same number of blocks and units"),
        ({("A0", "B0"): []}, 9, "same number of blocks and units"),
        ({("A0", "B0"): PERMUTATION}, 0, "n_draws must be at least 1"),
    ],
)
def test_tables_that_have_no_null_are_refused(matchings, draws, message):
    with pytest.raises(InputError, match=message):
        joint_ks(matchings, TREES, n_draws=draws, seed=0)


def test_pairs_with_units_left_out_are_not_permutations():
    whole, fewer = np.array([2, 0, 1]), np.array([0, 1])
    for kept in (
        of_all_units({("a", "b"): [whole, whole], ("a", "c"): [whole, fewer], ("b", "c"): [fewer, fewer]}),
        of_all_units({("a", "b"): [np.stack([whole, whole])], ("a", "c"): [np.array([[0, 1, 3], [0, 1, 2]])]}),
    ):
        assert list(kept) == [("a", "b")]
