"""What reports share: text and HTML from one list of parts."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING

from provlab.report.card import Card

if TYPE_CHECKING:
    from provlab.plots import Figure

_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}"
    "th,td{text-align:left;vertical-align:top;padding:.2em .8em .2em 0;border-bottom:1px solid #ddd}"
    ".number{text-align:right;white-space:nowrap}code{white-space:pre-wrap;overflow-wrap:anywhere}figure{margin:1em 0}"
)
MOST_ROWS = 8  # of a table that a notebook shows open
WIDTH, LONGEST_RULE = 100, 60  # characters: of a line of text, and of the rule below a heading


class Marked(str):
    """A cell of a table with another form in HTML: marks are brackets in text, and colours there."""

    html: str

    @classmethod
    def of(cls, text: str, html: str) -> "Marked":
        """Take both forms."""
        cell = cls(text)
        cell.html = html
        return cell


def _html(cell: str) -> str:
    return cell.html if isinstance(cell, Marked) else escape(cell)


@dataclass(frozen=True)
class Table:
    """Cells under a header, two spaces between columns; those in the columns `right` stand to the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    in_text_alone: bool = False  # a picture made of characters

    def __str__(self) -> str:
        widths = [max(len(row[i]) for row in [self.header, *self.rows]) for i in range(len(self.header))]
        # a long reason in the last column needs no long rule above it
        rules = ["-" * min(width, LONGEST_RULE) for width in widths]
        lines = []
        for row in [self.header, rules, *self.rows]:
            cells = [c.rjust(widths[i]) if i in self.right else c.ljust(widths[i]) for i, c in enumerate(row)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def html(self) -> str:
        """The same for a notebook."""
        if self.in_text_alone:
            return ""
        head = "".join(f"<th>{_html(name)}</th>" for name in self.header)
        kinds = [" class='number'" * (i in self.right) for i in range(len(self.header))]
        cells = ["".join(f"<td{k}>{_html(c)}</td>" for k, c in zip(kinds, row, strict=True)) for row in self.rows]
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


@dataclass(frozen=True)
class Listed:
    """Sentences under a heading, folded in a notebook."""

    title: str
    lines: Sequence[str]

    def __str__(self) -> str:
        lines = [
            fill(line, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
            for line in self.lines
        ]
        return "\n".join([self.title, *lines])

    def html(self) -> str:
        """The same for a notebook."""
        lines = "".join(f"<li>{escape(line)}</li>" for line in self.lines)
        return f"<details><summary>{escape(self.title)}</summary><ul>{lines}</ul></details>"


@dataclass(frozen=True)
class Folded:
    """Tables and sentences under a heading, folded in a notebook."""

    title: str
    parts: Sequence[str | Table]

    def __str__(self) -> str:
        parts = [fill(part, WIDTH) if isinstance(part, str) else str(part) for part in self.parts]
        return "\n\n".join([self.title, *parts])

    def html(self) -> str:
        """The same for a notebook."""
        parts = [f"<p>{escape(part)}</p>" if isinstance(part, str) else part.html() for part in self.parts]
        return f"<details><summary>{escape(self.title)}</summary>{''.join(parts)}</details>"


Part = str | Table | Listed | Folded


class Report(ABC):
    """A result that prints as text and shows itself in a notebook, both from one list of parts."""

    @abstractmethod
    def title(self) -> str:
        """The first line."""

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """Return tables, paragraphs and lists, in their order."""

    def answer(self) -> str:
        """Return what stands first in a notebook, if the title and the first part do not say it."""
        return ""

    @abstractmethod
    def drawn(self) -> "Figure | None":
        """Return the picture that stands below the answer in a notebook, None if there is nothing to draw."""

    @abstractmethod
    def card(self) -> Card:
        """Return the answer in one screen."""

    def __str__(self) -> str:
        parts = [fill(part, WIDTH) if isinstance(part, str) else str(part) for part in self.parts()]
        return "\n\n".join([self.title(), *parts])

    def _repr_html_(self) -> str:
        # the answer, one picture, and a table that a screen holds; what is longer folds
        parts = [*filter(None, [self.answer()]), *self.parts()]
        shown = [_shown(part) for part in parts]
        if figure := self.drawn():
            below = next((i for i, part in enumerate(parts) if not isinstance(part, str)), len(parts))
            shown.insert(below, figure.to_html())
        return f"<div class='comparison'><p><b>{escape(self.title())}</b></p>{''.join(shown)}</div>"

    def to_page(self, below: Sequence[Table | Listed] = ()) -> str:
        """Return the same, and more parts below it, as one HTML file that needs no other; nothing in it is folded."""
        head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><style>{_STYLE}</style>"
        title = f"<title>{escape(self.title())}</title>"
        body = (self._repr_html_() + "".join(part.html() for part in below)).replace("<details>", "<details open>")
        return f"<!doctype html><html lang='en'><head>{head}{title}</head><body>{body}</body></html>\n"


def _shown(part: Part) -> str:
    if isinstance(part, str):
        return f"<p>{escape(part)}</p>"
    if isinstance(part, Table) and len(part.rows) > MOST_ROWS:
        return Folded(f"{part.header[0]}: {len(part.rows)} rows", [part]).html()
    return part.html()
