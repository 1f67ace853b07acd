"""What the page on language models measures besides summaries of comparisons: the form that is kept and judged."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CapabilityRecord:
    """Two models, their held-out losses, B's loss less A's, and log10 of B's inputs in Z for one of A's.

    The last two with their 95% intervals.
    """

    models: Sequence[str]
    held_out: Sequence[float]
    apart: Sequence[float]
    log10_more: Sequence[float]


@dataclass(frozen=True)
class WaysRecord:
    """One number by both ways to draw: value, low and high of the 95% interval.

    Attributes
    ----------
    pair, what
        Which comparison, and which number of it.
    generation, exchange
        By the models' own generation, and by replica exchange.
    """

    pair: str
    what: str
    generation: Sequence[float]
    exchange: Sequence[float]

    @property
    def apart(self) -> float:
        """How far the two are apart, for one of the reach of both intervals together."""
        reach = sum(((row[2] - row[1]) / 2) ** 2 for row in (self.generation, self.exchange)) ** 0.5
        off = abs(self.generation[0] - self.exchange[0])
        return off / reach if reach else (float("inf") if off else 0.0)


@dataclass(frozen=True)
class RepetitionRecord:
    """How repetitive the inputs of one model are.

    Attributes
    ----------
    model
        Its name.
    nll
        Middle of the lowest bin of loss that holds enough draws.
    lowest, in_z, text
        Mean share of repeated pairs of tokens: there, in Z, and in held-out text.
    """

    model: str
    nll: float
    lowest: float
    in_z: float
    text: float


@dataclass(frozen=True)
class DomainsRecord:
    """What two tunes disagree about.

    Attributes
    ----------
    code_side, prose_side
        Share of code among the quarter of inputs that each model prefers most, of the model tuned on code and of the
        one tuned on prose.
    gap
        Their difference and its 95% interval.
    code_rise, prose_rise
        Share of the own kind (code, prose) in that quarter less its share in the rest, and the 95% interval.
    accuracy
        Share of held-out pieces that the labels get right.
    """

    code_side: float
    prose_side: float
    gap: Sequence[float]
    code_rise: Sequence[float]
    prose_rise: Sequence[float]
    accuracy: float
