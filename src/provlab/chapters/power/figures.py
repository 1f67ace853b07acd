"""Pictures of limits: measured points with intervals beside the lines that the model predicts."""

import pandas as pd

from provlab.chapters.shared.power_curves import power_curves
from provlab.plots.figure import Figure


def shares(found: pd.DataFrame, *, caption: str) -> Figure:
    """Draw the share of partners found by width, points as measured (y) and lines by the cavity equation (said)."""
    groups = {f"{width} rows": group for width, group in found.groupby("width")}
    return power_curves(
        groups,
        {name: group.assign(y=group["said"]) for name, group in groups.items()},
        xlabel="separation of partners (standard deviations)",
        ylabel="share of partners found",
        caption=caption,
    )


def reserves(rows: pd.DataFrame, name: str, *, xlabel: str, caption: str) -> Figure:
    """Draw noise reserves against x: measured (y, low, high) where known, and predicted."""
    return power_curves(
        {name: rows.dropna(subset=["y", "low", "high"])},
        {name: rows.dropna(subset=["predicted"]).assign(y=lambda frame: frame["predicted"])},
        xlabel=xlabel,
        ylabel="noise reserve (sd of the weights)",
        caption=caption,
    )
