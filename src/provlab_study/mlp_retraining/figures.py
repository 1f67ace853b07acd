"""Retrained MLPs: what is found of each, against how well it imitates, and which way its units point."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_log10_p
from provlab.plots.style import styled

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
        Columns block, and log10 p of each of `SERIES`.
    bar
        The log10 p that every block must pass: a dashed line.
    half
        The log10 p at which half of the units agree: a dotted line.
    """
    figure, axes, ranges = _evidence(rows, "block", rows, "", bar, half, 2.5)
    axes.set_xticks(rows["block"])
    axes.set(xlabel="block that was retrained", xlim=(-0.5, len(rows) - 0.5))
    text = f"Dashed: {-bar:g}, the bar. Dotted: {-half:.1f}, where half of the units agree."
    alt = f"Points, one a block and statistic. {ranges.format('log10 p')}. {text}"
    return Figure(figure, f"{caption} {text}".strip(), alt)


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
    ordered = points.sort_values("relative", ascending=False)
    figure, axes, ranges = _evidence(ordered, "relative", ordered.groupby("block").tail(1), "-", bar, half, 2.9)
    axes.set_xscale("log")
    axes.invert_xaxis()
    axes.set_xlabel("relative error of the student (better to the right)")
    text = f"One line a block. Dashed: {-bar:g}, the bar. Dotted: {-half:.1f}, where half of the units agree."
    alt = f"Evidence against relative error. {ranges.format('at the best fits')}. {text}"
    return Figure(figure, f"{caption} {text}".strip(), alt)


def _evidence(
    points: pd.DataFrame, x: str, ends: pd.DataFrame, line: str, bar: float, half: float, height: float
) -> tuple[Canvas, Axes, str]:
    """Draw the series over `x`, joined by `line` within a block; return the range of each among `ends`, in words."""
    figure = style.canvas(height)
    axes = figure.add_subplot()
    for _, block in points.groupby("block"):
        for name, marks in SERIES.items():
            axes.plot(
                block[x], -block[name], linestyle=line, linewidth=0.8, markersize=4 if line else 5.5,
                markerfacecolor="none", markeredgewidth=1.1, clip_on=bool(line), **marks,
            )  # fmt: skip
    axes.axhline(-bar, color=style.MUTED, linewidth=0.9, linestyle="--", zorder=0)
    axes.axhline(-half, color=style.MUTED, linewidth=0.9, linestyle=":", zorder=0)
    axes.set_yscale("symlog", linthresh=_LINEAR, linscale=1.0)
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    ticks = [tick for tick in (0, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= axes.get_ylim()[1]]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylabel(r"$-\log_{10}\,p$")
    style.value_grid(axes, "y")
    handles = [
        Line2D([], [], linestyle="", markersize=5, markerfacecolor="none", label=style.symbol(name), **marks)
        for name, marks in SERIES.items()
    ]
    figure.legend(handles=handles, loc="outside right center", handletextpad=0.2)
    return (
        figure,
        axes,
        "; ".join(
            f"{style.word(name)} {{0}} from {format_log10_p(ends[name].min())} to {format_log10_p(ends[name].max())}"
            for name in SERIES
        ),
    )


@styled
def unit_signs(cosines: Mapping[str, ArrayLike], *, caption: str = "") -> Figure:
    """Draw how the up activations of partners point: one histogram of cosines for each block.

    Parameters
    ----------
    cosines
        For each label, the cosine of each recognised unit with its partner, from -1 to 1.
    """
    series = {label: np.clip(np.asarray(values, dtype=float), -1, 1) for label, values in cosines.items()}
    figure = style.canvas(1.9, min(style.WIDTH, 1.0 + 1.5 * len(series)))
    panels = figure.subplots(1, len(series), sharey=True, squeeze=False)[0]
    counts = []
    for axes, (label, values) in zip(panels, series.items(), strict=True):
        for name, side in (("phi_match_unsigned", values < 0), ("phi_match", values >= 0)):
            axes.hist(
                values[side], np.linspace(-1, 1, 21), color=SERIES[name]["color"], edgecolor="white", linewidth=0.4
            )
        axes.set(title=label, xlim=(-1, 1))
        axes.set_xticks([-1, 0, 1])
        style.value_grid(axes, "y")
        counts.append(f"{label}: {np.mean(values < 0):.0%} of {values.size} with the opposite sign")
    panels[0].set_ylabel("units")
    figure.supxlabel("cosine of a unit's up activations with its partner's", fontsize=9)
    text = "; ".join(counts) + "."
    return Figure(figure, f"{caption} {text}".strip(), f"Histograms of cosines from -1 to 1. {text}")
