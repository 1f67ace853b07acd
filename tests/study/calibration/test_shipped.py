"""The table of sizes: the library's own numbers, no row flagged where nothing is wrong, each planted fault flagged."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from provlab.inference import pvalues
from provlab.inference.matching import cosine_similarity, match, match_shuffled, unit_rows
from provlab.statistics import get
from provlab.statistics.options import Options
from provlab_study.calibration import figures, shipped
from provlab_study.calibration.trained import train_residual_pairs

PHI_U = ("phi_u", shipped.AS_TRAINED, shipped.COMPILED)


@pytest.fixture(scope="module")
def pairs():
    return train_residual_pairs(40, seed=5)


@pytest.fixture(scope="module")
def compared(pairs):
    return shipped.compare(pairs, seed=0)


def flagged(rows):
    return {(row.statistic, row.weights, row.solver) for row in shipped.size_table(rows) if row.too_many}


def test_every_statistic_is_compared_on_both_weights_and_ties_by_both_solvers(pairs, compared):
    assert len(compared.whole) == 5 * (1 + 2) + 2 * 2
    assert all(values.shape == (40,) and (values <= 0).all() for values in compared.whole.values())
    rows = [(name, shipped.AS_TRAINED, shipped.SCIPY) for name in shipped.MATCHED]
    again = shipped.compare(pairs, rows, seed=0)  # without ties both solvers find the one best matching
    for name, weights, solver in rows:
        assert_array_equal(compared.whole[name, weights, shipped.COMPILED], again.whole[name, weights, solver])
    by_numba, by_scipy = (compared.whole["phi_u", shipped.TIED, how] for how in (shipped.COMPILED, shipped.SCIPY))
    assert not np.array_equal(by_numba, by_scipy)


def test_both_solvers_reach_the_same_total_where_there_are_ties(pairs):
    """Their matchings differ then, and so do the p-values: a wrong one of either solver would not show there."""
    for kind in ("up", "seen_gate", "hidden"):
        for a, b in zip(*(getattr(side, kind)[:, 0] for side in pairs.networks(tied=True)), strict=True):
            matchings = [match_shuffled(a, b, seed=1)]
            with shipped.without_compiler():
                matchings.append(match_shuffled(a, b, seed=1))
            totals = [cosine_similarity(a, b)[np.arange(len(a)), m.indices].sum() for m in matchings]
            assert totals[0] == pytest.approx(totals[1], abs=1e-4)


def test_the_numbers_are_those_of_the_definition(pairs, compared):
    """MATCH of the up projections, Spearman's law, Fisher: by hand for one pair."""
    first, second = pairs.networks()
    blocks = [pvalues.spearman(match(a, b).indices).log10_p for a, b in zip(first.up[7], second.up[7], strict=True)]
    assert compared.blocks[PHI_U][7] == pytest.approx(blocks)
    assert compared.whole[PHI_U][7] == pytest.approx(pvalues.fisher(np.array(blocks)))


def test_nothing_is_flagged_where_nothing_is_wrong(compared):
    table = shipped.size_table(compared.whole)
    assert not flagged(compared.whole)
    assert {row.statistic: len(row.sizes) for row in table}["phi_l2"] == 1  # with 19 copies only 0.05 is in reach
    words = figures.size_table(table)
    assert words["too many"].eq("no").all()
    assert (words["≤ 0.001"] == "out of reach").sum() == 2


def test_a_common_initialisation_is_flagged():
    pairs = train_residual_pairs(100, seed=7, shared_initialisation=True)
    assert flagged(shipped.compare(pairs, [PHI_U], seed=0).whole) == {PHI_U}


def test_ties_differ_from_pair_to_pair():
    """Equal rows everywhere: the matching is the order of ties, and each pair is a study with a seed of its own."""
    rows = np.ones((3, 16, 4), np.float32)
    matchings = [result.matching.tolist() for result in shipped.match_rows(rows, rows, seed=0)]
    assert matchings[0] != matchings[1] != matchings[2]
    again = get("phi_u").compare_block(unit_rows(rows[0]), unit_rows(rows[0]), 0, Options(seed=0)).matching
    assert_array_equal(matchings[0], again)
