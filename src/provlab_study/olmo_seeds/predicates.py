"""Whether runs that share all but their seeds are found independent, and runs of one initialisation are found."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from provlab.inference import pvalues
from provlab.statistics import get as get_statistic
from provlab_study.publishing.evidence import FAILS, NOT_RUN, Bar, ClaimStatus, judge, log10_words
from provlab_study.shared import calibration


def seeds_independent(
    pairs: pd.DataFrame,
    budgets: Sequence[Mapping[str, Any]],
    n_permutations: int,
    *,
    statistics: Sequence[str],
    level: float,
    min_pairs: int,
) -> ClaimStatus:
    """No pair of runs with own seeds rejected, their p-values uniform, and runs of one initialisation found.

    Every single p-value counts, Holm over all statistics, budgets and pairs: one rejected pair refutes the claim, and a
    test of uniformity hardly sees a few extreme values. Uniformity is one test for each statistic and budget over
    disjoint pairs, all corrected together by Holm; the test of a statistic on a grid (PERMTEST) is exact on that grid.
    With few pairs it has little power, which the verdict says; so not too many p-values of a statistic may be small
    either, over all budgets, of which those of one pair of runs count as a group. The control shows that the same
    tests could have found something: some statistic must reject each pair of runs from one initialisation, Holm over
    all statistics and pairs.

    A statistic may give no p-value and say why, as phi_MATCH does where the gate and up projections of young models
    look alike. Such pairs are left out and counted. Pairs of which a block alone has none are not tested for
    uniformity: the block counts as 1. A statistic with fewer than `min_pairs` left at a budget is not tested for
    uniformity there, but each of its p-values still counts.
    """
    enough = min_pairs
    for budget in budgets:
        apart = budget["independent"]
        if len(apart) < enough or not budget["same_start"]:
            return ClaimStatus(NOT_RUN, "", f"{len(apart)} pairs a budget; {enough} and a control are asked for")
        if len({model for pair in apart for model in pair}) < 2 * len(apart):
            return ClaimStatus(FAILS, "", "pairs of a budget share a model, so their p-values are not independent")
    values = pairs[pairs["error"].isna()].set_index(["statistic", "a", "b"])
    places = {(name, *pair) for name in statistics for budget in budgets for pair in _all_pairs(budget)}
    reasons = values["why"]
    known = values.index[values["log10_p"].notna() | reasons.notna()]
    if lost := [f"{name} of {a} and {b}" for name, a, b in places - set(known)]:
        return ClaimStatus(FAILS, "", f"{len(lost)} comparisons have no value, {min(lost)} among them")

    tests = [(name, budget) for name in statistics for budget in budgets]
    compared = [values.loc[[(name, *pair) for pair in budget["independent"]]].reset_index() for name, budget in tests]
    with_p = [group[group["log10_p"].notna()] for group in compared]
    complete = [group[group["silent"] == 0] for group in with_p]
    own = pd.concat(with_p, ignore_index=True)
    left_out = _left_out(tests, list(zip(compared, with_p, complete, strict=True)), enough)
    tested = [(test, group) for test, group in zip(tests, complete, strict=True) if len(group) >= enough]
    if not tested:
        return ClaimStatus(NOT_RUN, "", f"no statistic has {enough} pairs with a p-value at a budget: {left_out}")
    tests, rows = [test for test, _ in tested], [group for _, group in tested]
    labels = [f"{name} at {budget['tokens']:,} tokens" for name, budget in tests]
    uniform = np.array(
        [_log10_uniformity(name, group, n_permutations) for (name, _), group in zip(tests, rows, strict=True)]
    )
    adjusted = pvalues.holm(uniform)
    off = [label for label, log10_p in zip(labels, adjusted, strict=True) if log10_p <= np.log10(level)]

    own["holm"] = pvalues.holm(own["log10_p"])
    rejected = own[own["holm"] <= np.log10(level)]
    accused = [f"{row.statistic} of {row.a} and {row.b} ({log10_words(row.holm)})" for row in rejected.itertuples()]
    by_statistic = own.groupby("statistic", sort=False)
    smallest = ", ".join(f"{name} {10 ** pvalues.holm(group['log10_p']).min():.2g}" for name, group in by_statistic)

    control = [tuple(pair) for budget in budgets for pair in budget["same_start"]]
    log10_p = np.array([values.loc[[(name, *pair) for pair in control], "log10_p"] for name in statistics])
    of_control = np.zeros(log10_p.shape)  # (statistics, pairs); none is rejected by a statistic without a p-value
    has_p = ~np.isnan(log10_p)
    of_control[has_p] = pvalues.holm(log10_p[has_p])
    rejections = of_control <= np.log10(level)
    missed = int((~rejections.any(axis=0)).sum())
    counts = ", ".join(f"{name} {count}" for name, count in zip(statistics, rejections.sum(axis=1), strict=True))
    weakest = int(uniform.argmin())
    n_pairs = min(len(group) for group in rows)
    ours = (
        f"{len(budgets)} budgets of {n_pairs} pairs: p of uniformity at least {10 ** uniform.min():.2g} "
        f"({tests[weakest][0]}), {10 ** adjusted[weakest]:.2g} by Holm over {len(uniform)}; "
        f"smallest p of a pair {10 ** own['log10_p'].min():.2g}, {10 ** own['holm'].min():.2g} by Holm over all "
        f"{len(own)}, by Holm over those of each statistic {smallest}; "
        f"{_in_the_papers_form(own)}of {len(control)} pairs of one initialisation are found by {counts}"
        f"{_without_p(statistics, ~has_p, left_out)}"
    )
    place = {tuple(pair): i for budget in budgets for i, pair in enumerate(budget["independent"])}
    small = [
        problem
        for name, group in by_statistic
        for problem in calibration.too_many_small(
            f"pairs with own seeds by {name}",
            group["log10_p"],
            groups=[place[pair] for pair in zip(group["a"], group["b"], strict=True)],
            n_sets=by_statistic.ngroups,
        )
    ]
    problems = [
        (bool(accused), f"{len(accused)} pairs with own seeds are rejected, {'; '.join(accused[:3])}"),
        (bool(off), f"the p-values are not uniform for {', '.join(off)}"),
        (missed > 0, f"{missed} of {len(control)} pairs of one initialisation are found by no statistic"),
        *small,
    ]
    bound = float(np.log10(level))
    bars = (
        Bar("smallest p of a pair with own seeds, by Holm, log10", [own["holm"].min()], bound, above=True),
        Bar("smallest p of uniformity, by Holm, log10", [adjusted.min()], bound, above=True),
        Bar(
            "weakest pair of one initialisation, by its best statistic and Holm, log10 p",
            [of_control.min(axis=0).max()],
            bound,
        ),
    )
    power = power_of_uniformity(n_pairs, len(budgets), len(tests), level)
    why = (
        "not refuted: no pair with own seeds is rejected and no test of uniformity rejects, while some statistic finds "
        "every pair of one initialisation; a statistic whose p-values were squares of uniform ones at every budget "
        f"would be found not uniform in {power:.0%} of such studies"
    )
    return judge(ours, why, problems, bars)


def power_of_uniformity(n_pairs: int, n_budgets: int, n_tests: int, level: float) -> float:
    """Share of studies that find a statistic not uniform whose p-values are squares of uniform ones, at every budget.

    Kolmogorov and Smirnov's test at each of the budgets, at `level` over all the `n_tests` of the study; 2,000 draws of
    a fixed seed.
    """
    p = np.sort(np.random.default_rng(0).random((2000, n_budgets, n_pairs)) ** 2)
    steps = np.arange(1, n_pairs + 1) / n_pairs
    distance = np.maximum(steps - p, p - steps + 1 / n_pairs).max(axis=-1)
    return float((distance.max(axis=1) >= stats.kstwo.isf(level / n_tests, n_pairs)).mean())


def _all_pairs(budget: Mapping[str, list[list[str]]]) -> list[list[str]]:
    return [*budget["independent"], *budget["same_start"]]


def _left_out(
    tests: Sequence[tuple[str, Mapping[str, Any]]], groups: Sequence[Sequence[pd.DataFrame]], enough: int
) -> str:
    """Count the pairs with own seeds that have no p-value, in whole or in part, and say where too few are left.

    `groups` are for each test all its pairs, those with a p-value, and those with one in each block.
    """
    return ", ".join(
        f"{len(group) - len(complete)} of {len(group)} at {budget['tokens']:,} tokens by {name}"
        + f" ({len(with_p) - len(complete)} of them in some blocks only)" * (len(complete) < len(with_p))
        + " (too few are left to test for uniformity)" * (len(complete) < enough)
        for (name, budget), (group, with_p, complete) in zip(tests, groups, strict=True)
        if len(complete) < len(group)
    )


def _without_p(statistics: Sequence[str], lacks_p: NDArray[np.bool_], left_out: str) -> str:
    """Say which pairs have no p-value, with own seeds and, by `lacks_p` ``(statistics, pairs)``, of one start."""
    counts = zip(statistics, lacks_p.sum(axis=1), strict=True)
    control = ", ".join(f"{count} by {name}" for name, count in counts if count)
    parts = [f"pairs with own seeds {left_out}"] * bool(left_out) + [f"of one initialisation {control}"] * bool(control)
    return f"; without a p-value, since the statistic withholds it: {'; '.join(parts)}" if parts else ""


def _in_the_papers_form(own: pd.DataFrame) -> str:
    """Range of the two-sided p-values of the t tail, which the published ones are, for each statistic that has them."""
    ranges = [
        f"{name} {10 ** paper.min():.2g} to {10 ** paper.max():.2g}"
        for name, paper in own.groupby("statistic", sort=False)["paper_log10_p"]
        if paper.notna().all()
    ]
    return f"by the paper's form {', '.join(ranges)}; " if ranges else ""


def _log10_uniformity(statistic: str, rows: pd.DataFrame, n_permutations: int) -> float:
    """log10 p of the uniformity of the pairs' p-values, on PERMTEST's own grid where they come from one."""
    on_grid = "n_permutations" in get_statistic(statistic).settings
    p = calibration.uniformity(rows["log10_p"].to_numpy(), n_permutations if on_grid else None)
    return float(np.log10(p))
