"""What the statistics say of one pair: text, a table and a picture in a notebook, a frame, JSON for machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from provlab import statistics as registry
from provlab.engine.ledger import PairRecord
from provlab.plots.numbers import format_log10_p
from provlab.report import views
from provlab.report.family import LEVEL, Family
from provlab.statistics.base import Options

if TYPE_CHECKING:
    import pandas as pd

    from provlab.plots import Figure

WIDTH = 100  # characters of a line of text


@dataclass(frozen=True)
class Comparison:
    """What the statistics say of one pair; shows itself in a notebook, prints as text.

    Attributes
    ----------
    models : tuple of dict
        The two models, see `provlab.report.views.describe`.
    records : tuple of PairRecord
        One per statistic.
    options : Options
        As run.
    primary, fdr
        See `provlab.report.family.Family`.
    """

    models: tuple[dict[str, Any], ...]
    records: tuple[PairRecord, ...]
    options: Options
    primary: str | None = None
    fdr: bool = False

    @cached_property
    def family(self) -> Family:
        """The tests that are corrected together."""
        return Family.of(self.records, self.primary, fdr=self.fdr)

    def _rows(self) -> list[dict[str, Any]]:
        """One row per statistic, NaN where there is no number."""
        rows: list[dict[str, Any]] = []
        for record in self.records:
            blocks = len(record.outcome.blocks) if record.outcome else 0
            numbers = views.numbers(record.outcome)
            rows.append({"statistic": record.statistic, **numbers, "blocks": blocks, "error": record.error})
        columns = {"holm_log10_p": self.family.holm_log10_p, "adjusted_log10_p": self.family.adjusted_log10_p}
        return [{**row, **{name: float(column[i]) for name, column in columns.items()}} for i, row in enumerate(rows)]

    def to_frame(self) -> "pd.DataFrame":
        """One row per statistic.

        Columns: statistic, value, log10_p, floor, paper_log10_p, agree (`views.numbers` says what), blocks, error, and
        over the tests of the family holm_log10_p and adjusted_log10_p (by the correction asked; NaN outside it).
        """
        import pandas as pd

        from provlab.report import shown

        return shown.with_reasons(pd.DataFrame(self._rows()), self.records)

    def blocks_frame(self) -> "pd.DataFrame":
        """One row per statistic and block: value, log10_p, paper_log10_p."""
        from provlab.report import shown

        return shown.blocks_frame(self.records)

    def verdict(self) -> str:
        """Sentences: tests and their result, statistics not run, possible evasions; see `assumptions` too."""
        a, b = self.models
        if "digest" in a and a["digest"] == b["digest"]:
            return "The two models are identical: configuration and weight files are the same, byte for byte."
        rows, family = self._rows(), self.family
        tested = [row for row in rows if not np.isnan(row["adjusted_log10_p"])]
        if not tested:
            who = f"{self.primary}, declared the one to judge by," if self.primary else "No statistic here"
            none = f"{who} yields {'no' if self.primary else 'a'} p-value, so nothing can be said about independence."
            return " ".join([none, *_not_run(rows)])
        rejecting = [row for row, rejected in zip(rows, family.rejected, strict=True) if rejected]
        by = f"{', '.join(row['statistic'] for row in rejecting or tested)} ({family.words()})"
        outcomes = [record.outcome for record in self.records if record.outcome]
        remarks = [
            *_some_units(self.records, self.options),
            *_dropped(self.records, self.models),
            *_not_verified(self.models),
            *_dequantised(self.models),
            *_language_parts(self.models),
            # how blocks were chosen, where these were not simply all, each with its like
            *(outcome.detail["said"] for outcome in outcomes if "said" in outcome.detail),
            *family.remarks(),
            *_not_run(rows),
        ]
        if not rejecting:
            sentence = (
                f"Independent training is not rejected by {by}: this is how independent models agree. "
                "That is no proof of independence."
            )
            return " ".join([sentence, *remarks, *_evaded(rows)])
        smallest = min(rejecting, key=lambda row: row["log10_p"])
        paper = smallest["paper_log10_p"]
        in_paper = "" if np.isnan(paper) else f" (10^{format_log10_p(paper)} by the paper's two-sided form)"
        sentence = (
            f"Independent training is rejected by {by}: the weights of the two are not independent. "
            f"By {smallest['statistic']} independent weights would agree as closely with a probability of about "
            f"10^{format_log10_p(smallest['log10_p'])}{in_paper}. Possible causes: a common ancestor, a common "
            "initial draw, or hidden units of one put into the order of the other's. The test does not say which, "
            "nor which model came first."
        )
        return " ".join([sentence, *_alignment(rows), *remarks])

    def assumptions(self) -> dict[str, str]:
        """Under which assumption the p-value of each statistic run is one."""
        ran = [record.statistic for record in self.records if record.outcome and record.outcome.log10_p is not None]
        return {name: registry.get(name).assumptions for name in ran}

    def __str__(self) -> str:
        """Render the table and the verdict."""
        a, b = self.models
        lines = [f"{a['source']}  against  {b['source']}", ""]
        rows = []
        for row in self._rows():
            if row["error"]:
                rows.append([row["statistic"], "not run", *[""] * len(BESIDE), row["error"]])
                continue
            log10_p = "no p-value" if np.isnan(row["log10_p"]) else format_log10_p(row["log10_p"])
            reads = registry.get(row["statistic"]).reads
            rows.append([row["statistic"], log10_p, *_beside(row), reads])
        header = ["statistic", "log10 p", *BESIDE, "reads"]
        lines.append(views.text_table(rows, header, right=range(1, len(header) - 1)))
        assumed = [
            fill(f"{', '.join(names)}: {text}", WIDTH, initial_indent="  ", subsequent_indent="    ")
            for text, names in _by_text(self.assumptions()).items()
        ]
        return "\n".join([*lines, "", fill(self.verdict(), WIDTH), "", "Assumed by", *assumed])

    def figure(self) -> "Figure":
        """Per-block -log10 p of every statistic that has blocks."""
        from provlab.report import shown

        return shown.figure(self.records)

    def _repr_html_(self) -> str:
        from provlab.report import shown

        rows = {row["statistic"]: row["error"] or [_number(row["log10_p"]), *_beside(row)] for row in self._rows()}
        names, header = [model["source"] for model in self.models], ["statistic", "log10 p", *BESIDE]
        return shown.html(names, header, rows, self.verdict(), _by_text(self.assumptions()), self.records)

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines (see the README for the keys)."""
        from provlab import provenance

        return {
            "schema": "provlab.compare/1",
            "models": list(self.models),
            "parameters": self.options.as_record(),
            "seed": self.options.seed,
            "versions": provenance.versions(),
            "statistics": {record.statistic: views.record_json(record) for record in self.records},
            "level": LEVEL,
            "family": self.family.to_json(),
            "verdict": self.verdict(),
            "assumptions": self.assumptions(),
        }


