"""Which blocks and units of a parent a child is made of: arrows, matrices, and units along the parent's MLP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import ArrayLike, NDArray

from provlab.chapters.pruning_forensics.measure import MapRecord
from provlab.engine.lineage import short_name
from provlab.engine.localise import BlockMap
from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled
from provlab.zoo.prune import Kept

FEW = 12  # blocks that can each be numbered
ACROSS = 64  # columns of cells in one line of matrices, at most
GAP = 2.5  # columns' worth of room between two matrices
LARGEST_CELL = 0.16  # inches
LINEAR = 10.0  # -log10 p up to which the scale of a plot of evidence is linear
TITLE = 0.4  # inches above a panel of arrows, for two lines
LEFT, RIGHT, ABOVE, BELOW = 0.45, 0.8, 0.25, 0.22  # inches around the matrices of a line


@dataclass(frozen=True, eq=False)
class _Panel:
    """One map as it is drawn: -log10 p, which pairs of blocks are called, and which were kept (None: unknown)."""

    name: str
    parent: str
    strength: NDArray[np.float64]
    called: NDArray[np.bool_]
    truth: NDArray[np.bool_] | None


def _panels(maps: Sequence[MapRecord], level: float) -> list[_Panel]:
    """Return a panel for each map, named by the child; with a stranger, by both models."""
    require(maps, "maps: nothing to draw")
    panels = []
    for one in maps:
        child, parent = short_name(one.child), short_name(one.parent)
        name = child if one.related else f"{child} / {parent}"
        panels.append(_Panel(name, parent, -one.log10_p, one.called(level), one.truth()))
    return panels


@styled
def block_arrows(maps: Sequence[MapRecord], *, level: float, caption: str = "") -> Figure:
    """Draw an arrow from each block of a parent to the block of the child that it became (the paper's Figure 4).

    Parameters
    ----------
    maps
        A panel each.
    level
        Of Holm's procedure, which calls pairs of blocks.
    """
    panels = _panels(maps, level)
    most = max(panel.strength.shape[0] for panel in panels)
    tall = max(1.2, min(most * 0.22, 4.6))
    figure = style.canvas(tall + TITLE, min(style.WIDTH, 1.7 * len(panels)))
    figure.set_layout_engine("none")
    all_axes = [
        figure.add_axes((i / len(panels), 0, 1 / len(panels), tall / (tall + TITLE))) for i in range(len(panels))
    ]
    largest = max(float(panel.strength.max()) for panel in panels)
    for axes, panel in zip(all_axes, panels, strict=True):
        strength, called, truth = panel.strength, panel.called, panel.truth
        n_parent, n_child = strength.shape
        shift = (n_parent - n_child) / 2
        for old, new in np.argwhere(truth) if truth is not None else ():
            axes.plot([0.14, 0.86], [old, new + shift], color=style.UNKNOWN, linewidth=3.0, linestyle=":", zorder=1)
        for old, new in np.argwhere(called):
            wrong = truth is not None and not truth[old, new]
            axes.add_patch(
                FancyArrowPatch(
                    (0.1, old),
                    (0.9, new + shift),
                    arrowstyle="-|>",
                    mutation_scale=7,
                    shrinkA=0,
                    shrinkB=0,
                    color="black" if wrong else style.DEPENDENT,
                    linestyle="--" if wrong else "-",
                    linewidth=0.6 + 1.6 * np.sqrt(strength[old, new] / largest),
                    zorder=2,
                )
            )
        _column(axes, 0.0, np.arange(n_parent), np.any(called, axis=1), "right")
        _column(axes, 1.0, np.arange(n_child) + shift, np.any(called, axis=0), "left")
        axes.set_axis_off()
        axes.set(xlim=(-0.45, 1.45), ylim=(most - 0.4, -0.6))
        axes.set_title(f"{panel.parent} to\n{panel.name}", fontsize=style.SMALL + 0.5)
    words = [
        f"{panel.name}: {int(panel.called.sum())} of its {panel.called.shape[1]} blocks found"
        + _mistakes_in_words(panel)
        for panel in panels
    ]
    text = (
        "Left the parent's blocks, right the child's; an arrow where a pair is called, the wider the smaller p; "
        f"hollow: no partner. Dotted behind: what was kept in truth. {'; '.join(words)}."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Arrows from blocks of parents to blocks of children. {text}")


def _column(axes: Axes, x: float, heights: NDArray[np.number], filled: NDArray[np.bool_], side: str) -> None:
    """Draw one model's blocks as squares, hollow where no partner was found, and number them."""
    for mask, face in ((filled, style.DEPENDENT), (~filled, "white")):
        axes.plot(
            np.full(int(mask.sum()), x), heights[mask], "s", color=face, markersize=4.5,
            markeredgecolor=style.INK, markeredgewidth=0.7, zorder=3, clip_on=False,
        )  # fmt: skip
    every = 1 if len(heights) <= FEW else 4
    for block in range(0, len(heights), every):
        axes.annotate(
            str(block), (x, heights[block]), xytext=(-6 if side == "right" else 6, 0), textcoords="offset points",
            ha=side, va="center", fontsize=style.SMALL, color=style.INK,
        )  # fmt: skip


@styled
def block_matrices(maps: Sequence[MapRecord], *, level: float, caption: str = "") -> Figure:
    """Draw -log10 p of all pairs of blocks, a panel for each pair of models; parameters as of `block_arrows`."""
    panels = _panels(maps, level)
    largest = max(2.0, *(float(panel.strength.max()) for panel in panels))
    norm, ticks = style.evidence_norm(largest), style.evidence_ticks(largest)
    lines = _lines(panels)
    across = max(sum(panel.strength.shape[1] for panel in line) + GAP * (len(line) - 1) for line in lines)
    cell = min(LARGEST_CELL, (style.WIDTH - LEFT - RIGHT) / across)
    tall = [cell * max(panel.strength.shape[0] for panel in line) + ABOVE + BELOW for line in lines]
    width, height = LEFT + cell * across + RIGHT, sum(tall) + BELOW
    figure = style.canvas(height, width)
    figure.set_layout_engine("none")  # cells of one size in all panels, which no engine promises

    def box(x: float, top: float, columns: float, rows: float) -> Axes:
        return figure.add_axes((x / width, 1 - (top + rows) / height, columns / width, rows / height))

    top = ABOVE
    for line, room in zip(lines, tall, strict=True):
        x = LEFT
        for panel in line:
            strength = panel.strength
            rows, columns = strength.shape
            axes = box(x, top, cell * columns, cell * rows)
            image = axes.imshow(strength, norm=norm, cmap=style.mako(), interpolation="nearest", aspect="auto")
            axes.set_title(panel.name, fontsize=style.SMALL + 0.5)
            _mark(axes, panel, [["white" if norm(s) > 0.45 else style.INK for s in row] for row in strength])
            x += cell * (columns + GAP)
        top += room
    bar = figure.colorbar(image, cax=box(width - RIGHT + 0.15, ABOVE, 0.12, height - ABOVE - 2 * BELOW), ticks=ticks)
    bar.ax.minorticks_off()
    bar.ax.set_yticklabels([f"{tick:,g}" for tick in ticks], fontsize=style.SMALL)
    bar.set_label(r"$-\log_{10}\,p$" + (" (log above 50)" if largest > 50 else ""), fontsize=style.SMALL + 0.5)
    bar.outline.set_visible(False)
    figure.text(0.06 / width, 0.5, "block of the parent", rotation=90, va="center", fontsize=9)
    figure.text(LEFT / width, 0.06 / height, "block of the child", fontsize=9)
    words = [
        f"{panel.name}: {int(panel.called.sum())} of {panel.called.size} called" + _mistakes_in_words(panel)
        for panel in panels
    ]
    text = (
        "A dot where the pair is called; framed in vermillion what was kept in truth, "
        f"in black what is missed or wrong. {'; '.join(words)}."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Heatmaps of pairs of blocks. {text}")


def _lines(panels: Sequence[_Panel]) -> list[list[_Panel]]:
    """Lay panels out in lines that hold about `ACROSS` columns of cells each."""
    lines: list[list[_Panel]] = [[]]
    for panel in panels:
        taken = sum(other.strength.shape[1] + GAP for other in lines[-1])
        if lines[-1] and taken + panel.strength.shape[1] > ACROSS:
            lines.append([])
        lines[-1].append(panel)
    return lines


def _mark(axes: Axes, panel: _Panel, inks: Sequence[Sequence[str]]) -> None:
    """Number the blocks, put a dot on what is called, and frame the truth and the mistakes."""
    called, truth = panel.called, panel.truth
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=style.SMALL)
    few = max(called.shape) <= FEW
    axes.set_yticks(range(0, called.shape[0], 1 if few else 4))
    axes.set_xticks(range(0, called.shape[1], 1 if few else 4))
    for old, new in np.argwhere(called):
        axes.plot(new, old, "o", color=inks[old][new], markersize=2.5 if few else 1.0)
    if truth is None:
        return
    for old, new in np.argwhere(truth):
        axes.add_patch(_cell(old, new, style.DEPENDENT, 1.2 if few else 0.6))
    for old, new in np.argwhere(called != truth):
        axes.add_patch(_cell(old, new, "black", 1.6))


def _cell(old: int, new: int, color: str, width: float) -> Rectangle:
    return Rectangle((new - 0.5, old - 0.5), 1, 1, fill=False, edgecolor=color, linewidth=width, zorder=4)


def units_of_weakest_call(found: BlockMap, note: Kept | None, *, level: float, caption: str = "") -> Figure | None:
    """Draw the units of the weakest called pair of blocks, and of a pair that is not called; None if none is called.

    Parameters
    ----------
    found
        The map of parent and child.
    note
        What was kept, if that is known.
    level
        Of Holm's procedure.
    """
    called = found.found(level)
    if not called:
        return None
    weakest = max(called, key=lambda pair: found.log10_p[pair])
    others = [(weakest[0], new) for new in range(found.log10_p.shape[1]) if (weakest[0], new) not in called]
    panels = {f"block {old} to block {new}": (old, new) for old, new in (weakest, *others[:1])}
    kept = note is not None and weakest in list(zip(note.blocks, range(len(note.blocks)), strict=True))
    return unit_maps(
        {name: found.units[pair].by_up for name, pair in panels.items()},
        {name: found.units[pair].agreed for name, pair in panels.items()},
        {name: note.mlp[pair[1]] if note and kept and pair == weakest else None for name, pair in panels.items()},
        width=found.units[weakest].width,
        caption=caption,
    )


@styled
def unit_maps(
    partners: Mapping[str, ArrayLike],
    agreed: Mapping[str, ArrayLike],
    kept: Mapping[str, Sequence[int] | None],
    *,
    width: int,
    caption: str = "",
) -> Figure:
    """Draw each unit of the child's MLP against its partner in the parent's (the paper's Figure 11).

    Parameters
    ----------
    partners
        Of each panel, ``(h,)``: partner of each unit of the child by up activations.
    agreed
        Of each panel, boolean: units to which gate activations give the same partner.
    kept
        Of each panel, the parent's unit that each of the child's was; None where that is unknown, or none was.
    width
        Units of the parent's MLP.
    """
    require(partners and set(partners) == set(agreed) == set(kept), "partners, agreed and kept must name equal panels")
    figure = style.canvas(3.0)
    grid = figure.add_gridspec(1, 2 * len(partners), width_ratios=[1.0, 0.16] * len(partners))
    words = []
    for i, name in enumerate(partners):
        named, both = np.asarray(partners[name]), np.asarray(agreed[name], dtype=bool)
        require(named.shape == both.shape and named.ndim == 1, f"{name}: partners and agreed must be of one length")
        truth = None if kept[name] is None else np.asarray(kept[name])
        axes = figure.add_subplot(grid[0, 2 * i])
        units = np.arange(len(named))
        if truth is not None:
            axes.plot(units, truth, color=style.UNKNOWN, linewidth=3.5, solid_capstyle="butt", zorder=1)
        axes.plot(
            units[~both], named[~both], "o", color=style.MUTED, markerfacecolor="none", markersize=2.2,
            markeredgewidth=0.5, zorder=2,
        )  # fmt: skip
        axes.plot(units[both], named[both], "D", color=style.DEPENDENT, markersize=1.6, zorder=3)
        axes.set(xlim=(-2, len(named) + 1), ylim=(-2, width + 1), xlabel="unit of the child's MLP")
        axes.set_title(name, fontsize=style.SMALL + 0.5)
        if i == 0:
            axes.set_ylabel("unit of the parent's MLP")
        margin = figure.add_subplot(grid[0, 2 * i + 1], sharey=axes)
        for x, marks, color in ((0.0, truth, style.INK), (1.0, named[both], style.DEPENDENT)):
            if marks is not None:
                margin.hlines(marks, x, x + 0.85, color=color, linewidth=0.35)
        margin.set(xlim=(-0.1, 2.0), xticks=[0.42, 1.42])
        margin.set_xticklabels(["kept", "found"], rotation=90, fontsize=style.SMALL)
        margin.tick_params(left=False, labelleft=False, bottom=False)
        margin.spines[:].set_visible(False)
        words.append(f"{name}: both matchings agree on {int(both.sum())} of {len(named)} units")
    figure.legend(
        handles=[
            Line2D([], [], linestyle="", marker="D", color=style.DEPENDENT, markersize=4, label="by gate and by up"),
            Line2D([], [], linestyle="", marker="o", color=style.MUTED, markerfacecolor="none", markersize=4,
                   label="by up alone"),
            Line2D([], [], color=style.UNKNOWN, linewidth=3.5, label="kept in truth"),
        ],
        loc="outside upper center",
        ncols=3,
    )  # fmt: skip
    text = "; ".join(words) + ". Beside each panel, along the parent's MLP: units kept in truth, and units found."
    return Figure(figure, f"{caption} {text}".strip(), f"Dots, a unit each, child against parent. {text}")


@styled
def evidence_by_change(
    changes: Mapping[str, ArrayLike], log10_p: Mapping[str, ArrayLike], *, threshold: float, caption: str = ""
) -> Figure:
    """Draw -log10 p of each kept pair of blocks against how far training moved that block.

    Parameters
    ----------
    changes
        Of each child, ``(blocks,)``: how far each of its blocks moved, relative to its size.
    log10_p
        Of the same shapes: of each block with the one it was.
    threshold
        log10 p that a single test must reach to be called, for the line.
    """
    require(changes and set(changes) == set(log10_p), "changes and log10_p must name the same children, at least one")
    figure = style.canvas(2.9, 4.9)
    axes = figure.add_subplot()
    lost = total = 0
    for i, name in enumerate(changes):
        x, y = np.asarray(changes[name], dtype=float), -np.asarray(log10_p[name], dtype=float)
        require(x.shape == y.shape and x.ndim == 1, f"{name}: changes and log10_p must be of one length")
        color = style.mako()(0.15 + 0.75 * i / max(1, len(changes) - 1))
        axes.plot(
            x, y, style.MARKERS[i % len(style.MARKERS)], color=color, markersize=5, label=name,
            markeredgecolor=style.INK, markeredgewidth=0.5, linestyle="", clip_on=False, zorder=3,
        )  # fmt: skip
        lost, total = lost + int((y < -threshold).sum()), total + len(y)
    axes.axhline(-threshold, color=style.MUTED, linewidth=0.9, linestyle="--")
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=LINEAR)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="how far the block's gate and up moved, relative to their size", ylabel=r"$-\log_{10}\,p$")
    ticks = [tick for tick in (0, 2, 5, 10, 100, 1000) if tick <= 1.5 * axes.get_ylim()[1]]
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    style.value_grid(axes, "y")
    figure.legend(loc="outside upper center", ncols=min(5, len(changes)), handletextpad=0.1, columnspacing=1.2)
    text = (
        f"A point is a block of a child; {total - lost} of {total} lie above the dashed line, "
        "what a single test must reach to be called among all of its map."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Points: evidence against change. {text}")


def _mistakes_in_words(panel: _Panel) -> str:
    called, truth = panel.called, panel.truth
    if truth is None or (called == truth).all():
        return ""
    return f" ({int((truth & ~called).sum())} missed, {int((called & ~truth).sum())} wrong)"
