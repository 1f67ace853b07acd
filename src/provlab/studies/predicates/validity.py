"""Predicates about p-values themselves: uniform under the null, independent, what their approximations say."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from provlab.inference import calibration, pvalues
from provlab.studies.predicates.evidence import NOT_RUN, Evidence, Verdict, judge

__all__ = [
    "blocks_calibrated",
    "permtest_uniform",
    "tail_agrees",
]


def permtest_uniform(evidence: Evidence, measurement: str, min_pairs: Mapping[str, int]) -> Verdict:
    """P(p <= k/(T+1)) within its binomial band for all k at once, and fine-tunes at 1/(T+1)."""
    measured = evidence.measurement(measurement)
    independent, dependent = np.array(measured["independent"]), np.array(measured["dependent"])
    t = int(measured["n_permutations"])
    enough = min_pairs.get(evidence.profile, max(min_pairs.values()))
    grid = calibration.discrete_uniform_excess(independent, t)
    at_minimum = int((np.rint(dependent * (t + 1)) == 1).sum())
    ours = (
        f"{len(independent):,} independent pairs, T = {t}: P(p ≤ 0.05) = {np.mean(independent <= 0.05):.3f}, "
        f"uniform with p = {grid.p_two_sided:.2g}; {at_minimum} of {len(dependent)} fine-tunes at 1/{t + 1}"
    )
    problems = [
        (len(independent) < enough, f"only {len(independent)} pairs, fewer than {enough}"),
        (grid.p_two_sided < 0.01, f"not uniform (p = {grid.p_two_sided:.2g})"),
        (at_minimum < len(dependent), f"{len(dependent) - at_minimum} fine-tunes above 1/{t + 1}"),
    ]
    return judge(ours, "the share of p-values up to k/(T+1) stays within the exact band at every k at once", problems)


def tail_agrees(evidence: Evidence, measurement: str, level: float) -> Verdict:
    """PERMTEST's count of exceedances is binomial with the t-tail's p, over all pairs and blocks (Holm)."""
    rows = pd.DataFrame(evidence.measurement(measurement))
    if rows.empty:
        return Verdict(NOT_RUN, "", "no pair was run through PERMTEST")
    t = rows["T"].to_numpy(dtype=int)
    # PERMTEST counts the pair itself: (1 + k) / (T + 1)
    k = np.rint(10.0 ** rows["log10_p_permtest"] * (t + 1)).astype(int) - 1
    tail = 10.0 ** rows["log10_p_t"].to_numpy(dtype=float)
    two_sided = [stats.binomtest(int(a), int(b), float(c)).pvalue for a, b, c in zip(k, t, tail, strict=True)]
    adjusted = pvalues.holm(np.log10(np.maximum(two_sided, 1e-300)))
    gap = float(np.max(np.abs(10.0 ** rows["log10_p_permtest"] - tail)))
    ours = f"{len(rows)} matchings, T = {t.max():,}: largest difference in p {gap:.3f}"
    problems = [(bool((adjusted <= np.log10(level)).any()), "PERMTEST and the t-tail differ by more than chance")]
    return judge(ours, "each count of exceedances is what the t-tail predicts, within binomial error (Holm)", problems)


def blocks_calibrated(evidence: Evidence, measurement: str, level: float, min_pairs: Mapping[str, int]) -> Verdict:
    """The calibration check flags no table of block p-values that Theorem 2 covers, and does flag one that it does not.

    The measurement holds `valid`, log10 p by pair and block for each set of disjoint pairs, and `dependent`, p-values
    of parameters that share a renumbering. The largest valid set must have the pairs that `min_pairs` asks for.
    """
    measured = evidence.measurement(measurement)
    reports = {name: calibration.check(table, level=level) for name, table in measured["valid"].items()}
    control = calibration.check(measured["dependent"], level=level)
    enough = min_pairs.get(evidence.profile, max(min_pairs.values()))
    most = max(report.n for report in reports.values())
    words = [
        f"{name}: {report.n:,} pairs, largest |correlation| of two of {report.n_blocks} blocks "
        f"{report.correlation or 0.0:.3f}, Fisher KS p = {report.fisher_ks or 0.0:.2g}"
        for name, report in reports.items()
    ]
    problems = [(report.flagged, f"{name}: {'; '.join(report.reasons)}") for name, report in reports.items()]
    problems += [
        (most < enough, f"only {most} pairs, fewer than {enough}"),
        (not control.flagged, "the check does not see the dependence of parameters that share a renumbering"),
    ]
    why = "no table of blocks is flagged, and Fisher over parameters of one block is"
    return judge("; ".join(words), why, problems)
