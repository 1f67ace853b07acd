"""The table of the attack lab: attacks by statistics, and what each attack costs the adversary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import pandas as pd

from provlab.plots import style
from provlab.plots.style import require
from provlab_study.attack_lab.measure import Cell
from provlab_study.attack_lab.rows import AttackRow


@dataclass(frozen=True)
class LabTable:
    """A table that stands in a page as a picture does: with a caption, and read aloud as a table.

    Attributes
    ----------
    html : str
        The table, its cells coloured by classes of the book's style sheet.
    caption : str
        What to see, then what was counted.
    text : str
        The same cells as plain text.
    """

    html: str
    caption: str
    text: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        html = f'<figure class="provlab-figure">{self.html}<figcaption>{escape(self.caption)}</figcaption></figure>'
        return {"text/plain": f"{self.text}\n{self.caption}", "text/html": html}


def lab(cells: Sequence[Cell], groups: Mapping[str, str], costs: pd.DataFrame, *, caption: str = "") -> LabTable:
    """Tabulate which statistic catches which attack, an attack a row.

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
    # a name may be broken where a column is narrow
    names = [escape(style.word(name)).replace("_", "_<wbr>") for name in statistics]
    heads = "".join(f'<th scope="col">{name}</th>' for name in ["attack", *names, "size", "loss"])
    rows, lines, last = [], [], None
    for attack, group in groups.items():
        if group != last:
            rows.append(
                f'<tr class="group"><th scope="rowgroup" colspan="{len(statistics) + 3}">{escape(group)}</th></tr>'
            )
            last = group
        growth, loss = (float(costs.loc[attack, name]) for name in ("growth", "loss"))
        items = [by_place[attack, statistic] for statistic in statistics]
        price = [f"{growth:.2f}x" if growth > 1.004 else "", f"{loss:+.2f}" if abs(loss) >= 0.005 else ""]
        drawn = "".join(
            f'<td class="{item.verdict}{"" if item.sound else " accused"}" title="{escape(_told(item, growth, loss))}">'
            f"{_count(item)}</td>"
            for item in items
        )
        rows.append(
            f'<tr><th scope="row">{escape(attack or "nothing")}{_words(attack, group)}</th>{drawn}'
            f"{''.join(f'<td>{cost}</td>' for cost in price)}</tr>"
        )
        lines.append("  ".join([attack or "nothing", *map(_count, items), *price]).rstrip())
    attacked = [attack for attack in groups if attack]
    counts = {
        statistic: sum(by_place[attack, statistic].verdict == "caught" for attack in attacked)
        for statistic in statistics
    }
    accused = sum(not item.sound for item in cells)
    report = ", ".join(f"{style.word(name)} {count}" for name, count in counts.items())
    unbeaten = [a for a in attacked if not any(by_place[a, s].verdict == "caught" for s in statistics)]
    text = (
        "Dark cells: the attack evades; pale ones: descendants caught, of how many; empty ones: the statistic refuses. "
        f"{caption} Attacks under which most are caught, of {len(attacked)}: {report}. "
        f"Cells in which a stranger is accused (with !): {accused}. "
        f"Caught by none: {', '.join(unbeaten) or 'no attack'}."
    )
    table = (
        '<div class="provlab-lab" tabindex="0" role="region" aria-label="Attacks by statistics">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    return LabTable(table, " ".join(text.split()), "\n".join(lines))


def _words(attack: str, group: str) -> str:
    words = AttackRow.read(attack, group).words if attack else ""
    return f"<small>{escape(words)}</small>" if words else ""


def _count(item: Cell) -> str:
    return "" if item.verdict == "refused" else f"{item.caught}/{item.n}" + "!" * (not item.sound)


def _told(item: Cell, growth: float, loss: float) -> str:
    """One cell in words, with what the attack costs."""
    text = f"{item.attack or 'no attack'}, {style.word(item.statistic)}: "
    text += f"{item.caught} of {item.n} descendants caught" if item.n else "the statistic refuses"
    text += f", {item.refused} refused" if item.n and item.refused else ""
    text += f"; {item.accused} of {item.n_strangers} strangers accused" if item.n_strangers else ""
    return text + (f"; the attack: {growth:.2f} times the parameters, {loss:+.3f} nats a token" if item.attack else "")
