"""How a result looks at a terminal: a card in one screen, or with `-v` the whole, at the terminal's own width."""

import re
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from provlab.report import card, views

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.tree import Tree

COLOURS = {card.RELATED: "bold red", card.OPEN: "bold yellow", card.QUIET: "bold"}
#: the last remark of every card
MORE = ("more", "-v shows all, with assumptions; --json FILE has everything")
_PIPE = 100  # columns where no terminal says how many it has
_BAR = 16  # columns of a bar


def show(report: views.Report, *, verbose: bool = False) -> None:
    """Print a report on standard output; in colour where that is a terminal and NO_COLOR is not set."""
    from rich.console import Console
    from rich.text import Text

    width = shutil.get_terminal_size((_PIPE, 24)).columns
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        if verbose:
            console.print(Text(report.title(), style="bold"))
            _all(console, report.parts())
        else:
            shown = report.card()
            console.print(Text(shown.answer, style=COLOURS[shown.tone]))
            _all(console, shown.body)
            console.print()
            console.print(_labelled([*shown.remarks, MORE]))
    sys.stdout.write(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE))  # cells are filled up to their width


def _all(console: "Console", parts: Sequence["str | views.Table | views.Listed | card.Branch"]) -> None:
    from rich.text import Text

    for part in parts:
        console.print()
        if isinstance(part, views.Table):
            console.print(_table(console, part))
        elif isinstance(part, card.Branch):
            console.print(_tree(part))
        elif isinstance(part, views.Listed):
            console.print(Text(part.title, style="bold"))
            console.print(_labelled([("  -", line) for line in part.lines], between=1))
        else:
            console.print(Text(part))


def _table(console: "Console", table: views.Table) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, name in enumerate(table.header):
        right = i in table.right
        drawn.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in table.rows:
        drawn.add_row(
            *(_bar(cell, console.options.ascii_only) if isinstance(cell, card.Bar) else Text(cell) for cell in row)
        )
    return drawn


def _bar(bar: card.Bar, in_ascii: bool) -> "RenderableType":
    from rich.text import Text

    full = round(bar.share * _BAR)
    full_letter, empty_letter = ("#", ".") if in_ascii else ("━", "─")
    text = Text(full_letter * full, style="red" if full else "")
    return text.append(empty_letter * (_BAR - full), style="dim")


def _tree(branch: card.Branch) -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(branch.text), guide_style="dim")
    tree.children.extend(_tree(below) for below in branch.below)
    return tree


def _labelled(remarks: Sequence[tuple[str, str]], between: int = 2) -> "Table":
    """Sentences, their further lines set in, with so many columns after the labels."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, between, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, sentence in remarks:
        grid.add_row(label, Text(sentence))
    return grid
