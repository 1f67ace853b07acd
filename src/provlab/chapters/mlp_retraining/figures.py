"""Retrained MLPs: what is found of each, against how well it imitates, and which way its units point."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_log10_p
from provlab.plots.style import require, styled

# what a retrained block is compared with, and by which statistic: colour and marker
SERIES: dict[str, dict[str, Any]] = {
    "phi_match": {"color": style.DEPENDENT, "marker": "D"},
    "phi_match_unsigned": {"color": "#CC79A7", "marker": "s"},
    "a stranger": {"color": style.INDEPENDENT, "marker": "o"},
}
_LINEAR = 5.0  # -log10 p up to which the scale is linear


@styled
def retrained_blocks(rows: pd.DataFrame, *, bar: float, half: float, caption: str = "") -> Figure:
    """Draw -log10 p of every retrained block: by both statistics against the base, and against a stranger.

    Parameters
    ----------
    rows
        Columns block, and the log10 p of each of "phi_match", "phi_match_unsigned" and "a stranger" that was measured.
    bar
        The log10 p that every block must pass: a dashed line.
    half
        The log10 p at which half of the units agree: a dotted line.
    """
    names = [name for name in SERIES if name in rows]
    require(len(rows) and names, f"rows must have at least one block, and columns of {', '.join(SERIES)}")
    figure = style.canvas(2.5)
    axes = figure.add_subplot()
    for name in names:
        axes.plot(
            rows["block"], -rows[name], linestyle="", markersize=5.5, markerfacecolor="none", markeredgewidth=1.2,
            clip_on=False, **SERIES[name],
        )  # fmt: skip
    _evidence_axis(axes, bar, half)
    axes.set_xticks(rows["block"])
    axes.set(xlabel="block that was retrained", xlim=(-0.5, len(rows) - 0.5))
    _legend(figure, names)
    told = "; ".join(
        f"{style.word(name)} log10 p from {format_log10_p(rows[name].min())} to {format_log10_p(rows[name].max())}"
        for name in names
    )
    text = f"Dashed: {format_log10_p(bar)}. Dotted: where half of the units agree, {format_log10_p(half)}."
    return Figure(figure, f"{caption} {text}".strip(), f"Points, one a block and statistic. {told}. {text}")


@styled
def retraining_frontier(points: pd.DataFrame, *, bar: float, half: float, caption: str = "") -> Figure:
    """Draw -log10 p against the student's relative error, one line a block, from coarse fits on the left to fine ones.

    Parameters
    ----------
    points
        Columns block, relative (the error), and log10 p as in `retrained_blocks`.
    bar, half
        As there.
    """
    names = [name for name in SERIES if name in points]
    require(len(points) and names, f"points must have at least one row, and columns of {', '.join(SERIES)}")
    require((points["relative"] > 0).all(), "relative errors must be positive")
    figure = style.canvas(2.9)
    axes = figure.add_subplot()
    for _, line in points.groupby("block"):
        ordered = line.sort_values("relative", ascending=False)
        for name in names:
            axes.plot(
                ordered["relative"], -ordered[name], "-", linewidth=0.8, markersize=4, markerfacecolor="none",
                markeredgewidth=1.0, alpha=0.9, **SERIES[name],
            )  # fmt: skip
    _evidence_axis(axes, bar, half)
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_xlabel("relative error of the student (better to the right)")
    _legend(figure, names)
    finest = points.sort_values("relative").groupby("block").head(1)
    told = "; ".join(
        f"{style.word(name)} at the best fits from {format_log10_p(finest[name].min())} to "
        f"{format_log10_p(finest[name].max())}"
        for name in names
    )
    text = f"One line a block. Dashed: {format_log10_p(bar)}. Dotted: where half of the units agree."
    return Figure(figure, f"{caption} {text}".strip(), f"Evidence against relative error. {told}. {text}")


def _evidence_axis(axes: Axes, bar: float, half: float) -> None:
    axes.axhline(-bar, color=style.MUTED, linewidth=0.9, linestyle="--", zorder=0)
    axes.axhline(-half, color=style.MUTED, linewidth=0.9, linestyle=":", zorder=0)
    axes.set_yscale("symlog", linthresh=_LINEAR, linscale=1.0)
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    ticks = [tick for tick in (0, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= axes.get_ylim()[1]]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylabel(r"$-\log_{10}\,p$")
    style.value_grid(axes, "y")


def _legend(figure: Any, names: Sequence[str]) -> None:
    handles = [
        Line2D([], [], linestyle="", markersize=5, markerfacecolor="none", label=style.symbol(name), **SERIES[name])
        for name in names
    ]
    figure.legend(handles=handles, loc="outside right center", handletextpad=0.2)


@styled
def unit_signs(cosines: Mapping[str, ArrayLike], *, caption: str = "") -> Figure:
    """Draw how the up activations of partners point: one histogram of cosines for each block.

    Parameters
    ----------
    cosines
        For each label, the cosine of each recognised unit with its partner, from -1 to 1.
    """
    series = {label: np.asarray(values, dtype=float).ravel() for label, values in cosines.items()}
    require(series and all(values.size for values in series.values()), "cosines: nothing to draw")
    require(all(np.abs(values).max() <= 1 + 1e-6 for values in series.values()), "cosines must lie between -1 and 1")
    figure = style.canvas(1.9, min(style.WIDTH, 1.0 + 1.5 * len(series)))
    panels = figure.subplots(1, len(series), sharey=True, squeeze=False)[0]
    edges = np.linspace(-1, 1, 21)
    told = []
    for axes, (label, values) in zip(panels, series.items(), strict=True):
        counts, _ = np.histogram(np.clip(values, -1, 1), edges)
        colors = [SERIES["phi_match_unsigned" if right <= 0 else "phi_match"]["color"] for right in edges[1:] - 1e-9]
        axes.bar(edges[:-1], counts, width=0.1, align="edge", color=colors, edgecolor="white", linewidth=0.4)
        axes.set(title=label, xlim=(-1, 1))
        axes.set_xticks([-1, 0, 1])
        style.value_grid(axes, "y")
        told.append(f"{label}: {np.mean(values < 0):.0%} of {values.size} with the opposite sign")
    panels[0].set_ylabel("units")
    figure.supxlabel("cosine of a unit's up activations with its partner's", fontsize=9)
    text = "; ".join(told) + "."
    return Figure(figure, f"{caption} {text}".strip(), f"Histograms of cosines from -1 to 1. {text}")
