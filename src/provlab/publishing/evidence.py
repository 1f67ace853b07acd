"""What a predicate is given and what it returns: the evidence of one experiment, and a verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from provlab.engine.store import Store
from provlab.errors import ParameterError
from provlab.statistics import get as get_statistic
from provlab.statistics.base import BlockResult

Kind = TypeVar("Kind")

HOLDS, FAILS, NOT_RUN = "holds", "fails", "not run"


@dataclass(frozen=True)
class Verdict:
    """What a predicate found: a status, our value in words, and why."""

    status: str
    ours: str
    why: str


@dataclass(frozen=True)
class Evidence:
    """What one notebook run left in the store."""

    experiment: dict[str, Any]
    store: Store

    @property
    def profile(self) -> str:
        """The profile that the notebook ran in."""
        return str(self.experiment["profile"])

    def measurement(self, name: str) -> Any:
        """One measurement of the notebook; KeyError if it made none of that name."""
        return self.experiment["measurements"][name]

    def records(self, name: str, kind: Callable[..., Kind]) -> list[Kind]:
        """Read the rows of one measurement as the dataclass that they were kept from."""
        return [kind(**row) for row in self.measurement(name)]

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """One row per pair and statistic, aggregated anew from the stored units.

        Columns: a, b, statistic, dependent, siblings, error, value, log10_p, detail, blocks (a list of log10 p).
        """
        rows = [{**pair, **self._aggregate(pair)} for pair in self.experiment["pairs"]]
        frame = pd.DataFrame(rows, columns=None if rows else ["a", "b", "statistic"])
        for column in ("error", "dependent"):  # None must stay None among text and booleans
            frame[column] = pd.Series([row[column] for row in rows], dtype=object)
        return frame

    def _aggregate(self, pair: Mapping[str, Any]) -> dict[str, Any]:
        if pair["error"]:
            return {"value": np.nan, "log10_p": np.nan, "detail": {}, "blocks": []}
        units = [self.store.get(key) for key in pair["keys"]]
        if lost := [key for key, unit in zip(pair["keys"], units, strict=True) if unit is None]:
            raise ParameterError(
                f"unit {lost[0]} of experiment {self.experiment['name']} is no longer in {self.store.root}; "
                "run it again"
            )
        blocks = [BlockResult(u["block"], u["value"], u["log10_p"], u["detail"]) for u in units if u is not None]
        outcome = get_statistic(pair["statistic"]).aggregate(blocks)
        return {
            "value": outcome.value,
            "log10_p": np.nan if outcome.log10_p is None else outcome.log10_p,
            "detail": outcome.detail,
            "blocks": [block.log10_p for block in blocks],
        }

    def of(self, statistic: str) -> tuple[pd.DataFrame, pd.DataFrame, int]:
        """Dependent pairs, independent pairs, and how many pairs failed, for one statistic."""
        rows = self.pairs[self.pairs["statistic"] == statistic]
        ran = rows[rows["error"].isna()]
        truth = ran["dependent"]
        return ran[truth.eq(True)], ran[truth.eq(False)], int(rows["error"].notna().sum())


def judge(ours: str, why: str, problems: Sequence[tuple[bool, str]]) -> Verdict:
    """Hold unless a problem is there; the reason is the problem or, if none, why it holds."""
    found = [text for there, text in problems if there]
    return Verdict(FAILS, ours, "; ".join(found)) if found else Verdict(HOLDS, ours, why)


def log10_words(value: float) -> str:
    return f"log10 p = {value:,.1f}"
