"""Pairs of runs that share a beginning or nothing, at several budgets of training."""

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_log10_p
from provlab.plots.style import styled
from provlab_study.olmo_seeds.measure import OWN_SEEDS, SAME_START

# of the two kinds of pairs: colour, marker, and the side of the budget on which they stand
STARTS = {
    OWN_SEEDS: (style.INDEPENDENT, "o", -1),
    SAME_START: (style.DEPENDENT, "D", 1),
}
_APART = 1.16  # factor by which a kind of pair stands beside its budget
_SPREAD = 0.7  # by which power of that factor points are spread
_LINEAR = 3.0  # -log10 p up to which the scale is linear


@styled
def pairs_by_budget(pairs: pd.DataFrame, *, caption: str = "") -> Figure:
    """Draw -log10 p of every pair at every budget, one panel a statistic.

    Parameters
    ----------
    pairs
        Columns statistic, tokens, start ("own seeds" or "same initialisation"), log10_p and floor (the smallest log10 p
        that the statistic can give there).
    """
    names = list(dict.fromkeys(pairs["statistic"]))
    figure = style.canvas(2.7)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    rng = np.random.default_rng(0)  # jitter only
    for axes, name in zip(panels, names, strict=True):
        own = pairs[pairs["statistic"] == name]
        for start, (color, marker, side) in STARTS.items():
            rows = own[own["start"] == start]
            shift = side + rng.uniform(-_SPREAD, _SPREAD, len(rows))
            axes.plot(
                rows["tokens"] * _APART**shift, -rows["log10_p"], marker, color=color, markersize=3.2,
                markerfacecolor="none", markeredgewidth=0.8, alpha=0.85, clip_on=False,
            )  # fmt: skip
        floors = own.groupby("tokens")["floor"].min()
        axes.plot(floors.index, -floors, color=style.MUTED, linewidth=0.9, linestyle=":")
        axes.axhline(2.0, color=style.MUTED, linewidth=0.9, linestyle="--")
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=_LINEAR, linscale=1.4)
        axes.set(title=style.symbol(name), xlabel="tokens seen")
        axes.margins(x=0.12)
        axes.set_ylim(bottom=0)
        style.value_grid(axes, "y")
    panels[0].set_yticks([0, 1, 2, 10, 100, 1000], ["0", "1", "2", "10", "100", "1,000"])
    panels[0].set_ylim(0, max(3.0, float(-pairs["floor"].min())) * 1.6)
    panels[0].set_ylabel(r"$-\log_{10}\,p$")
    marks = [
        Line2D([], [], linestyle="", marker=marker, color=color, markerfacecolor="none", markersize=4, label=start)
        for start, (color, marker, _) in STARTS.items()
    ]
    figure.legend(handles=marks, loc="outside upper center", ncols=2)
    text = "Dashed: p = 0.01. Dotted: the floor of the statistic."
    return Figure(figure, f"{caption} {text}".strip(), f"Strips of -log10 p by tokens seen. {_words(pairs)}")


def _words(pairs: pd.DataFrame) -> str:
    ranges = []
    for (name, start), rows in pairs.groupby(["statistic", "start"], sort=False):
        low, high = format_log10_p(rows["log10_p"].min()), format_log10_p(rows["log10_p"].max())
        ranges.append(f"{style.word(str(name))}, {start}: log10 p from {low} to {high}")
    return "; ".join(ranges) + "."
