"""Whether Spearman's t tail agrees with PERMTEST."""

import numpy as np

from provlab.chapters.matching_and_pvalues.measure import Tail, agreement
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge


def tail_agrees(evidence: Evidence, measurement: str, level: float) -> Verdict:
    """PERMTEST's count of exceedances is binomial with the t-tail's p, over all pairs and blocks (Holm)."""
    rows = evidence.records(measurement, Tail)
    if not rows:
        return Verdict(NOT_RUN, "", "no pair was run through PERMTEST")
    found = agreement(rows)
    ours = f"{len(rows)} matchings, T = {max(row.T for row in rows):,}: largest difference in p {found.gap:.3f}"
    problems = [(bool((found.adjusted <= np.log10(level)).any()), "PERMTEST and the t-tail differ by more than chance")]
    return judge(ours, "each count of exceedances is what the t-tail predicts, within binomial error (Holm)", problems)
