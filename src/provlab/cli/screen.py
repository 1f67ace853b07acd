"""How a result looks at a terminal: a card in one screen, or with `-v` the whole, at the terminal's own width."""

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from provlab.cli.command import unfilled
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
_GAP = 2  # columns between two of a table


def show(shown: views.Report | card.Card, *, verbose: bool = False) -> None:
    """Print a card, or that of a report, on standard output; with `verbose` all of the report.

    In colour where that is a terminal and NO_COLOR is not set.
    """
    from rich.console import Console
    from rich.text import Text

    width = shutil.get_terminal_size((_PIPE, 24)).columns
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        if verbose and isinstance(shown, views.Report):
            console.print(Text(shown.title(), style="bold"))
            _all(console, shown.parts())
        else:
            first, more = (shown, []) if isinstance(shown, card.Card) else (shown.card(), [MORE])
            console.print(Text(first.answer, style=COLOURS[first.tone]))
            _all(console, first.body)
            if remarks := [*first.remarks, *more]:
                console.print()
                console.print(_labelled(remarks))
    sys.stdout.write(unfilled(captured.get()))


def _all(console: "Console", parts: Sequence["views.Part | card.Branch"]) -> None:
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
        elif isinstance(part, views.Folded):
            console.print(Text(part.title, style="bold"))
            _all(console, part.parts)
        else:
            console.print(Text(part))


def _table(console: "Console", table: views.Table) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", show_header=any(table.header))
    longest = _longest_words(table)
    whole = sum(longest) + _GAP * (len(longest) - 1) <= console.width  # else some word must break
    for i, name in enumerate(table.header):
        right = i in table.right
        least = longest[i] if whole else None
        drawn.add_column(name, justify="right" if right else "left", no_wrap=right, overflow="fold", min_width=least)
    for row in table.rows:
        drawn.add_row(
            *(_bar(cell, console.options.ascii_only) if isinstance(cell, card.BarCell) else Text(cell) for cell in row)
        )
    return drawn


def _longest_words(table: views.Table) -> list[int]:
    """Letters that each column needs so that no word of it breaks."""
    columns = zip(*[table.header, *table.rows], strict=True)
    return [
        max(_BAR if isinstance(cell, card.BarCell) else max(map(len, cell.split()), default=0) for cell in column)
        for column in columns
    ]


def _bar(bar: card.BarCell, in_ascii: bool) -> "RenderableType":
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
