"""rho(D) of two models, sampled and enumerated: the picture that a ground truth makes possible."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from provlab.modeldiff.comparison import BothDirections, total_variation
from provlab.modeldiff.representative import Side
from provlab.plots import style
from provlab.plots.explore import Spot
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled


@styled
def differences_against_truth(
    edges: NDArray[np.float64],
    names: Sequence[str],
    truth: Sequence[NDArray[np.float64]],
    sampled: BothDirections,
    naive: BothDirections,
    *,
    xlabel: str,
    caption: str,
) -> Figure:
    """Draw rho_A->B and rho_B->A of D, or of z, one above the other: the samples' 95% bands, the truth as a line.

    Parameters
    ----------
    edges
        ``(k + 1,)`` of D.
    names
        For A and for B.
    truth
        ``(k,)`` from the enumeration, of A's inputs and of B's, for each input in R3.
    sampled, naive
        Reweighted samples, and samples without weights, which are scaled to the area of the truth.
    """
    figure = style.canvas(3.4)
    panels = figure.subplots(2, 1, sharex=True)
    spots, off, widest = [], 0.0, 0.0
    sides: tuple[Side, Side] = ("A", "B")
    for axes, side, name, exact, color in zip(panels, sides, names, truth, style.DIRECTIONS, strict=False):
        label = f"inputs of {name}"
        require(len(exact) == len(edges) - 1, f"{label}: needs one value for each of {len(edges) - 1} bins")
        value, low, high = sampled.rho(side, edges)
        plain = naive.rho(side, edges)[0]
        plain = plain * (exact.sum() / plain.sum())
        off = max(off, total_variation(value, exact))
        # a band may be narrower than any line: its edge is drawn, and the truth runs through it
        axes.stairs(high, edges, baseline=low, fill=True, color=color, linewidth=1.6, label="sampled: 95% bands")
        axes.stairs(plain, edges, color=style.MUTED, linewidth=1.1, linestyle="--", label="without weights")
        axes.stairs(exact, edges, color=style.INK, linewidth=0.6, label="enumerated")
        widest = max(widest, float((high - low).max() / exact.max()))
        axes.axvline(0, color=style.MUTED, linewidth=0.8, linestyle=":", zorder=0)
        axes.set(ylabel=f"inputs of\n{name}", ylim=(0, None), xlim=(edges[0], edges[-1]))
        style.value_grid(axes, "y")
        for k, (left, right) in enumerate(pairwise(edges)):
            text = (
                f"{label}, {xlabel.split()[0]} from {left:.2f} to {right:.2f}: enumerated {exact[k]:.4f}, sampled "
                f"{value[k]:.4f} ({low[k]:.4f} to {high[k]:.4f}), without weights {plain[k]:.4f}"
            )
            spots.append(Spot(axes, ((float(left), float(right), *axes.get_ylim()),), text))
    mean = np.average((edges[1:] + edges[:-1]) / 2, weights=truth[0])
    panels[0].legend(loc="upper left" if mean > edges[[0, -1]].mean() else "upper right")
    panels[1].set_xlabel(xlabel)
    alt = (
        f"Two histograms of {xlabel.split()[0]} from {edges[0]:.2f} to {edges[-1]:.2f}. The total variation distance "
        f"between the middle of the bands and the enumerated line is at most {off:.3f}. {caption}"
    )
    caption = f"{caption} The widest band is {widest:.1%} as high as the highest step."
    return Figure(figure, caption, alt, tuple(spots))
