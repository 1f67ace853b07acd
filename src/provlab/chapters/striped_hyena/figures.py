"""Pictures of single tensors: for each tensor of one model, how strongly it is tied to the other."""

import numpy as np
import pandas as pd

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled

_LINEAR_TO = 10.0
_COLUMNS = ("tensor", "partner", "log10_p", "taken", "called")


@styled
def tensor_evidence(tests: pd.DataFrame, *, threshold: float, caption: str = "") -> Figure:
    """Draw -log10 p of each tensor's strongest partner, taken tensors apart from fresh ones.

    Parameters
    ----------
    tests
        One row a tensor, in the order of drawing: ``tensor``, ``partner`` (short names), ``log10_p`` (of the strongest
        partner), ``taken`` (whether the tensor was), ``called`` (whether the corrected p is below the level).
    threshold
        log10 p that a single test must reach to be called, for the line.
    """
    require(set(_COLUMNS) <= set(tests.columns), f"tests needs the columns {', '.join(_COLUMNS)}")
    require(len(tests), "tests holds no tensor")
    figure = style.canvas(0.19 * len(tests) + 0.9, 5.6)
    axes = figure.add_subplot()
    rows = np.arange(len(tests))
    height = -tests["log10_p"].to_numpy(dtype=float)
    taken = tests["taken"].to_numpy(dtype=bool)
    for is_taken, color, marker, word in (
        (True, style.DEPENDENT, "D", "taken from the parent"),
        (False, style.INDEPENDENT, "o", "fresh"),
    ):
        chosen = taken == is_taken
        axes.plot(
            height[chosen], rows[chosen], marker, color=color, markersize=4.5, label=word,
            markerfacecolor=color if is_taken else "none", markeredgewidth=0.9,
        )  # fmt: skip
    for row, test in zip(rows, tests.itertuples(), strict=True):
        if test.called:
            axes.annotate(
                f"~ {test.partner}", (-float(test.log10_p), row), xytext=(6, 0), textcoords="offset points",
                va="center", fontsize=style.SMALL, color=style.INK,
            )  # fmt: skip
    axes.axvline(-threshold, color=style.MUTED, linewidth=0.8, linestyle=":")
    axes.set_xscale("symlog", linthresh=_LINEAR_TO)
    largest = float(height.max())
    axes.set_xlim(0, max(largest, -threshold) * 12)  # room for the words
    axes.set_xticks([t for t in (0, 5, 10, 100, 1000) if t <= max(largest, 10)])
    axes.get_xaxis().set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.set_yticks(rows, tests["tensor"].tolist(), fontsize=style.SMALL)
    axes.set_ylim(len(tests) - 0.4, -0.6)
    axes.set_xlabel(r"$-\log_{10}\,p$ of the strongest partner")
    axes.tick_params(axis="y", length=0)
    style.value_grid(axes, "x")
    axes.legend(loc="lower right", handletextpad=0.2)
    called = tests["called"].to_numpy(dtype=bool)
    text = (
        f"{int((called & taken).sum())} of {int(taken.sum())} taken tensors and {int((called & ~taken).sum())} of "
        f"{int((~taken).sum())} fresh ones are called; beside a point stands the parent's tensor it is called for. "
        "Dotted: what a single test must reach to be called among all of them."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Dots, one a tensor of the hybrid. {text}")
