"""An answer in one screen: what a command shows at first. The whole result is `str` of it, and `-v` shows that."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

RELATED, OPEN, QUIET = "related", "open", "quiet"  # the tone of an answer: a relation, no answer, nothing to report


class BarCell(str):
    """A cell that is drawn as a bar: how far a number is on its way to the floor, 0 to 1."""

    share: float

    @classmethod
    def of(cls, share: float) -> "BarCell":
        """Take the share."""
        bar = cls("")
        bar.share = min(1.0, max(0.0, share))
        return bar


@dataclass(frozen=True)
class Branch:
    """A node of a drawn tree, with what hangs below it."""

    text: str
    below: Sequence["Branch"] = ()


@dataclass(frozen=True)
class Card:
    """What a reader in a hurry sees.

    Attributes
    ----------
    answer
        One sentence.
    tone
        `RELATED`, `OPEN` or `QUIET`: its colour, where the terminal has colours.
    body
        A small table (`provlab.report.views.Table`), `Branch` for trees, text for paragraphs.
    remarks
        Label and sentence of each thing that qualifies the answer.
    """

    answer: str
    tone: str = QUIET
    body: Sequence[Any] = ()
    remarks: Sequence[tuple[str, str]] = field(default=())


def cut(text: str, length: int) -> str:
    """Shorten a text to so many characters, between words where it has any that fit."""
    shortened = shorten(text, length, placeholder=" ...")
    return text[: length - 4] + " ..." if shortened.strip() == "..." else shortened


def joined(sentences: Sequence[str]) -> str:
    """Sentences as one text: what does not end in a full stop is parted from the next by a semicolon."""
    return "".join(f"{words}{' ' if words.endswith('.') else '; '}" for words in sentences).rstrip("; ")


def in_short(sentences: Sequence[str], length: int = 132) -> str:
    """As many of these sentences as fit, and how many more there are.

    A sentence says its reason last, so the first stands whole, even if it is up to twice as long; beyond that, as the
    reason that a library gave may be, it is cut between words.
    """
    for n in range(len(sentences), 0, -1):
        more = f" ({len(sentences) - n} more: -v)" if n < len(sentences) else ""
        text = joined(sentences[:n]) + more
        if len(text) <= length or (n == 1 and len(text) <= 2 * length):
            return text
    return cut(sentences[0], length - len(more)) + more if sentences else ""