#: statistics that read the order of hidden units as training left it, and those that do not depend on it
ORDERED = {"phi_u", "phi_h", "phi_l2", "phi_l2_blocks"}
UNORDERED = {"phi_match", "phi_match_unsigned", "phi_views", "phi_views_outer"}


def _alignment(rows: list[dict[str, Any]]) -> list[str]:
    """How to read an order of hidden units that agrees, by whether a statistic that ignores the order agrees too.

    A statistic outside the family is read at the level as it stands: that decides on a hint, not on the verdict.
    """
    p = {row["statistic"]: np.fmax(row["adjusted_log10_p"], row["log10_p"]) for row in rows}
    rejecting = {name for name, log10_p in p.items() if log10_p <= np.log10(LEVEL)}
    silent = {name for name, log10_p in p.items() if log10_p > np.log10(LEVEL)}
    if not rejecting & ORDERED:
        return []
    if rejecting & UNORDERED:
        return [f"{_ignoring(rejecting & UNORDERED)} the order of units, so that order alone is not the cause."]
    if silent & UNORDERED:
        return [
            f"{_ignoring(silent & UNORDERED)} the order of units, and nothing is rejected by that: suspect that units "
            "were re-ordered to match the other model, which changes no output."
        ]
    return [f"No statistic that ignores the order of units was tested; {_unordered(rows)} would tell such units apart."]


