"""Which blocks and units of a parent a child is made of: arrows, matrices, and units along the parent's MLP."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import NDArray

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled
from provlab.report.lineage import short_name
from provlab_study.pruning_forensics.measure import MapRecord
from provlab_study.shared.block_map import UnitMap

FEW = 12  # blocks that can each be numbered
LARGEST_CELL = 0.16  # inches
LINEAR = 10.0  # -log10 p up to which the scale of a plot of evidence is linear


def _name(record: MapRecord) -> str:
    """Return the child's name; with a stranger, both names."""
    child = short_name(record.child)
    return child if record.related else f"{child} / {short_name(record.parent)}"


def _mistakes(record: MapRecord, level: float) -> str:
    called, truth = record.called(level), record.truth()
    if truth is None or (called == truth).all():
        return ""
    return f" ({int((truth & ~called).sum())} missed, {int((called & ~truth).sum())} wrong)"


@styled
def block_arrows(maps: Sequence[MapRecord], *, level: float, caption: str = "") -> Figure:
    """Draw an arrow from each block of a parent to the block of the child that it became (the paper's Figure 4).

    Parameters
    ----------
    maps
        A panel each.
    level
        Level of Holm's procedure, which calls pairs of blocks.
    """
    most = max(record.log10_p.shape[0] for record in maps)
    largest = -min(record.log10_p.min() for record in maps)
    figure = style.canvas(max(1.2, min(most * 0.22, 4.6)) + 0.4, min(style.WIDTH, 1.7 * len(maps)))
    words = []
    for axes, record in zip(figure.subplots(1, len(maps), squeeze=False)[0], maps, strict=True):
        called, truth = record.called(level), record.truth()
        n_parent, n_child = called.shape
        shift = (n_parent - n_child) / 2
        for old, new in np.argwhere(truth) if truth is not None else ():
            axes.plot([0.14, 0.86], [old, new + shift], color=style.UNKNOWN, linewidth=3.0, linestyle=":", zorder=1)
        for old, new in np.argwhere(called):
            wrong = truth is not None and not truth[old, new]
            arrow = FancyArrowPatch(
                (0.1, old), (0.9, new + shift), arrowstyle="-|>", mutation_scale=7, shrinkA=0, shrinkB=0, zorder=2,
                color="black" if wrong else style.DEPENDENT, linestyle="--" if wrong else "-",
                linewidth=0.6 + 1.6 * np.sqrt(-record.log10_p[old, new] / largest),
            )  # fmt: skip
            axes.add_patch(arrow)
        _column(axes, 0.0, np.arange(n_parent), np.any(called, axis=1))
        _column(axes, 1.0, np.arange(n_child) + shift, np.any(called, axis=0))
        axes.set_axis_off()
        axes.set(xlim=(-0.45, 1.45), ylim=(most - 0.4, -0.6))
        axes.set_title(f"{short_name(record.parent)} to\n{_name(record)}", fontsize=style.SMALL + 0.5)
        words.append(f"{_name(record)}: {called.sum()} of its {n_child} blocks found{_mistakes(record, level)}")
    text = (
        "The parent's blocks stand at the left; a wider arrow has a smaller p, and a hollow block has no partner. "
        f"Dotted behind: what was kept in truth. {'; '.join(words)}."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Arrows from blocks of parents to blocks of children. {text}")


def _column(axes: Axes, x: float, heights: NDArray[np.number], filled: NDArray[np.bool_]) -> None:
    """Draw one model's blocks as squares, hollow where they have no partner, and number them."""
    faces = [style.DEPENDENT if partner else "white" for partner in filled]
    axes.scatter(
        np.full(len(heights), x), heights, s=20, c=faces, marker="s", edgecolors=style.INK, linewidths=0.7, zorder=3,
        clip_on=False,
    )  # fmt: skip
    for block in range(0, len(heights), 1 if len(heights) <= FEW else 4):
        axes.annotate(
            str(block), (x, heights[block]), xytext=(12 * x - 6, 0), textcoords="offset points",
            ha="left" if x else "right", va="center", fontsize=style.SMALL, color=style.INK,
        )  # fmt: skip


@styled
def block_matrices(maps: Sequence[MapRecord], *, level: float, caption: str = "") -> Figure:
    """Draw -log10 p of all pairs of blocks, a panel for each pair of models; parameters as of `block_arrows`."""
    largest = max(2.0, *(-record.log10_p.min() for record in maps))
    norm, ticks = style.evidence_norm(largest), style.evidence_ticks(largest)
    tall, columns = max(record.log10_p.shape[0] for record in maps), [record.log10_p.shape[1] for record in maps]
    margins = 1.3 + 0.25 * len(maps)  # inches, with the colour bar
    cell = min(LARGEST_CELL, (style.WIDTH - margins) / sum(columns))
    figure = style.canvas(max(1.4, cell * tall + 0.75), cell * sum(columns) + margins)
    panels = figure.subplots(1, len(maps), width_ratios=columns, squeeze=False)[0]
    words = []
    for axes, record in zip(panels, maps, strict=True):
        called, truth, strength = record.called(level), record.truth(), -record.log10_p
        image = axes.imshow(strength, norm=norm, cmap=style.mako(), interpolation="nearest")
        axes.set_anchor("N")
        axes.set_title(_name(record), fontsize=style.SMALL + 0.5)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=style.SMALL)
        few = max(called.shape) <= FEW
        axes.set_yticks(range(0, called.shape[0], 1 if few else 4))
        axes.set_xticks(range(0, called.shape[1], 1 if few else 4))
        for old, new in np.argwhere(called):
            ink = "white" if norm(strength[old, new]) > 0.45 else style.INK
            axes.plot(new, old, "o", color=ink, markersize=2.5 if few else 1.0)
        if truth is not None:
            _frame(axes, truth, style.DEPENDENT, 1.2 if few else 0.6)
            _frame(axes, called != truth, "black", 1.6)
        words.append(f"{_name(record)}: {called.sum()} of {called.size} called{_mistakes(record, level)}")
    bar = figure.colorbar(image, ax=panels.tolist(), ticks=ticks, pad=0.02)
    bar.ax.minorticks_off()
    bar.ax.set_yticklabels([f"{tick:,g}" for tick in ticks], fontsize=style.SMALL)
    bar.set_label(r"$-\log_{10}\,p$" + ("\n(log above 50)" if largest > 50 else ""), fontsize=style.SMALL + 0.5)
    bar.outline.set_visible(False)
    figure.supylabel("block of the parent", fontsize=9)
    figure.supxlabel("block of the child", fontsize=9)
    text = (
        "A dot where the pair is called; framed in vermillion what was kept in truth, "
        f"in black what is missed or wrong. {'; '.join(words)}."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Heatmaps of pairs of blocks. {text}")


def _frame(axes: Axes, mask: NDArray[np.bool_], color: str, width: float) -> None:
    for old, new in np.argwhere(mask):
        corner = (new - 0.5, old - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=color, linewidth=width, zorder=4))


