"""Whether a noisy copy disagrees with its original on one side only.

The dataclasses are the rows that the page keeps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provlab.modeldiff.comparison import Summary
from provlab_study.plagiarism.theorem import Sides as OfChains
from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge, read

CLEAR = 0.05  # share of inputs by which a side must be more than half


@dataclass(frozen=True)
class SuspectSummary(Summary):
    """The base (A) compared with one suspect (B): its name, and its kind (noise, tune or stranger)."""

    pair: str
    kind: str


@dataclass(frozen=True)
class Sweep:
    """The base (A) and one suspect (B) at one loss.

    Attributes
    ----------
    pair, kind
        Name of the suspect, and its kind.
    loss
        Middle of the range of loss (nats per token).
    below_a, below_b
        Share of A's inputs there, and of B's, with D < 0, each with its 95% interval.
    mean, variance
        Mean and variance of -D = NLL_B - NLL_A over A's inputs there: mu and v.
    slope
        The slope of the log of the number of A's inputs there, by the loss: s.
    predicted_b
        Share of B's inputs with D < 0 that these three give.
    """

    pair: str
    kind: str
    loss: float
    below_a: Sequence[float]
    below_b: Sequence[float]
    mean: float
    variance: float
    slope: float
    predicted_b: float

    @property
    def group(self) -> str:
        """Copies of one noise belong together; every other suspect is by itself."""
        return self.pair.rpartition(", ")[0] if self.kind == "noise" else self.pair

    @property
    def side(self) -> int:
        """1 where most of both models' inputs have D < 0, -1 where most have D > 0, beyond the intervals; else 0."""
        low, high = min(self.below_a[1], self.below_b[1]), max(self.below_a[2], self.below_b[2])
        return 1 if low > 0.5 else -1 if high < 0.5 else 0


def one_sided_losses(rows: Sequence[Sweep], group: str) -> list[float]:
    """Losses at which all copies of one noise lie below zero on both sides, and no pair that is no copy does."""
    losses = []
    for loss in sorted({row.loss for row in rows}):
        here = [row for row in rows if row.loss == loss]
        own = [row.side for row in here if row.group == group]
        if own and min(own) == 1 and not any(row.side == 1 for row in here if row.kind != "noise"):
            losses.append(loss)
    return losses


def criterion_right(rows: Sequence[Sweep]) -> tuple[int, int]:
    """Cases in which mu > s v says the right side of B's inputs, and cases whose side is beyond its interval."""
    sure = [row for row in rows if row.below_b[1] > 0.5 or row.below_b[2] < 0.5]
    return sum((row.mean > row.slope * row.variance) == (row.below_b[0] > 0.5) for row in sure), len(sure)


def one_sided_copies(
    sides: Sequence[Mapping[str, Any]], sweep: Sequence[Mapping[str, Any]], *, levels: int, draws: int
) -> ClaimStatus:
    """For the copies of each noise most inputs of *both* models have D < 0; of other pairs A's have, and B's D > 0.

    Most is more than half by `CLEAR`.

    Copies of so many `levels` of noise, `draws` of each, and a pair that is no copy: a pattern that all pairs show is
    none of copies. The copies of one noise are pooled: each is a replicate, and the mean of their shares in Z is judged
    with its interval (`Bar`). Some case of each noise must be one-sided in the `sweep` over losses as well.
    """
    rows = read(SuspectSummary, sides)
    copies = [row.pair for row in rows if row.kind == "noise"]
    drawn = [pair.partition(",")[0] for pair in copies]
    enough = [level for level in set(drawn) if drawn.count(level) >= draws]
    if len(enough) < levels or len(copies) == len(rows) or len({row.pair for row in rows}) < len(rows):
        return ClaimStatus(
            NOT_RUN,
            "",
            f"it takes {draws} noisy copies, each its own, of {levels} levels, not of {len(enough)}, and another model",
        )
    bars, problems = [], []
    for level in dict.fromkeys(drawn):
        alike = [row for row in rows if row.kind == "noise" and row.pair.partition(",")[0] == level]
        for whose, values in (("A", [row.below_a[0] for row in alike]), ("B", [row.below_b[0] for row in alike])):
            bars.append(Bar(f"share of {whose}'s inputs below 0, {level}", values, 0.5 + CLEAR, above=True))
    for row in rows:
        for whose, (value, low, high) in (("A", row.below_a), ("B", row.below_b)) if row.kind != "noise" else ():
            what = f"share of {whose}'s inputs below 0, {row.pair}"
            at = 0.5 + CLEAR if whose == "A" else 0.5 - CLEAR
            bars.append(Bar(what, [value], at, above=whose == "A", interval=(low, high)))
    words = [f"{row.pair}: {row.below_a[0]:.0%} and {row.below_b[0]:.0%}" for row in rows]
    swept = read(Sweep, sweep)
    for level in dict.fromkeys(row.group for row in swept if row.kind == "noise"):
        directions = [row.side for row in swept if row.group == level]
        problems.append((1 not in directions, f"{level} is one-sided in none of {len(directions)} cases over losses"))
        words.append(
            f"{level} over losses: one-sided in {directions.count(1)} of {len(directions)} cases, the other way in "
            f"{directions.count(-1)}, for every copy at {len(one_sided_losses(swept, level))} losses"
        )
    right, sure = criterion_right(swept)
    words.append(f"mu > s v gives the side in {right} of {sure} cases")
    ours = "inputs with D < 0, of A and of B: " + "; ".join(words)
    return judge(ours, "copies alone have both models' inputs on one side", problems, bars)


def one_sided_under_condition(
    chains: Sequence[Mapping[str, Any]], *, world: str, noise: float, copies: int, tolerance: float
) -> ClaimStatus:
    """Where inputs are drawn colder than they are written and nearly all tokens are certain, copies are one-sided.

    All copies with that noise, at each exponent above 1; no copy of any chain at 1; and the identity of the theorem
    holds, to a tolerance (nats), and tells every side.
    """
    rows = read(OfChains, chains)
    colder = [row for row in rows if row.world == world and row.noise == noise and row.exponent > 1]
    own = [row for row in rows if row.exponent == 1]
    if len({row.copy for row in colder}) < copies or not own:
        return ClaimStatus(
            NOT_RUN, "", f"it takes {copies} copies of {world} chains, and inputs at the models' own exponent"
        )
    below = sum(row.side == 1 for row in colder)
    other = sum(row.side != 0 for row in own)
    wrong = sum(row.side != row.predicted for row in rows)
    ours = (
        f"one-sided in {below} of {len(colder)} cases (noise {noise:g}, exponents above 1), in {other} of {len(own)} "
        f"at exponent 1; the identity is off by at most {max(row.off for row in rows):.1e} nats"
    )
    problems = [
        (below < len(colder), f"{len(colder) - below} cases are not one-sided"),
        (other > 0, f"{other} cases are one-sided at exponent 1"),
        (wrong > 0, f"the theorem tells {wrong} sides wrongly"),
        (not max(row.off for row in rows) < tolerance, f"the identity is off by more than {tolerance:g} nats"),
    ]
    return judge(ours, "copies are one-sided where the theorem says", problems)
