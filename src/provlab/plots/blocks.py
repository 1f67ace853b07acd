"""Evidence block by block, for one pair."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_log10_p
from provlab.plots.style import require, styled

_IN_A_ROW = 4  # panels


@styled
def block_bars(blocks: Mapping[str, ArrayLike], floors: Mapping[str, float] | None = None) -> Figure:
    """Draw -log10 p of every block of one pair, one small panel a statistic.

    Parameters
    ----------
    blocks
        For each statistic, log10 p of each block (NaN where there is none).
    floors
        For a statistic, the smallest log10 p that one block can give: a dotted line.
    """
    require(blocks, "blocks: no statistic")
    values = {name: np.asarray(array, dtype=float).ravel() for name, array in blocks.items()}
    columns = min(len(values), _IN_A_ROW)
    rows = -(-len(values) // columns)
    figure = style.canvas(1.9 * rows, min(style.WIDTH, 1.0 + 1.6 * columns))
    panels = figure.subplots(rows, columns, squeeze=False)
    words = []
    for axes in panels.flat[len(values) :]:
        axes.remove()
    for axes, (name, array) in zip(panels.flat, values.items(), strict=False):
        axes.bar(np.arange(array.size), -np.nan_to_num(array), color=style.INDEPENDENT, width=0.75)
        floor = (floors or {}).get(name)
        if floor is not None:
            axes.axhline(-floor, color=style.MUTED, linewidth=0.9, linestyle=":")
        axes.axhline(2.0, color=style.DEPENDENT, linewidth=0.9, linestyle="--")
        axes.set(
            title=style.symbol(name),
            xlabel="block",
            ylim=(0, max(3.0, *(-np.nan_to_num(array)), -(floor or 0.0)) * 1.08),
        )
        axes.set_xticks(_few(array.size))
        style.value_grid(axes, "y")
        weakest, strongest = format_log10_p(np.nanmax(array)), format_log10_p(np.nanmin(array))
        spread = f"from {weakest} to {strongest}" if weakest != strongest else f"all {weakest}"
        words.append(f"{style.word(name)} {spread}")
    for axes in panels[:, 0]:
        axes.set_ylabel(r"$-\log_{10}\,p$")
    dotted = ", and the dotted one is the floor of one block" if floors else ""
    text = f"A higher bar has a smaller p. The dashed line is p = 0.01{dotted}. log10 p by block: {'; '.join(words)}."
    return Figure(figure, text, f"Bars, one a block. {text}")


def _few(n: int) -> list[int]:
    return list(range(0, n, max(1, -(-n // 8))))
