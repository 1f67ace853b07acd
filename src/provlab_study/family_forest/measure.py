"""Right, wrong and abstained: edges and directions of a forest against the known parents, by level and by arm."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from provlab.forest.door import tree
from provlab.forest.estimate import odd_one_out
from provlab.forest.families import LEVEL, join
from provlab.forest.result import BRIDGE, DESCENDS, LATER, MERGE, NOT_GIVEN, ROWS, Forest
from provlab.forest.rows import LEAST
from provlab.report.lineage import Lineage
from provlab.statistics.model import Model
from provlab_study.family_forest import peers

Parents = Mapping[str, tuple[str, ...]]
MISSED = "missed"


@dataclass(frozen=True)
class Judged:
    """One edge of a forest, or one that it lacks, against the truth.

    Attributes
    ----------
    arm
        The arm of its models; of models that were not grown here, ``zoo``.
    joined, right
        Level of the edge, and whether it is a true one. A true edge that the forest lacks has `MISSED` and False.
    directed, forward
        Level of its direction, None without one; whether its second model descends from its first. None where neither
        descends from the other.
    speaks
        Whether rows speak: some, not all, were kept.
    relation
        What the edge says.
    parent
        What it says of the common parent.
    """

    arm: str
    joined: str
    right: bool
    directed: str | None
    forward: bool | None
    speaks: bool
    relation: str = ""
    parent: str = ""


def known_parents(lineage: Lineage) -> dict[str, tuple[str, ...]]:
    """Parents of the models whose origin is known: the nearest ancestor that is among the models."""
    known = [model for model in lineage.models if model in lineage.parents]
    return {model: tuple(a for a in lineage.ancestors(model) if a in known)[:1] for model in known}


def ancestors(model: str, parents: Parents) -> set[str]:
    """All models that a model descends from."""
    return {a for parent in parents.get(model, ()) for a in (parent, *ancestors(parent, parents))}


def judged(forest: Forest, parents: Parents, arms: Mapping[str, str]) -> list[Judged]:
    """Judge each edge between models of known parents, and list true edges that are missing."""
    models = {model for family in forest.families for model in family.models}
    pairs = [frozenset((parent, child)) for child, names in parents.items() for parent in names]
    true = {pair for pair in pairs if pair <= models}
    rows = []
    for edge in forest.edges:
        if edge.a not in parents or edge.b not in parents or edge.relation == BRIDGE:
            continue
        down, up = edge.a in ancestors(edge.b, parents), edge.b in ancestors(edge.a, parents)
        if edge.relation == MERGE:
            speaks = edge.joined == ROWS
        else:
            speaks = edge.numbers.get("kept", 0) >= LEAST and edge.numbers["changed"] > 0
        is_true, forward = frozenset((edge.a, edge.b)) in true, down if down or up else None
        rows.append(
            Judged(
                arms.get(edge.b, "zoo"),
                edge.joined,
                is_true,
                edge.directed,
                forward,
                speaks,
                edge.relation,
                edge.parent,
            )
        )
    drawn = {frozenset((edge.a, edge.b)) for edge in forest.edges}
    rows += [Judged(arms.get(min(pair), "zoo"), MISSED, False, None, None, False) for pair in true - drawn]
    return rows


def table(rows: Sequence[Judged]) -> pd.DataFrame:
    """Count edges and directions of each arm: right, wrong and abstained."""
    words = {True: "right", False: "wrong"}
    columns = [f"{what} {word}" for what in ("edges", "rows:", "root:", "estimated:") for word in words.values()]
    counts = pd.DataFrame(0, index=list(dict.fromkeys(row.arm for row in rows)), columns=[*columns, "no direction"])
    for row in (row for row in rows if row.joined != MISSED):
        counts.loc[row.arm, f"edges {words[row.right]}"] += 1
        if row.directed is None:
            counts.loc[row.arm, "no direction"] += 1
        elif row.forward is not None:
            counts.loc[row.arm, f"{row.directed}: {words[row.forward]}"] += 1
    return counts.rename(index={"zoo": "given, not grown"})  # the study's own models, or a reader's


def kin_table(rows: Sequence[Judged]) -> pd.DataFrame:
    """Count what edges say of a parent, by arm: descent, right and wrong; a parent that was left out; no statement."""
    columns = ["descends: right", "wrong", "parent not given: right", "wrong ", "later", "near", "merge"]
    counts = pd.DataFrame(0, index=list(dict.fromkeys(row.arm for row in rows)), columns=columns)
    for row in (row for row in rows if row.joined != MISSED):
        if row.relation == DESCENDS:
            counts.loc[row.arm, "descends: right" if row.forward else "wrong"] += 1
        elif row.parent == NOT_GIVEN:
            counts.loc[row.arm, "wrong " if row.forward else "parent not given: right"] += 1
        else:
            counts.loc[row.arm, {LATER: "later", MERGE: "merge"}.get(row.relation, "near")] += 1
    return counts


def merge_rows(sources: Sequence[str], made: Mapping[tuple[str, str, int], str], seed: int) -> pd.DataFrame:
    """What the tree says of each merge beside base and tunes of its precision, with the base and without it.

    A merge counts as right if its edges name all models that it was made of and that are given, and no edge into a
    merge is false; as named in part if they name some of them; as abstained if there is no such edge.
    """
    rows = []
    for (method, word, steps), merge in made.items():
        family = [source for source in sources if Path(source).name.startswith(word)]
        parents = {family[0], family[1]} if method == "base and tune" else set(family[1:3])
        parents |= {family[0]} if method in ("task arithmetic", "subtraction") else set()
        for base in (True, False):
            forest = tree([*family[not base :], merge], seed=seed, progress=False)
            edges = [edge for edge in forest.edges if edge.relation == MERGE]
            sources_named = {edge.a for edge in edges if edge.b == merge}
            false = sum(edge.b != merge or edge.a not in parents for edge in edges)
            words = edges[0].evidence.split(":")[0] if edges else "; ".join(
                sorted({edge.words for edge in forest.edges if merge in (edge.a, edge.b)})
            )  # fmt: skip
            right = sources_named == parents & set(family[not base :])
            outcome = "abstained" if not edges else "wrong" if false else "right" if right else "in part"
            rows.append([method, word, steps, base, outcome, false, words])
    return pd.DataFrame(
        rows, columns=["method", "numbers", "steps on", "base given", "outcome", "false parents", "said"]
    )


def independent_joined(forest: Forest, parents: Parents) -> tuple[int, int, int, int]:
    """Pairs of independent models in one family, related pairs in two, related pairs, and pairs in all."""
    roots = {
        model: min(ancestors(model, parents) | {model}, key=lambda m: len(ancestors(m, parents))) for model in parents
    }
    family = {model: i for i, group in enumerate(forest.families) for model in group.models}
    pairs = list(combinations(parents, 2))
    glued = sum(family[a] == family[b] and roots[a] != roots[b] for a, b in pairs)
    split = sum(family[a] != family[b] and roots[a] == roots[b] for a, b in pairs)
    return glued, split, sum(roots[a] == roots[b] for a, b in pairs), len(pairs)


def odd_ones(forest: Forest, parents: Parents, arms: Mapping[str, str]) -> dict[str, list[int]]:
    """Triples of related models whose odd one is named, and triples that have one by their true paths, by arm.

    Merges are left out.
    """
    lines = {model: ancestors(model, parents) | {model} for model, names in parents.items() if len(names) < 2}
    paths = {frozenset(pair): (len(lines[pair[0]] ^ lines[pair[1]]),) for pair in combinations(lines, 2)}
    counts: dict[str, list[int]] = {}
    for family in forest.families:
        for three in combinations([model for model in family.models if model in lines], 3):
            true = odd_one_out(three, paths)
            if true is None or not set.intersection(*(lines[model] for model in three)):
                continue
            count = counts.setdefault(arms.get(true, "zoo"), [0, 0])
            count[0] += odd_one_out(three, family.apart) == true
            count[1] += 1
    return counts


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
            families = join(models, named, float(level))
            counts["mean e-value"] += bool(len(families.groups) != n_models - related + 1 or families.bridges)
    return errors


def true_families(parents: Parents) -> list[list[str]]:
    """Models that hang together by their parents, each family in the order of the models; families of one are left out.

    So are families with a merge, which no tree describes.
    """
    first = {
        model: min(ancestors(model, parents) | {model}, key=lambda m: len(ancestors(m, parents))) for model in parents
    }
    families: dict[str, list[str]] = {}
    for model in parents:
        families.setdefault(first[model], []).append(model)
    return [some for some in families.values() if len(some) > 1 and all(len(parents[model]) < 2 for model in some)]


def peer_rows(forests: Sequence[Forest], models: Mapping[str, Model], parents: Parents) -> pd.DataFrame:
    """Edges and directions that each method gets right in the true families of these models, whole.

    All methods have one denominator, the true edges. A peer is given the true families, since it does not look for any;
    this chapter is not, so that a true edge between two families that it split counts against it.
    """
    right: Counter[str] = Counter()
    drawn = [edge for forest in forests for edge in forest.edges]
    true: set[frozenset[str]] = set()
    for family in true_families(parents):
        own = {frozenset((parent, child)) for child in family for parent in parents[child]}
        true |= own
        for name, score in peers.SCORES.items():
            scores = {pair: score(*(models[m] for m in pair)) for pair in combinations(family, 2)}
            right[name] += len(peers.spanning(family, scores) & own)
        sharp = {model: peers.sharpness(models[model]) for model in family}
        right["sharp"] += sum(sharp[child] < sharp[p] for child in family for p in parents[child])
    right["this chapter"] = len(true & {frozenset((e.a, e.b)) for e in drawn})
    ways = [e for e in drawn if e.directed and frozenset((e.a, e.b)) in true]
    right["ways"] = sum(e.a in parents[e.b] for e in ways)
    rows = {name: [f"{right[name]} of {len(true)}", "-", "-"] for name in ("this chapter", *peers.SCORES)}
    rows["this chapter"][1] = f"{right['ways']} of {len(ways)} answered, of {len(true)}"
    rows[peers.MOTHER][1] = f"{right['sharp']} of {len(true)}"
    rows["stemma"] = ["-", "-", peers.STEMMA]
    rows[peers.MODELDNA] = ["-", "-", peers.DECOMPOSED]
    return pd.DataFrame(rows, index=["edges right", "directions right", "published, on other models"]).T
