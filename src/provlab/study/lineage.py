"""What is known of where models come from: the truth that results are held against.

Zoo models carry theirs in their recipes; the 21 public models of the paper's Figure 2 carry theirs in
``published/llama7b_tree.csv``. Of any other model nothing is known, and nothing is assumed.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from provlab import zoo

PUBLISHED = resources.files("provlab.study") / "published"


@cache
def published_table(name: str) -> list[dict[str, str]]:
    """Rows of one of the papers' tables, as copied into ``published/<name>.csv``."""
    text = (PUBLISHED / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def published_parents() -> dict[str, str | None]:
    """Parent of each of the 21 public models of the Llama tree."""
    return {row["model_id"]: row["parent"] or None for row in published_table("llama7b_tree")}


@dataclass(frozen=True)
class Lineage:
    """Parent relations among the models of a study, closed under ancestors.

    Attributes
    ----------
    models : tuple of str
        Sources, in the order of the study.
    parents : dict
        Source to its parent's source, or None for a root; ancestors outside the study are included. A model of
        unknown origin is absent.
    labels : dict
        What was done to the parent, in a word or two.
    """

    models: tuple[str, ...]
    parents: dict[str, str | None]
    labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: Sequence[str]) -> "Lineage":
        """Collect what is known of these sources (see the module's text)."""
        parents: dict[str, str | None] = {}
        labels: dict[str, str] = {}
        for source in sources:
            current: str | None = source
            while current is not None and current not in parents:
                step = _parent(current)
                if step is None:
                    break
                parents[current], label = step
                if label:
                    labels[current] = label
                current = parents[current]
        return cls(tuple(sources), parents, labels)

    def root(self, source: str) -> str | None:
        """Oldest known ancestor, which names the family; None where the origin is unknown."""
        if source not in self.parents:
            return None
        while (parent := self.parents.get(source)) is not None:
            source = parent
        return source

    def families(self) -> dict[str, str]:
        """Family of each model of the study; a model of unknown origin is alone in 'unknown'."""
        return {source: self.root(source) or "unknown" for source in self.models}

    def ancestors(self, source: str) -> list[str]:
        """Parent, grandparent, ... of a source."""
        found = []
        while (parent := self.parents.get(source)) is not None:
            found.append(parent)
            source = parent
        return found

    def dependent(self, a: str, b: str) -> bool | None:
        """Whether two models share a root; None where either origin is unknown."""
        roots = self.root(a), self.root(b)
        return None if None in roots else roots[0] == roots[1]

    def siblings(self, a: str, b: str) -> bool:
        """Whether two models share a root and neither descends from the other (Figure 1, last case)."""
        return bool(self.dependent(a, b)) and a not in self.ancestors(b) and b not in self.ancestors(a)


def _parent(source: str) -> tuple[str | None, str] | None:
    """Parent of a source and what was done to it, or None where nothing is known."""
    scheme, _, rest = source.partition(":")
    if scheme == "zoo" and rest:
        name, _, edition = rest.partition("@")
        recipe = zoo.families(edition or zoo.default_edition()).get(name)
        if recipe is None:
            return None
        suffix = f"@{edition}" if edition else ""
        return (f"zoo:{recipe.parent}{suffix}" if recipe.parent else None), recipe.kind
    parents = published_parents()
    hub_id = source.partition("@")[0]
    return (parents[hub_id], "") if hub_id in parents else None
