"""Predicates about p-values themselves: uniform under the null, independent, what their approximations say."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from numpy.typing import ArrayLike

from provlab.inference import pvalues
from provlab_study.publishing.evidence import Evidence, Verdict, judge
from provlab_study.shared import calibration


@dataclass(frozen=True, eq=False)
class Blocks:
    """The tables that claim I2 is judged from.

    Attributes
    ----------
    valid
        log10 p by pair and block for each set of disjoint pairs, where Theorem 2 holds and ties are broken at random.
    dependent
        The same for p-values of parameters that share a renumbering, where it does not.
    """

    valid: dict[str, ArrayLike]
    dependent: ArrayLike


def blocks_calibrated(evidence: Evidence, measurement: str, level: float, min_pairs: Mapping[str, int]) -> Verdict:
    """The calibration check flags no table of block p-values that Theorem 2 covers, and does flag one that it does not.

    The measurement is a `Blocks`. Its largest valid set must have the pairs that `min_pairs` asks for. The level is
    that of all valid tables together, each of which is checked at its share of it.
    """
    measured = evidence.record(measurement, Blocks)
    share = level / len(measured.valid)
    reports = {name: calibration.check(table, level=share) for name, table in measured.valid.items()}
    control = calibration.check(measured.dependent, level=level)
    enough = min_pairs.get(evidence.profile, max(min_pairs.values()))
    most = max(report.n for report in reports.values())
    smallest, closest = min((pvalues.holm(list(r.tests.values())).min(), name) for name, r in reports.items())
    words = []
    for n, group in groupby(sorted(reports.values(), key=lambda report: -report.n), key=lambda report: report.n):
        alike = list(group)
        words.append(
            f"{len(alike)} tables of {n:,} pairs by {alike[0].n_blocks} blocks: largest |correlation| of two blocks "
            f"{max(report.correlation or 0.0 for report in alike):.3f}, smallest Fisher KS p = "
            f"{min(report.fisher_ks or 0.0 for report in alike):.2g}"
        )
    problems = [(report.flagged, f"{name}: {'; '.join(report.reasons)}") for name, report in reports.items()]
    problems += [
        (most < enough, f"only {most} pairs, fewer than {enough}"),
        (not control.flagged, "the check does not see the dependence of parameters that share a renumbering"),
    ]
    why = "no table of blocks is flagged, and Fisher over parameters of one block is"
    verdict = judge("; ".join(words), why, problems)
    margin = f"smallest p of a check, over all it asks: {10.0**smallest:.2g} ({closest}); flagged up to {share:.2g}"
    return replace(verdict, margin=margin)
