"""Known origins of models: the truth that results are compared with.

A scheme knows the parents of its models, as the zoo does. The 21 public models of the paper's Figure 2 carry theirs in
``llama7b_tree.csv``. The origin of any other model is unknown.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from provlab import plugins
from provlab.reading.part import split


@cache
def published_parents() -> dict[str, str | None]:
    """Parent of each of the 21 public models of the Llama tree."""
    text = (resources.files("provlab.report") / "llama7b_tree.csv").read_text(encoding="utf-8")
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
        # the published table names no revisions, and a base of the study may be pinned to one
        revisions: dict[str, str] = {}
        for source in sources:
            revisions.setdefault(_without_revision(source), source)
        for source in sources:
            current: str | None = source
            while current is not None and current not in parents:
                step = _parent(current)
                if step is None:
                    break
                parent, label = step
                parents[current] = revisions.get(parent, parent) if parent else None
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
        first, second = self.root(a), self.root(b)
        if first is None or second is None:
            return None
        return _without_revision(first) == _without_revision(second)

    def siblings(self, a: str, b: str) -> bool:
        """Whether two models share a root and neither descends from the other (Figure 1, last case)."""
        return bool(self.dependent(a, b)) and a not in self.ancestors(b) and b not in self.ancestors(a)


def short_name(source: str) -> str:
    """Name of a source without scheme, organisation, folder and revision: ``zoo:oak@smoke`` is oak.

    What a scheme makes of a folder keeps the scheme, since the folder itself is another model.
    """
    whole, piece = split(source)
    if piece:
        return f"{short_name(whole)}::{piece.name}"
    path = source.startswith((".", "/", "~"))
    scheme, _, named = ("", "", source) if path else source.rpartition(":")
    if "/" in named:
        last = named.rstrip("/").rpartition("/")[2].partition("@")[0]
        return f"{scheme}:{last}" if scheme else last
    return (source if path else source.partition(":")[2] or source).partition("@")[0]


def short_names(sources: Sequence[str]) -> dict[str, str]:
    """Short name of each source; where two would share one, each keeps its source as its name."""
    names = {source: short_name(source) for source in sources}
    return names if len(set(names.values())) == len(names) else {source: source for source in names}


def _without_revision(source: str) -> str:
    """A hub id without its revision; other sources as they are: behind the @ of a zoo model stands its edition."""
    return source if ":" in source else source.partition("@")[0]


def _parent(source: str) -> tuple[str | None, str] | None:
    """Parent of a source and what was done to it, or None where nothing is known."""
    if split(source)[1]:
        return None  # the zoo and the table know whole models
    scheme, colon, name = source.partition(":")
    if colon and (parent := plugins.hook(scheme, "parent")):
        known: tuple[str | None, str] | None = parent(name)
        return known
    parents = published_parents()
    hub_id = _without_revision(source)
    return (parents[hub_id], "") if hub_id in parents else None
