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