def _not_verified(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the models whose tensors were read before their files were here whole."""
    names = " and ".join(str(model["source"]) for model in models if model.get("not_verified"))
    sentence = (
        f"Tensors of {names} were fetched one by one, not compared with the SHA-256 of their files; run it again when "
        "the whole model is in the hub's cache (hf download)."
    )
    return [sentence] if names else []


def _dequantised(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the models whose weights are stored as codes, and those that an adapter was merged into."""
    stored = [(model["source"], [code for code in model.get("stored") or () if code != "LoRA"]) for model in models]
    coded = [f"{source} ({', '.join(codes)})" for source, codes in stored if codes]
    sentences = []
    if coded:
        sentences.append(f"Weights that are stored as codes were de-quantised: those of {' and '.join(coded)}.")
    merged = " and ".join(str(model["source"]) for model in models if "LoRA" in (model.get("stored") or ()))
    if merged:
        sentences.append(f"A LoRA adapter was merged into its base, in float32: {merged}.")
    return sentences


def _language_parts(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the models that do more than language: the rest of them was not compared."""
    return [
        f"Of {model['name']} ({model['architecture']}) the language part was compared, as {model['language_part']}."
        for model in models
        if model.get("language_part")
    ]


def _dropped(records: Sequence[PairRecord], models: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many hidden units of either model were left out of the matchings, as they do nothing of their own."""
    by_counts: dict[tuple[int, ...], list[str]] = {}
    for record in records:
        blocks = record.outcome.blocks if record.outcome else ()
        dropped = [block.detail["dropped"] for block in blocks if "dropped" in block.detail]
        if dropped:
            by_counts.setdefault(tuple(np.sum(dropped, axis=0).tolist()), []).append(record.statistic)
    return [
        "Hidden units that write nothing, or parts of one unit beside the first, were left out: "
        f"{first} of {models[0]['name']} and {second} of {models[1]['name']}, by {', '.join(names)}."
        for (first, second), names in by_counts.items()
    ]


def _some_units(records: Sequence[PairRecord], options: Options) -> list[str]:
    """Number of hidden units that the verdict is about, where not all were read."""
    blocks = [(record.statistic, block) for record in records if record.outcome for block in record.outcome.blocks]
    whole_by_name = {name: block.detail["of_units"] for name, block in blocks if "of_units" in block.detail}
    return [
        f"{name} read the first {options.units:,} of {' and '.join(f'{h:,}' for h in dict.fromkeys(whole))} hidden "
        "units of each block. Where units were moved or left out, few of these have their partners among the other's "
        "first, and units that are parts of one were not looked for: if it does not reject, run it without units."
        for name, whole in whole_by_name.items()
    ]


def _not_run(rows: list[dict[str, Any]]) -> list[str]:
    """What did not run, and why."""
    return [f"Not run: {row['statistic']} ({row['error']})." for row in rows if row["error"]]


def _evaded(rows: list[dict[str, Any]]) -> list[str]:
    """Disguises that would hide a common origin from the statistics tested, and a statistic that withstands them."""
    tested = {row["statistic"] for row in rows if not np.isnan(row["log10_p"])}
    ways = []
    if tested & ORDERED:
        ways.append("Hidden units shuffled after training hide a common origin from phi_u, phi_h and phi_l2.")
    if "phi_match_unsigned" in tested:
        ways.append("Split units whose gates are then moved, at a loss, hide it from phi_match and phi_match_unsigned.")
    elif "phi_match" in tested:
        ways.append("Flipped signs hide it from phi_match; phi_match_unsigned withstands that.")
    elif not tested & UNORDERED:
        ways.append(f"{_unordered(rows)} withstands that.")
    return ways


def _unordered(rows: list[dict[str, Any]]) -> str:
    """The statistic that ignores the order of units and fits these models: phi_match needs gates."""
    no_gate = any(row["statistic"] == "phi_match" and row["error"] and "gate" in row["error"] for row in rows)
    return "phi_views, for models without gates," if no_gate else "phi_match"


def _ignoring(statistics: set[str]) -> str:
    return f"{' and '.join(sorted(statistics))} {'ignore' if len(statistics) > 1 else 'ignores'}"


def _by_text(assumptions: Mapping[str, str]) -> dict[str, list[str]]:
    """Statistics that share an assumption, together."""
    grouped: dict[str, list[str]] = {}
    for name, text in assumptions.items():
        grouped.setdefault(text, []).append(name)
    return grouped


def _number(value: float) -> str:
    return "" if np.isnan(value) else format_log10_p(value)


#: what a table shows beside log10 p
BESIDE = ("paper's", "floor", "value", "agree")


def _beside(row: Mapping[str, float]) -> list[str]:
    """Write the columns of `BESIDE`: the paper's p-value, the floor, the raw value, the share of units that agree."""
    agree = "" if np.isnan(row["agree"]) else f"{row['agree']:.1%}"
    return [_number(row["paper_log10_p"]), _number(row["floor"]), f"{row['value']:.4g}", agree]
