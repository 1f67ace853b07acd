"""Whether a noisy copy disagrees with its original on one side only."""

from provlab.chapters.plagiarism.records import SidesRecord
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge


def one_sided_copies(evidence: Evidence, measurement: str) -> Verdict:
    """For every noisy copy most inputs of *both* models have D < 0; for other pairs most of B's have D > 0."""
    rows = evidence.records(measurement, SidesRecord)
    words, problems = [], []
    for row in rows:
        (a, a_low, _), (b, b_low, b_high) = row.below_a, row.below_b
        words.append(f"{row.pair}: {a:.0%} and {b:.0%}")
        if row.kind == "noise":
            one_sided = a_low > 0.5 and b_low > 0.5
            problems.append((not one_sided, f"{row.pair} is not one-sided ({a:.0%} of A's, {b:.0%} of B's below 0)"))
        else:
            problems.append((b_high >= 0.5, f"{row.pair} looks one-sided too ({b:.0%} of B's below 0)"))
    if not any(row.kind == "noise" for row in rows):
        return Verdict(NOT_RUN, "", "no noisy copy was compared")
    ours = "inputs with D < 0, of A and of B: " + "; ".join(words)
    return judge(ours, "copies alone have both models' inputs on one side", problems)
