"""Units that gate and up give the same partner in unrelated models: their number, and their causes."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike
from scipy import stats

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled
from provlab_study.shared.curves import curve

COLORS = (style.INDEPENDENT, "#009E73", "#CC79A7", "#E69F00", "#000000")


@styled
def common_counts(counts: Mapping[str, ArrayLike], *, caption: str = "") -> Figure:
    """Draw how often two unrelated blocks have so many units in common, and the law of chance.

    Parameters
    ----------
    counts
        For each kind of blocks, the number of common units of each pair of blocks.
    """
    values = {name: np.asarray(numbers, dtype=int).ravel() for name, numbers in counts.items()}
    top = max(int(numbers.max()) for numbers in values.values())
    at = np.arange(top + 1)
    figure = style.canvas(2.7, 5.2)
    axes = figure.add_subplot()
    axes.bar(at, stats.poisson.pmf(at, 1.0), width=0.8, color=style.GRID, label="chance")
    for i, (name, numbers) in enumerate(values.items()):
        share = np.bincount(numbers, minlength=top + 1) / numbers.size
        axes.plot(
            at, share, style.MARKERS[i % 8] + style.LINES[i % 4], color=COLORS[i % 5], markersize=4, linewidth=1.0,
            label=name,
        )  # fmt: skip
    axes.set(xlabel="units in common", ylabel="share of pairs of blocks", xlim=(-0.6, top + 0.6), ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper right")
    style.value_grid(axes, "y")
    text = "; ".join(f"{name}: mean {n.mean():.2f}, most {n.max()}, n = {n.size:,}" for name, n in values.items())
    return Figure(figure, f"{caption} {text}.".strip(), f"Shares of pairs of blocks by units in common. {text}.")


@styled
def ablations(
    means: Mapping[str, Sequence[tuple[float, float, float]]], labels: Sequence[str], *, caption: str = ""
) -> Figure:
    """Draw the mean number of common units under each ablation, one panel a block.

    Parameters
    ----------
    means
        For each ablation, for each of `labels`, the mean and its interval.
    labels
        The labels of the panels.
    """
    figure = style.canvas(0.9 + 0.27 * len(means))
    panels = figure.subplots(1, len(labels), sharey=True, squeeze=False)[0]
    for k, (axes, label) in enumerate(zip(panels, labels, strict=True)):
        axes.axvline(1.0, color=style.MUTED, linewidth=0.9, linestyle="--")
        for row, values in enumerate(means.values()):
            mean, low, high = values[k]
            apart = low > 1.0
            color, marker = (style.DEPENDENT, "D") if apart else (style.INDEPENDENT, "o")
            axes.hlines(row, low, high, color=color, linewidth=1.2)
            axes.plot(mean, row, marker, color=color, markersize=4.5)
        axes.set(title=label, ylim=(len(means) - 0.5, -0.5))
        axes.set_xlim(left=0)
        axes.tick_params(axis="y", length=0)
        style.value_grid(axes, "x")
    panels[0].set_yticks(range(len(means)), list(means))
    figure.supxlabel("units in common, mean over pairs", fontsize=9)
    text = "Dashed: one, as by chance. Diamonds: the 95% interval lies above it."
    numbers = "; ".join(
        f"{name}: " + ", ".join(f"{label} {values[k][0]:.2f}" for k, label in enumerate(labels))
        for name, values in means.items()
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Dots with intervals, one row an ablation. {numbers}.")


def by_block(rows: pd.DataFrame, *, x: str, xlabel: str, caption: str) -> Figure:
    """Draw the units in common of each block against a column of `rows`, with their intervals (y, low, high)."""
    series = {f"block {k}": group.assign(x=group[x]) for k, group in rows.groupby("block")}
    return curve(series, xlabel=xlabel, ylabel="units in common", logx=True, caption=caption)
