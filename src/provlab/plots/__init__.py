"""Figures, drawn by one hand: plain data in, a `Figure` with caption and alt text out.

Names are loaded on first use: matplotlib and seaborn cost seconds, and printing a number draws nothing.
"""

from typing import TYPE_CHECKING

from provlab.lazy import lazily
from provlab.plots.numbers import (
    format_count,
    format_duration,
    format_interval,
    format_log10_p,
    format_number,
    format_range,
    format_ratio,
)

if TYPE_CHECKING:
    from provlab.plots.blocks import block_bars
    from provlab.plots.figure import Figure
    from provlab.plots.pairs import pair_heatmap
    from provlab.plots.tables import table

__all__ = ["Figure", "block_bars", "pair_heatmap", "table"]
__all__ += ["format_count", "format_duration", "format_interval", "format_log10_p", "format_number"]
__all__ += ["format_range", "format_ratio"]

_HOMES = {"Figure": "figure", "block_bars": "blocks", "pair_heatmap": "pairs", "table": "tables"}
__getattr__ = lazily(__name__, {name: f"provlab.plots.{home}" for name, home in _HOMES.items()})
