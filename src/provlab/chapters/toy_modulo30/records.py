"""What the page on the toy measures, row by row: the form in which it is kept and judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Numbers = Sequence[float]  # four of them are a ratio PD_AB : PA_AB : PA_BA : PD_BA


@dataclass(frozen=True)
class SpaceRecord:
    """Inputs of the space, how many of them are valid, and prefixes that went through each network."""

    inputs: int
    valid: int
    prefixes: int


@dataclass(frozen=True)
class GenerationRecord:
    """What one model generates.

    Attributes
    ----------
    model
        Its name.
    n, valid
        Sequences written by plain sampling, and how many of them are valid.
    exact
        Share of valid sequences under plain sampling, by the enumeration.
    papers, temperature
        Share of valid sequences under Equation 4 at a temperature, by the enumeration.
    """

    model: str
    n: int
    valid: int
    exact: float
    papers: float
    temperature: float


@dataclass(frozen=True)
class RunRecord:
    """A sampled ratio with the ends of its 95% intervals; of long runs also how far rho(D) is from the enumeration's.

    Attributes
    ----------
    ratio, low, high
        Four numbers each.
    total_variation
        Distance for A's inputs and for B's; empty for a short run.
    """

    ratio: Numbers
    low: Numbers
    high: Numbers
    total_variation: Numbers = ()


@dataclass(frozen=True)
class SamplingRecord:
    """Runs of the sampler beside the enumerated ratio, whose unit is the term `reference`.

    Attributes
    ----------
    exact, reference
        The enumerated ratio.
    runs, repeats
        Long runs, and short ones for intervals.
    blind
        One run with moves that know nothing of what makes an input valid.
    edges
        Bins of D.
    """

    exact: Numbers
    reference: str
    runs: Sequence[RunRecord]
    repeats: Sequence[RunRecord]
    blind: RunRecord
    edges: Numbers

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> "SamplingRecord":
        """Read what `plain` left."""
        runs, repeats = ([RunRecord(**row) for row in kept[name]] for name in ("runs", "repeats"))
        return cls(**{**kept, "runs": runs, "repeats": repeats, "blind": RunRecord(**kept["blind"])})

    def plain(self) -> dict[str, Any]:
        """Return the record as plain data; a short run holds no distance."""
        repeats = [{"ratio": one.ratio, "low": one.low, "high": one.high} for one in self.repeats]
        return {**vars(self), "runs": [vars(one) for one in self.runs], "repeats": repeats, "blind": vars(self.blind)}

    @property
    def coverage(self) -> list[float]:
        """Share of the short runs whose interval holds the enumerated value, for each term."""
        each = [[row.low[k] <= self.exact[k] <= row.high[k] for row in self.repeats] for k in range(4)]
        return [sum(hits) / max(1, len(hits)) for hits in each]


@dataclass(frozen=True)
class NaiveRecord:
    """Total variation distance of rho(D) to the enumeration's by the number of draws, for A's inputs and for B's.

    Attributes
    ----------
    draws
        Draws of a chain at one temperature, in rising order: the first ones of each run, and at last all.
    naive, weighted
        ``(draws, run, 2)``: of the coldest draws as they come, and of all draws with weights.
    temperature
        Of the coldest draws.
    """

    draws: Sequence[int]
    naive: Sequence[Sequence[Numbers]]
    weighted: Sequence[Sequence[Numbers]]
    temperature: float

    @property
    def error(self) -> float:
        """Distance with weights after all draws: the mean of runs and directions."""
        return float(np.mean(self.weighted[-1]))

    def draws_for(self, error: float) -> float:
        """How many draws of a chain it takes until weighted draws are so near: the error falls as their root."""
        return float(self.draws[-1] * (self.error / error) ** 2) if error else float("inf")


@dataclass(frozen=True)
class BiasRecord:
    """Exact distance of rho(D) to the truth if inputs are drawn from Equation 4 at a temperature and not weighted."""

    temperature: float
    A: float
    B: float


@dataclass(frozen=True)
class NormalisationRecord:
    """The worked example, and what Equations 12 and 13 make of uneven draws.

    Attributes
    ----------
    example
        The worked example's ratio, times four.
    common
        Inputs in R3, counted from A's side and from B's.
    exact, sampled, unnormalised
        Ratio by enumeration; of uneven draws divided by those in R3; of the same draws as they are.
    """

    example: Numbers
    common: Sequence[int]
    exact: Numbers
    sampled: Numbers
    unnormalised: Numbers


@dataclass(frozen=True)
class RangeRecord:
    """The enumerated ratio at another range: a share `tail` left out at either end; None where the range is moved."""

    tail: float | None
    low: float
    high: float
    ratio: Numbers


@dataclass(frozen=True)
class OracleRecord:
    """Precision and recall of the inputs behind one term in a range `z`.

    Attributes
    ----------
    term, z
        Which.
    precision, recall
        Of the draws, with their weights.
    exact_precision, exact_recall
        By enumeration.
    plain_precision, plain_recall
        Of the draws as if each had the same weight.
    """

    term: str
    z: Sequence[float]
    precision: float
    recall: float
    exact_precision: float
    exact_recall: float
    plain_precision: float
    plain_recall: float


@dataclass(frozen=True)
class ThroughReferenceRecord:
    """Terms of a comparison with A in units of A's inputs (Equations 14 to 17): enumerated, and of each long run."""

    pair: str
    exact: Numbers
    runs: Sequence[Numbers]
