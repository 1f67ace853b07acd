"""For each figure: how often it accuses independent pairs, and how often it finds related ones."""

import pandas as pd

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled
from provlab_study.in_the_wild.measure import HIDDEN, KIN, STRANGERS

ROW = 0.29  # inches of a figure's row
# kind -> colour, marker, whether it is filled, and how far it stands above the middle of the row
_MARKS = {
    STRANGERS: (style.INDEPENDENT, "s", True, 0.24),
    KIN: (style.DEPENDENT, "o", True, 0.0),
    HIDDEN: (style.DEPENDENT, "^", False, -0.24),
}


@styled
def accusations(rates: pd.DataFrame, *, caption: str) -> Figure:
    """Draw a figure a row: the share of pairs of each kind that it accuses, with 95% intervals.

    Parameters
    ----------
    rates
        A row for each figure and kind, with the columns figure, kind, accused, n, low, high and ours; p-values, which
        are ours, follow the others and are set apart by a line.
    """
    names = list(dict.fromkeys(rates["figure"]))
    figure = style.canvas(ROW * len(names) + 0.8)
    axes = figure.subplots()
    for kind, (color, marker, filled, lift) in _MARKS.items():
        rows = rates[rates["kind"] == kind]
        shares = rows["accused"] / rows["n"]
        axes.errorbar(
            shares, [names.index(name) - lift for name in rows["figure"]],
            xerr=[(shares - rows["low"]).clip(0), (rows["high"] - shares).clip(0)], fmt=marker, color=color,
            label=kind, markerfacecolor=color if filled else "white", markersize=4.5, elinewidth=0.9,
        )  # fmt: skip
    first_of_ours = names.index(rates.loc[rates["ours"], "figure"].iloc[0])
    axes.axhline(first_of_ours - 0.5, color=style.MUTED, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="share of pairs accused", xlim=(-0.03, 1.03), ylim=(len(names) - 0.4, -0.6))
    style.value_grid(axes, "x")
    figure.legend(loc="outside upper center", ncols=len(_MARKS), frameon=False)
    message = "; ".join(f"{row.figure}, {row.kind}: {row.accused} of {row.n}" for row in rates.itertuples())
    return Figure(figure, caption, f"Share of pairs that each figure accuses. {message}.")
