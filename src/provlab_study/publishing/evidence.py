"""Input and output of a function that judges a claim: records of one experiment, bars, and a verdict."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from provlab.errors import ParameterError
from provlab.plots import format_log10_p, format_number
from provlab.report.study_report import StudyReport
from provlab.statistics import get as get_statistic
from provlab.statistics.results import BlockResult, MissingDetailError
from provlab_study.publishing.results import Results

Kind = TypeVar("Kind")

HOLDS, WITHIN_SPREAD = "holds", "within_its_spread"
#: it holds by a rule that was settled after a look at our records: what was changed then is the bar alone, or what is
#: measured (models, their training, the sampler, the objects that count)
BAR_SET, EXPERIMENT_CHANGED = "holds, bar set after data", "holds, experiment changed after data"
HELD = (HOLDS, BAR_SET, EXPERIMENT_CHANGED)
FAILS, NOT_RUN = "fails", "not run"
MOST_SHOWN = 4  # bars of one claim; of more, only those that are not passed
STATUSES = (*HELD, WITHIN_SPREAD, FAILS, NOT_RUN)


@dataclass(frozen=True)
class ClaimStatus:
    """The judgement of a predicate.

    Attributes
    ----------
    status : str
        One of `STATUSES`. A predicate returns of `HELD` only `HOLDS`: `settled` in ``claims.yml`` does the rest.
    ours : str
        Our value in words.
    why : str
        The reason.
    margin : str
        How far the value is from its bar, and on which side.
    replicates : str
        In how many of how many replicates the claim holds, as "4 of 5".
    """

    status: str
    ours: str
    why: str
    margin: str = ""
    replicates: str = ""


def share_interval(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval (Clopper and Pearson, 1934) for the share behind k of n trials."""
    beyond = (1 - level) / 2
    low = float(stats.beta.ppf(beyond, k, n - k + 1)) if k else 0.0
    high = float(stats.beta.ppf(1 - beyond, k + 1, n - k)) if k < n else 1.0
    return low, high


@dataclass(frozen=True)
class Bar:
    """The number that a value must be below (or above) for a claim to hold, and what was measured.

    The claim has the burden of proof. It fails if the value, or the mean of its replicates (training seeds), is on the
    wrong side. It holds if every replicate is on the right side, and the 95% interval of the mean as well: one-sided,
    Student's t with n - 1 degrees of freedom, so replicates are taken as normal. Between the two it is within its
    spread. A single value that was estimated from draws brings its own 95% interval. The bar must not be used for a
    p-value that is uniform where the claim is true.

    Rates with three normal replicates whose truth lies -2, -1, 0, 1 or 2 standard deviations beyond the bar, from
    40,000 draws each: the claim holds in 0, 0.2, 5, 32 and 71%, is within its spread in 0, 4, 45, 64 and 29%, and fails
    in 100, 96, 50, 4 and 0%. An earlier rule, by the median and the spread of one further run, failed a truth of -2 in
    31% only, and a truth of -1 in 10%.

    Attributes
    ----------
    what : str
        The value in words, as "largest phi_U of a dependent pair".
    values : sequence of float
        One for each replicate, or the only one.
    at : float
        The bar.
    above : bool
        Whether values must be above the bar; otherwise below.
    interval : pair of float
        The 95% interval of a single value that was estimated from draws: its spread.
    trials : int
        Of a single value that is a share (`share` makes such bars): how many trials it is a share of.
    """

    what: str
    values: Sequence[float]
    at: float
    above: bool = False
    interval: tuple[float, float] | None = None
    trials: int | None = None

    @classmethod
    def share(cls, what: str, k: int, n: int, at: float, *, above: bool = False) -> "Bar":
        """Make the bar of `k` of `n` trials, with the exact 95% interval of their share (Clopper and Pearson, 1934)."""
        return cls(what, [k / n], at, above=above, interval=share_interval(k, n), trials=n)

    def __post_init__(self) -> None:
        if not len(self.values):
            raise ParameterError(f"the bar of the {self.what} has no value to judge")

    def _beyond(self, values: Sequence[float]) -> NDArray[np.float64]:
        """How far values are beyond the bar; negative on the wrong side."""
        distances = np.asarray(values, dtype=float) - self.at
        return distances if self.above else -distances

    @property
    def held(self) -> int:
        """Number of replicates beyond the bar."""
        return int((self._beyond(self.values) > 0).sum())

    @property
    def middle(self) -> float:
        """Mean distance beyond the bar; negative on the wrong side."""
        return float(np.mean(self._beyond(self.values)))

    @property
    def spread(self) -> float:
        """How far the 95% interval of the mean reaches to either side; 0 for a single value."""
        n = len(self.values)
        return float(stats.t.ppf(0.95, n - 1) * np.std(self.values, ddof=1) / np.sqrt(n)) if n > 1 else 0.0

    @property
    def status(self) -> str:
        """Whether the claim holds here, fails, or is within its spread; a value that is NaN fails."""
        if not self.middle > 0:
            return FAILS
        least = self._beyond(self.interval).min() if self.interval else self.middle - self.spread
        return HOLDS if least > 0 and self.held == len(self.values) else WITHIN_SPREAD

    @property
    def too_few(self) -> str:
        """Of a share whose trials could not pass if none went wrong: how many there are and are needed, in words."""
        if self.trials is None:
            return ""
        right = self.at if self.above else 1 - self.at
        needed = math.floor(math.log(0.025) / math.log(right)) + 1 if 0 < right < 1 else 0
        return f"too few trials, {self.trials} of {needed}" if self.trials < needed else ""

    @property
    def margin(self) -> str:
        """In words, as ``largest phi_U: -42.3, 12.3 below the bar of -30``."""
        if np.isnan(self.middle):
            return f"{self.what}: no value"
        several = len(self.values) > 1
        value = f"{'mean ' * several}{_number(float(np.mean(self.values)), self.middle)}"
        if self.interval:
            low, high = (_number(end, self.middle) for end in self.interval)
            value += f" (95% interval {low} to {high})"
        side = "above" if (self.middle >= 0) == self.above else "below"
        off = f"{_number(abs(self.middle))} {side}" if self.middle else "at"
        words = f"{self.what}: {value}, {off} the bar of {self.at:g}"
        return f"{words}, spread {_number(self.spread)}" if several and not self.interval else words


