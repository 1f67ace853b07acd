"""Frames and a picture of a pair or a study, for notebooks; a terminal needs none of it."""

from collections.abc import Iterable, Sequence

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
