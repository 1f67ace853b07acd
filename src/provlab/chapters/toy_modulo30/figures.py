"""rho(D) of two models, sampled and enumerated: the picture that a ground truth makes possible."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from provlab.modeldiff.comparison import Comparison, total_variation
from provlab.plots import style
from provlab.plots.explore import Spot
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
    naive: NDArray[np.float64]


def panels(
    names: Sequence[str],
    edges: NDArray[np.float64],
    truth: Sequence[NDArray[np.float64]],
    sampled: Comparison,
    naive: Comparison,
) -> tuple[Differences, Differences]:
    """Both directions of a comparison over bins; draws without weights are scaled to the area of the truth."""
    sides: list[Differences] = []
    for side, name, exact in (("A", names[0], truth[0]), ("B", names[1], truth[1])):
        plain = naive.rho(side, edges)[0]  # type: ignore[arg-type]
        value, low, high = sampled.rho(side, edges)  # type: ignore[arg-type]
        sides.append(Differences(f"inputs of {name}", exact, value, low, high, plain * (exact.sum() / plain.sum())))
    return sides[0], sides[1]


@styled
def differences_against_truth(
    edges: NDArray[np.float64], directions: tuple[Differences, Differences], *, xlabel: str, caption: str
) -> Figure:
    """Draw rho_A->B and rho_B->A of D, or of z, one above the other: sampled steps with a band, the truth as a line.

    Parameters
    ----------
    edges
        ``(k + 1,)`` of D.
    directions
        A's inputs, then B's.
    """
    for side in directions:
        require(len(side.truth) == len(edges) - 1, f"{side.label}: needs one value for each of {len(edges) - 1} bins")
    figure = style.canvas(4.2)
    panels = figure.subplots(2, 1, sharex=True)
    spots = []
    for axes, side, color in zip(panels, directions, style.DIRECTIONS, strict=True):
        axes.stairs(side.high, edges, baseline=side.low, fill=True, color=color, alpha=0.3, linewidth=0)
        axes.stairs(side.sampled, edges, color=color, linewidth=1.6, label="sampled, with 95% bands")
        axes.stairs(side.naive, edges, color=style.MUTED, linewidth=1.1, linestyle="--", label="without weights")
        axes.stairs(side.truth, edges, color=style.INK, linewidth=0.9, label="enumerated")
        axes.axvline(0, color=style.MUTED, linewidth=0.8, linestyle=":", zorder=0)
        axes.set(ylabel=side.label, ylim=(0, None), xlim=(edges[0], edges[-1]))
        style.value_grid(axes, "y")
        for k, (left, right) in enumerate(pairwise(edges)):
            text = (
                f"{side.label}, {xlabel.split()[0]} from {left:.2f} to {right:.2f}: enumerated {side.truth[k]:.4f}, "
                f"sampled {side.sampled[k]:.4f} ({side.low[k]:.4f} to {side.high[k]:.4f}), without weights "
                f"{side.naive[k]:.4f}"
            )
            spots.append(Spot(axes, ((float(left), float(right), *axes.get_ylim()),), text))
    mean = np.average((edges[1:] + edges[:-1]) / 2, weights=directions[0].truth)
    panels[0].legend(loc="upper left" if mean > edges[[0, -1]].mean() else "upper right")
    panels[1].set_xlabel(xlabel)
    off = max(total_variation(side.sampled, side.truth) for side in directions)
    alt = (
        f"Two histograms of {xlabel.split()[0]} from {edges[0]:.2f} to {edges[-1]:.2f}. The total variation distance "
        f"between sampled steps and enumerated line is at most {off:.3f}. {caption}"
    )
    return Figure(figure, caption, alt, tuple(spots))
