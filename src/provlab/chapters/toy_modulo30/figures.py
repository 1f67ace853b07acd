"""rho(D) of two models, sampled and enumerated: the picture that a ground truth makes possible."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled


@dataclass(frozen=True)
class Differences:
    """rho(D) of one direction over common bins, in units of the number of inputs in R3.

    Attributes
    ----------
    label
        Whose inputs, judged by whom.
    truth, sampled, low, high, naive
        ``(k,)`` from the enumeration, from reweighted samples with their band, and from samples without weights.
    """

    label: str
    truth: NDArray[np.float64]
    sampled: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    naive: NDArray[np.float64] | None = None


@styled
def differences_against_truth(
    edges: NDArray[np.float64], directions: tuple[Differences, Differences], *, xlabel: str, caption: str
) -> Figure:
    """Draw rho_A->B(D) and rho_B->A(D) one above the other: sampled steps with a band, the truth as a black line.

    Parameters
    ----------
    edges
        ``(k + 1,)`` of D.
    directions
        A's inputs, then B's.
    """
    for one in directions:
        require(len(one.truth) == len(edges) - 1, f"{one.label}: needs one value for each of {len(edges) - 1} bins")
    figure = style.canvas(4.2)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, one, color in zip(panels, directions, style.DIRECTIONS, strict=True):
        axes.stairs(one.high, edges, baseline=one.low, fill=True, color=color, alpha=0.3, linewidth=0)
        axes.stairs(one.sampled, edges, color=color, linewidth=1.6, label="sampled, with 95% bands")
        if one.naive is not None:
            axes.stairs(one.naive, edges, color=style.MUTED, linewidth=1.1, linestyle="--", label="without weights")
        axes.stairs(one.truth, edges, color=style.INK, linewidth=0.9, label="enumerated")
        axes.axvline(0, color=style.MUTED, linewidth=0.8, linestyle=":", zorder=0)
        axes.set(ylabel=one.label, ylim=(0, None))
        style.value_grid(axes, "y")
    panels[0].legend(loc="upper left" if _mass_right(directions[0], edges) else "upper right")
    panels[1].set_xlabel(xlabel)
    off = max(0.5 * np.abs(one.sampled / one.sampled.sum() - one.truth / one.truth.sum()).sum() for one in directions)
    alt = (
        f"Two histograms of D from {edges[0]:.2f} to {edges[-1]:.2f}. In both the sampled steps follow the enumerated "
        f"line; their total variation distance is at most {off:.3f}. {caption}"
    )
    return Figure(figure, caption, alt)


def _mass_right(one: Differences, edges: NDArray[np.float64]) -> bool:
    middle = (edges[1:] + edges[:-1]) / 2
    return bool(np.average(middle, weights=one.truth) > middle.mean())
