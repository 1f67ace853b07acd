"""What the statistics say of one pair: text, a table and a picture in a notebook, a frame, JSON for machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from provlab import plots
from provlab import statistics as registry
from provlab.plots.numbers import format_log10_p
from provlab.report import records, views
from provlab.report.card import OPEN, QUIET, RELATED, BarCell, Card, in_short
from provlab.report.decide import NOT_REJECTED, UNTESTED
from provlab.report.family import Tested
from provlab.report.findings import Verdict
from provlab.statistics.results import floor

if TYPE_CHECKING:
    import pandas as pd

    from provlab.plots import Figure

TONES = {NOT_REJECTED: QUIET, UNTESTED: OPEN}  # of a card; all other outcomes find a relation
#: of the table of tensors that differ
CHANGES = ("tensors that differ", "where", "of the weights", "numbers that differ", "relative change")
HEADER = ("statistic", "log10 p", "paper's", "floor", "value", "agree", "reads")


@dataclass(frozen=True)
class Comparison(Tested):
    """What the statistics say of one pair; shows itself in a notebook, prints as text.

    Attributes
    ----------
    changes : tuple of dict
        Which roles differ, and by how much (`provlab.reading.changes`); empty where that was not asked.

    The others are those of `provlab.report.family.Tested`.
    """

    changes: tuple[dict[str, Any], ...] = ()

    def to_frame(self) -> "pd.DataFrame":
        """One row per statistic.

        Columns: statistic, value, log10_p, floor, paper_log10_p, agree (`records.numbers` says what), blocks, error,
        and over the tests of the family holm_log10_p and adjusted_log10_p (by the correction asked; NaN outside it).
        """
        outcomes = [record.outcome for record in self.records]
        blocks = [len(outcome.blocks) if outcome else 0 for outcome in outcomes]
        numbers = zip(self.records, outcomes, blocks, strict=True)
        return self.with_adjusted(
            [{"statistic": r.statistic, **records.numbers(outcome), "blocks": n} for r, outcome, n in numbers]
        )

    @cached_property
    def _verdict(self) -> Verdict:
        return Verdict(self.records, self.models, self.family)

    @property
    def outcome(self) -> str:
        """One of `provlab.report.decide.OUTCOMES`, such as "rejected"."""
        return self._verdict.outcome

    def verdict(self) -> str:
        """Sentences: tests and their result, possible causes, what was not run, what would hide a common origin."""
        return self._verdict.text

    def assumptions(self) -> dict[str, str]:
        """Under which assumption the p-value of each statistic run is one."""
        ran = [record.statistic for record in self.records if record.outcome and record.outcome.log10_p is not None]
        return {name: registry.get(name).assumptions for name in ran}

    def title(self) -> str:
        """Both models."""
        return "  against  ".join(model["source"] for model in self.models)

    def answer(self) -> str:
        """The outcome."""
        return f"{self._verdict.answer[:1].upper()}{self._verdict.answer[1:]}."

    def parts(self) -> list[views.Part]:
        """Table, verdict, assumptions."""
        rows = []
        for record in self.records:
            cells = _numbers(records.numbers(record.outcome))
            if record.error:
                cells[0] = "not run"  # the verdict says why, once for all statistics with one reason
            rows.append([record.statistic, *cells, registry.get(record.statistic).reads])
        table = views.Table(HEADER, rows, right=range(1, len(HEADER) - 1))
        assumed: dict[str, list[str]] = {}  # statistics that share an assumption stand together
        for name, text in self.assumptions().items():
            assumed.setdefault(text, []).append(name)
        lines = [f"{', '.join(names)}: {text}" for text, names in assumed.items()]
        return [table, self.verdict(), *self._changed(), views.Listed("Assumed by", lines)]

    def _changed(self) -> list[views.Part]:
        """Table of the roles that differ, the largest change first, and those that do not."""
        differing = [row for row in self.changes if row["differing"]]
        if not differing:
            return []
        rows = [
            (
                row["role"],
                row["where"] or "all",
                f"{row['share']:.1%}",
                f"{row['differing']:.1%}",
                f"{row['relative']:.3g}",
            )
            for row in differing
        ]
        alike = [row["role"] for row in self.changes if not row["differing"]]
        return [views.Table(CHANGES, rows, right=(2, 3, 4)), *[f"The same in both: {', '.join(alike)}."] * bool(alike)]

    def card(self) -> Card:
        """The outcome, each test with a bar to its floor, and what qualifies it, in a line or two each."""
        rows = []
        for record in self.records:
            numbers = records.numbers(record.outcome)
            p, floor, agree = (numbers[name] for name in ("log10_p", "floor", "agree"))
            if record.error or np.isnan(p):
                rows.append([record.statistic, "not run" if record.error else "no p-value", "", "", ""])
                continue
            shown = "" if np.isnan(agree) else f"{agree:.1%}"
            bar = BarCell.of(p / floor if floor < 0 else 0.0)
            rows.append([record.statistic, format_log10_p(p), bar, format_log10_p(floor), shown])
        table = views.Table(("test", "log10 p", "to its floor", "floor", "units agree"), rows, right=(1, 3, 4))
        remarks = [(label, in_short(sentences)) for label, sentences in self._verdict.labelled()]
        a, b = (model["source"] for model in self.models)
        tone = TONES.get(self.outcome, RELATED)
        return Card(f"{a} and {b}: {self._verdict.answer}.", tone, [table] if rows else [], remarks)

    def figure(self) -> "Figure":
        """Per-block -log10 p of every statistic that has blocks."""
        blocks = self.blocks_frame().dropna(subset=["log10_p"])
        series = {name: list(rows["log10_p"]) for name, rows in blocks.groupby("statistic", sort=False)}
        ran = {record.statistic: record.outcome for record in self.records if record.outcome}
        return plots.block_bars(series, {name: min(map(floor, ran[name].blocks)) for name in series})

    def drawn(self) -> "Figure | None":
        """Return the figure, if any block has a p-value."""
        blocks = [block for record in self.records if record.outcome for block in record.outcome.blocks]
        return self.figure() if any(block.log10_p is not None for block in blocks) else None

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines (see the README for the keys)."""
        return {
            **self.header("provlab.compare/1"),
            "statistics": {record.statistic: records.record_json(record) for record in self.records},
            "outcome": self.outcome,
            "price": self._verdict.pair.price,
            "coverage": dict(zip((m["source"] for m in self.models), self._verdict.coverage, strict=True)),
            "changes": list(self.changes),
            "verdict": self.verdict(),
            "assumptions": self.assumptions(),
        }


def _numbers(row: Mapping[str, float]) -> list[str]:
    """Write the columns between the name of a statistic and what it reads; nothing where there is no number."""
    cells = [format_log10_p(row[name]) if row[name] <= 0 else "" for name in ("log10_p", "paper_log10_p", "floor")]
    value = "" if np.isnan(row["value"]) else f"{row['value']:.4g}"
    agree = "" if np.isnan(row["agree"]) else f"{row['agree']:.1%}"
    return [cells[0] or "no p-value", *cells[1:], value, agree]
