"""Pictures of single tensors: for each tensor of one model, how strongly it is tied to the other."""

import numpy as np
import pandas as pd

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled

_LINEAR_TO = 10.0


@styled
def tensor_evidence(tests: pd.DataFrame, *, threshold: float, known: bool = True, caption: str = "") -> Figure:
    """Draw -log10 p of each tensor's strongest partner, taken tensors apart from fresh ones.

    Parameters
    ----------
    tests
        One row a tensor, in the order of drawing: ``tensor``, ``partner`` (short names), ``log10_p`` (of the strongest
        partner), ``taken`` (whether the tensor was), ``called`` (whether the corrected p is below the level).
    threshold
        log10 p that a single test must reach to be called, for the line.
    known
        Whether it is known which tensors were taken; else all are drawn alike.
    """
    figure = style.canvas(0.19 * len(tests) + 0.9, 5.6)
    axes = figure.add_subplot()
    places = np.arange(len(tests))
    height = -tests["log10_p"].to_numpy(dtype=float)
    is_taken, called = (tests[name].to_numpy(dtype=bool) for name in ("taken", "called"))
    for chosen, color, mark, face, label in (
        (is_taken, style.DEPENDENT, "D", style.DEPENDENT, "taken from the parent"),
        (~is_taken, style.INDEPENDENT, "o", "none", "fresh" if known else "a tensor of the hybrid"),
    ):
        if not chosen.any():
            continue
        axes.plot(
            height[chosen], places[chosen], mark, color=color, markersize=4.5, label=label, markerfacecolor=face,
            markeredgewidth=0.9,
        )  # fmt: skip
    for place in places[called]:
        axes.annotate(
            f"~ {tests['partner'].iloc[place]}", (height[place], place), xytext=(6, 0), textcoords="offset points",
            va="center", fontsize=style.SMALL, color=style.INK,
        )  # fmt: skip
    axes.axvline(-threshold, color=style.MUTED, linewidth=0.8, linestyle=":")
    axes.set_xscale("symlog", linthresh=_LINEAR_TO)
    largest = float(height.max())
    axes.set_xlim(0, max(largest, -threshold) * 12)  # space for the names
    axes.set_xticks([t for t in (0, 5, 10, 100, 1000) if t <= max(largest, 10)])
    axes.get_xaxis().set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.set_yticks(places, tests["tensor"].tolist(), fontsize=style.SMALL)
    axes.set_ylim(len(tests) - 0.4, -0.6)
    axes.set_xlabel(r"$-\log_{10}\,p$ of the strongest partner")
    axes.tick_params(axis="y", length=0)
    style.value_grid(axes, "x")
    axes.legend(loc="lower right", handletextpad=0.2)
    counts = f"{called.sum()} of {called.size} tensors are called"
    if known:
        counts = (
            f"{(called & is_taken).sum()} of {is_taken.sum()} taken tensors and {(called & ~is_taken).sum()} of "
            f"{(~is_taken).sum()} fresh ones are called"
        )
    text = (
        f"{counts}; beside a point stands the parent's tensor it is called for. "
        "Dotted: what a single test must reach to be called among all of them."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Dots, one a tensor of the hybrid. {text}")
