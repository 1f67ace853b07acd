"""Curves with intervals, each labelled at its end."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled


@styled
def curve(
    series: Mapping[str, pd.DataFrame],
    *,
    xlabel: str,
    ylabel: str,
    logx: bool = False,
    logy: bool = False,
    caption: str,
) -> Figure:
    """Draw points with intervals, one line style a series, each named at the right, at the height of its last point.

    Parameters
    ----------
    series
        Frames with the columns x, y and, where there is an interval, low and high.
    """
    figure = style.canvas(2.9, 4.6)
    axes = figure.add_subplot()
    ends, edge = {}, max(float(frame["x"].max()) for frame in series.values())
    for i, (name, frame) in enumerate(series.items()):
        data = frame.sort_values("x")
        color = style.SERIES[i % 5]
        axes.plot(data["x"], data["y"], style.MARKERS[i] + style.LINES[i % 4], color=color, markersize=4)
        if {"low", "high"} <= set(frame.columns):
            axes.vlines(data["x"], data["low"], data["high"], color=color, linewidth=1.0)
        ends[name] = (edge, data.iloc[-1]["y"])  # a name where a line ends early would lie over the others
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale="log" if logx else "linear", yscale="log" if logy else "linear")
    for axis, log in ((axes.xaxis, logx), (axes.yaxis, logy)):
        if log:
            low, high = axis.get_view_interval()
            if high < 20 * low:  # hardly a power of ten lies on it, and numbers of all places between would touch
                # of 1, 2, 5, 10 two or more lie on it; of fewer matplotlib would make a number of each small step
                axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if high > 5 * low else MaxNLocator(4))
                axis.set_major_formatter(LogFormatterSciNotation(labelOnlyBase=False))
            axis.set_minor_formatter(NullFormatter())
    style.value_grid(axes)
    figure.draw_without_rendering()  # limits and layout are made then, and heights follow from them
    heights = axes.transData.transform(list(ends.values()))[:, 1] * 72 / figure.dpi
    for i, (name, shift) in enumerate(zip(ends, _apart(heights, 1.6 * style.SMALL) - heights, strict=True)):
        axes.annotate(
            name,
            ends[name],
            xytext=(6, shift),
            textcoords="offset points",
            va="center",
            color=style.ink(style.SERIES[i % 5]),
        )
    return Figure(figure, caption, f"{ylabel} against {xlabel} for {', '.join(series)}. {caption}")


def _apart(heights: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """Move heights apart to at least `gap`, in their order and about their common middle."""
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(heights.size)
    placed = np.maximum.accumulate(heights[order] - steps) + steps
    moved = np.empty_like(heights)
    moved[order] = placed - (placed - heights[order]).mean()
    return moved
