"""Figures, drawn by one hand: plain data in, a `Figure` with caption and alt text out.

Names are loaded on first use: matplotlib and seaborn cost seconds, and printing a number draws nothing.
"""

from typing import TYPE_CHECKING

from provlab.lazy import lazily

if TYPE_CHECKING:
    from provlab.plots.blocks import block_bars
    from provlab.plots.figure import Figure
    from provlab.plots.numbers import format_count, format_duration, format_interval, format_log10_p, format_ratio
    from provlab.plots.pairs import pair_heatmap
    from provlab.plots.style import family_colors
    from provlab.plots.tables import Table, table

__all__ = [
    "Figure",
    "Table",
    "block_bars",
    "family_colors",
    "format_count",
    "format_duration",
    "format_interval",
    "format_log10_p",
    "format_ratio",
    "pair_heatmap",
    "table",
]

__getattr__ = lazily(
    __name__,
    {
        "Figure": "provlab.plots.figure",
        "Table": "provlab.plots.tables",
        "block_bars": "provlab.plots.blocks",
        "family_colors": "provlab.plots.style",
        "format_count": "provlab.plots.numbers",
        "format_duration": "provlab.plots.numbers",
        "format_interval": "provlab.plots.numbers",
        "format_log10_p": "provlab.plots.numbers",
        "format_ratio": "provlab.plots.numbers",
        "pair_heatmap": "provlab.plots.pairs",
        "table": "provlab.plots.tables",
    },
)
