"""Frames, a picture and HTML of a pair or a study, for notebooks; a terminal needs none of it."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import pandas as pd

from provlab import plots
from provlab.engine.ledger import PairRecord


def with_reasons(frame: pd.DataFrame, records: Sequence[PairRecord]) -> pd.DataFrame:
    """Add why each record failed, None where it did not (and not the NaN that a column of text would hold)."""
    return frame.assign(error=pd.Series([record.error for record in records], dtype=object))


def blocks_frame(records: Iterable[PairRecord]) -> pd.DataFrame:
    """One row per pair, statistic and block: value, log10_p, paper_log10_p."""
    columns = ["a", "b", "statistic", "block", "value", "log10_p", "paper_log10_p"]
    rows = [
        (
            record.a,
            record.b,
            record.statistic,
            block.block,
            block.value,
            block.log10_p,
            block.detail.get("paper_log10_p"),
        )
        for record in records
        if record.outcome
        for block in record.outcome.blocks
    ]
    return pd.DataFrame(rows, columns=columns).astype({"log10_p": float, "paper_log10_p": float})


def figure(records: Sequence[PairRecord]) -> "plots.Figure":
    """Per-block -log10 p of every statistic that has blocks."""
    blocks = blocks_frame(records).dropna(subset=["log10_p"])
    series = {name: list(rows["log10_p"]) for name, rows in blocks.groupby("statistic", sort=False)}
    floors = {
        record.statistic: float(record.outcome.blocks[0].detail["floor"])
        for record in records
        if record.outcome and record.statistic in series
    }
    return plots.block_bars(series, floors)


def html(
    names: Sequence[str],
    header: Sequence[str],
    rows: Mapping[str, Sequence[str] | str],
    verdict: str,
    assumed: Mapping[str, Sequence[str]],
    records: Sequence[PairRecord],
) -> str:
    """Lay out what is said of one pair.

    Parameters
    ----------
    names
        Of the two models.
    header, rows
        Of the table: statistic -> its cells, or why it was not run.
    verdict
        What follows.
    assumed
        Assumption -> the statistics that make it.
    records
        Drawn where there are p-values of blocks.
    """
    lines = "".join(
        f"<tr><td>{name}</td>"
        + (
            f"<td colspan={len(header) - 1}>{escape(cells)}</td>"
            if isinstance(cells, str)
            else "".join(f"<td class='number'>{text}</td>" for text in cells)
        )
        + "</tr>"
        for name, cells in rows.items()
    )
    under = "".join(f"<li>{', '.join(made_by)}: {escape(text)}</li>" for text, made_by in assumed.items())
    picture = figure(records).to_html() if blocks_frame(records)["log10_p"].notna().any() else ""
    return (
        f"<div class='comparison'><p><b>{'</b> against <b>'.join(map(escape, names))}</b></p>"
        f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in header)}</tr>"
        f"{lines}</table><p>{escape(verdict)}</p>"
        f"<details><summary>Assumptions</summary><ul>{under}</ul></details>{picture}</div>"
    )
