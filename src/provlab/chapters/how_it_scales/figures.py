"""How costs grow: seconds against size for two ways of one thing, and hours by what they go to."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.ticker import NullLocator, StrMethodFormatter

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_ratio
from provlab.plots.style import require, styled

# name of a way -> the column of its CPU seconds, colour, marker and line
WAYS = {"provlab": ("ours", "#009E73", "o", "-"), "reference": ("reference", style.MUTED, "s", "--")}
# what time goes to: a colour and a hatch each
_PARTS = {"read": ("#56B4E9", "///"), "multiply": ("#E69F00", ""), "assign": ("#009E73", "...")}


@styled
def growth(timings: pd.DataFrame, *, exponents: Mapping[tuple[str, str], float], caption: str = "") -> Figure:
    """Draw seconds against size on logarithmic axes, one panel a kind of rows, one line a way.

    Parameters
    ----------
    timings
        Columns kind, rows, ours and reference (CPU seconds).
    exponents
        (kind, way) -> fitted growth, written at the line.
    """
    require(len(timings), "timings: nothing to draw")
    seconds = timings[["ours", "reference"]].to_numpy()
    require(seconds.min() > 0, "timings: seconds must be positive numbers")
    kinds = list(timings["kind"].unique())
    figure = style.canvas(2.7)
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    ratios = []
    for axes, kind in zip(panels, kinds, strict=True):
        of_kind = timings[timings["kind"] == kind].sort_values("rows")
        sizes = of_kind["rows"].to_numpy()
        middle = len(sizes) // 2
        for way, (column, color, marker, line) in WAYS.items():
            values = of_kind[column].to_numpy()
            axes.plot(sizes, values, marker + line, color=color, markersize=4)
            above = way == "reference"  # the slower way is named above its line, ours below
            axes.annotate(
                f"{way}\n$n^{{{exponents[kind, way]:.1f}}}$",
                (sizes[middle], values[middle]),
                xytext=(-6, 5) if above else (6, -5),
                textcoords="offset points",
                ha="right" if above else "left",
                va="bottom" if above else "top",
                color=style.ink(color),
                fontsize=style.SMALL,
            )
        axes.set(xscale="log", yscale="log", xlabel="rows", title=kind)
        every = 1 if len(sizes) < 4 else 2  # labels, from the largest down
        axes.set_xticks(sizes, [f"{n:,}" if (len(sizes) - 1 - i) % every == 0 else "" for i, n in enumerate(sizes)])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(sizes[0] * 0.55, sizes[-1] * 1.8)
        style.value_grid(axes, "y")
        largest = of_kind.iloc[-1]
        ratios.append(f"{format_ratio(largest['reference'] / largest['ours'])} at {sizes[-1]:,} {kind} rows")
    panels[0].set_ylim(seconds.min() / 6, seconds.max() * 6)
    panels[0].set_ylabel("CPU seconds")
    text = f"reference over provlab: {', '.join(ratios)}."
    alt = f"CPU seconds against the number of rows, {len(kinds)} panels ({', '.join(kinds)}). {text}"
    return Figure(figure, f"{caption} {text}".strip(), alt)


@styled
def bills(hours: pd.DataFrame, *, caption: str = "") -> Figure:
    """Draw hours as stacked bars, one a machine.

    Parameters
    ----------
    hours
        One row a machine, by its label; columns read, multiply and assign, and at_most: all of it in the worst case.
    """
    require(len(hours), "hours: nothing to draw")
    figure = style.canvas(0.45 * len(hours) + 1.15)
    axes = figure.add_subplot()
    worst, parts = hours["at_most"], hours[list(_PARTS)]
    parts.plot.barh(stacked=True, ax=axes, width=0.6, legend=False, color=[color for color, _ in _PARTS.values()])
    for bars, (_, hatch) in zip(axes.containers, _PARTS.values(), strict=True):
        for bar in bars:
            bar.set(hatch=hatch, edgecolor="white")
    words = []
    for height, (low, high) in enumerate(zip(parts.sum(axis=1), worst, strict=True)):
        axes.errorbar(low, height, xerr=[[0], [high - low]], color=style.INK, linewidth=1.0, capsize=3)
        texts = dict.fromkeys(f"{n:,.0f}" if n >= 9.95 else f"{n:.1f}" for n in (low, high))
        words.append(f"{' to '.join(texts)} h")
        axes.annotate(
            words[-1], (high, height), xytext=(5, 0), textcoords="offset points", va="center", fontsize=style.SMALL
        )
    axes.set(ylim=(len(hours) - 0.5, -0.5), xlim=(0, worst.max() * 1.45), xlabel="hours by the clock", ylabel="")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.tick_params(axis="y", length=0)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(_PARTS), handlelength=1.4)
    text = "; ".join(f"{' '.join(label.split())}: {word}" for label, word in zip(hours.index, words, strict=True))
    return Figure(figure, f"{caption} {text}.".strip(), f"Stacked bars of hours by {', '.join(_PARTS)}. {text}.")
