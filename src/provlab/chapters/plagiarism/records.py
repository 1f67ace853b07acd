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
    """Share of inputs with D < 0 by loss.

    Attributes
    ----------
    pair
        Name of the suspect.
    whose
        Whose inputs: "base" or "suspect".
    x
        Middles of the ranges of loss.
    y, low, high
        Share of the inputs there with D < 0, and its 95% interval.
    """

    pair: str
    whose: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