OLD = "its records are those of another version: run its page again"


class OldRecordsError(ParameterError):
    """Records were kept by a version of an experiment that measured something else."""


@dataclass(frozen=True)
class RunRecords:
    """What one notebook run left in the store."""

    experiment: dict[str, Any]
    store: Results

    def measurement(self, name: str) -> Any:
        """One measurement of the notebook; KeyError if it made none of that name."""
        return self.experiment["measurements"][name]

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """One row per pair and statistic, aggregated again from the stored units.

        Columns: a, b, statistic, dependent, siblings, error, value, log10_p, paper_log10_p, why, detail, blocks (a list
        of log10 p) and silent (how many blocks count as 1, since nothing in them could).
        """
        rows = [{**pair, **self._aggregate(pair)} for pair in self.experiment["pairs"]]
        frame = pd.DataFrame(rows, columns=None if rows else ["a", "b", "statistic"])
        for column in ("error", "dependent", "why"):  # None must stay None among text and booleans
            frame[column] = pd.Series([row[column] for row in rows], dtype=object)
        return frame

    def _aggregate(self, pair: Mapping[str, Any]) -> dict[str, Any]:
        if pair["error"]:
            return {
                "value": np.nan,
                "log10_p": np.nan,
                "paper_log10_p": np.nan,
                "why": None,
                "detail": {},
                "blocks": [],
                "silent": 0,
            }
        units = [self.store.get(key) for key in pair["keys"]]
        if lost := [key for key, unit in zip(pair["keys"], units, strict=True) if unit is None]:
            raise ParameterError(
                f"unit {lost[0]} of experiment {self.experiment['name']} is no longer in {self.store.root}; "
                "run it again"
            )
        try:
            blocks = [BlockResult.from_record(unit) for unit in units if unit is not None]
            outcome = get_statistic(pair["statistic"]).outcome(blocks)
        except MissingDetailError as error:  # units of a version that kept other details
            raise OldRecordsError(OLD) from error
        return {
            "value": outcome.value,
            "log10_p": np.nan if outcome.log10_p is None else outcome.log10_p,
            "paper_log10_p": np.nan if (paper := outcome.detail.paper_log10_p) is None else paper,
            "why": outcome.why,
            "detail": outcome.detail.as_record(),
            "blocks": [block.log10_p for block in blocks],
            "silent": _silent(blocks),
        }


