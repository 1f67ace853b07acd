"""Right, wrong and abstained: edges and directions of a forest against the known parents, by level and by arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from provlab.chapters.family_forest import peers
from provlab.engine.lineage import Lineage
from provlab.forest.families import LEVEL, join
from provlab.forest.measure import kurtosis
from provlab.forest.result import Edge, Forest
from provlab.forest.rows import LEAST
from provlab.statistics.base import Model

Parents = Mapping[str, tuple[str, ...]]
MERGE = "merge"


@dataclass(frozen=True)
class Judged:
    """One edge of a forest, or one that it lacks, against the truth.

    Attributes
    ----------
    arm
        Of its models; of models that were not grown here, ``zoo``.
    joined, right
        Level of the edge, and whether it is a true one. A true edge that the forest lacks has "missed" and False.
    directed, forward
        Level of its direction, None without one; whether its second model descends from its first. None where neither
        descends from the other.
    speaks
        Whether rows speak: some, not all, were kept.
    """

    arm: str
    joined: str
    right: bool
    directed: str | None
    forward: bool | None
    speaks: bool


def zoo_parents(models: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parents of zoo models among these models: the nearest ancestor that is given."""
    lineage = Lineage.of(models)
    return {
        model: tuple(ancestor for ancestor in lineage.ancestors(model) if ancestor in models)[:1]
        for model in models
        if model in lineage.parents
    }


def ancestors(model: str, parents: Parents) -> set[str]:
    """All models that a model descends from."""
    return {a for parent in parents.get(model, ()) for a in (parent, *ancestors(parent, parents))}


def judged(forest: Forest, parents: Parents, arms: Mapping[str, str]) -> list[Judged]:
    """Judge each edge between models of known parents, and list true edges that are missing."""
    true = {frozenset((parent, child)) for child, names in parents.items() for parent in names}
    rows = []
    for edge in forest.edges:
        if edge.a not in parents or edge.b not in parents:
            continue
        down, up = edge.a in ancestors(edge.b, parents), edge.b in ancestors(edge.a, parents)
        rows.append(
            Judged(
                arms.get(edge.b, "zoo"),
                edge.joined,
                frozenset((edge.a, edge.b)) in true,
                edge.directed,
                down if down or up else None,
                _speaks(edge),
            )
        )
    drawn = {frozenset((edge.a, edge.b)) for edge in forest.edges}
    rows += [Judged(arms.get(min(pair), "zoo"), "missed", False, None, None, False) for pair in true - drawn]
    return rows


def _speaks(edge: Edge) -> bool:
    return edge.relation == MERGE or (edge.numbers["kept"] >= LEAST and edge.numbers["changed"] > 0)


def table(rows: Sequence[Judged], by: str = "arm") -> pd.DataFrame:
    """Count edges and directions, right, wrong and abstained, of each arm (or by another field)."""
    counts = {}
    for key in dict.fromkeys(getattr(row, by) for row in rows):
        own = [row for row in rows if getattr(row, by) == key]
        directed = [row for row in own if row.directed is not None and row.forward is not None]
        drawn = [row for row in own if row.joined != "missed"]
        counts[str(key)] = {
            "edges right": sum(row.right for row in drawn),
            "edges wrong": sum(not row.right for row in drawn),
            **{
                f"{level}: {word}": sum(row.directed == level and bool(row.forward) == good for row in directed)
                for level in ("rows", "root", "estimated")
                for word, good in (("right", True), ("wrong", False))
            },
            "no direction": sum(row.directed is None for row in drawn),
        }
    return pd.DataFrame(counts).T


def independent_joined(forest: Forest, parents: Parents) -> tuple[int, int, int]:
    """Pairs of independent models in one family, related pairs in two, and pairs in all."""
    roots = {
        model: min(ancestors(model, parents) | {model}, key=lambda m: len(ancestors(m, parents))) for model in parents
    }
    family = {model: i for i, group in enumerate(forest.families) for model in group.models}
    pairs = list(combinations(parents, 2))
    glued = sum(family[a] == family[b] and roots[a] != roots[b] for a, b in pairs)
    split = sum(family[a] != family[b] and roots[a] == roots[b] for a, b in pairs)
    return glued, split, len(pairs)


