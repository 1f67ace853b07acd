"""How costs grow: seconds against size for two ways of doing one thing, and hours by what they go to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, NullLocator

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_ratio
from provlab.plots.style import require, styled

# ours, and what it is held against; further ways take the other lines
_WAYS = (("#009E73", "o", "-"), (style.MUTED, "s", "--"), ("#CC79A7", "^", "-."))
# what time goes to: a colour and a hatch each
_PARTS = (("#56B4E9", "///"), ("#E69F00", ""), ("#009E73", "..."), ("#CC79A7", "xx"))


@styled
def growth(times: pd.DataFrame, *, exponents: Mapping[tuple[str, str], float], caption: str = "") -> Figure:
    """Draw seconds against size on logarithmic axes, one panel a kind of rows, one line a way.

    Parameters
    ----------
    times
        Columns kind, way, n, seconds; the first way is ours.
    exponents
        (kind, way) -> fitted growth, written at the line.
    """
    require({"kind", "way", "n", "seconds"} <= set(times.columns), "times: needs the columns kind, way, n, seconds")
    require(len(times) and (times["seconds"] > 0).all(), "times: seconds must be positive numbers")
    kinds, ways = list(dict.fromkeys(times["kind"])), list(dict.fromkeys(times["way"]))
    require(len(ways) <= len(_WAYS), f"times: at most {len(_WAYS)} ways can be told apart")
    figure = style.canvas(2.7)
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    told = []
    for axes, kind in zip(panels, kinds, strict=True):
        ends = {}
        sizes = sorted(set(times.loc[times["kind"] == kind, "n"]))
        for way, (color, marker, line) in zip(ways, _WAYS, strict=False):
            data = times[(times["kind"] == kind) & (times["way"] == way)].sort_values("n")
            if data.empty:
                continue
            axes.plot(data["n"], data["seconds"], marker + line, color=color, markersize=4)
            ends[way] = float(data["seconds"].iloc[-1])
            middle = data.iloc[len(data) // 2]
            above = way != ways[0]
            axes.annotate(
                f"{way}\n$n^{{{exponents[kind, way]:.1f}}}$",
                (middle["n"], middle["seconds"]),
                xytext=(-6, 5) if above else (6, -5),
                textcoords="offset points",
                ha="right" if above else "left",
                va="bottom" if above else "top",
                color=style.ink(color),
                fontsize=style.SMALL,
            )
        axes.set(xscale="log", yscale="log", xlabel="rows")
        axes.set_title(kind)
        every = 1 if len(sizes) < 4 else 2  # labels, from the largest down
        axes.set_xticks(sizes, [f"{n:,}" if (len(sizes) - 1 - i) % every == 0 else "" for i, n in enumerate(sizes)])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(sizes[0] * 0.55, sizes[-1] * 1.8)
        style.value_grid(axes, "y")
        if len(ends) > 1:
            ratio = ends[ways[1]] / ends[ways[0]]
            told.append(f"{format_ratio(ratio)} at {sizes[-1]:,} {kind} rows")
    low, high = times["seconds"].min(), times["seconds"].max()
    panels[0].set_ylim(low / 6, high * 6)
    panels[0].set_ylabel("CPU seconds")
    text = f"{ways[1]} over {ways[0]}: {', '.join(told)}." if told else ""
    return Figure(
        figure,
        f"{caption} {text}".strip(),
        f"CPU seconds against the number of rows, {len(kinds)} panels ({', '.join(kinds)}). {text}",
    )


@dataclass(frozen=True)
class Bill:
    """What a study costs somewhere.

    Attributes
    ----------
    label
        Where; a second line may say that it was not run.
    seconds
        What the time goes to -> seconds by the clock.
    at_most
        Seconds of the whole in the worst case, drawn as a thin line beyond the bar.
    """

    label: str
    seconds: Mapping[str, float]
    at_most: float


@styled
def bills(rows: Sequence[Bill], *, caption: str = "") -> Figure:
    """Draw hours as stacked bars, one a machine."""
    require(rows, "rows: nothing to draw")
    parts = list(dict.fromkeys(part for row in rows for part in row.seconds))
    require(len(parts) <= len(_PARTS), f"rows: at most {len(_PARTS)} parts can be told apart")
    figure = style.canvas(0.45 * len(rows) + 1.15)
    axes = figure.add_subplot()
    heights = np.arange(len(rows))
    left = np.zeros(len(rows))
    for part, (color, hatch) in zip(parts, _PARTS, strict=False):
        hours = np.array([row.seconds.get(part, 0.0) for row in rows]) / 3600
        axes.barh(heights, hours, left=left, height=0.6, color=color, hatch=hatch, edgecolor="white", label=part)
        left += hours
    worst = np.array([row.at_most for row in rows]) / 3600
    axes.hlines(heights, left, worst, color=style.INK, linewidth=1.0)
    axes.vlines(worst, heights - 0.12, heights + 0.12, color=style.INK, linewidth=1.0)
    for height, total, most in zip(heights, left, worst, strict=True):
        axes.annotate(
            _hours(total, most),
            (most, height),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=style.SMALL,
        )
    axes.set_yticks(heights, [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, worst.max() * 1.45)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_xlabel("hours by the clock")
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=len(parts), handlelength=1.4)
    text = "; ".join(
        f"{' '.join(row.label.split())}: {_hours(total, most)}"
        for row, total, most in zip(rows, left, worst, strict=True)
    )
    return Figure(figure, f"{caption} {text}.".strip(), f"Stacked bars of hours by {', '.join(parts)}. {text}.")


def _hours(low: float, high: float) -> str:
    """Format an interval of hours for which two digits are enough."""
    texts = [f"{hours:,.0f}" if hours >= 9.95 else f"{hours:.1f}" for hours in (low, high)]
    return f"{texts[0]} h" if texts[0] == texts[1] else f"{texts[0]} to {texts[1]} h"
