"""Pictures of two models over the inputs that each finds likely: rho(D) and densities of states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from provlab.plots import style
from provlab.plots.explore import Spot
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled

MODELS = ("#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")


@dataclass(frozen=True)
class Panel:
    """rho(D) of both directions of one comparison, over common bins.

    Attributes
    ----------
    title
        The title of the comparison.
    edges
        ``(k + 1,)`` of D.
    a, b
        ``(3, k)`` each: value, low and high of rho_A->B and of rho_B->A, scaled alike.
    """

    title: str
    edges: NDArray[np.float64]
    a: NDArray[np.float64]
    b: NDArray[np.float64]


@styled
def differences(panels: Sequence[Panel], *, labels: tuple[str, str], xlabel: str, caption: str) -> Figure:
    """Draw rho_A->B(D) and rho_B->A(D) in one panel for each comparison, with zero marked (the paper's Figures 3, 4).

    Parameters
    ----------
    panels
        Comparisons, two in a row.
    labels
        What the two directions are called.
    xlabel
        Values of D.
    caption
        What to see.
    """
    require(panels, "panels: nothing to draw")
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = style.canvas(0.4 + 1.9 * rows, style.WIDTH if columns == 2 else 4.2)
    board = figure.subplots(rows, columns, squeeze=False)
    words = []
    for axes, panel in zip(board.flat, panels, strict=False):
        width = np.diff(panel.edges)
        for values, color, line, label in zip((panel.a, panel.b), style.DIRECTIONS, ("-", "--"), labels, strict=True):
            require(values.shape == (3, len(width)), f"{panel.title}: needs value, low and high of {len(width)} bins")
            value, low, high = np.where(np.isfinite(values), values, np.nanmax(values[0])) / width
            axes.stairs(high, panel.edges, baseline=low, fill=True, color=color, alpha=0.25, linewidth=0)
            axes.stairs(value, panel.edges, color=color, linewidth=1.5, linestyle=line, label=label)
        axes.axvline(0, color=style.MUTED, linewidth=0.9, linestyle=":", zorder=0)
        axes.locator_params(axis="x", nbins=4)  # values of a near copy have many digits
        axes.set_title(panel.title, loc="left")
        # a band of one bin may reach far beyond all values: the steps are what is read
        top = max(panel.a[0].max() / width.min(), panel.b[0].max() / width.min())
        axes.set_ylim(0, 1.45 * max(top, 1e-12))
        middle = (panel.edges[1:] + panel.edges[:-1]) / 2
        below = [float(v[0][middle < 0].sum() / max(v[0].sum(), 1e-300)) for v in (panel.a, panel.b)]
        words.append(f"{panel.title}: {below[0]:.0%} of A's inputs and {below[1]:.0%} of B's have D below zero")
    for axes in board.flat[len(panels) :]:
        axes.set_axis_off()
    for axes in board.flat[max(len(panels) - columns, 0) : len(panels)]:  # the lowest of each column
        axes.set_xlabel(xlabel)
    for axes in board[:, 0]:
        axes.set_ylabel("inputs per nat")
    board[0, 0].legend(loc="upper left", fontsize=style.SMALL)
    return Figure(figure, caption, f"Histograms of D. {caption} {'; '.join(words)}.")


@styled
def densities(
    series: Mapping[str, pd.DataFrame],
    *,
    xlabel: str,
    caption: str,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw log10 of the number of inputs against their loss, one line a model.

    Parameters
    ----------
    series
        Frames with the columns x (bin's middle), y, low and high (log10 of a number; NaN where it is not known), and
        seen: log10 of the inputs that were drawn. Where the number is not known a triangle marks these as the least.
    ranges
        Ranges of loss to shade, by their names.
    """
    require(series, "series: nothing to draw")
    figure = style.canvas(3.0, 5.0)
    axes = figure.add_subplot()
    for name, (low, high) in (ranges or {}).items():
        axes.axvspan(low, high, color=style.GRID, alpha=0.6, linewidth=0)
        axes.text((low + high) / 2, 0.03, name, ha="center", fontsize=style.SMALL, transform=axes.get_xaxis_transform())
    words = []
    for i, (name, frame) in enumerate(series.items()):
        columns = {"x", "y", "low", "high", "seen"}
        require(columns <= set(frame.columns), f"{name}: needs the columns x, y, low, high and seen")
        data = frame[np.isfinite(frame["y"])].sort_values("x")
        color = MODELS[i % len(MODELS)]
        axes.fill_between(data["x"], data["low"], data["high"], color=color, alpha=0.25, linewidth=0)
        least = frame[np.isnan(frame["y"]) & np.isfinite(frame["seen"])]
        axes.plot(least["x"], least["seen"], "^", color=color, markersize=3, fillstyle="none")
        axes.plot(
            data["x"],
            data["y"],
            style.MARKERS[i] + style.LINES[i % 4],
            color=color,
            markersize=3,
            linewidth=1.1,
            label=name,
        )
        words += [
            f"{name} from 10^{data['y'].iloc[0]:.0f} at {data['x'].iloc[0]:.2f} to 10^{data['y'].iloc[-1]:.0f}"
            if len(data)
            else f"{name}: no bin holds draws enough to count its inputs"
        ]
    axes.set(xlabel=xlabel, ylabel=r"$\log_{10}$ of the number of inputs")
    axes.legend(loc="lower right")
    style.value_grid(axes)
    alt = f"Density of states. {caption} {'; '.join(words)}."
    return Figure(figure, caption, alt, _columns(axes, series, xlabel))


def _columns(axes: Axes, series: Mapping[str, pd.DataFrame], xlabel: str) -> tuple[Spot, ...]:
    """One for each value of x, as high as the axes: what every model has there."""
    at = np.unique(np.concatenate([frame["x"].to_numpy(dtype=float) for frame in series.values()]))
    half = np.diff(at).min() / 2 if at.size > 1 else 0.5
    bottom, top = axes.get_ylim()
    spots = []
    for x in at:
        words = [
            f"{name} 10^{row.y:.1f} (10^{row.low:.1f} to 10^{row.high:.1f})"
            if np.isfinite(row.y)
            else f"{name} at least the {10**row.seen:,.0f} that were drawn"
            for name, frame in series.items()
            for row in frame[(frame["x"] == x) & np.isfinite(frame["seen"])].itertuples()
        ]
        text = f"{xlabel} {x:.2f}: {'; '.join(words) or 'no draw'}"
        spots.append(Spot(axes, ((x - half, x + half, bottom, top),), text))
    return tuple(spots)