def family_wise(n_models: int, n_draws: int, seed: int) -> dict[str, dict[str, int]]:
    """In how many draws independent models are joined: here, and by single links after Holm's correction.

    A true family of a tenth of the models, the others alone; p-values of independent pairs are uniform.
    """
    rng, related = np.random.default_rng(seed), n_models // 10
    models = [str(i) for i in range(n_models)]
    pairs = list(combinations(range(n_models), 2))
    errors = {f"{level:g}": {"mean e-value": 0, "single links": 0} for level in (0.05, LEVEL, 0.001)}
    kin = np.array([j < related for _, j in pairs])
    for _ in range(n_draws):
        log10_p = np.where(kin, -300.0, np.log10(rng.random(len(pairs))))
        smallest = log10_p[~kin].min()
        for level, counts in errors.items():
            counts["single links"] += bool(smallest <= np.log10(float(level) / (~kin).sum()))
            if smallest > np.log10(float(level) / len(pairs)):  # an e-value is below 1 / p: no join of these
                continue
            named = {(models[i], models[j]): float(p) for (i, j), p in zip(pairs, log10_p, strict=True)}
            groups, _ = join(models, named, float(level))
            counts["mean e-value"] += len(groups) < n_models - related + 1
    return errors


def peer_rows(forest: Forest, models: Mapping[str, Model], parents: Parents) -> pd.DataFrame:
    """Edges that each peer draws in the families found here, and directions by kurtosis, right of all."""
    true = {frozenset((parent, child)) for child, names in parents.items() for parent in names}
    right: dict[str, int] = dict.fromkeys(["this chapter", "distance of weights", *peers.SCORES], 0)
    edges = down = directions = 0
    for family in forest.families:
        if (
            not set(family.models) <= parents.keys()
            or len(family.models) < 2
            or any(e.relation == MERGE for e in family.edges)
        ):
            continue
        edges += len(family.edges)
        right["this chapter"] += sum(frozenset((e.a, e.b)) in true for e in family.edges)
        pairs = list(combinations(family.models, 2))
        scores = {name: {p: score(*(models[m] for m in p)) for p in pairs} for name, score in peers.SCORES.items()}
        scores["distance of weights"] = {p: -_distance(*(models[m] for m in p)) for p in pairs}
        for name, score in scores.items():
            right[name] += len(peers.spanning(family.models, score) & true)
        sharp = {model: _kurtosis(models[model]) for model in family.models}
        for pair in (pair for pair in true if pair <= set(family.models)):
            parent, child = sorted(pair, key=lambda model: len(ancestors(model, parents)))
            directions, down = directions + 1, down + (sharp[child] < sharp[parent])
    rows = [{"method": name, "edges right": f"{n} of {edges}"} for name, n in right.items()]
    frame = pd.DataFrame(rows).set_index("method")
    frame["directions right"] = "-"
    frame.loc["MoTHer (distance and kurtosis)"] = [
        frame.loc["distance of weights", "edges right"],
        f"{down} of {directions}",
    ]
    return frame


def _matrices(model: Model) -> list[np.ndarray]:
    anatomy = model.anatomy
    places = [(s.role, part.block) for part in anatomy.parts for s in part.segments if part.block is not None]
    arrays = (anatomy.read(model.checkpoint, *place) for place in places)
    return [array for array in arrays if array.ndim == 2]


def _distance(a: Model, b: Model) -> float:
    return float(np.sqrt(sum(np.square(x - y).sum() for x, y in zip(_matrices(a), _matrices(b), strict=True))))


def _kurtosis(model: Model) -> float:
    return float(np.mean([kurtosis(array) for array in _matrices(model)]))
