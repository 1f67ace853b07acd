"""The allowance takes away what units in common do to the size, as far as it reaches, and keeps evidence."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from provlab.chapters.robust_null import small
from provlab.chapters.robust_null.common_units import actual_sizes, common_units, renumbered

H = 200  # of which 5% are ten


def agreeing(common, rng):
    """Matchings by gate and by up that agree on exactly `common` units."""
    gate = rng.permutation(H)
    up, rest = gate.copy(), rng.permutation(H)[common:]
    up[rest] = gate[np.roll(rest, 1)]
    return np.stack([gate, up])


def table(common, seed=0):
    rng = np.random.default_rng(seed)
    return {pair: [agreeing(common, rng)] for pair in combinations("abcdefgh", 2)}


@pytest.mark.parametrize("common", [0, 8, 10])
def test_sizes_keep_the_level_up_to_the_allowance(common):
    """A little below it: chance leaves one unit in common on average, the allowance none."""
    for actual in actual_sizes(table(common), (0.05, 0.01), n_draws=1500, rng=np.random.default_rng(1), allowance=0.05):
        without_any = stats.norm.sf(stats.norm.isf(actual.level) + 1 / np.sqrt(H - 1))
        assert actual.size == pytest.approx(without_any, abs=4 * np.sqrt(actual.level / (28 * 1500)))
        assert actual.size < actual.level


def test_sizes_pass_the_level_without_the_allowance_and_beyond_it():
    for common, share in ((8, 0.0), (40, 0.05)):
        (actual,) = actual_sizes(table(common), (0.05,), n_draws=300, rng=np.random.default_rng(1), allowance=share)
        assert actual.size > 0.1


def test_a_copy_keeps_nearly_all_of_its_evidence():
    copy = np.stack([np.arange(H), np.arange(H)])[None]
    with_all, allowed = (renumbered(copy, 3, rng=np.random.default_rng(0), allowance=share)[0] for share in (0.0, 0.05))
    assert len(set(allowed)) == 1  # every renumbering of a copy is a copy
    assert allowed[0] == pytest.approx(-np.log10(np.arange(1, H - 9, dtype=float)).sum(), rel=1e-9)  # 1/190!
    assert 0.9 < allowed[0] / with_all[0] < 1


def test_small_networks_of_one_recipe_have_units_in_common():
    """Untrained ones have one on average; trained on one task they have more, in pairs that share nothing."""
    untrained, trained = (small.trained_pairs(40, seed=0, hidden_units=32, steps=steps) for steps in (1, 300))
    assert list(trained) == ["phi_match", "phi_match_unsigned"]
    by_chance, learned = (common_units(pairs["phi_match"]).mean() for pairs in (untrained, trained))
    assert by_chance == pytest.approx(1.0, abs=4 / np.sqrt(40))
    assert learned > by_chance
