"""Both kinds of evidence of the same pairs in one picture."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from provlab.modeldiff.marks import MODELS
from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled


@styled
def both_evidence(
    rows: Sequence[str],
    shares: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]],
    log10_p: Mapping[str, ArrayLike],
    *,
    caption: str,
) -> Figure:
    """Draw what Model-diff and the tests of independence say of the same pairs, one line a pair.

    Parameters
    ----------
    rows
        Names of the pairs.
    shares
        For each direction, share of inputs with D below zero, ``(n,)``, with the ends of its interval.
    log10_p
        For each statistic, log10 p of each pair, ``(n,)``, NaN where it was not run.
    """
    figure = style.canvas(1.0 + 0.34 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1))
    place = np.arange(len(rows))
    for i, ((name, (value, low, high)), color) in enumerate(zip(shares.items(), style.DIRECTIONS, strict=False)):
        at = place + (i - 0.5) * 0.22
        middle = np.asarray(value, dtype=float)
        left.hlines(at, np.asarray(low, dtype=float), np.asarray(high, dtype=float), color=color, linewidth=1.2)
        left.plot(middle, at, style.MARKERS[i], color=color, markersize=4.5, label=name)
    left.axvline(0.5, color=style.MUTED, linewidth=0.9, linestyle=":", zorder=0)
    left.set(xlim=(-0.04, 1.04), xlabel="share of inputs with D < 0", title="where they disagree")
    for i, (name, values) in enumerate(log10_p.items()):
        array = -np.asarray(values, dtype=float)
        at = place + (i - (len(log10_p) - 1) / 2) * 0.2
        right.plot(
            array, at, style.MARKERS[i + 2], color=MODELS[(i + 2) % 5], markersize=4.5, label=style.symbol(name),
            markerfacecolor="none" if i % 2 else MODELS[(i + 2) % 5],
        )  # fmt: skip
    right.set_xscale("symlog", linthresh=1)
    right.axvline(2.0, color=style.DEPENDENT, linewidth=0.9, linestyle="--", zorder=0)
    right.set(xlabel=r"$-\log_{10}\,p$", title="whether they share an origin", xlim=(-0.1, None))
    for axes in (left, right):
        axes.set_yticks(place, rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        style.value_grid(axes, "x")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=3, fontsize=style.SMALL, handletextpad=0.2)
    words = []
    for k, row in enumerate(rows):
        values = [f"{np.asarray(v[0])[k]:.0%} below zero ({name})" for name, v in shares.items()]
        values += [f"{style.word(name)} {np.asarray(v)[k]:,.1f}" for name, v in log10_p.items()]
        words.append(f"{row}: {', '.join(values)}")
    return Figure(figure, caption, f"Two panels, one line a pair of models. {caption} {'; '.join(words)}.")
