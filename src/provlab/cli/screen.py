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
_FLOOR = "floor"  # the column that goes behind the bar, where a terminal is too narrow for all


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
    table, widths = _fitting(table, console.width)
    for i, name in enumerate(table.header):
        right = i in table.right
        drawn.add_column(
            name, justify="right" if right else "left", overflow="fold", width=widths[i] if widths else None
        )
    for row in table.rows:
        drawn.add_row(
            *(_bar(cell, console.options.ascii_only) if isinstance(cell, card.BarCell) else Text(cell) for cell in row)
        )
    return drawn


def _fitting(table: views.Table, width: int) -> tuple[views.Table, list[int] | None]:
    """Leave out of a table what a narrow terminal has no room for, bars first, then floors and further numbers.

    Returns
    -------
    Table
        What is left.
    list of int, or None
        Letters that each of its columns gets; None where even then some word must break.
    """
    while True:
        longest = _longest_words(table)
        spare = width - sum(longest) - _GAP * (len(longest) - 1)
        if spare >= 0:
            break
        bars = [i for i in range(len(longest)) if any(isinstance(row[i], card.BarCell) for row in table.rows)]
        floors = [i for i, name in enumerate(table.header) if name == _FLOOR]
        spared = [*bars, *floors, *(i for i in sorted(table.right, reverse=True) if i > 1)]
        if not spared:  # what a row is about stays whole, and words break behind it
            left = width - longest[0] - _GAP * (len(longest) - 1)
            cut = [left * letters // sum(longest[1:]) for letters in longest[1:]]
            return table, [longest[0], *cut] if min(cut, default=1) > 0 else None
        kept = [i for i in range(len(longest)) if i != spared[0]]
        table = views.Table(
            [table.header[i] for i in kept],
            [[row[i] for i in kept] for row in table.rows],
            right=[kept.index(i) for i in table.right if i in kept],
        )
    wanted = [
        max(map(len, column)) - least
        for column, least in zip(zip(*[table.header, *table.rows], strict=True), longest, strict=True)
    ]
    wanted = [max(0, letters) for letters in wanted]  # a bar has no letters
    share = min(1.0, spare / sum(wanted)) if sum(wanted) else 0.0
    return table, [least + int(share * more) for least, more in zip(longest, wanted, strict=True)]


def _longest_words(table: views.Table) -> list[int]:
    """Letters that each column needs so that no word of it breaks, nor a number of those that stand to the right."""

    def needed(cell: str, whole: bool) -> int:
        if isinstance(cell, card.BarCell):
            return _BAR
        return len(cell) if whole else max(map(len, cell.split()), default=0)

    return [
        max([needed(name, False), *(needed(row[i], i in table.right) for row in table.rows)])
        for i, name in enumerate(table.header)
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
