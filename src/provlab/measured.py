"""Numbers that sentences quote and that no run of a user measures: each with its day, commit, machine and command.

They stand in ``measured.toml`` beside this module, which ``benchmarks/measured.py`` writes. Code holds none of them.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("measured.toml")
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Measured:
    """What was measured once.

    Attributes
    ----------
    words : str
        The sentence, with names of numbers in braces (`str.format`).
    numbers : mapping
        By name: a number, or rows of them.
    date : str
        The day, as 2026-11-24. `commit` of the project, which entered the numbers or measured them.
    machine, command : str
        Where and how; "not recorded" where nobody wrote it down.
    """

    words: str
    numbers: Mapping[str, Any]
    date: str
    commit: str
    machine: str
    command: str

    def says(self, **numbers: Any) -> str:
        """Return the sentence with its day; `numbers` fill what depends on a case."""
        return f"{self.words.format(**{**self.numbers, **numbers})} (measured on {self.date})"


@cache
def quoted(name: str) -> Measured:
    """Return an entry of the table; KeyError if there is none of this name."""
    return table()[name]


def table(path: Path = TABLE) -> dict[str, Measured]:
    """Read all entries by name."""
    return {name: Measured(**entry) for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()}