def read(kind: Callable[..., Kind], rows: Sequence[Any]) -> list[Kind]:
    """Rows of a measurement as the dataclass that they were kept from.

    Raises
    ------
    OldRecordsError
        They were kept by a version that measured something else.
    """
    try:
        return [kind(**row) for row in rows]
    except TypeError as error:
        raise OldRecordsError(OLD) from error


def _silent(blocks: Sequence[BlockResult]) -> int:
    """How many blocks have p = 1 since nothing in them could count."""
    return sum(block.reach == block.log10_p == 0 for block in blocks)


def frame_of(*studies: StudyReport) -> pd.DataFrame:
    """All pairs of some studies, with the columns of `RunRecords.pairs` and others."""
    frames = []
    for study in studies:
        blocks = [record.outcome.blocks if record.outcome else () for record in study.records]
        frames.append(
            study.to_frame().assign(
                blocks=[[block.log10_p for block in some] for some in blocks],
                silent=[_silent(some) for some in blocks],
                why=[record.outcome.why if record.outcome else None for record in study.records],
            )
        )
    return pd.concat(frames, ignore_index=True)


def known(pairs: pd.DataFrame, statistic: str) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Dependent pairs, independent pairs, and how many pairs failed, for one statistic."""
    rows = pairs[pairs["statistic"] == statistic]
    ran = rows[rows["error"].isna()]
    truth = ran["dependent"]
    return ran[truth.eq(True)], ran[truth.eq(False)], int(rows["error"].notna().sum())


def judge(ours: str, why: str, problems: Sequence[tuple[bool, str]] = (), bars: Sequence[Bar] = ()) -> ClaimStatus:
    """Hold unless a problem is there or a bar is missed; the reason is what was missed or, if nothing, why it holds.

    A claim with a bar that is inside the spread of its replicates, and otherwise no problem, neither holds nor fails.
    """
    faults = [text for there, text in problems if there]
    faults += [f"{bar.margin}, on the wrong side" for bar in bars if bar.status == FAILS]
    near = [
        f"{bar.margin}: {bar.too_few or 'its interval, or a replicate, is on the other side'}"
        for bar in bars
        if bar.status == WITHIN_SPREAD
    ]
    replicated = [bar for bar in bars if len(bar.values) > 1]
    shown, of = list(bars), ""
    if len(bars) > MOST_SHOWN:
        nearest = min(bars, key=lambda bar: bar.middle / (abs(bar.at) or 1))
        shown, of = [bar for bar in bars if bar.status != HOLDS], f"of {len(bars)}: "
        if not shown:
            shown, of = [nearest], f"nearest of {len(bars)}: "
    margins = [bar.margin for bar in shown]
    least = min(replicated, key=lambda bar: bar.held / len(bar.values), default=None)
    return ClaimStatus(
        FAILS if faults else WITHIN_SPREAD if near else HOLDS,
        ours,
        "; ".join(faults or near) or why,
        margin=of + "; ".join(margins) if margins else "",
        replicates=f"{least.held} of {len(least.values)}" if least else "",
    )


def log10_words(value: float) -> str:
    return f"log10 p = {format_log10_p(value)}"


_FINEST = 6  # decimals


def _number(value: float, off: float = 1.0) -> str:
    """Write a number with two digits at least, and as finely as two digits of its distance `off` from a bar ask."""
    first = _first_digit(value)
    decimals = min(max(1 - first, 1 - _first_digit(off)), _FINEST)
    if first >= 1:
        whole, _, rest = format_number(value, f",.{max(decimals, 1)}f").partition(".")
        return f"{whole}.{rest.rstrip('0') or '0'}"
    return format_number(value, f".{max(decimals + first + 1, 1)}g")


def _first_digit(value: float) -> int:
    """Power of ten of the first digit; 0 where there is none."""
    return math.floor(math.log10(abs(value))) if math.isfinite(value) and value else 0
