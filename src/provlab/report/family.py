"""Which tests are read together, and which error their correction keeps at the level of the verdict.

One rule for a pair and for a study. By default all tests that yield a p-value, every statistic on every pair asked, are
one family. A user who declares one primary statistic beforehand makes its tests the family: the others are description,
not corrected and not in the verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from provlab import provenance
from provlab import statistics as registry
from provlab.engine.table import PairRecord
from provlab.errors import ParameterError
from provlab.extras import need
from provlab.inference import pvalues
from provlab.plots.numbers import format_log10_p
from provlab.report.records import numbers
from provlab.report.views import Report
from provlab.statistics.base import UNCALIBRATED
from provlab.statistics.options import Options
from provlab.statistics.results import Outcome

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.01  # of every verdict: what the error that `FamilyOfTests.words` names is kept below

Values = NDArray[np.float64]


def check_primary(primary: str | None, statistics: Sequence[str]) -> None:
    """Refuse a primary statistic that will not run.

    Raises
    ------
    ParameterError
        If it is not among the statistics asked.
    """
    if primary is not None and primary not in statistics:
        raise ParameterError(
            f"the primary statistic {primary} is not among those asked, {', '.join(statistics)}; name it there too"
        )


@dataclass(frozen=True, eq=False)
class FamilyOfTests:
    """The tests of one report, one entry a statistic and pair.

    Attributes
    ----------
    statistics : tuple of str
        The statistic of each test.
    log10_p, reach : array
        ``(tests,)`` float64: its p, and the smallest that it could have been; NaN where there is none.
    primary : str or None
        Statistic declared beforehand; None for one joint family of all.
    fdr : bool
        Control the false discovery rate (Benjamini and Yekutieli 2001, any dependence) in place of the family-wise
        error rate (Holm 1979).
    """

    statistics: tuple[str, ...]
    log10_p: Values
    reach: Values
    primary: str | None = None
    fdr: bool = False

    @classmethod
    def of(cls, records: Sequence[PairRecord], primary: str | None, *, fdr: bool) -> "FamilyOfTests":
        """Take the tests of these records, in their order."""
        log10_p = np.array([numbers(record.outcome)["log10_p"] for record in records], dtype=float)
        outcomes = [record.outcome for record in records]
        reach = [np.nan if each is None or each.log10_p is None else each.reach for each in outcomes]
        return cls(tuple(record.statistic for record in records), log10_p, np.array(reach, dtype=float), primary, fdr)

    @cached_property
    def members(self) -> NDArray[np.bool_]:
        """Which tests are corrected together: ``(tests,)``; those that nobody calibrated are not."""
        counted = [self.primary in (None, name) for name in self.statistics]
        with_p = ~np.isnan(self.log10_p)
        for i in np.flatnonzero(with_p):
            counted[i] = counted[i] and registry.get(self.statistics[i]).warrant != UNCALIBRATED
        return np.array(counted, dtype=bool) & with_p

    @property
    def size(self) -> int:
        """How many these are."""
        return int(self.members.sum())

    @property
    def holm_log10_p(self) -> Values:
        """Adjusted by Holm whatever the verdict goes by; NaN outside the family."""
        return self._adjusted(self.log10_p, fdr=False)

    @cached_property
    def adjusted_log10_p(self) -> Values:
        """Adjusted p-values by which the verdict goes; NaN outside the family."""
        return self._adjusted(self.log10_p, fdr=self.fdr)

    @cached_property
    def rejected(self) -> NDArray[np.bool_]:
        """Where independence is rejected: ``(tests,)``."""
        return np.asarray(self.adjusted_log10_p <= np.log10(LEVEL))

    @cached_property
    def bar(self) -> float:
        """log10 p at or below which one more test of the family would be rejected, the others as they came out."""
        rejected = int(self.rejected.sum())
        if self.fdr:
            harmonic = np.sum(1 / np.arange(1, self.size + 1))
            return float(np.log10(LEVEL * min(rejected + 1, self.size) / (self.size * harmonic)))
        return float(np.log10(LEVEL / max(self.size - rejected, 1)))

    @cached_property
    def adjusted_reach(self) -> Values:
        """Smallest that each adjusted p could have been, the others as they came out: -inf where that is not known."""
        return np.nan_to_num(self.reach - self.bar + np.log10(LEVEL), nan=-np.inf)

    def powerless(self) -> dict[str, float]:
        """Statistics none of whose tests rejects and none could have: the smallest log10 p that each could reach.

        One test as far as it reaches, all others as they came out, and the correction does not let it through.
        """
        floors = {}
        for name in dict.fromkeys(self.statistics):
            own = np.flatnonzero([statistic == name for statistic in self.statistics] & self.members)
            if not own.size or self.rejected[own].any():
                continue
            if (lowest := float(self.reach[own].min())) > self.bar:
                floors[name] = lowest
        return floors

    def words(self) -> str:
        """Say over how many tests which error is kept at which level, and how."""
        if self.size == 1:
            return f"one test, level {LEVEL}"
        method, error = ("Benjamini-Yekutieli", "false discovery rate") if self.fdr else ("Holm", "family-wise error")
        of = f" of {self.primary}" if self.primary else ""
        return f"{method} over {self.size} tests{of}, {error} at most {LEVEL}"

    def remarks(self) -> list[str]:
        """Sentences on what cannot reject here, and on what is description only."""
        sentences = [
            f"{name} cannot reject here: its smallest p is {10**floor:.2g} over {self.size} tests."
            for name, floor in self.powerless().items()
        ]
        smallest: dict[bool, dict[str, float]] = {True: {}, False: {}}  # of each statistic that is description only
        for name, log10_p, member in zip(self.statistics, self.log10_p, self.members, strict=True):
            if not member and log10_p <= 0:
                of = smallest[registry.get(name).warrant == UNCALIBRATED]
                of[name] = min(log10_p, of.get(name, 0.0))
        least = "" if len(self.statistics) == len(set(self.statistics)) else "the smallest p of "
        values = {
            kind: least + ", ".join(f"{name} 10^{format_log10_p(log10_p)}" for name, log10_p in of.items())
            for kind, of in smallest.items()
        }
        if smallest[False]:
            sentences.append(
                f"{self.primary} was declared the one to judge by; description only, not corrected: {values[False]}."
            )
        if smallest[True]:
            sentences.append(
                f"Uncalibrated, and decides nothing: {values[True]}. No theorem and no independent models say how "
                "often it is so small by chance."
            )
        return sentences

    def to_json(self) -> dict[str, object]:
        """Return the same for machines."""
        return {
            "primary": self.primary,
            "tests": self.size,
            "error": "false discovery rate" if self.fdr else "family-wise error rate",
            "correction": "benjamini_yekutieli" if self.fdr else "holm",
            "level": LEVEL,
            "cannot_reject": list(self.powerless()),
        }

    def _adjusted(self, log10_p: Values, *, fdr: bool) -> Values:
        adjusted = np.full(len(self.statistics), np.nan)
        correct = pvalues.benjamini_yekutieli if fdr else pvalues.holm
        adjusted[self.members] = correct(log10_p[self.members])
        return adjusted


def why_none(outcome: Outcome) -> str | None:
    """Why a test gives no p-value here, if it should."""
    return outcome.why if outcome.log10_p is None else None


@dataclass(frozen=True)
class Tested(Report):
    """Records of one pair or many, and the family of tests that they are.

    Attributes
    ----------
    models : tuple of dict
        Those that opened, see `provlab.report.records.describe`.
    records : tuple of PairRecord
        One per statistic and pair.
    options : Options
        As run.
    primary, fdr
        See `FamilyOfTests`.
    """

    models: tuple[dict[str, Any], ...]
    records: tuple[PairRecord, ...]
    options: Options
    primary: str | None = None
    fdr: bool = False

    @cached_property
    def family(self) -> FamilyOfTests:
        """The tests that are corrected together."""
        return FamilyOfTests.of(self.records, self.primary, fdr=self.fdr)

    @property
    def adjusted(self) -> dict[str, Values]:
        """Adjusted p-values of the records: by Holm, and by the correction asked."""
        return {"holm_log10_p": self.family.holm_log10_p, "adjusted_log10_p": self.family.adjusted_log10_p}

    def with_adjusted(self, rows: Sequence[dict[str, Any]]) -> "pd.DataFrame":
        """Make a frame of a row a record, with why each failed (None, not NaN, where it did not)."""
        pandas = need("pandas")
        error = pandas.Series([record.error for record in self.records], dtype=object)
        frame: pd.DataFrame = pandas.DataFrame(rows).assign(error=error, **self.adjusted)
        return frame

    def blocks_frame(self) -> "pd.DataFrame":
        """One row per pair, statistic and block: value, log10_p, paper_log10_p."""
        rows = [
            (r.a, r.b, r.statistic, block.block, block.value, block.log10_p, block.detail.paper_log10_p)
            for r in self.records
            if r.outcome
            for block in r.outcome.blocks
        ]
        columns = ["a", "b", "statistic", "block", "value", "log10_p", "paper_log10_p"]
        frame: pd.DataFrame = need("pandas").DataFrame(rows, columns=columns)
        return frame.astype({"log10_p": float, "paper_log10_p": float})

    def header(self, schema: str) -> dict[str, Any]:
        """Return what all JSON holds: the models, how they were compared, and how tests are corrected."""
        return {
            "schema": schema,
            "models": list(self.models),
            "parameters": self.options.as_record(),
            "seed": self.options.seed,
            "versions": provenance.versions(),
            "level": LEVEL,
            "family": self.family.to_json(),
        }
