"""How often a figure accuses pairs of models of each kind."""

import numpy as np
import pandas as pd

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled
from provlab_study.publishing.evidence import share_interval

#: kinds of pairs
STRANGERS, KIN, HIDDEN = "independent", "parent and child", "the same, permuted"
# kind -> colour, marker, whether it is filled, and how far it stands above the middle of the row
_MARKS = {
    STRANGERS: (style.INDEPENDENT, "s", True, 0.24),
    KIN: (style.DEPENDENT, "o", True, 0.0),
    HIDDEN: (style.DEPENDENT, "^", False, -0.24),
}
_ROW = 0.3  # inches of a figure's row


@styled
def shares_accused(rates: pd.DataFrame, *, caption: str) -> Figure:
    """Draw a figure a row: the share of pairs of each kind that it accuses, with exact 95% intervals.

    Parameters
    ----------
    rates
        A row for each figure and kind, with the columns figure, kind, accused and n. With a column ours, those that are
        ours follow the others, and a line sets them apart.
    """
    names = list(dict.fromkeys(rates["figure"]))
    figure = style.canvas(_ROW * len(names) + 0.85)
    axes = figure.subplots()
    for kind, (color, marker, filled, lift) in _MARKS.items():
        rows = rates[rates["kind"] == kind]
        shares = rows["accused"] / rows["n"]
        low, high = np.reshape([share_interval(row.accused, row.n) for row in rows.itertuples()], (-1, 2)).T
        axes.errorbar(
            shares, [names.index(name) - lift for name in rows["figure"]],
            xerr=[(shares - low).clip(0), (high - shares).clip(0)], fmt=marker, color=color,
            label=kind, markerfacecolor=color if filled else "white", markersize=4.5, elinewidth=0.9,
        )  # fmt: skip
    if "ours" in rates:
        first_of_ours = names.index(rates.loc[rates["ours"], "figure"].iloc[0])
        axes.axhline(first_of_ours - 0.5, color=style.MUTED, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="share of pairs accused", xlim=(-0.03, 1.03), ylim=(len(names) - 0.4, -0.6))
    style.value_grid(axes, "x")
    figure.legend(loc="outside upper center", ncols=len(_MARKS), frameon=False)
    words = "; ".join(f"{row.figure}, {row.kind}: {row.accused} of {row.n}" for row in rates.itertuples())
    return Figure(figure, caption, f"Share of pairs that each figure accuses. {words}.")
