"""Whether a noisy copy disagrees with its original on one side only."""

from provlab.chapters.plagiarism.records import SidesRecord
from provlab.publishing.evidence import NOT_RUN, Bar, Evidence, Verdict, judge


def one_sided_copies(evidence: Evidence, measurement: str) -> Verdict:
    """For every noisy copy most inputs of *both* models have D < 0; for other pairs most of B's have D > 0."""
    rows = evidence.records(measurement, SidesRecord)
    if {row.kind == "noise" for row in rows} != {True, False}:
        return Verdict(NOT_RUN, "", "it takes a noisy copy and another model")
    bars = []
    for row in rows:
        copied = row.kind == "noise"
        for whose, (value, low, high) in (("A", row.below_a), ("B", row.below_b)):
            if copied or whose == "B":
                what = f"share of {whose}'s inputs below 0, {row.pair}"
                bars.append(Bar(what, [value], 0.5, above=copied, interval=(low, high)))
    words = [f"{row.pair}: {row.below_a[0]:.0%} and {row.below_b[0]:.0%}" for row in rows]
    ours = "inputs with D < 0, of A and of B: " + "; ".join(words)
    return judge(ours, "copies alone have both models' inputs on one side", bars=bars)
