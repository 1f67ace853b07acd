"""rho(D) of two models, sampled and enumerated: the picture that a ground truth makes possible."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from provlab.chapters.toy_modulo30.measure import SIDES, LongRun, Truth
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
    naive: NDArray[np.float64] | None = None


def sampled_against_truth(truth: Truth, run: LongRun, names: Sequence[str]) -> Figure:
    """Draw one long run, with weights and without, over the enumeration."""
    directions = []
    for side, name in zip(SIDES, names, strict=False):
        exact, (naive, _, _) = truth.rho[side], run.naive.rho(side, truth.edges)
        sampled, low, high = run.weighted.rho(side, truth.edges)
        naive = naive * (exact.sum() / naive.sum())
        directions.append(Differences(f"inputs of {name}", exact, sampled, low, high, naive))
    weighted, unweighted = (max(truth.distances(one)) for one in (run.weighted, run.naive))
    return differences_against_truth(
        truth.edges,
        (directions[0], directions[1]),
        xlabel="D = NLL of A - NLL of B (nats per token)",
        caption="One long run and the enumeration. Heights are inputs in a bin for each input that both models have in "
        "Z; bands are 95% intervals by chain bootstrap; samples without weights are scaled to the same area. Total "
        f"variation distance to the enumeration: at most {weighted:.4f} with weights, {unweighted:.4f} without.",
    )


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
    spots = []
    for axes, one, color in zip(panels, directions, style.DIRECTIONS, strict=True):
        axes.stairs(one.high, edges, baseline=one.low, fill=True, color=color, alpha=0.3, linewidth=0)
        axes.stairs(one.sampled, edges, color=color, linewidth=1.6, label="sampled, with 95% bands")
        if one.naive is not None:
            axes.stairs(one.naive, edges, color=style.MUTED, linewidth=1.1, linestyle="--", label="without weights")
        axes.stairs(one.truth, edges, color=style.INK, linewidth=0.9, label="enumerated")
        axes.axvline(0, color=style.MUTED, linewidth=0.8, linestyle=":", zorder=0)
        axes.set(ylabel=one.label, ylim=(0, None))
        style.value_grid(axes, "y")
        for k, (left, right) in enumerate(pairwise(edges)):
            text = (
                f"{one.label}, D from {left:.2f} to {right:.2f}: enumerated {one.truth[k]:.4f}, "
                f"sampled {one.sampled[k]:.4f} ({one.low[k]:.4f} to {one.high[k]:.4f})"
            )
            text += "" if one.naive is None else f", without weights {one.naive[k]:.4f}"
            spots.append(Spot(axes, ((float(left), float(right), *axes.get_ylim()),), text))
    panels[0].legend(loc="upper left" if _mass_right(directions[0], edges) else "upper right")
    panels[1].set_xlabel(xlabel)
    off = max(0.5 * np.abs(one.sampled / one.sampled.sum() - one.truth / one.truth.sum()).sum() for one in directions)
    alt = (
        f"Two histograms of D from {edges[0]:.2f} to {edges[-1]:.2f}. The total variation distance between "
        f"sampled steps and enumerated line is at most {off:.3f}. {caption}"
    )
    return Figure(figure, caption, alt, tuple(spots))


def _mass_right(one: Differences, edges: NDArray[np.float64]) -> bool:
    middle = (edges[1:] + edges[:-1]) / 2
    return bool(np.average(middle, weights=one.truth) > middle.mean())
