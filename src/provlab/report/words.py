"""Sentences that stand in a table: facts are filled in, and one of which a fact is missing is not said."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

Finding = tuple[str, str]  # a label of the card, and a sentence


class Words:
    """A table of sentences, under labels.

    Parameters
    ----------
    path
        The table: TOML, a label a section.
    named
        Facts that every sentence knows.
    """

    def __init__(self, path: Path, named: Mapping[str, str] | None = None) -> None:
        self.table: dict[str, dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))
        self._named = dict(named or {})

    def say(self, label: str, key: str, where: object = True, /, **facts: str | Sequence[str]) -> list[Finding]:
        """Say a sentence with these facts, of which lists are joined; nothing where one that it names is empty."""
        named = {name for _, name, _, _ in Formatter().parse(self.table[label][key]) if name} - self._named.keys()
        if not where or not all(facts[name] for name in named):
            return []
        words = {name: fact if isinstance(fact, str) else ", ".join(fact) for name, fact in facts.items()}
        return [(label, self.table[label][key].format(**self._named, **words))]
