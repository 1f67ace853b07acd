"""Whom each hidden unit is matched with: in its old place in a fine-tune, anywhere in an independent model."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from provlab.plots import style
from provlab.plots.explore import Spot
from provlab.plots.figure import Figure
from provlab.plots.style import styled


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
        for unit, other in enumerate(partner):
            box = (unit - reach, unit + reach, other - reach, other + reach)
            text = f"{name}: unit {unit} is matched with unit {other}{', its own place' if unit == other else ''}"
            spots.append(Spot(axes, (box,), text))
        words.append(f"{name}: {int(kept.sum())} of {len(partner)} units have their own place")
    text = "; ".join(words) + " (diamonds; circles: another place)."
    return Figure(
        figure, f"{caption} {text}", f"Dots, a hidden unit each, against the place of its partner. {text}", tuple(spots)
    )
