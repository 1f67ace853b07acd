"""The table of the attack lab as one picture: attacks by statistics, and what each attack costs the adversary."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.patches import Rectangle

from provlab.plots import style
from provlab.plots.explore import Spot
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled
from provlab_study.attack_lab.measure import Cell

ROW, TEXT = 0.163, 6.5  # inches of a row, points of what stands in it
LEFT, COST = 2.05, 0.55  # inches for the names of attacks, and for each of the two columns of costs
# an attack that evades is what a reader looks for: the darkest cells
_FACES = {"caught": ("#f8dcc8", None), "evades": (style.INDEPENDENT, "/////"), "refused": ("white", None)}


@styled
def lab(cells: Sequence[Cell], groups: Mapping[str, str], costs: pd.DataFrame, *, caption: str = "") -> Figure:
    """Draw which statistic catches which attack, an attack a row.

    Parameters
    ----------
    cells
        The cells of the table; those of one attack follow each other.
    groups
        Attack -> the group under which it stands, in the order of the rows.
    costs
        With an attack a row: ``growth`` and ``loss``.
    """
    require(cells, "cells: nothing to draw")
    statistics = list(dict.fromkeys(item.statistic for item in cells))
    by_place = {(item.attack, item.statistic): item for item in cells}
    places, headings, y = {}, {}, 0.0
    for attack, group in groups.items():
        if group not in headings:
            headings[group] = y + 0.75
            y += 1.15
        places[attack] = y
        y += 1
    wide = (style.WIDTH - LEFT - 2 * COST) / len(statistics)
    figure = style.canvas((y + 2.0) * ROW)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, style.WIDTH), ylim=(y + 0.05, -1.95))
    axes.axis("off")

    def write(x: float, at: float, text: str, **how: object) -> None:
        axes.text(x, at, text, fontsize=TEXT, va="center", **how)  # type: ignore[arg-type]

    for column, statistic in enumerate(statistics):
        # in turn on two lines: a symbol may be wider than its column
        write(LEFT + (column + 0.5) * wide, -0.55 - 0.8 * (column % 2), style.symbol(statistic), ha="center")
    for column, name in enumerate(("size", "loss")):
        write(style.WIDTH - (1.5 - column) * COST, -0.55, name, ha="center")
    for group, at in headings.items():
        write(0, at - 0.15, group, fontweight="bold")
    spots = []
    for attack, top in places.items():
        write(0.08, top + 0.5, attack or "nothing", ha="left")
        growth, loss = (float(costs.loc[attack, name]) for name in ("growth", "loss"))
        for column, statistic in enumerate(statistics):
            item = by_place[attack, statistic]
            face, hatch = _FACES[item.verdict]
            corner = (LEFT + column * wide, top + 0.04)
            axes.add_patch(
                Rectangle(corner, wide * 0.96, 0.92, facecolor=face, hatch=hatch, edgecolor="white", linewidth=0.4)
            )
            if not item.sound:
                axes.add_patch(Rectangle(corner, wide * 0.96, 0.92, facecolor="none", edgecolor="black", linewidth=1.2))
            text = "refuses" if item.verdict == "refused" else f"{item.caught}/{item.n}" + "!" * (not item.sound)
            axes.text(
                corner[0] + wide * 0.48, top + 0.5, text, ha="center", va="center", fontsize=TEXT,
                fontweight="bold" if item.verdict == "evades" else "normal",
                color="white" if item.verdict == "evades" else "black",
                bbox={"facecolor": face, "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
            box = (corner[0], corner[0] + wide * 0.96, top + 0.96, top + 0.04)
            spots.append(Spot(axes, (box,), _told(item, growth, loss)))
        write(style.WIDTH - 1.5 * COST, top + 0.5, f"{growth:.2f}x" if growth > 1.004 else "", ha="center")
        write(style.WIDTH - 0.5 * COST, top + 0.5, f"{loss:+.2f}" if abs(loss) >= 0.005 else "", ha="center")
    attacked = [attack for attack in groups if attack]
    counts = {
        statistic: sum(by_place[attack, statistic].verdict == "caught" for attack in attacked)
        for statistic in statistics
    }
    accused = sum(not item.sound for item in cells)
    report = ", ".join(f"{style.word(name)} {count}" for name, count in counts.items())
    unbeaten = [a for a in attacked if not any(by_place[a, s].verdict == "caught" for s in statistics)]
    text = (
        "Dark blue, hatched and bold: the attack evades; pale orange: most descendants caught (how many of how many); "
        f"white: the statistic refuses. Attacks under which most are caught, of {len(attacked)}: {report}. "
        f"Cells in which a stranger is accused (framed, with !): {accused}. "
        f"Caught by none: {', '.join(unbeaten) or 'no attack'}."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"A table of attacks by statistics. {text}", tuple(spots))


def _told(item: Cell, growth: float, loss: float) -> str:
    """One cell in words, with what the attack costs."""
    text = f"{item.attack or 'no attack'}, {style.word(item.statistic)}: "
    text += f"{item.caught} of {item.n} descendants caught" if item.n else "the statistic refuses"
    text += f", {item.refused} refused" if item.n and item.refused else ""
    text += f"; {item.accused} of {item.n_strangers} strangers accused" if item.n_strangers else ""
    return text + (f"; the attack: {growth:.2f} times the parameters, {loss:+.3f} nats a token" if item.attack else "")
