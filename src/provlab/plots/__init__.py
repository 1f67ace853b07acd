"""Figures, drawn by one hand: plain data in, a `Figure` with caption and alt text out."""

from provlab.plots.blocks import block_bars
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_count, format_interval, format_log10_p, format_ratio, format_seconds
from provlab.plots.pairs import pair_heatmap, value_heatmap
from provlab.plots.style import family_colors
from provlab.plots.tables import Table, table

__all__ = [
    "Figure",
    "Table",
    "block_bars",
    "family_colors",
    "format_count",
    "format_interval",
    "format_log10_p",
    "format_ratio",
    "format_seconds",
    "pair_heatmap",
    "table",
    "value_heatmap",
]