@styled
def unit_maps(units: Mapping[str, UnitMap], kept: Mapping[str, Sequence[int] | None], *, caption: str = "") -> Figure:
    """Draw each unit of the child's MLP over its partner in the parent's, by up activations (the paper's Figure 11).

    Parameters
    ----------
    units
        For each panel, the matchings of two blocks.
    kept
        For each panel, the parent's unit that each of the child's was; None where that is unknown, or none was.
    """
    figure = style.canvas(3.0)
    panels = figure.subplots(1, 2 * len(units), width_ratios=[1.0, 0.16] * len(units))
    words = []
    for axes, margin, (name, pairs) in zip(panels[::2], panels[1::2], units.items(), strict=True):
        places, both, truth = np.arange(len(pairs.by_up)), pairs.agreed, kept[name]
        if truth is not None:
            axes.plot(places, truth, color=style.UNKNOWN, linewidth=3.5, solid_capstyle="butt", zorder=1)
        axes.plot(
            places[~both], pairs.by_up[~both], "o", color=style.MUTED, markerfacecolor="none", markersize=2.2,
            markeredgewidth=0.5, zorder=2,
        )  # fmt: skip
        axes.plot(places[both], pairs.by_up[both], "D", color=style.DEPENDENT, markersize=1.6, zorder=3)
        axes.set(xlim=(-2, len(both) + 1), ylim=(-2, pairs.width + 1), xlabel="unit of the child's MLP")
        axes.set_title(name, fontsize=style.SMALL + 0.5)
        margin.hlines(truth or [], 0.0, 0.85, color=style.INK, linewidth=0.35)
        margin.hlines(pairs.by_up[both], 1.0, 1.85, color=style.DEPENDENT, linewidth=0.35)
        margin.set(xlim=(-0.1, 2.0), xticks=[0.42, 1.42], ylim=axes.get_ylim())
        margin.set_xticklabels(["kept", "found"], rotation=90, fontsize=style.SMALL)
        margin.tick_params(left=False, labelleft=False, bottom=False)
        margin.spines[:].set_visible(False)
        words.append(f"{name}: both matchings agree on {both.sum()} of {len(both)} units")
    panels[0].set_ylabel("unit of the parent's MLP")
    mark: dict[str, Any] = {"linestyle": "", "markersize": 4}
    figure.legend(
        handles=[
            Line2D([], [], marker="D", color=style.DEPENDENT, label="by gate and by up", **mark),
            Line2D([], [], marker="o", color=style.MUTED, markerfacecolor="none", label="by up alone", **mark),
            Line2D([], [], color=style.UNKNOWN, linewidth=3.5, label="kept in truth"),
        ],
        loc="outside upper center",
        ncols=3,
    )
    text = "; ".join(words) + ". Beside each panel, along the parent's MLP: units kept in truth, and units found."
    return Figure(figure, f"{caption} {text}".strip(), f"Dots, a unit each, child against parent. {text}")


