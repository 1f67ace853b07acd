"""Whether a noisy copy disagrees with its original on one side only."""

from provlab.chapters.plagiarism.records import SidesRecord, SweepRecord, criterion_right, one_sided_losses
from provlab.publishing.evidence import NOT_RUN, Bar, Evidence, Verdict, judge


def one_sided_copies(evidence: Evidence, measurement: str, sweep: str, levels: int, draws: int) -> Verdict:
    """For every noisy copy most inputs of *both* models have D < 0; for other pairs A's have, and B's have D > 0.

    Copies of so many `levels` of noise, `draws` of each, and a pair that is no copy: a pattern that all pairs show is
    none of copies, and one that some draws of the noise show is none of noise. Judged in Z; what the `sweep` over
    losses found is told beside it.
    """
    rows = evidence.records(measurement, SidesRecord)
    copies = [row.pair for row in rows if row.kind == "noise"]
    drawn = [pair.partition(",")[0] for pair in copies]
    enough = [level for level in set(drawn) if drawn.count(level) >= draws]
    if len(enough) < levels or len(copies) == len(rows) or len({row.pair for row in rows}) < len(rows):
        return Verdict(
            NOT_RUN,
            "",
            f"it takes {draws} noisy copies, each its own, of {levels} levels, not of {len(enough)}, and another model",
        )
    bars = []
    for row in rows:
        copied = row.kind == "noise"
        for whose, (value, low, high) in (("A", row.below_a), ("B", row.below_b)):
            what = f"share of {whose}'s inputs below 0, {row.pair}"
            bars.append(Bar(what, [value], 0.5, above=copied or whose == "A", interval=(low, high)))
    words = [f"{row.pair}: {row.below_a[0]:.0%} and {row.below_b[0]:.0%}" for row in rows]
    swept = evidence.records(sweep, SweepRecord)
    for level in dict.fromkeys(row.group for row in swept if row.kind == "noise"):
        found = one_sided_losses(swept, level)
        sides = [row.side for row in swept if row.group == level]
        words.append(
            f"{level} over losses: one-sided in {sides.count(1)} of {len(sides)} cases, the other way in "
            f"{sides.count(-1)}, for every copy at {len(found)} losses"
        )
    right, sure = criterion_right(swept)
    words.append(f"mu > s v gives the side in {right} of {sure} cases")
    ours = "inputs with D < 0, of A and of B: " + "; ".join(words)
    return judge(ours, "copies alone have both models' inputs on one side", bars=bars)
