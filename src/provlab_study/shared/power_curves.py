"""Power curves: what was measured as points with intervals, what the model says as lines of the same colour."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled

COLORS = (style.INDEPENDENT, "#009E73", "#CC79A7", "#E69F00", "#000000")


@styled
def power_curves(
    measured: Mapping[str, pd.DataFrame],
    predicted: Mapping[str, pd.DataFrame] | None = None,
    *,
    xlabel: str,
    ylabel: str,
    logx: bool = False,
    level: float | None = None,
    caption: str,
) -> Figure:
    """Draw measured points with intervals, and predicted lines, one colour and marker a series.

    Parameters
    ----------
    measured
        Frames with the columns x, y and, where there is an interval, low and high.
    predicted
        Frames with x and y, under the labels of `measured` or further ones.
    level
        A height to mark with a dashed line.
    """
    predicted = predicted or {}
    figure = style.canvas(2.9, 5.2)
    axes = figure.add_subplot()
    labels = list(dict.fromkeys((*measured, *predicted)))
    for i, name in enumerate(labels):
        color = COLORS[i % len(COLORS)]
        if name in predicted:
            line = predicted[name].sort_values("x")
            axes.plot(line["x"], line["y"], style.LINES[i % 4], color=color, linewidth=1.1)
        if name in measured:
            data = measured[name].sort_values("x")
            if {"low", "high"} <= set(data.columns):
                axes.vlines(data["x"], data["low"], data["high"], color=color, linewidth=1.0)
            joined = "" if name in predicted else style.LINES[i % 4]
            axes.plot(data["x"], data["y"], style.MARKERS[i % 8] + joined, color=color, markersize=4)
        axes.plot(
            [], [], (style.MARKERS[i % 8] if name in measured else "") + style.LINES[i % 4], color=color, markersize=4,
            label=name,
        )  # fmt: skip
    if level is not None:
        axes.axhline(level, color=style.MUTED, linewidth=0.9, linestyle="--", zorder=0)
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale="log" if logx else "linear")
    if logx:
        axes.get_xaxis().set_major_formatter("{x:,g}")
    style.value_grid(axes)
    if len(labels) > 1:
        figure.legend(loc="outside right center")
    text = caption
    if measured and predicted:
        text += " Points are measured, lines predicted by the model."
    heights = np.concatenate([frame["y"].to_numpy(dtype=float) for frame in (*measured.values(), *predicted.values())])
    alt = f"{ylabel} from {heights.min():.3g} to {heights.max():.3g} against {xlabel} for {', '.join(labels)}. {text}"
    return Figure(figure, text, alt)
