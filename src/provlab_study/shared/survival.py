"""What survives which transformation: one matrix, statistics by disguises."""

from collections.abc import Sequence

import numpy as np
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled


@styled
def survival(
    texts: Sequence[Sequence[str]],
    survives: ArrayLike,
    *,
    statistics: Sequence[str],
    disguises: Sequence[str],
    caption: str = "",
) -> Figure:
    """Draw which statistic still finds a model under which disguise.

    Parameters
    ----------
    texts
        What stands in each cell, ``(statistics, disguises)``.
    survives
        Whether the dependence shows, in the same shape.
    statistics, disguises
        Names of rows and columns.
    """
    marks = np.asarray(survives, dtype=bool)
    require(
        marks.shape == (len(statistics), len(disguises)) and all(len(row) == len(disguises) for row in texts),
        "texts and survives must have a row for each statistic and a column for each disguise",
    )
    figure = style.canvas(0.32 * len(statistics) + 0.75)
    axes = figure.add_subplot()
    axes.set(xlim=(0, len(disguises)), ylim=(len(statistics), 0))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(len(disguises)) + 0.5, disguises)
    axes.set_yticks(np.arange(len(statistics)) + 0.5, [style.symbol(name) for name in statistics])
    for row, column in np.ndindex(marks.shape):
        there = bool(marks[row, column])
        face, hatch = ("#f0a877", None) if there else ("#d6e6f2", "/////")
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=face, hatch=hatch, edgecolor="white", linewidth=0.8))
        axes.text(
            column + 0.5,
            row + 0.5,
            texts[row][column],
            ha="center",
            va="center",
            fontsize=style.SMALL,
            fontweight="bold" if there else "normal",
            bbox={"facecolor": face, "edgecolor": "none", "pad": 1.0},
        )
    lost = [
        f"{style.word(name)} under {', '.join(d for d, there in zip(disguises, row, strict=True) if not there)}"
        for name, row in zip(statistics, marks, strict=True)
        if not row.all()
    ]
    text = f"Vermillion and bold: still found; blue and hatched: lost. Lost: {'; '.join(lost) or 'nothing'}."
    return Figure(figure, f"{caption} {text}".strip(), f"A table of statistics by disguises. {text}")
