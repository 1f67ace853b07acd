"""Known origins of models: the truth that results are compared with.

Zoo models carry theirs in their recipes; the 21 public models of the paper's Figure 2 carry theirs in
``llama7b_tree.csv``. The origin of any other model is unknown.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from provlab.errors import ParameterError

if TYPE_CHECKING:
    from provlab.zoo import Recipe

_DISGUISED = "disguised:"


@cache
def published_parents() -> dict[str, str | None]:
    """Parent of each of the 21 public models of the Llama tree."""
    text = (resources.files("provlab.engine") / "llama7b_tree.csv").read_text(encoding="utf-8")
    return {row["model_id"]: row["parent"] or None for row in csv.DictReader(text.splitlines())}


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
        ancestors = []
        while (parent := self.parents.get(source)) is not None:
            ancestors.append(parent)
            source = parent
        return ancestors

    def dependent(self, a: str, b: str) -> bool | None:
        """Whether two models share a root; None where either origin is unknown."""
        roots = self.root(a), self.root(b)
        return None if None in roots else roots[0] == roots[1]

    def siblings(self, a: str, b: str) -> bool:
        """Whether two models share a root and neither descends from the other (Figure 1, last case)."""
        return bool(self.dependent(a, b)) and a not in self.ancestors(b) and b not in self.ancestors(a)


def short_name(source: str) -> str:
    """Name of a source without scheme, organisation, folder and revision: ``zoo:oak@smoke`` is oak."""
    return (source.partition(":")[2] or source.rstrip("/").rpartition("/")[2]).partition("@")[0]


def short_names(sources: Sequence[str]) -> dict[str, str]:
    """Short name of each source; where two would share one, each keeps its source as its name."""
    names = {source: short_name(source) for source in sources}
    return names if len(set(names.values())) == len(names) else {source: source for source in names}


def recipes_of(edition: str) -> "dict[str, Recipe]":
    """Recipes of an edition, the default one if it is empty, read once."""
    from provlab import zoo  # needed only for its own models

    return _read_recipes(edition or zoo.default_edition())


@cache
def _read_recipes(edition: str) -> "dict[str, Recipe]":
    from provlab import zoo

    return zoo.families(edition)


def recipe_of(source: str) -> "Recipe | None":
    """Recipe of a zoo model, or None for any other source."""
    scheme, _, rest = source.partition(":")
    if scheme != "zoo" or not rest:
        return None
    name, _, edition = rest.partition("@")
    try:
        return recipes_of(edition).get(name)
    except ParameterError:  # an unknown edition: the model was refused when it was opened
        return None


def tree_order(parents: Mapping[str, str | None]) -> list[str]:
    """Order models so that each tree stands together, every model behind its parent."""

    def below(parent: str | None) -> list[str]:
        return [m for child, of in parents.items() if of == parent for m in (child, *below(child))]

    return below(None)


def _parent(source: str) -> tuple[str | None, str] | None:
    """Parent of a source and what was done to it, or None where nothing is known."""
    if source.startswith(_DISGUISED):
        from provlab.models import disguise  # imports torch

        kinds, original = disguise.parse(source.removeprefix(_DISGUISED))
        return original, "+".join(kinds)
    if recipe := recipe_of(source):
        _, at, edition = source.partition("@")
        return (f"zoo:{recipe.parent}{at}{edition}" if recipe.parent else None), recipe.kind
    parents = published_parents()
    hub_id = source.partition("@")[0]
    return (parents[hub_id], "") if hub_id in parents else None
