"""For each figure: how often it accuses independent pairs, and how often it finds related ones."""

from collections.abc import Sequence

from provlab.chapters.in_the_wild.measure import HIDDEN, KIN, STRANGERS, Rate
from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled

ROW = 0.29  # inches of a figure's row
# kind -> colour, marker, whether it is filled, and how far it stands above the middle of the row
_MARKS = {
    STRANGERS: (style.INDEPENDENT, "s", True, 0.24),
    KIN: (style.DEPENDENT, "o", True, 0.0),
    HIDDEN: (style.DEPENDENT, "^", False, -0.24),
}


@styled
def accusations(rates: Sequence[Rate], *, caption: str) -> Figure:
    """Draw a figure a row: the share of pairs of each kind that it accuses, with 95% intervals.

    Parameters
    ----------
    rates
        Of all figures and kinds; p-values follow the others and are set apart by a line.
    """
    require(rates, "rates: nothing to draw")
    names = list(dict.fromkeys(item.figure for item in rates))
    first_of_ours = next((names.index(item.figure) for item in rates if item.ours), len(names))
    figure = style.canvas(ROW * len(names) + 0.8)
    axes = figure.subplots()
    for kind, (color, marker, filled, lift) in _MARKS.items():
        ones = [item for item in rates if item.kind == kind]
        if not ones:
            continue
        shares = [item.accused / item.n for item in ones]
        errors = [
            [max(0.0, share - item.interval[0]) for share, item in zip(shares, ones, strict=True)],
            [max(0.0, item.interval[1] - share) for share, item in zip(shares, ones, strict=True)],
        ]
        axes.errorbar(
            shares, [names.index(item.figure) - lift for item in ones], xerr=errors, fmt=marker, color=color,
            label=kind, markerfacecolor=color if filled else "white", markersize=4.5, elinewidth=0.9,
        )  # fmt: skip
    if first_of_ours < len(names):
        axes.axhline(first_of_ours - 0.5, color=style.MUTED, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="share of pairs accused", xlim=(-0.03, 1.03), ylim=(len(names) - 0.4, -0.6))
    style.value_grid(axes, "x")
    figure.legend(loc="outside upper center", ncols=len(_MARKS), frameon=False)
    message = "; ".join(f"{item.figure}, {item.kind}: {item.accused} of {item.n}" for item in rates)
    return Figure(figure, caption, f"Share of pairs that each figure accuses. {message}.")
