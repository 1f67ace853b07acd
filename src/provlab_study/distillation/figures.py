"""Distilled MLPs: what a test says of dependent and independent pairs, by recipe, and what parallel rows do."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_log10_p
from provlab.plots.style import styled
from provlab_study.distillation.measure import LEVEL
from provlab_study.shared.groups import Groups

_LINEAR = 3.0  # -log10 p up to which the scale is linear
_GROUPS = {"independent": (style.INDEPENDENT, "o", 0.17), "dependent": (style.DEPENDENT, "D", -0.17)}


@styled
def size_and_power(recipes: Mapping[str, Groups], *, caption: str = "") -> Figure:
    """Draw -log10 p of every pair, a row for each recipe: independent pairs above, dependent ones below.

    Parameters
    ----------
    recipes
        For each recipe log10 p of its pairs; the share of each group below `LEVEL` is written at the right.
    """
    figure = style.canvas(0.8 + 0.55 * len(recipes))
    axes = figure.add_subplot()
    rng = np.random.default_rng(0)  # jitter only
    counts = []
    for row, (name, groups) in enumerate(recipes.items()):
        beyond = []
        for group, (color, marker, shift) in _GROUPS.items():
            values = np.asarray(getattr(groups, group), dtype=float)
            height = row - shift + rng.uniform(-0.09, 0.09, values.size)
            axes.plot(
                -values, height, marker, color=color, markersize=4, markerfacecolor="none", markeredgewidth=0.9,
                alpha=0.8, clip_on=False, label=f"{group} pairs" if row == 0 else None,
            )  # fmt: skip
            below = int((values <= np.log10(LEVEL)).sum())
            axes.annotate(
                f"{below} of {values.size}", (1.0, row - shift), (6, 0), xycoords=("axes fraction", "data"),
                textcoords="offset points", va="center", fontsize=style.SMALL, color=style.ink(color),
            )  # fmt: skip
            beyond.append(f"{below} of {values.size} {group}")
        counts.append(f"{style.word(name)}: {' and '.join(beyond)}")
    axes.axvline(-np.log10(LEVEL), color=style.MUTED, linewidth=0.9, linestyle="--")
    axes.set_xscale("symlog", linthresh=_LINEAR, linscale=1.0)
    axes.set_xlim(left=0)
    axes.set_yticks(range(len(recipes)), [style.symbol(name) for name in recipes])
    axes.set_ylim(len(recipes) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(r"$-\log_{10}\,p$")
    style.value_grid(axes, "x")
    _plain_ticks(axes, max(-min(*groups.independent, *groups.dependent) for groups in recipes.values()))
    figure.legend(loc="outside upper left", ncols=2)
    text = f"Dashed: p = {LEVEL:g}; at the right the pairs beyond it."
    return Figure(
        figure, f"{caption} {text}".strip(), f"Points, one a pair. Beyond p = {LEVEL:g}: {'; '.join(counts)}."
    )


@styled
def parallel_rows(dial: pd.DataFrame, trained: pd.DataFrame, *, caption: str = "") -> Figure:
    """Draw -log10 p of independent pairs against how nearly parallel gate and up rows are.

    Parameters
    ----------
    dial
        Columns cosine, teachers (a name of the MLPs), median, low and high of log10 p: rows made parallel by hand.
    trained
        Columns cosine, recipe and log10_p: one pair of students a row, with the smaller of their two cosines.
    """
    figure = style.canvas(3.0, 5.2)
    axes = figure.add_subplot()
    colors = (style.INDEPENDENT, style.INK)
    for i, (teachers, group) in enumerate(dial.groupby("teachers", sort=False)):
        rows = group.sort_values("cosine")
        axes.plot(
            rows["cosine"], -rows["median"], style.MARKERS[i] + style.LINES[i], color=colors[i % 2], markersize=4,
            label=f"by hand, {teachers}",
        )  # fmt: skip
        axes.vlines(rows["cosine"], -rows["high"], -rows["low"], color=colors[i % 2], linewidth=1.0)
    for i, (recipe, group) in enumerate(trained.groupby("recipe", sort=False)):
        axes.plot(
            group["cosine"], -group["log10_p"], linestyle="", marker=style.MARKERS[2 + i % 5],
            color=style.FAMILY_COLORS[i % 3], markersize=4, markerfacecolor="none", markeredgewidth=0.9, clip_on=False,
            label=f"students, {recipe}",
        )  # fmt: skip
    axes.set_yscale("symlog", linthresh=_LINEAR, linscale=1.0)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="|cosine| of a unit's gate and up row", ylabel=r"$-\log_{10}\,p$, independent pairs")
    _plain_ticks(axes, float(-dial["low"].min()), axis="y")
    style.value_grid(axes, "y")
    figure.legend(loc="outside right upper")
    ends = [
        f"{teachers}: from {format_log10_p(group['median'].max())} to {format_log10_p(group['median'].min())}"
        for teachers, group in dial.groupby("teachers", sort=False)
    ]
    text = (
        "Lines: median over pairs made by hand, with the smallest and the largest. Points: pairs of students, at the "
        "less parallel of the two."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Curves over the cosine. Median log10 p, {'; '.join(ends)}.")


def _plain_ticks(axes: Axes, largest: float, axis: str = "x") -> None:
    ticks = [0.0, 1.0, 2.0, 3.0, *(t for t in (5.0, 10.0, 30.0, 100.0, 300.0, 1000.0) if t <= max(10.0, largest * 1.1))]
    set_ticks = axes.set_xticks if axis == "x" else axes.set_yticks
    set_ticks(ticks, [f"{t:g}" for t in ticks])
    set_ticks([], minor=True)
