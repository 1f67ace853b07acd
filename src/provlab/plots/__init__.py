"""Every figure of the study, drawn by one hand: plain data in, a `Figure` with caption and alt text out."""

from provlab.plots.calibration import sizes
from provlab.plots.common_units import causes, common_counts
from provlab.plots.distillation import parallel_rows, size_and_power
from provlab.plots.evasion import survival
from provlab.plots.figure import Figure
from provlab.plots.nulls import (
    agreement,
    block_bars,
    correlation_matrix,
    curve,
    null_quantiles,
    raw_against_permtest,
    separation,
)
from provlab.plots.numbers import format_count, format_log10_p, format_ratio, format_seconds
from provlab.plots.pairs import pair_heatmap, value_heatmap
from provlab.plots.power import power_curves
from provlab.plots.pruning import block_arrows, block_matrices, evidence_by_change, unit_maps
from provlab.plots.retraining import retrained_blocks, retraining_frontier, unit_signs
from provlab.plots.scoreboard import scoreboard, scoreboard_table
from provlab.plots.seeds import pairs_by_budget
from provlab.plots.sharing import tensor_evidence
from provlab.plots.style import family_colors
from provlab.plots.tables import Table, table
from provlab.plots.tree import lineage_tree

__all__ = [
    "Figure",
    "Table",
    "agreement",
    "block_arrows",
    "block_bars",
    "block_matrices",
    "causes",
    "common_counts",
    "correlation_matrix",
    "curve",
    "evidence_by_change",
    "family_colors",
    "format_count",
    "format_log10_p",
    "format_ratio",
    "format_seconds",
    "lineage_tree",
    "null_quantiles",
    "pair_heatmap",
    "pairs_by_budget",
    "parallel_rows",
    "power_curves",
    "raw_against_permtest",
    "retrained_blocks",
    "retraining_frontier",
    "scoreboard",
    "scoreboard_table",
    "separation",
    "size_and_power",
    "sizes",
    "survival",
    "table",
    "tensor_evidence",
    "unit_maps",
    "unit_signs",
    "value_heatmap",
]
