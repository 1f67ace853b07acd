"""Results as a reader meets them: text, a table in a notebook, a pandas frame, JSON for machines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab import plots, provenance
from provlab import statistics as registry
from provlab.errors import ParameterError
from provlab.inference import pvalues
from provlab.statistics.base import Model, Options
from provlab.studies.lineage import Lineage
from provlab.studies.pairs import PairRecord
from provlab.studies.store import Store

WIDTH = 100  # characters of a line of text
LEVEL = 0.01  # of every verdict: the chance, under independence, of one false word among the tests read together


def describe(source: str, model: Model) -> dict[str, Any]:
    """Say which model this was: source, architecture, commit, one digest, and the SHA-256 of each file."""
    checkpoint = model.checkpoint
    return {
        "source": source,
        "name": model.name,
        "architecture": checkpoint.architecture,
        "commit": checkpoint.commit,
        "digest": checkpoint.digest,
        "files": checkpoint.files(),
    }


def _table(rows: Sequence[Sequence[str]], header: Sequence[str], right: Iterable[int]) -> str:
    """Plain text table with two spaces between columns."""
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [cell.rjust(widths[i]) if i in set(right) else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _holm(log10_p: pd.Series) -> pd.Series:
    """Holm-adjusted log10 p of the values that are there."""
    adjusted = pd.Series(np.nan, index=log10_p.index)
    there = log10_p.notna()
    if there.any():
        adjusted[there] = pvalues.holm(log10_p[there].to_numpy(dtype=float))
    return adjusted


@dataclass(frozen=True)
class Comparison:
    """What the statistics say of one pair; shows itself in a notebook, prints as text.

    Attributes
    ----------
    models : tuple of dict
        The two models, see `describe`.
    records : tuple of PairRecord
        One per statistic.
    options : Options
        As run.
    dependent : bool or None
        The truth where it is known (zoo models, the paper's tree).
    """

    models: tuple[dict[str, Any], ...]
    records: tuple[PairRecord, ...]
    options: Options
    dependent: bool | None

    def to_frame(self) -> pd.DataFrame:
        """One row per statistic: value, log10_p, floor, holm_log10_p (over these rows), error."""
        frame = pd.DataFrame(
            [
                {
                    "statistic": record.statistic,
                    "value": record.outcome.value if record.outcome else np.nan,
                    "log10_p": record.outcome.log10_p if record.outcome else None,
                    "floor": record.outcome.floor if record.outcome else None,
                    "blocks": len(record.outcome.blocks) if record.outcome else 0,
                    "error": record.error,
                }
                for record in self.records
            ]
        ).astype({"log10_p": float, "floor": float})
        frame["error"] = _reasons(self.records)
        frame["holm_log10_p"] = _holm(frame["log10_p"])
        return frame

    def blocks_frame(self) -> pd.DataFrame:
        """One row per statistic and block: value, log10_p."""
        return _blocks_frame(self.records)

    def verdict(self) -> str:
        """What the p-values mean, in plain sentences; `assumptions` says under which conditions."""
        frame = self.to_frame().dropna(subset=["log10_p"])
        if frame.empty:
            return "No statistic here yields a p-value, so nothing can be said about independence."
        floor = np.log10(LEVEL)
        rejecting = frame[frame["holm_log10_p"] <= floor]
        tests = f"Holm over {len(frame)} tests, level {LEVEL}" if len(frame) > 1 else f"one test, level {LEVEL}"
        if rejecting.empty:
            return (
                f"Independent training is not rejected ({tests}): this is how independent models agree. "
                "That is no proof: hidden units shuffled after training hide a common origin from all but phi_match."
            )
        smallest = rejecting.loc[rejecting["log10_p"].idxmin()]
        return (
            f"Independent training is rejected by {', '.join(rejecting['statistic'])} ({tests}): two independently "
            f"trained models would agree as closely as {smallest['statistic']} finds here with probability 10^"
            f"{plots.format_log10_p(smallest['log10_p'])} at most. The two share an origin; the test does not say "
            f"which came first, nor whether both descend from a third."
        )

    def assumptions(self) -> dict[str, str]:
        """Under which assumption the p-value of each statistic run is one."""
        ran = [record.statistic for record in self.records if record.outcome and record.outcome.log10_p is not None]
        return {name: registry.get(name).assumptions for name in ran}

    def __str__(self) -> str:
        """Render the table and the verdict."""
        a, b = self.models
        lines = [f"{a['source']}  against  {b['source']}", ""]
        rows = []
        for row in self.to_frame().to_dict("records"):
            symbol = registry.get(row["statistic"]).reads
            if row["error"]:
                rows.append([row["statistic"], "not run", "", "", row["error"]])
                continue
            rows.append(
                [
                    row["statistic"],
                    "no p-value" if np.isnan(row["log10_p"]) else plots.format_log10_p(row["log10_p"]),
                    "" if np.isnan(row["floor"]) else plots.format_log10_p(row["floor"]),
                    f"{row['value']:.4g}",
                    symbol,
                ]
            )
        lines.append(_table(rows, ["statistic", "log10 p", "floor", "value", "reads"], right=(1, 2, 3)))
        assumed = [
            fill(f"{', '.join(names)}: {text}", WIDTH, initial_indent="  ", subsequent_indent="    ")
            for text, names in _by_text(self.assumptions()).items()
        ]
        return "\n".join([*lines, "", fill(self.verdict(), WIDTH), "", "Assumed by", *assumed])

    def figure(self) -> "plots.Figure":
        """Per-block -log10 p of every statistic that has blocks."""
        blocks = self.blocks_frame().dropna(subset=["log10_p"])
        series = {name: list(rows["log10_p"]) for name, rows in blocks.groupby("statistic", sort=False)}
        floors = {
            record.statistic: float(record.outcome.blocks[0].detail["floor"])
            for record in self.records
            if record.outcome and record.statistic in series
        }
        return plots.block_bars(series, floors)

    def _repr_html_(self) -> str:
        a, b = self.models
        rows = "".join(
            f"<tr><td>{row['statistic']}</td>"
            + (
                f"<td colspan=3>{escape(row['error'])}</td>"
                if row["error"]
                else f"<td class='number'>{_number(row['log10_p'])}</td><td class='number'>{_number(row['floor'])}</td>"
                f"<td class='number'>{row['value']:.4g}</td>"
            )
            + "</tr>"
            for row in self.to_frame().to_dict("records")
        )
        assumed = "".join(
            f"<li>{', '.join(names)}: {escape(text)}</li>" for text, names in _by_text(self.assumptions()).items()
        )
        picture = self.figure().to_html() if self._has_blocks() else ""
        return (
            f"<div class='comparison'><p><b>{escape(a['source'])}</b> against <b>{escape(b['source'])}</b></p>"
            "<table><tr><th>statistic</th><th>log10 p</th><th>floor</th><th>value</th></tr>"
            f"{rows}</table><p>{escape(self.verdict())}</p>"
            f"<details><summary>Assumptions</summary><ul>{assumed}</ul></details>{picture}</div>"
        )

    def _has_blocks(self) -> bool:
        return bool(self.blocks_frame()["log10_p"].notna().any())

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines (see the README for the keys)."""
        return {
            "schema": "provlab.compare/1",
            "models": list(self.models),
            "parameters": self.options.as_record(),
            "seed": self.options.seed,
            "versions": provenance.versions(),
            "statistics": {record.statistic: _record_json(record) for record in self.records},
            "level": LEVEL,
            "verdict": self.verdict(),
            "assumptions": self.assumptions(),
        }


def _by_text(assumptions: Mapping[str, str]) -> dict[str, list[str]]:
    """Statistics that share an assumption, together."""
    grouped: dict[str, list[str]] = {}
    for name, text in assumptions.items():
        grouped.setdefault(text, []).append(name)
    return grouped


def _reasons(records: Sequence[PairRecord]) -> pd.Series:
    """Why each record failed, None where it did not (and not the NaN that a column of text would hold)."""
    return pd.Series([record.error for record in records], dtype=object)


def _number(value: float) -> str:
    return "" if np.isnan(value) else plots.format_log10_p(value)


def _record_json(record: PairRecord) -> dict[str, Any]:
    if record.outcome is None:
        return {"log10_p": None, "value": None, "floor": None, "blocks": [], "error": record.error}
    outcome = record.outcome
    return {
        "log10_p": outcome.log10_p,
        "value": outcome.value,
        "floor": outcome.floor,
        **({"detail": outcome.detail} if outcome.detail else {}),
        "blocks": [
            {"block": block.block, "log10_p": block.log10_p, "value": block.value, "detail": block.detail}
            for block in outcome.blocks
        ],
        "error": None,
    }


def _blocks_frame(records: Iterable[PairRecord]) -> pd.DataFrame:
    columns = ["a", "b", "statistic", "block", "value", "log10_p"]
    rows = [
        (record.a, record.b, record.statistic, block.block, block.value, block.log10_p)
        for record in records
        if record.outcome
        for block in record.outcome.blocks
    ]
    return pd.DataFrame(rows, columns=columns).astype({"log10_p": float})


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
        Those that opened, see `describe`.
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
        frame["error"] = _reasons(self.records)
        # of three values: True, False, None
        frame["dependent"] = pd.Series([row["dependent"] for row in rows], dtype=object)
        frame["holm_log10_p"] = frame.groupby("statistic", sort=False)["log10_p"].transform(_holm)
        frame["rejected"] = frame["holm_log10_p"] <= np.log10(LEVEL)
        return frame

    def blocks_frame(self) -> pd.DataFrame:
        """One row per pair, statistic and block: value, log10_p."""
        return _blocks_frame(self.records)

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
        short = {source: source.partition(":")[2] or source.rstrip("/").rpartition("/")[2] for source in self.sources}
        short = {source: name.partition("@")[0] for source, name in short.items()}
        return short if len(set(short.values())) == len(short) else {source: source for source in self.sources}

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
                return f"{int((rejected & group).sum())} of {int(group.sum())}" if tested else "no p-value"

            rows.append(
                {
                    "statistic": statistic,
                    "pairs": len(pairs),
                    "failed": int(pairs["error"].notna().sum()),
                    "dependent rejected": share(dependent),
                    "independent rejected": share(independent),
                }
            )
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        """Render the summary and the reasons of failures."""
        summary = self.summary()
        lines = [
            f"{len(self.sources)} models, Holm over the pairs of each statistic, level {LEVEL}",
            "",
            _table(summary.astype(str).to_numpy().tolist(), list(summary.columns), right=(1, 2, 3, 4)),
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
            statistic=registry.get(name).symbol,
            floor=None if np.isnan(floor) else float(floor),
            truth=self.truth(),
            level=LEVEL,
            adjusted=self.matrix(name, "holm_log10_p") if corrected else None,
            caption="" if corrected else "Each p-value read on its own, without correction for their number.",
        )

    def _repr_html_(self) -> str:
        table = self.summary().to_html(index=False, border=0, classes="study")
        tested = self.to_frame()["log10_p"].notna().any()
        return table + (self.figure().to_html() if tested else "")
