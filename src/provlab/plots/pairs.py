"""Heatmaps over pairs of models: the measurement below the diagonal, the truth above it."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from provlab.plots import style
from provlab.plots.explore import Spot
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_log10_p
from provlab.plots.style import require, styled

NUMBERS_UP_TO = 6  # models; with more, a number no longer fits into its cell
BOARD = 3.75  # inches: side of the board of cells at most
BAR = 1.1  # inches: the colour bar with its label
CHARACTER = 0.072  # inches: a letter of a name


@styled
def pair_heatmap(
    log10_p: pd.DataFrame,
    families: Mapping[str, str],
    *,
    statistic: str,
    floor: float | None = None,
    truth: pd.DataFrame | None = None,
    level: float = 0.01,
    adjusted: pd.DataFrame | None = None,
    caption: str = "",
) -> Figure:
    """Draw -log10 p of all pairs with the truth above the diagonal.

    Parameters
    ----------
    log10_p
        Models x models, in the order to be drawn (that of the tree). One of the cells (i, j) and (j, i) is
        enough; NaN where a pair was not compared.
    families
        Family of each model; colours the names, and neighbours of one family are outlined.
    statistic
        Name of the statistic, for labels and caption: a registered one ("phi_u") or any words.
    floor
        The smallest log10 p that the statistic can give; cells that reach it carry a small dot.
    truth
        Models x models, True where the pair is dependent. None leaves the upper triangle empty.
    level, adjusted
        A pair is called dependent where `adjusted` (log10 of the adjusted p-value; default `log10_p` itself)
        is at most log10 of `level`. Cells where call and truth differ are framed.
    caption
        Put before the description of what the picture holds.

    Raises
    ------
    InputError
        If the frames do not name the same models in rows and columns.
    """
    names = _names(log10_p, families)
    low = _lower(log10_p, names)
    calls = _lower(log10_p if adjusted is None else adjusted, names) <= np.log10(level) + 1e-12
    strength = -low
    shown = strength[np.isfinite(strength)]
    largest = max([2.0, *shown, *([-floor] if floor is not None and shown.size == 0 else [])])
    figure, axes = _board(names)
    norm = style.evidence_norm(largest)
    _cells(axes, strength, norm)
    if floor is not None:
        _mark_floor(axes, low, floor, norm)
    if len(names) <= NUMBERS_UP_TO:
        _write_numbers(axes, low, norm)
    wrong = _draw_truth(axes, truth, names, calls, low) if truth is not None else []
    _name_axes(axes, names, families)
    bar = figure.colorbar(axes.images[0], ax=axes, shrink=0.7, pad=0.02, ticks=style.evidence_ticks(largest))
    bar.ax.minorticks_off()
    bar.ax.set_yticklabels([f"{t:,g}" for t in style.evidence_ticks(largest)])
    bar.set_label(rf"{style.symbol(statistic)}:  $-\log_{{10}}\,p$" + ("\n(log above 50)" if largest > 50 else ""))
    bar.outline.set_visible(False)
    at_floor = floor is not None and bool((low <= floor * (1 - 1e-9)).any())
    _legend(figure, truth is not None, bool(wrong), floor if at_floor else None)
    text, alt = _words(statistic, names, low, calls, truth, wrong, level, floor)
    spots = _spots(axes, statistic, names, low, calls, truth, level)
    return Figure(figure, f"{text} {caption}".strip(), alt, spots)


def _spots(
    axes: Axes,
    statistic: str,
    names: list[str],
    low: np.ndarray,
    calls: np.ndarray,
    truth: pd.DataFrame | None,
    level: float,
) -> tuple[Spot, ...]:
    """One for each pair, over its measurement and over the truth about it."""
    known = None if truth is None else truth.loc[names, names].to_numpy(dtype=bool)
    spots = []
    for row, column in np.argwhere(np.tri(len(names), k=-1, dtype=bool)):
        text = f"{names[row]} and {names[column]}: "
        if np.isfinite(low[row, column]):
            call = "dependent" if calls[row, column] else "not called dependent"
            text += f"{style.word(statistic)}, log10 p = {format_log10_p(low[row, column])}, {call} at {level:g}"
        else:
            text += "not compared"
        if known is not None:
            text += f"; by lineage {'dependent' if known[row, column] or known[column, row] else 'independent'}"
        boxes = [(column - 0.5, column + 0.5, row - 0.5, row + 0.5)]
        if known is not None:
            boxes.append((row - 0.5, row + 0.5, column - 0.5, column + 0.5))
        spots.append(Spot(axes, tuple(boxes), text))
    return tuple(spots)


def _names(frame: pd.DataFrame, families: Mapping[str, str]) -> list[str]:
    names = [str(name) for name in frame.index]
    require(len(names) >= 2, "a heatmap of pairs needs at least two models")
    require(names == [str(c) for c in frame.columns], "rows and columns must name the same models in one order")
    missing = [name for name in names if name not in families]
    require(not missing, f"families: no family for {', '.join(missing)}")
    return names


def _lower(frame: pd.DataFrame, names: list[str]) -> np.ndarray:
    """Take the lower triangle (i > j), filled from the upper where only that is given; NaN elsewhere."""
    require(set(frame.index) >= set(names) <= set(frame.columns), "a frame does not name all models")
    full = frame.loc[names, names].to_numpy(dtype=float)
    full = np.where(np.isnan(full), full.T, full)
    return np.where(np.tri(len(names), k=-1, dtype=bool), full, np.nan)


def _board(names: list[str]) -> tuple[Canvas, Axes]:
    """Return square cells, as large as a page of `WIDTH` allows beside the names and the colour bar."""
    n = len(names)
    room = CHARACTER * max(len(name) for name in names)
    side = min(max(0.62 * n, 1.6), BOARD, style.WIDTH - room - BAR)
    figure = style.canvas(side + (1.0 if n > NUMBERS_UP_TO else 0.65) * room + 0.5, side + room + BAR)
    axes = figure.add_subplot()
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return figure, axes


def _cells(axes: Axes, values: np.ndarray, norm: Normalize) -> None:
    axes.imshow(np.ma.masked_invalid(values), norm=norm, cmap=style.mako(), interpolation="nearest")
    n = len(values)
    missing = np.argwhere(np.tri(n, k=-1, dtype=bool) & ~np.isfinite(values))
    for row, column in missing:
        axes.text(column, row, "?", ha="center", va="center", fontsize=style.SMALL, color=style.MUTED)
    for edge in np.arange(n - 1) + 0.5:
        axes.axhline(edge, color="white", linewidth=0.6)
        axes.axvline(edge, color="white", linewidth=0.6)


def _on(value: float, norm: Normalize) -> str:
    """Ink that reads on a cell of this value: the maps are dark in their upper half."""
    return "white" if norm(value) > 0.45 else style.INK


def _mark_floor(axes: Axes, low: np.ndarray, floor: float, norm: Normalize) -> None:
    below = 0.32 if len(low) <= NUMBERS_UP_TO else 0.0  # beside the number, where there is one
    for row, column in np.argwhere(low <= floor * (1 - 1e-9)):
        axes.plot(column, row + below, ".", markersize=3, color=_on(-low[row, column], norm))


def _write_numbers(axes: Axes, low: np.ndarray, norm: Normalize) -> None:
    for row, column in np.argwhere(np.isfinite(low)):
        color, text = _on(-low[row, column], norm), format_log10_p(low[row, column])
        axes.text(column, row, text, ha="center", va="center", fontsize=style.SMALL, color=color)


def _draw_truth(
    axes: Axes, truth: pd.DataFrame, names: list[str], calls: np.ndarray, low: np.ndarray
) -> list[tuple[str, str]]:
    """Fill the upper triangle and frame the wrong cells; return the wrong pairs."""
    full = truth.loc[names, names].to_numpy(dtype=bool)
    known = full | full.T
    wrong = []
    for row, column in np.argwhere(np.tri(len(names), k=-1, dtype=bool)):
        dependent = known[row, column]
        axes.add_patch(_truth_patch(bool(dependent), (row - 0.5, column - 0.5)))
        if np.isfinite(low[row, column]) and bool(calls[row, column]) != dependent:
            wrong.append((names[row], names[column]))
            for x, y in ((column, row), (row, column)):
                frame = axes.add_patch(_frame((x - 0.44, y - 0.44), 0.88, "black", 1.6))
                # over the outline of a family, and with a white rim that shows on dark cells
                frame.set(zorder=5, path_effects=[withStroke(linewidth=4, foreground="white")])
    return wrong


def _truth_patch(dependent: bool, corner: tuple[float, float] = (0, 0)) -> Rectangle:
    face, hatch = ("#f0a877", "/////") if dependent else ("#d6e6f2", None)
    return Rectangle(corner, 1, 1, facecolor=face, edgecolor="white", hatch=hatch, linewidth=0.6, zorder=1.5)


def _frame(corner: tuple[float, float], size: float, color: str, width: float) -> Rectangle:
    return Rectangle(corner, size, size, fill=False, edgecolor=color, linewidth=width, zorder=4, clip_on=False)


def _name_axes(axes: Axes, names: list[str], families: Mapping[str, str]) -> None:
    """Write the names in their family's colour, a chip on the diagonal, and outline each family's block."""
    n = len(names)
    colors = style.family_colors(families)
    size = 8 if n <= 14 else style.SMALL
    axes.set_xticks(range(n), names, rotation=90 if n > NUMBERS_UP_TO else 35, fontsize=size)
    if n <= NUMBERS_UP_TO:
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    axes.set_yticks(range(n), names, fontsize=size)
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        for name, label in zip(names, labels, strict=True):
            label.set_color(style.ink(colors[families[name]]))
    for i, name in enumerate(names):
        axes.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, facecolor=colors[families[name]], zorder=2))
    start = 0
    for end in range(1, n + 1):
        if end == n or families[names[end]] != families[names[start]]:
            axes.add_patch(_frame((start - 0.5, start - 0.5), end - start, colors[families[names[start]]], 1.6))
            start = end
    axes.set_xlim(-0.55, n - 0.45)
    axes.set_ylim(n - 0.45, -0.55)


def _legend(figure: Canvas, with_truth: bool, any_wrong: bool, floor: float | None) -> None:
    handles: list[Artist] = []
    labels: list[str] = []
    if with_truth:
        for dependent, word in ((True, "above: dependent"), (False, "independent")):
            handles.append(_truth_patch(dependent))
            labels.append(word)
    if any_wrong:
        handles.append(_frame((0, 0), 1, "black", 1.8))
        labels.append("framed: wrong")
    if floor is not None:
        handles.append(
            Line2D([], [], marker="o", markersize=4, linestyle="none", color="white", markeredgecolor=style.INK)
        )
        labels.append(f"at the floor, {format_log10_p(floor)}")
    if handles:
        columns = 4 if figure.get_figwidth() > 5 else 2
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=columns,
            fontsize=style.SMALL,
            handlelength=1.2,
            columnspacing=1.4,
        )


def _words(
    statistic: str,
    names: list[str],
    low: np.ndarray,
    calls: np.ndarray,
    truth: pd.DataFrame | None,
    wrong: list[tuple[str, str]],
    level: float,
    floor: float | None,
) -> tuple[str, str]:
    """Caption and alt text from the same counts that the picture shows."""
    measured = int(np.isfinite(low).sum())
    called = int((calls & np.isfinite(low)).sum())
    text = (
        f"Dark below the diagonal: {style.word(statistic)} rejects independence for {called} of {measured} pairs at "
        f"level {level:g} ({len(names)} models)."
    )
    if truth is not None:
        text += " Hatched above it: pairs that are truly related. Mirror images mean no mistake: "
        text += f"{len(wrong)} wrongly judged (outlined)." if wrong else "there is none."
    missing = len(names) * (len(names) - 1) // 2 - measured
    if missing:
        text += f" Not compared (?): {missing}."
    if floor is not None:
        text += f" The smallest log10 p this statistic can give is {format_log10_p(floor)}."
    wrong_pairs = "; ".join(f"{a} and {b}" for a, b in wrong[:10])
    alt = f"Heatmap of all pairs of models. {text}" + (f" Wrong pairs: {wrong_pairs}." if wrong else "")
    return text, alt
