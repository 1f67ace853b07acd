"""The result of a tree: families, edges with their levels, and what no comparison of weights can know."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from provlab import provenance
from provlab import statistics as registry
from provlab.engine.lineage import short_names
from provlab.forest.descent import ERRORS
from provlab.forest.families import LEVEL
from provlab.report import views
from provlab.statistics.base import Options

if TYPE_CHECKING:
    from provlab.plots import Figure

SCHEMA = "provlab.tree/2"  # 1 said "descends" of what is later
FAMILIES, ROWS, ROOT, ESTIMATED = "families", "rows", "root", "estimated"
#: what an edge says; only the first and the last say that the parent itself is among the models
DESCENDS, LATER, NEAR, MERGE = "descends", "later", "near", "merge"
SHOWN, UNKNOWN, NOT_GIVEN = "shown", "may not be given", "not given"
#: level -> how sure it is
LEVELS = {
    FAMILIES: f"exact: family-wise error at most {LEVEL:g}",
    ROWS: "neighbours and order in time: exact up to rounding, unless forged; the parent may not be given",
    ROOT: "conditional on how families grow, or on the outgroup; the parent may not be given",
    ESTIMATED: (
        "an estimate: edges by changed rows, 206 of 231 right in the tiny Llamas that the rule was chosen on; the "
        "parent may not be given"
    ),
}
#: what each edge says
RELATIONS = {
    DESCENDS: f"an earlier third model shows that the later one keeps what the earlier one trained: {ERRORS}",
    LATER: "the second is the later one; their common parent may not be among these",
    NEAR: "no order in time is known; their common parent may not be among these",
    f"parent was {NOT_GIVEN}": "the first made steps that the second lacks; the second may still be a merge with it",
    MERGE: "the second is made of the first and others without training",
}
TWO = "Two models alone never show descent: a parent, and a sibling that trained less, look alike."
CALIBRATED = f"family-wise error at most {LEVEL:g} as far as the tests keep their level: no theorem says so of all"
CANNOT_KNOW = (
    "which of two models is the parent, where no third, earlier model shows it",
    "whether two models have a common parent or one descends from the other, where rows that no training reached are "
    "missing, rounded to 16 bits or left alone by decay",
    "whether descent passes through models that were not given: a parent may be an older ancestor",
    "a sibling that trained hardly anything of its own, or on the child's own texts without decay, from the parent",
    "the order of snapshots of one run against their average",
    "merges that were trained on",
    "whether somebody rescaled a whole model, which changes no output and resets its clock, or copied rows back",
)


@dataclass(frozen=True)
class Edge:
    """Two neighbouring models of a family.

    Attributes
    ----------
    a, b : str
        Sources. If the edge is directed, b is the later one.
    relation : str
        "descends" (a is an ancestor of b), "later" (b is the later one, and a may be its sibling), "near" (no
        direction) or "merge" (b is made of others, a one of them).
    joined : str
        Level of the statement that no other given model lies between them: families, rows or estimated.
    directed : str or None
        Level of the direction: rows, root or estimated; None without one.
    evidence : str
        In words.
    numbers : dict
        Rows kept and changed, how many models may lie between, distance, ln factor, score; steps and the share of them
        that is the first model's own alone, with its bounds; a merge's share, its range over blocks, and residual.
    parent : str
        Whether the common parent is among the models: "shown" (it is a), "may not be given" or "not given".
    """

    a: str
    b: str
    relation: str
    joined: str
    directed: str | None
    evidence: str
    numbers: dict[str, float] = field(default_factory=dict)
    parent: str = UNKNOWN

    @property
    def words(self) -> str:
        """The relation, and what is known of the parent."""
        whose = {UNKNOWN: "; parent may not be given", NOT_GIVEN: "; parent was not given"}
        return {MERGE: "merge of"}.get(self.relation, self.relation) + whose.get(self.parent, "")

    @property
    def levels(self) -> str:
        """Both levels in words."""
        return self.joined if self.directed is None else f"{self.joined}, direction {self.directed}"


@dataclass(frozen=True)
class Family:
    """Related models.

    Attributes
    ----------
    models : tuple of str
        Sources.
    edges : tuple of Edge
        A tree, and one more edge for each further parent of a merge.
    root_set : tuple of str
        Models one of which was first, the likeliest first; empty where that is worthless.
    notes : tuple of str
        How many rows speak, what decides on the root, what contradicts what, the odd one of three.
    apart : dict
        For each pair of models: changed rows, and the distance of weights. Not part of the JSON.
    """

    models: tuple[str, ...]
    edges: tuple[Edge, ...] = ()
    root_set: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    apart: dict[frozenset[str], tuple[int, float]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Forest(views.Report):
    """Families of models and their trees; prints as text and shows itself in a notebook.

    Attributes
    ----------
    models : tuple of dict
        See `provlab.report.views.describe`.
    statistics : tuple of str
        By which families were joined; a second one where both models of a pair are sorted.
    joins : tuple
        Each two groups of models and log10 of their mean e-value.
    bar : float
        log10 of the mean e-value that a join needs.
    not_compared : tuple of str
        Pairs that could not be tested, and why.
    """

    models: tuple[dict[str, Any], ...]
    families: tuple[Family, ...]
    statistics: tuple[str, ...]
    joins: tuple[tuple[tuple[str, ...], tuple[str, ...], float], ...]
    bar: float
    not_compared: tuple[str, ...]
    options: Options
    outgroup: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """All models, family by family."""
        return tuple(source for family in self.families for source in family.models)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Edges of all families."""
        return tuple(edge for family in self.families for edge in family.edges)

    def title(self) -> str:
        """How many models and families, and how sure that is."""
        alone = sum(len(family.models) == 1 for family in self.families)
        related = len(self.families) - alone
        tests = ", ".join([self.statistics[0], *(f"{name} where both are sorted" for name in self.statistics[1:])])
        return (
            f"{len(self.sources)} models: {related} famil{'y' if related == 1 else 'ies'} of related models, "
            f"{alone} alone ({tests}, {self.levels[FAMILIES]})"
        )

    @property
    def levels(self) -> dict[str, str]:
        """How sure each level is; a bound on families is exact only where the tests rest on a theorem."""
        exact = all(registry.get(name).theorem for name in self.statistics)
        return LEVELS if exact else LEVELS | {FAMILIES: CALIBRATED}

    def parts(self) -> list[str | views.Table | views.Listed]:
        """A table of edges for each family, what qualifies it, and what cannot be known."""
        names = short_names(self.sources)
        parts: list[str | views.Table | views.Listed] = []
        for family in self.families:
            if len(family.models) == 1:
                continue
            rows = [
                [
                    f"{names[e.a]} {'-' if e.directed is None else '->'} {names[e.b]}",
                    e.words,
                    e.levels,
                    shortened(e.evidence, names),
                ]
                for e in family.edges
            ]
            parts.append(views.Table(("edge", "relation", "level", "evidence"), rows))
            parts += [shortened(note, names) for note in family.notes]
        if alone := [names[family.models[0]] for family in self.families if len(family.models) == 1]:
            parts.append(f"Alone: {', '.join(alone)}.")
        parts.append(views.Listed("Levels", [f"{level}: {words}" for level, words in self.levels.items()]))
        if any(len(family.models) > 1 for family in self.families):
            parts.append(views.Listed("Edges", [f"{relation}: {words}" for relation, words in RELATIONS.items()]))
        parts.append(views.Listed("What this cannot know", CANNOT_KNOW))
        return parts + [views.Listed("Not compared", self.not_compared)] * bool(self.not_compared)

    def drawn(self) -> "Figure":
        """Return the picture."""
        from provlab import plots  # matplotlib

        edges = [(e.a, e.b, e.relation, e.joined == ESTIMATED, e.directed is not None) for e in self.edges]
        return plots.forest(self.sources, edges, short_names(self.sources))

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        families = [{k: v for k, v in asdict(family).items() if k != "apart"} for family in self.families]
        return {
            "schema": SCHEMA,
            "sources": list(self.sources),
            "models": list(self.models),
            "statistics": list(self.statistics),
            "level": LEVEL,
            "log10_e_needed": self.bar,
            "joins": [{"a": list(a), "b": list(b), "log10_e": value} for a, b, value in self.joins],
            "families": json.loads(json.dumps(families)),
            "outgroup": self.outgroup,
            "levels": self.levels,
            "relations": RELATIONS,
            "assumptions": {name: registry.get(name).assumptions for name in self.statistics},
            "cannot_know": list(CANNOT_KNOW),
            "not_compared": list(self.not_compared),
            "parameters": self.options.as_record(),
            "seed": self.options.seed,
            "versions": provenance.versions(),
        }

    def to_mermaid(self) -> str:
        """The same as a flow chart of Mermaid: thick for descent and merges, dotted where the edge is an estimate."""
        number = {source: f"m{i}" for i, source in enumerate(self.sources)}
        lines = [f'  {number[source]}["{name}"]' for source, name in short_names(self.sources).items()]
        for e in self.edges:
            arrow = (("---", "-->"), ("-.-", "-.->"))[e.joined == ESTIMATED][e.directed is not None]
            arrow = "==>" if e.parent == SHOWN else arrow
            lines.append(f'  {number[e.a]} {arrow}|"{e.words} ({e.levels})"| {number[e.b]}')
        return "\n".join(["flowchart TD", *lines])

    def to_dot(self) -> str:
        """The same for Graphviz: bold for descent and merges, dashed where the edge is an estimate."""
        names = short_names(self.sources)
        lines = [f"  {json.dumps(source)} [label={json.dumps(names[source])}];" for source in self.sources]
        for e in self.edges:
            style = "bold" if e.parent == SHOWN else "dashed" if e.joined == ESTIMATED else "solid"
            ends = "none" if e.directed is None else "normal"
            about = f"style={style}, arrowhead={ends}, label={json.dumps(f'{e.words} ({e.levels})')}"
            lines.append(f"  {json.dumps(e.a)} -> {json.dumps(e.b)} [{about}];")
        return "\n".join(["digraph forest {", *lines, "}"])


def shortened(text: str, names: Mapping[str, str]) -> str:
    """Give the models of a note or of evidence their short names; see `named`."""
    return re.sub("<(.*?)>", lambda source: names[source[1]], text)


def named(*sources: str) -> str:
    """Sources in a note or in evidence, which `shortened` finds."""
    return ", ".join(f"<{source}>" for source in sources)
