"""What the page on noisy copies measures: the form that is kept and judged."""

from collections.abc import Sequence
from dataclasses import dataclass

from provlab.modeldiff.comparison import Summary


@dataclass(frozen=True)
class SidesRecord(Summary):
    """The base (A) compared with one suspect (B): its name, and its kind (noise, tune or stranger)."""

    pair: str
    kind: str


@dataclass(frozen=True)
class SweepRecord:
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
        Of -D = NLL_B - NLL_A over A's inputs there: mu and v.
    slope
        Of the log of the number of A's inputs there, by the loss: s.
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


def one_sided_losses(records: Sequence[SweepRecord], group: str) -> list[float]:
    """Losses at which all copies of one noise lie below zero on both sides, and no pair that is no copy does."""
    found = []
    for loss in sorted({row.loss for row in records}):
        here = [row for row in records if row.loss == loss]
        own = [row.side for row in here if row.group == group]
        if own and min(own) == 1 and not any(row.side == 1 for row in here if row.kind != "noise"):
            found.append(loss)
    return found


def criterion_right(records: Sequence[SweepRecord]) -> tuple[int, int]:
    """Of the cases in which the side of B's inputs is beyond its interval, in how many mu > s v says the right one."""
    sure = [row for row in records if row.below_b[1] > 0.5 or row.below_b[2] < 0.5]
    return sum((row.mean > row.slope * row.variance) == (row.below_b[0] > 0.5) for row in sure), len(sure)
