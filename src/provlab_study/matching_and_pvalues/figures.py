"""Whom each hidden unit is matched with, two forms of one p-value, correlations of the p-values of blocks."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from provlab.plots import style
from provlab.plots.explore import Spot
from provlab.plots.figure import Figure
from provlab.plots.style import styled

TOLD = 1024  # units of a panel, at most, that are told to a pointer one by one: more are narrower than a pixel


@styled
def partners(matchings: Mapping[str, ArrayLike], *, caption: str) -> Figure:
    """Draw each unit of one model against its partner in the other, a panel for each pair of models.

    Parameters
    ----------
    matchings
        For each panel, ``(h,)``: the partner of each unit.
    """
    figure = style.canvas(style.HALF_WIDTH)
    words, spots = [], []
    for i, (name, indices) in enumerate(matchings.items()):
        partner = np.asarray(indices)
        units = np.arange(len(partner))
        kept = partner == units
        axes = figure.add_subplot(1, len(matchings), i + 1, aspect="equal")
        for which, color, marker in ((kept, style.DEPENDENT, "D"), (~kept, style.INDEPENDENT, "o")):
            axes.plot(units[which], partner[which], marker, color=color, markerfacecolor="none", markersize=2.4)
        ends = (-2, len(partner) + 1)
        axes.set(xlim=ends, ylim=ends, xlabel="hidden unit of one model")
        axes.set_title(name)
        if i == 0:
            axes.set_ylabel("its partner in the other")
        reach = max(0.5, 0.01 * len(partner))  # as large as its mark
        for unit, other in enumerate(partner) if len(partner) <= TOLD else ():
            box = (unit - reach, unit + reach, other - reach, other + reach)
            text = f"{name}: unit {unit} is matched with unit {other}{', its own place' if unit == other else ''}"
            spots.append(Spot(axes, (box,), text))
        words.append(f"{name}: {int(kept.sum())} of {len(partner)} units have their own place")
    text = "; ".join(words) + " (diamonds; circles: another place)."
    return Figure(
        figure, f"{caption} {text}", f"Dots, a hidden unit each, against the place of its partner. {text}", tuple(spots)
    )


@styled
def agreement(x: ArrayLike, y: ArrayLike, *, xlabel: str, ylabel: str, caption: str = "", noun: str = "pair") -> Figure:
    """Draw two log10 p of the same things against each other as -log10 p, with the line on which they agree.

    Parameters
    ----------
    x, y
        log10 p, ``(n,)`` each.
    noun
        What a point is.
    """
    a, b = np.asarray(x, dtype=float).ravel(), np.asarray(y, dtype=float).ravel()
    figure = style.canvas(style.HALF_WIDTH, style.HALF_WIDTH)
    axes = figure.add_subplot()
    both = -np.concatenate([a, b])
    ends = np.array([both.min(), both.max()]) + np.array([-1, 1]) * 0.04 * max(np.ptp(both), 1e-12)
    axes.plot(ends, ends, color=style.MUTED, linewidth=0.8, zorder=1)
    axes.plot(-a, -b, "o", color=style.INDEPENDENT, markersize=3, alpha=0.7, markeredgewidth=0)
    axes.set(xlim=ends, ylim=ends, xlabel=xlabel, ylabel=ylabel, aspect="equal")
    style.value_grid(axes)
    gap = float(np.abs(a - b).max())
    text = f"Each of {a.size} points is one {noun}; on the line both agree. Largest difference {gap:.2g}."
    return Figure(figure, f"{caption} {text}".strip(), f"Scatter of {ylabel} against {xlabel}. {text}")


@styled
def correlation_matrix(
    matrix: ArrayLike, labels: Sequence[str], band: tuple[float, float], *, caption: str = ""
) -> Figure:
    """Draw correlations (of block p-values, say), with those outside the null band framed.

    Parameters
    ----------
    matrix
        ``(k, k)``, symmetric, ones on the diagonal.
    band
        The interval in which all correlations lie together under independence.
    """
    full = np.asarray(matrix, dtype=float)
    k = len(labels)
    (low, high), below = band, np.tri(k, k=-1, dtype=bool)
    outside = below & ~((full >= low) & (full <= high))
    figure = style.canvas(min(3.6, 1.2 + 0.4 * k), 4.2)
    axes = figure.add_subplot()
    shown = axes.imshow(np.ma.masked_array(full, ~below), cmap="RdBu_r", vmin=-1, vmax=1)
    for i, j in np.argwhere(below):
        if k <= 8:
            color = "white" if abs(full[i, j]) > 0.6 else style.INK
            axes.text(j, i, f"{full[i, j]:.2f}", ha="center", va="center", fontsize=style.SMALL, color=color)
    for i, j in np.argwhere(outside):
        axes.add_patch(Rectangle((j - 0.46, i - 0.46), 0.92, 0.92, fill=False, edgecolor="black", linewidth=1.4))
    axes.set_xticks(range(k), labels, rotation=90 if k > 5 else 0)
    axes.set_yticks(range(k), labels)
    axes.set(xlim=(-0.5, k - 1.5), ylim=(k - 0.5, 0.5))  # the first row and the last column hold nothing
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.colorbar(shown, ax=axes, shrink=0.8, label="correlation").outline.set_visible(False)
    framed = " (framed)" if outside.any() else ""
    counts = f"{int(below.sum())} correlations, {int(outside.sum())} outside"
    text = f"{counts} the null band from {low:.2f} to {high:.2f}{framed}."
    return Figure(figure, f"{caption} {text}".strip(), f"Matrix of correlations. {text}")
