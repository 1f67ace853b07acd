"""Whether a noisy copy disagrees with its original on one side only."""

from provlab.chapters.plagiarism.records import SidesRecord
from provlab.publishing.evidence import NOT_RUN, Bar, Evidence, Verdict, judge


def one_sided_copies(evidence: Evidence, measurement: str, levels: int) -> Verdict:
    """For every noisy copy most inputs of *both* models have D < 0; for other pairs A's have, and B's have D > 0.

    Copies of so many `levels` of noise, and a pair that is no copy: a pattern that all pairs show is none of copies.
    """
    rows = evidence.records(measurement, SidesRecord)
    copies = [row.pair for row in rows if row.kind == "noise"]
    n_levels = len({pair.partition(",")[0] for pair in copies})
    if n_levels < levels or len(copies) == len(rows) or len({row.pair for row in rows}) < len(rows):
        return Verdict(NOT_RUN, "", f"it takes noisy copies of {levels} levels, not {n_levels}, and another model")
    bars = []
    for row in rows:
        copied = row.kind == "noise"
        for whose, (value, low, high) in (("A", row.below_a), ("B", row.below_b)):
            what = f"share of {whose}'s inputs below 0, {row.pair}"
            bars.append(Bar(what, [value], 0.5, above=copied or whose == "A", interval=(low, high)))
    words = [f"{row.pair}: {row.below_a[0]:.0%} and {row.below_b[0]:.0%}" for row in rows]
    ours = "inputs with D < 0, of A and of B: " + "; ".join(words)
    return judge(ours, "copies alone have both models' inputs on one side", bars=bars)