@styled
def evidence_by_change(points: pd.DataFrame, *, threshold: float, caption: str = "") -> Figure:
    """Draw -log10 p of each kept pair of blocks against how far training moved that block.

    Parameters
    ----------
    points
        A row a block: child, change (relative to its size) and log10_p.
    threshold
        log10 p that a single test must reach to be called, for the line.
    """
    figure = style.canvas(2.9, 4.9)
    axes = figure.add_subplot()
    marks = list(style.MARKERS[: points["child"].nunique()])
    sns.scatterplot(
        points.assign(evidence=-points["log10_p"]), x="change", y="evidence", hue="child", style="child",
        palette="mako_r", markers=marks, edgecolor=style.INK, s=28, clip_on=False, zorder=3, ax=axes,
    )  # fmt: skip
    axes.axhline(-threshold, color=style.MUTED, linewidth=0.9, linestyle="--")
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=LINEAR)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="how far the block's gate and up moved, relative to their size", ylabel=r"$-\log_{10}\,p$")
    ticks = [tick for tick in (0, 2, 5, 10, 100, 1000) if tick <= 1.5 * axes.get_ylim()[1]]
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    style.value_grid(axes, "y")
    handles, names = axes.get_legend_handles_labels()
    axes.legend().remove()
    figure.legend(
        handles, names, loc="outside upper center", ncols=min(5, len(names)), handletextpad=0.1, columnspacing=1.2
    )
    called = int((points["log10_p"] < threshold).sum())
    text = (
        f"A point is a block of a child; {called} of {len(points)} lie above the dashed line, "
        "what a single test must reach to be called among all of its map."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Points: evidence against change. {text}")
