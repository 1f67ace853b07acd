"""Predicates about runs that share all but their seeds, and about the test on other architectures."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from provlab.chapters.olmo_seeds.measure import Budget, log10_uniformity
from provlab.inference import pvalues
from provlab.publishing.evidence import FAILS, NOT_RUN, Evidence, Verdict, judge


def seeds_independent(
    evidence: Evidence, measurement: str, statistics: Sequence[str], level: float, min_pairs: Mapping[str, int]
) -> Verdict:
    """Uniform p-values at every budget for runs with own seeds; runs of one initialisation found at every budget.

    Uniformity is one test for each statistic and budget over disjoint pairs, all corrected together by Holm; of a
    statistic on a grid (PERMTEST) the test is exact on that grid. The control is what shows that the same tests could
    have found something: of every two runs from one initialisation some statistic must reject, Holm over all statistics
    and pairs. PERMTEST is read there by the Fisher aggregate of its blocks, as its own p-value is 1/(T+1) at best.
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

    control = [pair for budget in budgets for pair in budget.same_start]
    log10_p = np.array([[_strongest(values[name][pair]) for pair in control] for name in statistics])
    rejected = (pvalues.holm(log10_p.ravel()) <= np.log10(level)).reshape(log10_p.shape)
    missed = int((~rejected.any(axis=0)).sum())
    found = ", ".join(f"{name} {count}" for name, count in zip(statistics, rejected.sum(axis=1), strict=True))
    weakest = int(uniform.argmin())
    single = np.array([row["log10_p"] for some in rows for row in some], dtype=float)  # not judged, but not kept back
    ours = (
        f"{len(budgets)} budgets of {len(rows[0])} pairs: p of uniformity at least {10 ** uniform.min():.2g} "
        f"({asked[weakest][0]}), {10 ** adjusted[weakest]:.2g} by Holm over {len(uniform)}; "
        f"smallest p of a pair {10 ** single.min():.2g}, {10 ** pvalues.holm(single).min():.2g} by Holm over "
        f"{len(single)}; "
        f"of {len(control)} pairs of one initialisation are found by {found}"
    )
    problems = [
        (bool(off), f"the p-values are not uniform for {', '.join(off)}"),
        (missed > 0, f"{missed} of {len(control)} pairs of one initialisation are found by no statistic"),
    ]
    why = "own seeds give uniform p-values at every budget; every pair of one initialisation is found by some statistic"
    return judge(ours, why, problems)


def _by_pair(evidence: Evidence, statistic: str) -> dict[tuple[str, str], pd.Series]:
    rows = evidence.pairs[evidence.pairs["statistic"] == statistic]
    return {(row["a"], row["b"]): row for _, row in rows.iterrows() if not row["error"]}


def _log10_uniformity(evidence: Evidence, rows: Sequence[pd.Series]) -> float:
    """log10 p of the uniformity of the pairs' p-values, on PERMTEST's own grid where they come from one."""
    n_permutations = None
    if "fisher_log10_p" in rows[0]["detail"]:
        unit = evidence.store.get(rows[0]["keys"][0])
        assert unit is not None
        n_permutations = int(unit["parameters"]["n_permutations"])
    return log10_uniformity([row["log10_p"] for row in rows], n_permutations)


def _strongest(row: pd.Series) -> float:
    return float(row["detail"].get("fisher_log10_p", row["log10_p"]))
