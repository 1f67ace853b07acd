"""What the statistics say of all pairs of many models: text, a table and a picture in a notebook, a frame."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab import plots, provenance
from provlab.engine.ledger import PairRecord
from provlab.engine.lineage import Lineage, short_names
from provlab.engine.store import Store
from provlab.errors import ParameterError
from provlab.report import views
from provlab.report.views import LEVEL
from provlab.statistics.base import Options


@dataclass(frozen=True)
class StudyReport:
    """All pairs of a list of models; shows itself in a notebook, prints as text.

    Attributes
    ----------
    sources : tuple of str
        The models, in order.
    statistics : tuple of str
        As run.
    models : tuple of dict
        Those that opened, see `provlab.report.views.describe`.
    records : tuple of PairRecord
        One per statistic and pair.
    options : Options
        As run.
    lineage : Lineage
        What is known of their origin.
    """

    sources: tuple[str, ...]
    statistics: tuple[str, ...]
    models: tuple[dict[str, Any], ...]
    records: tuple[PairRecord, ...]
    options: Options
    lineage: Lineage

    def to_frame(self) -> pd.DataFrame:
        """One row per statistic and pair, with the truth and the Holm-adjusted verdict over the family of pairs.

        Columns: a, b, statistic, value, log10_p, floor, detail, dependent (True, False, or None for unknown),
        siblings, error, holm_log10_p, rejected (at level 0.01).
        """
        rows = [
            {
                "a": record.a,
                "b": record.b,
                "statistic": record.statistic,
                "value": record.outcome.value if record.outcome else np.nan,
                "log10_p": record.outcome.log10_p if record.outcome else np.nan,
                "floor": record.outcome.floor if record.outcome else np.nan,
                "detail": record.outcome.detail if record.outcome else {},
                "dependent": self.lineage.dependent(record.a, record.b),
                "siblings": self.lineage.siblings(record.a, record.b),
                "error": record.error,
            }
            for record in self.records
        ]
        frame = pd.DataFrame(rows).astype({"log10_p": float, "floor": float})
        frame = views.with_reasons(frame, self.records)
        # of three values: True, False, None
        frame["dependent"] = pd.Series([row["dependent"] for row in rows], dtype=object)
        frame["holm_log10_p"] = frame.groupby("statistic", sort=False)["log10_p"].transform(views.holm_adjusted)
        frame["rejected"] = frame["holm_log10_p"] <= np.log10(LEVEL)
        return frame

    def blocks_frame(self) -> pd.DataFrame:
        """One row per pair, statistic and block: value, log10_p."""
        return views.blocks_frame(self.records)

    def matrix(self, statistic: str, column: str = "log10_p") -> pd.DataFrame:
        """Models by models, symmetric, NaN on the diagonal and where there is no value; labelled by short names."""
        frame = self.to_frame()
        labels = self.labels()
        matrix = pd.DataFrame(np.nan, index=list(labels.values()), columns=list(labels.values()))
        for row in frame[frame["statistic"] == statistic].itertuples():
            value = getattr(row, column)
            matrix.loc[labels[row.a], labels[row.b]] = matrix.loc[labels[row.b], labels[row.a]] = value
        return matrix

    def matchings(self, statistic: str, store: Store) -> dict[tuple[str, str], list[NDArray[np.int64]]]:
        """Matching of hidden units, per pair and block, as kept in the store; pairs that failed are left out.

        Raises
        ------
        ParameterError
            If the statistic matches no units.
        """
        found = {}
        for record in self.records:
            if record.statistic == statistic and record.outcome:
                blocks = [store.matching(key) for key in record.keys]
                kept = [block for block in blocks if block is not None]
                if len(kept) < len(blocks):
                    raise ParameterError(f"{statistic} keeps no matching of hidden units")
                found[record.a, record.b] = kept
        return found

    def truth(self) -> pd.DataFrame:
        """Models by models, True where dependent; False on the diagonal and where unknown."""
        labels = self.labels()
        return pd.DataFrame(
            [[a != b and bool(self.lineage.dependent(a, b)) for b in labels] for a in labels],
            index=list(labels.values()),
            columns=list(labels.values()),
        )

    def labels(self) -> dict[str, str]:
        """Short names for pictures: without the scheme or organisation where that stays unambiguous."""
        return short_names(self.sources)

    def families(self) -> dict[str, str]:
        """Family of each model, all by short names; a family is named by its root."""
        labels = self.labels()
        return {labels[source]: labels.get(root, root) for source, root in self.lineage.families().items()}

    def summary(self) -> pd.DataFrame:
        """One row per statistic: how many pairs, failed, rejected, and how rejection agrees with the truth."""
        rows = []
        for statistic, pairs in self.to_frame().groupby("statistic", sort=False):
            tested = pairs["log10_p"].notna().any()
            dependent, independent = pairs["dependent"].eq(True), pairs["dependent"].eq(False)

            def share(group: pd.Series, rejected: pd.Series = pairs["rejected"], tested: bool = tested) -> str:
                return f"{int((rejected & group).sum())} of {int(group.sum())}" if tested and group.any() else "-"

            rows.append(
                {
                    "statistic": statistic,
                    "pairs": len(pairs),
                    "failed": int(pairs["error"].notna().sum()),
                    "rejected": str(int(pairs["rejected"].sum())) if tested else "no p-value",
                    "dependent rejected": share(dependent),
                    "independent rejected": share(independent),
                }
            )
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines; `holm_log10_p` is corrected over the pairs of each statistic."""
        holm = list(self.to_frame()["holm_log10_p"])
        return {
            "schema": "provlab.study/1",
            "sources": list(self.sources),
            "models": list(self.models),
            "parameters": self.options.as_record(),
            "seed": self.options.seed,
            "versions": provenance.versions(),
            "level": LEVEL,
            "records": [
                {
                    "a": record.a,
                    "b": record.b,
                    "statistic": record.statistic,
                    "dependent": self.lineage.dependent(record.a, record.b),
                    "holm_log10_p": None if np.isnan(adjusted) else float(adjusted),
                    **views.record_json(record),
                }
                for record, adjusted in zip(self.records, holm, strict=True)
            ],
        }

    def __str__(self) -> str:
        """Render the summary and the reasons of failures."""
        summary = self.summary()
        lines = [
            f"{len(self.sources)} models, Holm over the pairs of each statistic, level {LEVEL}",
            "",
            views.text_table(summary.astype(str).to_numpy().tolist(), list(summary.columns), right=(1, 2, 3, 4, 5)),
        ]
        failures = self.to_frame().dropna(subset=["error"])
        lines += [f"not run: {row.statistic} {row.a} {row.b}: {row.error}" for row in failures.itertuples()]
        return "\n".join(lines)

    def figure(self, statistic: str | None = None, *, corrected: bool = True) -> "plots.Figure":
        """Draw a heatmap of one statistic, by default of the first that yields p-values.

        `corrected` calls pairs dependent by Holm over all pairs; without it each p-value is read on its own.
        """
        frame = self.to_frame()
        tested = [name for name in self.statistics if frame.loc[frame["statistic"] == name, "log10_p"].notna().any()]
        name = statistic or (tested or list(self.statistics))[0]
        floor = frame.loc[frame["statistic"] == name, "floor"].min()
        return plots.pair_heatmap(
            self.matrix(name),
            self.families(),
            statistic=name,
            floor=None if np.isnan(floor) else float(floor),
            truth=self.truth() if self._truth_is_known() else None,
            level=LEVEL,
            adjusted=self.matrix(name, "holm_log10_p") if corrected else None,
            caption="" if corrected else "Each p-value read on its own, without correction for their number.",
        )

    def _truth_is_known(self) -> bool:
        """Whether the origin of every model is known; a picture says nothing of truth otherwise."""
        return all(self.lineage.root(source) for source in self.sources)

    def _repr_html_(self) -> str:
        table = self.summary().to_html(index=False, border=0, classes="study")
        tested = self.to_frame()["log10_p"].notna().any()
        return table + (self.figure().to_html() if tested else "")
