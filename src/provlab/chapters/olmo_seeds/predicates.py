"""Predicates about runs that share all but their seeds, and about the test on other architectures."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from provlab.chapters.olmo_seeds.measure import Budget, log10_uniformity, power_of_uniformity
from provlab.inference import pvalues
from provlab.publishing.evidence import FAILS, NOT_RUN, Bar, Evidence, Verdict, judge, log10_words


def seeds_independent(
    evidence: Evidence, measurement: str, statistics: Sequence[str], level: float, min_pairs: Mapping[str, int]
) -> Verdict:
    """No pair of runs with own seeds rejected, their p-values uniform, and runs of one initialisation found.

    Every single p-value counts, Holm over all statistics, budgets and pairs: one pair that is accused refutes the
    claim, and a test of uniformity hardly sees a few extreme values. Uniformity is one test for each statistic and
    budget over disjoint pairs, all corrected together by Holm; of a statistic on a grid (PERMTEST) the test is exact on
    that grid. With few pairs it has little power, which the verdict says. The control is what shows that the same tests
    could have found something: of every two runs from one initialisation some statistic must reject, Holm over all
    statistics and pairs.
    """
    budgets = evidence.records(measurement, Budget.read)
    enough = min_pairs.get(evidence.profile, max(min_pairs.values()))
    for budget in budgets:
        pairs = budget.independent
        if len(pairs) < enough or not budget.same_start:
            return Verdict(NOT_RUN, "", f"{len(pairs)} pairs a budget; {enough} and a control are asked for")
        if len({model for pair in pairs for model in pair}) < 2 * len(pairs):
            return Verdict(FAILS, "", "pairs of a budget share a model, so their p-values are not independent")
    values = {name: _by_pair(evidence, name) for name in statistics}
    wanted = {pair for budget in budgets for pair in (*budget.independent, *budget.same_start)}
    if lost := [f"{name} of {pair[0]} and {pair[1]}" for name in statistics for pair in wanted - set(values[name])]:
        return Verdict(FAILS, "", f"{len(lost)} comparisons have no value, {min(lost)} among them")

    asked = [(name, budget) for name in statistics for budget in budgets]
    rows = [[values[name][pair] for pair in budget.independent] for name, budget in asked]
    uniform = np.array([_log10_uniformity(evidence, some) for some in rows])
    adjusted = pvalues.holm(uniform)
    off = [
        f"{name} at {budget.tokens:,} tokens"
        for (name, budget), log10_p in zip(asked, adjusted, strict=True)
        if log10_p <= np.log10(level)
    ]

    single = np.array([[row["log10_p"] for row in some] for some in rows])  # (statistics * budgets, pairs)
    alone = pvalues.holm(single.ravel()).reshape(single.shape)
    accused = [
        f"{asked[i][0]} of {rows[i][k]['a']} and {rows[i][k]['b']} ({log10_words(alone[i, k])})"
        for i, k in np.argwhere(alone <= np.log10(level)).tolist()
    ]
    by_statistic = single.reshape(len(statistics), -1)
    smallest = ", ".join(
        f"{name} {10 ** pvalues.holm(some).min():.2g}" for name, some in zip(statistics, by_statistic, strict=True)
    )

    control = [pair for budget in budgets for pair in budget.same_start]
    log10_p = np.array([[values[name][pair]["log10_p"] for pair in control] for name in statistics])
    of_control = pvalues.holm(log10_p.ravel()).reshape(log10_p.shape)
    rejected = of_control <= np.log10(level)
    missed = int((~rejected.any(axis=0)).sum())
    found = ", ".join(f"{name} {count}" for name, count in zip(statistics, rejected.sum(axis=1), strict=True))
    weakest = int(uniform.argmin())
    n_pairs = min(len(some) for some in rows)
    ours = (
        f"{len(budgets)} budgets of {n_pairs} pairs: p of uniformity at least {10 ** uniform.min():.2g} "
        f"({asked[weakest][0]}), {10 ** adjusted[weakest]:.2g} by Holm over {len(uniform)}; "
        f"smallest p of a pair {10 ** single.min():.2g}, {10 ** alone.min():.2g} by Holm over all {single.size}, "
        f"by Holm over the {by_statistic.shape[1]} of a statistic {smallest}; {_in_the_paper_s_form(asked, rows)}"
        f"of {len(control)} pairs of one initialisation are found by {found}"
    )
    problems = [
        (bool(accused), f"{len(accused)} pairs with own seeds are rejected, {'; '.join(accused[:3])}"),
        (bool(off), f"the p-values are not uniform for {', '.join(off)}"),
        (missed > 0, f"{missed} of {len(control)} pairs of one initialisation are found by no statistic"),
    ]
    bound = float(np.log10(level))
    bars = (
        Bar("smallest p of a pair with own seeds, by Holm, log10", [alone.min()], bound, above=True),
        Bar("smallest p of uniformity, by Holm, log10", [adjusted.min()], bound, above=True),
        Bar(
            "weakest pair of one initialisation, by its best statistic and Holm, log10 p",
            [of_control.min(axis=0).max()],
            bound,
        ),
    )
    power = power_of_uniformity(n_pairs, len(budgets), len(asked), level)
    why = (
        "not refuted: no pair with own seeds is rejected and no test of uniformity rejects, while some statistic finds "
        "every pair of one initialisation; a statistic whose p-values were squares of uniform ones at every budget "
        f"would be found not uniform in {power:.0%} of such studies"
    )
    return judge(ours, why, problems, bars)


def _in_the_paper_s_form(asked: Sequence[tuple[str, Budget]], rows: Sequence[Sequence[pd.Series]]) -> str:
    """Range of the two-sided p-values of the t tail, which the published ones are, for each statistic that has them."""
    said = []
    for name in dict.fromkeys(name for name, _ in asked):
        paper = [
            row["paper_log10_p"] for (other, _), some in zip(asked, rows, strict=True) if other == name for row in some
        ]
        if not np.isnan(paper).any():
            said.append(f"{name} {10 ** min(paper):.2g} to {10 ** max(paper):.2g}")
    return f"by the paper's form {', '.join(said)}; " if said else ""


def _by_pair(evidence: Evidence, statistic: str) -> dict[tuple[str, str], pd.Series]:
    rows = evidence.pairs[evidence.pairs["statistic"] == statistic]
    return {(row["a"], row["b"]): row for _, row in rows.iterrows() if not row["error"]}


def _log10_uniformity(evidence: Evidence, rows: Sequence[pd.Series]) -> float:
    """log10 p of the uniformity of the pairs' p-values, on PERMTEST's own grid where they come from one."""
    unit = evidence.store.get(rows[0]["keys"][0])
    assert unit is not None
    return log10_uniformity([row["log10_p"] for row in rows], unit["parameters"].get("n_permutations"))
