"""The result of a tree: families, edges with their levels, and what no comparison of weights can know."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from provlab import provenance
from provlab import statistics as registry
from provlab.forest.copies import IDENTICAL, SHAPES, UP_TO_ROUNDING
from provlab.forest.descent import ERRORS
from provlab.forest.families import LEVEL, Group, Pair
from provlab.measured import quoted
from provlab.plots.numbers import format_log10_p
from provlab.report import views
from provlab.report.card import QUIET, RELATED, Branch, Card, in_short
from provlab.report.findings import of_models
from provlab.report.lineage import short_names
from provlab.statistics import flaws
from provlab.statistics.base import BY_THEOREM
from provlab.statistics.options import Options

if TYPE_CHECKING:
    from provlab.plots import Figure

SCHEMA = "provlab.tree/3"  # 1 said "descends" of what is later, 2 called a member of a combination a merge
FAMILIES, ROWS, ROOT, ESTIMATED = "families", "rows", "root", "estimated"
NUMBERS = "numbers"  # the level of edges between models that are the same
BRIDGE = "bridge"  # a level, and what an edge from a family to a model that stands between two says
_FEW = 6  # pairs that a sentence names
#: reads the embedding and no block: by it models whose units or blocks were moved seem kin
BY_TABLE = "phi_e"
#: what an edge says; only the first and the last say that the parent itself is among the models
DESCENDS, LATER, NEAR, MERGE, COMBINATION = "descends", "later", "near", "merge", "combination"
SAME = {IDENTICAL: "identical", SHAPES: "equal", UP_TO_ROUNDING: "equal"}
SHOWN, UNKNOWN, NOT_GIVEN = "shown", "may not be given", "not given"
#: level -> how sure it is
LEVELS = {
    NUMBERS: "exact: the numbers of the files themselves",
    FAMILIES: f"exact: family-wise error at most {LEVEL:g} over all pairs of models in one family",
    ROWS: (
        "neighbours, order in time, and what was made of what: exact up to rounding, if trainings see different "
        "tokens and nobody forged rows, which takes no training; an order also supposes that the two were made by "
        "training alone, as far as rows of a third model do not show it; the parent may not be given"
    ),
    ROOT: "conditional on the outgroup; the parent may not be given",
    ESTIMATED: f"an estimate: {quoted('edges').says()}; the parent may not be given",
}
#: what each edge says
RELATIONS = {
    SAME[IDENTICAL]: "the numbers are the same in all tensors that were read: other edges speak of the first",
    SAME[SHAPES]: "the same where shapes agree, or up to the rounding of one file: other edges speak of the first",
    COMBINATION: "one of these was made of the others, and nothing says which: no order is known of any of them",
    DESCENDS: (
        f"an earlier third model shows that the later one keeps what the earlier one trained: {ERRORS}; none of these "
        "was forged"
    ),
    LATER: "the second is the later one; their common parent may not be among these",
    NEAR: "no order in time is known; their common parent may not be among these",
    f"parent was {NOT_GIVEN}": (
        "the first made steps that the second lacks, and the second keeps rows that the first trained, as no merge "
        "with it does"
    ),
    MERGE: (
        "the second is made of the first and others: at level rows without training, and estimated where it was "
        "trained on and lies between models that fork elsewhere; kin near to a parent may stand for it"
    ),
    BRIDGE: "the second is related to the family of the first and to another one that is not",
}
TWO = (
    "Two models alone never show descent: a parent, and a sibling that trained less, look alike. Their order supposes "
    "that both were made by training alone: a merge may be older by its rows than what it was made of."
)
#: what no row and no share shows: `provlab.forest.rows` says how, and a test makes such ancestors
FORGED = (
    "whether somebody wrote a model to look like the parent of one that they have, or two to look like the parts of a "
    "merge: it takes no training, and only dates of publication speak against it"
)
CALIBRATED = f"family-wise error at most {LEVEL:g} as far as the tests keep their level: no theorem says so of all"
CANNOT_KNOW = (
    FORGED,
    "which of two models is the parent, where no third, earlier model shows it",
    "whether two models have a common parent or one descends from the other, where rows that no training reached are "
    "missing, rounded to 16 bits or left alone by decay",
    "whether descent passes through models that were not given: a parent may be an older ancestor",
    "a sibling that trained hardly anything of its own, or on the child's own texts without decay, from the parent",
    "the order of snapshots of one run against their average",
    "merges that were trained on for long, or that are made of a model and its own base and were trained on at all",
    "merges whose parents or base are not given: they look like kin",
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
        direction), "merge" (b is made of others, a one of them), "combination" (a and b are among models one of which
        was made of the others), "identical" or "equal" (one model), or "bridge" (b is related to the family of a, and
        to another one that is not).
    joined : str
        Level of the statement that no other given model lies between them: numbers, families, rows or estimated.
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
        if self.relation in (BRIDGE, *SAME.values()):
            return self.evidence.partition(":")[0] if self.relation != BRIDGE else BRIDGE
        if self.relation == COMBINATION:
            return "one of these is a combination of the others"
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
        Sources. A bridge (`provlab.forest.families`) is the only one.
    edges : tuple of Edge
        A tree, and one more edge for each further parent of a merge; of a bridge one to each family that it is related
        to.
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

    @property
    def bridge(self) -> bool:
        """Whether this is a model between families."""
        return any(edge.relation == BRIDGE for edge in self.edges)


def bridge(model: str, groups: Sequence[Group], log10_p: Mapping[tuple[str, str], float]) -> Family:
    """A model that stands between families, with an edge from the model of each that is closest by p-value."""
    edges, beside = [], []
    for group in groups:
        p = {other: log10_p.get((model, other), log10_p.get((other, model), 0.0)) for other in group}
        nearest = min(group, key=p.__getitem__)
        evidence = f"log10 p {format_log10_p(p[nearest])}; no pair joins its families"
        edges.append(Edge(nearest, model, BRIDGE, FAMILIES, None, evidence, {"log10_p": p[nearest]}))
        beside.append(f"the family of {named(nearest)}")
    note = (
        f"Bridge: {named(model)} stands between {' and '.join(beside)}, which are not found related: as a merge "
        "of both does, or a common parent of families that grew apart. It is counted in neither."
    )
    return Family((model,), tuple(edges), notes=(note,))


@dataclass(frozen=True)
class Forest(views.Report):
    """Families of models and their trees; prints as text and shows itself in a notebook.

    Attributes
    ----------
    models : tuple of dict
        See `provlab.report.records.describe`.
    statistics : tuple of str
        By which families were joined: that of all pairs, and further ones where both models of a pair are sorted, one
        of them seems alone, or their embeddings alone agree.
    joins : tuple
        Each two groups of models and log10 of their mean e-value.
    bar : float
        log10 of the mean e-value that a join needs.
    not_compared : tuple of str
        Pairs that could not be tested, and why.
    partly : tuple
        Two families, which of their cross pairs are related, and which are not: no bridge explains them.
    unread
        Models of a pair that could not be tested: such a one is not said to be alone.
    measurements : tuple of str
        What was read besides, of the models of one family: no tests.
    """

    models: tuple[dict[str, Any], ...]
    families: tuple[Family, ...]
    statistics: tuple[str, ...]
    joins: tuple[tuple[tuple[str, ...], tuple[str, ...], float], ...]
    bar: float
    not_compared: tuple[str, ...]
    options: Options
    outgroup: str | None = None
    partly: tuple[tuple[Group, Group, tuple[Pair, ...], tuple[Pair, ...]], ...] = ()
    unread: tuple[str, ...] = ()
    measurements: tuple[str, ...] = ()

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
        bridges = sum(family.bridge for family in self.families)
        single = [family.models[0] for family in self.families if len(family.models) == 1 and not family.bridge]
        open_ = sum(source in self.unread for source in single)
        related, alone = len(self.families) - len(single) - bridges, len(single) - open_
        between = f", {bridges} between families" * bool(bridges) + f", {open_} not compared with all" * bool(open_)
        when = {"phi_match": "where both are sorted", BY_TABLE: "where one seems alone"}
        beside = (f"{name} {when.get(name, 'where embeddings alone agree')}" for name in self.statistics[1:])
        tests = ", ".join([self.statistics[0], *beside])
        return (
            f"{len(self.sources)} models: {related} famil{'y' if related == 1 else 'ies'} of related models, "
            f"{alone} alone{between} ({tests}, {self.levels[FAMILIES]})"
        )

    @property
    def levels(self) -> dict[str, str]:
        """How sure each level is; a bound on families is exact only where the tests rest on a theorem."""
        exact = all(registry.get(name).warrant == BY_THEOREM for name in self.statistics)
        return LEVELS if exact else LEVELS | {FAMILIES: CALIBRATED}

    def _single(self, names: Mapping[str, str]) -> list[tuple[str, str]]:
        """The models without kin: those that were compared with all others, and those that were not."""
        single = [family.models[0] for family in self.families if not family.edges]
        open_ = [source for source in single if source in self.unread]
        asked = [name for name in self.statistics if name in (self.statistics[0], BY_TABLE)]  # of each that seems alone
        ways = [flaws.OF_PAIR["places"]] * all("embedding" not in flaws.LOOKS.get(name, ()) for name in asked)
        ways += [flaw for flaw in flaws.FREE if flaw.fooled.issuperset(asked)]
        told = ", ".join(way.what for way in ways) or "no way that is known and costs nothing"
        listed = ", ".join(names[source] for source in single if source not in open_)
        return [
            ("alone", f"{listed} (by {' and '.join(asked)}; what hides from that: {told})" if listed else ""),
            ("not compared with all", ", ".join(names[source] for source in open_)),
        ]

    def parts(self) -> list[views.Part]:
        """A table of edges for each family, what qualifies it, and what cannot be known."""
        names = short_names(self.sources)
        parts: list[views.Part] = []
        for family in self.families:
            if not family.edges:
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
        parts += [f"{label.capitalize()}: {text}." for label, text in self._single(names) if text]
        parts += [
            f"The families of {names[a[0]]} and {names[b[0]]} are related in part, {len(yes)} of "
            f"{len(yes) + len(no)} pairs{_told(yes, no, names)}. They are no one family: a model may stand between."
            for a, b, yes, no in self.partly
        ]
        parts += [words for _, words in of_models(self.models)]
        parts.append(views.Listed("Levels", [f"{level}: {words}" for level, words in self.levels.items()]))
        if any(len(family.models) > 1 for family in self.families):
            parts.append(views.Listed("Edges", [f"{relation}: {words}" for relation, words in RELATIONS.items()]))
        parts.append(views.Listed("What this cannot know", CANNOT_KNOW))
        return parts + [views.Listed("Not compared", self.not_compared)] * bool(self.not_compared)

    def card(self) -> Card:
        """The families as drawn trees, and what qualifies them."""
        names = short_names(self.sources)
        body: list[str | views.Table | Branch] = [
            branch for family in self.families if family.edges for branch in _branches(family, names)
        ]
        notes = [words for _, words in of_models(self.models)]
        notes += [shortened(note, names) for family in self.families for note in family.notes]
        levels = {edge.joined for edge in self.edges} | {edge.directed for edge in self.edges if edge.directed}
        remarks = [
            *self._single(names),
            ("families", self.levels[FAMILIES]),
            ("estimated", self.levels[ESTIMATED] if ESTIMATED in levels else ""),
            ("mind", in_short(notes)),
            ("not known", in_short(CANNOT_KNOW) if self.edges else ""),
            ("not compared", in_short(self.not_compared)),
        ]
        title = self.title().partition(" (")[0]
        shown = [(label, text) for label, text in remarks if text]
        return Card(f"{title}.", RELATED if self.edges else QUIET, body, shown)

    def drawn(self) -> "Figure":
        """Return the picture."""
        edges = [(e.a, e.b, e.relation, e.joined == ESTIMATED, e.directed is not None, e.parent) for e in self.edges]
        from provlab.forest.marks import forest  # which draws, and brings matplotlib

        return forest(self.sources, edges, short_names(self.sources))

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        families = [{k: v for k, v in asdict(family).items() if k != "apart"} for family in self.families]
        return {
            "schema": SCHEMA,
            "sources": list(self.sources),
            "models": list(self.models),
            "statistics": list(self.statistics),
            "measurements": list(self.measurements),
            "level": LEVEL,
            "log10_e_needed": self.bar,
            "joins": [{"a": list(a), "b": list(b), "log10_e": value} for a, b, value in self.joins],
            "families": json.loads(json.dumps(families)),
            "bridges": [family.models[0] for family in self.families if family.bridge],
            "partly": [
                {"a": list(a), "b": list(b), "related": [*map(list, yes)], "not_found_related": [*map(list, no)]}
                for a, b, yes, no in self.partly
            ],
            "not_compared_with_all": list(self.unread),
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
        names = {source: name.replace('"', "#quot;") for source, name in short_names(self.sources).items()}
        lines = [f'  {number[source]}["{name}"]' for source, name in names.items()]
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


def _branches(family: Family, names: Mapping[str, str]) -> list[Branch]:
    """A family as trees to draw: each model below the first that an edge joins it to, the likeliest root on top.

    Further parents of a merge, and families of a bridge, follow in lines of their own.
    """
    placed: set[str] = set()
    drawn: list[Edge] = []
    order = [*family.root_set, *family.models]

    def grown(model: str, words: str) -> Branch:
        placed.add(model)
        branches = []
        for edge in family.edges:
            other = edge.b if edge.a == model else edge.a if edge.b == model and edge.directed is None else None
            if other is not None and other not in placed and other in family.models:
                drawn.append(edge)
                branches.append(grown(other, edge.words))
        return Branch(f"{names[model]}{f'  ({words})' if words else ''}", branches)

    later = {edge.b for edge in family.edges if edge.directed}
    firsts = [model for model in order if model not in later] or order
    trees = []
    for model in [*firsts, *order]:
        if model not in placed:
            trees.append(grown(model, BRIDGE if family.bridge else ""))
    words = {MERGE: "a merge of", BRIDGE: "related to the family of", COMBINATION: "in one combination with"}
    further = [e for e in family.edges if e.relation in words and e not in drawn]
    return [*trees, *(Branch(f"{names[e.b]} is {words[e.relation]} {names[e.a]}") for e in further)]


def _told(related: Sequence[Pair], others: Sequence[Pair], names: Mapping[str, str]) -> str:
    """Name the fewer of the pairs that are related and those that are not, if these are few."""
    fewer, words = (related, ": ") if len(related) <= len(others) else (others, ", all but ")
    return words + ", ".join(f"{names[a]} and {names[b]}" for a, b in fewer) if len(fewer) <= _FEW else ""


def shortened(text: str, names: Mapping[str, str]) -> str:
    """Give the models of a note or of evidence their short names; see `named`. A source may hold any sign."""
    if not names:
        return text
    known = "|".join(re.escape(source) for source in sorted(names, key=len, reverse=True))
    return re.sub(f"<({known})>", lambda source: names[source[1]], text)


def named(*sources: str) -> str:
    """Sources in a note or in evidence, which `shortened` finds."""
    return ", ".join(f"<{source}>" for source in sources)
