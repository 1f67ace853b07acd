"""How often a score accuses unrelated pairs, and how well the key biases of six models still show their draw."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled
from provlab_study.public_cases.one_seed import Seeded
from provlab_study.publishing.evidence import share_interval

ROW = 0.34  # inches of a score's row
# kind of pairs -> colour, marker, whether it is filled, and how far it stands above the middle of the row
_MARKS = {
    "independent": (style.INDEPENDENT, "s", True, 0.24),
    "parent and child": (style.DEPENDENT, "o", True, 0.0),
    "the same, permuted": (style.DEPENDENT, "^", False, -0.24),
}


@styled
def innocents(rates: pd.DataFrame, *, caption: str) -> Figure:
    """Draw a score a row: the share of pairs of each kind that it accuses, with exact 95% intervals.

    Parameters
    ----------
    rates
        A row for each score and kind, with the columns figure, kind, accused and n.
    """
    names = list(dict.fromkeys(rates["figure"]))
    figure = style.canvas(ROW * len(names) + 0.9)
    axes = figure.subplots()
    for kind, (color, marker, filled, lift) in _MARKS.items():
        for i, row in enumerate(rates[rates["kind"] == kind].itertuples()):
            share = row.accused / row.n
            low, high = share_interval(row.accused, row.n)
            axes.errorbar(
                [share], [names.index(row.figure) - lift], xerr=[[max(share - low, 0)], [max(high - share, 0)]],
                fmt=marker, color=color, label=None if i else kind, markersize=4.5,
                markerfacecolor=color if filled else "white", elinewidth=0.9,
            )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="share of pairs accused", xlim=(-0.03, 1.03), ylim=(len(names) - 0.4, -0.6))
    style.value_grid(axes, "x")
    figure.legend(loc="outside upper center", ncols=len(_MARKS), frameon=False)
    words = "; ".join(f"{row.figure}, {row.kind}: {row.accused} of {row.n}" for row in rates.itertuples())
    return Figure(figure, caption, f"Share of pairs that each score accuses. {words}.")


@styled
def fossils(seeded: Sequence[Seeded], others: Mapping[str, Sequence[float]], *, caption: str) -> Figure:
    """Draw a row a model: cosines of its key biases with the draws of all seeds that were tried.

    Parameters
    ----------
    others
        Atom -> cosines with the draws of the other seeds.
    """
    figure = style.canvas(0.33 * len(seeded) + 0.9)
    axes = figure.subplots()
    for i, row in enumerate(seeded):
        values = others[row.atom]
        axes.plot(values, np.full(len(values), i), "|", color=style.INDEPENDENT, markersize=6, alpha=0.5,
                  label="other seeds" if i == 0 else None)  # fmt: skip
        axes.plot(row.cosines, [i] * len(row.cosines), "o", color=style.DEPENDENT, markersize=5,
                  label=f"seed {row.seed}" if i == 0 else None)  # fmt: skip
    axes.set_yticks(range(len(seeded)), [row.atom for row in seeded])
    axes.set(xlabel="cosine of key biases with a replayed draw", xlim=(-0.35, 1.06), ylim=(len(seeded) - 0.5, -0.5))
    style.value_grid(axes, "x")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    words = "; ".join(
        f"{row.atom}: {', '.join(f'{value:.3f}' for value in row.cosines)} with seed {row.seed}, others at most "
        f"{max(others[row.atom]):.3f}"
        for row in seeded
    )
    return Figure(figure, caption, f"Cosines of key biases with replayed draws. {words}.")
