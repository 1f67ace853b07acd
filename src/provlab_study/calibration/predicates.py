"""Predicates about p-values themselves: uniform under the null, independent, what their approximations say."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from numpy.typing import ArrayLike

from provlab.inference import pvalues
from provlab_study.publishing.evidence import HOLDS, NOT_RUN, ClaimStatus, judge, read
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


def blocks_calibrated(blocks: Mapping[str, Any], *, level: float, min_pairs: int) -> ClaimStatus:
    """The calibration check flags no table of block p-values that Theorem 2 covers, and does flag one that it does not.

    `blocks` is a `Blocks`. Its largest valid set must have `min_pairs` pairs. The level is
    that of all valid tables together, each of which is checked at its share of it.
    """
    (measured,) = read(Blocks, [blocks])
    share = level / len(measured.valid)
    reports = {name: calibration.check(table, level=share) for name, table in measured.valid.items()}
    control = calibration.check(measured.dependent, level=level)
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
        (not control.flagged, "the check does not see the dependence of parameters that share a renumbering"),
    ]
    why = "no table of blocks is flagged, and Fisher over parameters of one block is"
    verdict = judge("; ".join(words), why, problems)
    if verdict.status == HOLDS and most < min_pairs:
        return ClaimStatus(NOT_RUN, "", f"only {most} pairs, fewer than {min_pairs}")
    margin = f"smallest p of a check, over all it asks: {10.0**smallest:.2g} ({closest}); flagged up to {share:.2g}"
    return replace(verdict, margin=margin)
