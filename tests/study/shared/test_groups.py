"""The area under the curve by hand and by its coverage; a chain of trees and the independence of its p-values."""

from itertools import combinations, permutations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from provlab.errors import InputError
from provlab.report.lineage import Lineage
from provlab_study.publishing.published import published_table
from provlab_study.shared import calibration
from provlab_study.shared.groups import Area, area_under_curve, chain_of_trees, pairs_of_trees


def test_area_against_mann_and_whitney():
    rng = np.random.default_rng(0)
    names = [f"m{i}" for i in range(12)]
    pairs = list(combinations(names, 2))
    dependent = np.array([(names.index(a) < 6) == (names.index(b) < 6) for a, b in pairs])
    values = np.round(rng.normal(size=len(pairs)) - 0.5 * dependent, 1)  # with ties
    area = area_under_curve(pairs, values, dependent)
    u = stats.mannwhitneyu(values[~dependent], values[dependent]).statistic
    assert area.value == pytest.approx(u / (dependent.sum() * (~dependent).sum()))
    assert area.low < area.value < area.high
    turned = area_under_curve(pairs, -values, dependent)
    assert turned.value == pytest.approx(1 - area.value)


def test_pairs_repeat_each_other_and_the_interval_knows():
    """Values that are properties of models: drawing models covers the truth, 0.5, where drawing pairs does not."""
    rng = np.random.default_rng(1)
    names = [f"m{i}" for i in range(20)]
    pairs = list(combinations(range(20), 2))
    dependent = np.array([(a < 10) == (b < 10) for a, b in pairs])
    covered = 0
    for _ in range(40):
        own = rng.normal(size=20)
        values = [own[a] + own[b] for a, b in pairs]
        area = area_under_curve([(names[a], names[b]) for a, b in pairs], values, dependent)
        covered += area.low <= 0.5 <= area.high
    assert covered >= 34  # of 40 at 95%: fewer has a probability of 0.4%


def test_the_area_of_the_papers_tables():
    """Tables 1 and 5 by hand: a dependent pair is the closer one in 17 of 6 x 7 comparisons."""
    rows = [row for n in (1, 5) for row in published_table(f"independence_table{n}")]
    rows = {frozenset((row["theta_1"], row["theta_2"])): row for row in rows}.values()
    pairs = [(row["theta_1"], row["theta_2"]) for row in rows]
    dependent = [row["independent"] == "false" for row in rows]
    assert (sum(dependent), len(pairs)) == (6, 13)
    area = area_under_curve(pairs, [float(row["log_jsd"]) for row in rows], dependent)
    assert area.value == pytest.approx(17 / 42)


def test_what_all_are_compared_with_stays():
    pairs = [("base", name) for name in "abcdefgh"]
    area = area_under_curve(pairs, [1, 2, 3, 4, 5, 6, 7, 8], [True] * 4 + [False] * 4)
    assert (area.value, area.low, area.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("dependent", [[True, True], [False, False]])
def test_groups_that_are_empty_are_refused(dependent):
    with pytest.raises(InputError, match="dependent must name pairs of both kinds"):
        area_under_curve([("a", "b"), ("b", "c")], [1, 2], dependent)


def test_the_area_either_way():
    assert Area(0.9, 0.8, 1.0).either_way.interval == (0.8, 1.0)
    turned = Area(0.1, 0.0, 0.3).either_way
    assert (turned.value, *turned.interval) == pytest.approx((0.9, 0.7, 1.0))


def test_a_chain_has_one_model_of_each_tree():
    parents = {"a": None, "a1": "a", "b": None, "c1": "c", "c": None}
    lineage = Lineage(("a1", "a", "b", "stray", "c1", "c"), parents)
    assert chain_of_trees(lineage) == [("a1", "b"), ("b", "c1")]
    assert chain_of_trees(Lineage(("x", "y"), {})) == []


def test_p_values_along_a_chain_are_independent():
    """Three models of four units in any order: exact joint law of the two p-values of a rank test along the chain."""
    orders = list(permutations(range(4)))
    score = {order: sum(i * unit for i, unit in enumerate(order)) for order in orders}
    p_value = {order: sum(score[other] >= score[order] for other in orders) / 24 for order in orders}

    def p(a, b):
        return p_value[tuple(b.index(unit) for unit in a)]

    joint = {}
    for b, c in product(orders, repeat=2):  # the first model's order may be fixed
        key = p(orders[0], b), p(b, c)
        joint[key] = joint.get(key, 0) + 1
    first = {x: sum(n for (y, _), n in joint.items() if x == y) for x, _ in joint}
    second = {x: sum(n for (_, y), n in joint.items() if x == y) for _, x in joint}
    assert all(n * 24**2 == first[x] * second[y] for (x, y), n in joint.items())


def test_pairs_of_the_same_two_trees_are_one_group():
    known = pd.DataFrame({"a": ["x", "x1", "y"], "b": ["x1", "x2", "y1"]})
    rows = pd.DataFrame({"a": ["x", "x2", "y1", "x1", "z"], "b": ["y", "y1", "x1", "z", "x2"]})
    groups = pairs_of_trees(rows, known)
    assert groups == [groups[0]] * 3 + [groups[3]] * 2
    assert groups[0] != groups[3]


@pytest.mark.parametrize("shared", [0.0, 0.9, 1.0])
def test_small_p_values_of_trees_are_flagged_no_more_often_than_stated(shared):
    """The tree of 21 models, 141 independent pairs, 3,000 times: those of two trees share a part of their draws.

    Groups that are small together have 2% at most at both levels; 12 of all pairs at 3e-4 are flagged.
    """
    rng, sizes = np.random.default_rng(2), (12, 2, 2, 2, 1, 1, 1)
    group = np.repeat(np.arange(21), [a * b for a, b in combinations(sizes, 2)])
    flagged = 0
    for _ in range(3000):
        common, own = rng.normal(size=21)[group], rng.normal(size=141)
        log10_p = np.log10(stats.norm.sf(np.sqrt(shared) * common + np.sqrt(1 - shared) * own))
        flagged += any(bad for bad, _ in calibration.too_many_small("pairs", log10_p, groups=group.tolist()))
    assert stats.binomtest(flagged, 3000, 0.02, alternative="greater").pvalue > 0.01
    small = np.where(np.arange(141) % 12 == 0, np.log10(3e-4), -0.5)
    assert any(bad for bad, _ in calibration.too_many_small("pairs", small, groups=group.tolist()))
