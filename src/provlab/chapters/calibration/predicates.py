"""Predicates about p-values themselves: uniform under the null, independent, what their approximations say."""

from collections.abc import Mapping

from provlab.chapters.calibration.measure import Blocks
from provlab.chapters.shared import calibration
from provlab.publishing.evidence import Evidence, Verdict, judge


def blocks_calibrated(evidence: Evidence, measurement: str, level: float, min_pairs: Mapping[str, int]) -> Verdict:
    """The calibration check flags no table of block p-values that Theorem 2 covers, and does flag one that it does not.

    The measurement is a `Blocks`. Its largest valid set must have the pairs that `min_pairs` asks for.
    """
    measured = Blocks(**evidence.measurement(measurement))
    reports = {name: calibration.check(table, level=level) for name, table in measured.valid.items()}
    control = calibration.check(measured.dependent, level=level)
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
