"""Measure again a number that sentences of provlab quote, and write it into ``src/provlab/measured.toml``.

``python benchmarks/measured.py NAME`` measures one entry, with the seeds that it was quoted from; ``--seeds 2000`` or
``--seeds 100-121`` takes others, ``--dry`` prints the numbers and writes nothing. The entry gets today's date, the
commit and the machine. Commit first: an entry of a changed checkout says so. A family of 8 models takes some seconds,
and an entry up to 600 of them; *joined* and *streams* train the zoo's models where they are not there yet.
"""

import argparse
import json
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

import provlab
from provlab import measured, provenance, zoo
from provlab.attacks.disguise import disguise, loss
from provlab.attest import fingerprint, nearest
from provlab.forest.result import DESCENDS, ESTIMATED, Forest
from provlab.measured import Measured
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics.model import Model
from provlab_study.family_forest import arms, measure

N_MODELS = 8  # of a family
FORGED = ("forged: rescaled", "forged: rows restored")
MERGED = ("merges", "merges, trained on")
KEPT = tuple(name for name in arms.ARMS | arms.KIN if name not in (*FORGED, *MERGED))  # 27 arms
#: families of the chapter that differ by how they were trained or stored
STORED = (
    "plain", "plain again", "more decay", "no decay", "tied", "frozen embedding", "bfloat16", "pruned",
)  # fmt: skip
HEAD = """\
# Numbers that sentences quote, each measured once. `python benchmarks/measured.py NAME` measures one again, and writes
# this file. Where the machine is not recorded, the commit is the one that entered the numbers, and the command the one
# that measures again.
"""


@dataclass(frozen=True)
class Given:
    """A family, and the models of it that are given."""

    arm: str
    parents: measure.Parents
    sources: Sequence[str]

    def forest(self, **options: Any) -> Forest:
        return provlab.tree(list(self.sources), progress=False, **options)


def families(names: Sequence[str], seeds: Sequence[int], *, whole: bool = False) -> Iterator[Given]:
    """Grow each arm from each seed; give it whole, and, unless only `whole`, without some of its parents."""
    for seed in seeds:
        for name in names:
            with tempfile.TemporaryDirectory(prefix="provlab-") as folder:
                made = arms.grow(Path(folder), name, N_MODELS, seed)
                parents = {model.source: model.parents for model in made}
                sets = {"none": list(parents)} if whole else arms.left_out(made, seed)
                yield from (Given(name, parents, sources) for sources in sets.values())


def descends(seeds: Sequence[int]) -> dict[str, Any]:
    """Edges that say *descends* on the lists of ``families.py``, and how many of them are wrong."""
    import families as known  # beside this file

    counts: Counter[str] = Counter()
    lists = 0
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="provlab-") as folder:
            (place := Path(folder) / str(seed)).mkdir()
            known.grow(place, seed)
            for (_, _, what, outcome), n in known.judge(place, "", wrong=False).items():
                counts[outcome] += n * (what == DESCENDS)
                lists += n * (what == "lists")
    said = counts["right"] + counts["wrong"]
    most = float(beta.ppf(0.95, counts["wrong"] + 1, max(said - counts["wrong"], 1e-9)))
    return {"wrong": counts["wrong"], "said": said, "most": round(most, 3), "lists": lists}


def score(seeds: Sequence[int]) -> dict[str, Any]:
    """Directions by score, of edges of which one model is the other's ancestor, by the size of the score."""
    signed: list[float] = []  # |score|, negative where the direction is wrong
    for given in families(KEPT, seeds):
        for edge in given.forest().edges:
            down, up = (a in measure.ancestors(b, given.parents) for a, b in ((edge.a, edge.b), (edge.b, edge.a)))
            if (down or up) and "score" in edge.numbers:
                signed.append(edge.numbers["score"] * (1 if down else -1))
    sizes, right = np.abs(signed), np.array(signed) > 0
    least = [float(row[0]) for row in measured.quoted("score").numbers["rows"]]
    between = [(sizes >= low) & (sizes < high) for low, high in zip(least, [*least[1:], 32.0], strict=True)]
    rows = [[low, int(right[some].sum()), int(some.sum())] for low, some in zip(least, between, strict=True)]
    below = sizes < least[0]
    return {"rows": rows, "below": [int(right[below].sum()), int(below.sum())], "arms": len(KEPT)}


def triples(seeds: Sequence[int]) -> dict[str, Any]:
    """Triples that have an odd one by their true paths, and those whose odd one is named."""
    counts = [
        count
        for given in families(STORED, seeds, whole=True)
        for count in measure.odd_ones(given.forest(), given.parents, {}).values()
    ]
    return {"right": sum(k for k, _ in counts), "n": sum(n for _, n in counts), "arms": len(STORED) * len(seeds)}


def edges(seeds: Sequence[int]) -> dict[str, Any]:
    """Edges that no row decides, right ones and all."""
    right = [
        row.right
        for given in families([name for name in arms.ARMS if name not in FORGED], seeds, whole=True)
        for row in measure.judged(given.forest(), given.parents, {})
        if row.joined == ESTIMATED
    ]
    return {"right": sum(right), "n": len(right)}


def nearest_kin(seeds: Sequence[int]) -> dict[str, Any]:
    """Ask about each model with its family on the shelf: does the set hold the nearest ancestor that is there?"""
    plain: list[tuple[bool, int, int]] = []  # held, models in the set, kin
    with_merge: list[tuple[bool, int, int]] = []
    for given in families([name for name in (*KEPT, *MERGED) if name != arms.SHUFFLED], seeds):
        kept = {source: fingerprint.Fingerprint.of(source, Model.open(source)) for source in given.sources}
        merges = any(len(given.parents[source]) > 1 for source in given.sources)
        for own in given.sources:
            shelf = [source for source in given.sources if source != own]
            true = nearest_ancestors(own, given.parents, shelf)
            if not true:
                continue
            rows = [(kept[source].up, kept[source].second) for source in (own, *shelf)]
            found = {shelf[k - 1] for k in nearest.candidates(*nearest.distances(rows))}
            (with_merge if merges else plain).append((bool(true & found), len(found), len(shelf)))
    held, size, kin = (np.array(column) for column in zip(*plain, strict=True))
    return {
        "held": int(held.sum()), "n": len(held), "size": round(float(size.mean()), 1),
        "kin": round(float(kin.mean()), 1), "held_merges": sum(row[0] for row in with_merge),
        "n_merges": len(with_merge),
    }  # fmt: skip


def nearest_ancestors(model: str, parents: measure.Parents, shelf: Sequence[str]) -> set[str]:
    """Return the ancestors on the shelf from which no other model there lies on the path to the model."""
    found: set[str] = set()
    for parent in parents[model]:
        found |= {parent} if parent in shelf else nearest_ancestors(parent, parents, shelf)
    return found


def joined(seeds: Sequence[int]) -> dict[str, Any]:
    """The least share that agreeing units of related models write; what copies cost that pose as the other's units."""
    text, origin, stranger = zoo.held_out_text("prose"), "zoo:oak", "zoo:elm"
    tree = zoo.collection(zoo.TREE, zoo.families())
    roots = {name: zoo.lineage(name, tree)[-1] for name in tree}
    related = [(f"zoo:{a}", f"zoo:{b}") for a, b in combinations(roots, 2) if roots[a] == roots[b]]
    shares = written(related)
    numbers: dict[str, Any] = {"pairs": len(shares), "least": round(min(shares), 2)}
    before = loss(Checkpoint.open(stranger), text) or 0.0
    for name, share in (("small", 0.07), ("large", 0.3)):
        with tempfile.TemporaryDirectory(prefix="provlab-") as folder:
            disguise(
                Checkpoint.open(stranger), Path(folder) / "posing", seed=seeds[0],
                kinds=(f"posing={share:g}",), others=[Checkpoint.open(origin)],
            )  # fmt: skip
            lost = (loss(Checkpoint.open(str(Path(folder) / "posing")), text) or 0.0) - before
        numbers |= {name: share, f"{name}_nats": float(f"{lost:.1g}")}
    return numbers


def written(pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Of each pair the mean share of the MLPs' output that units write which agree by phi_match."""
    models = list(dict.fromkeys(name for pair in pairs for name in pair))
    report = provlab.study(models, statistics=["phi_match"], pairs=pairs, progress=False)
    blocks = [record.outcome.blocks if record.outcome else () for record in report.records]
    return [float(np.mean([min(block.detail.written) for block in some if block.detail.written])) for some in blocks]


def streams(seeds: Sequence[int]) -> dict[str, Any]:
    """Stream scores of the zoo: of the tree's models with those of their family, and of independent bases.

    Beside the tree's bases stand so many of one recipe that differ by their seed alone: the seeds are their numbers.
    """
    recipes = zoo.families()
    parents = zoo.parents(zoo.collection(zoo.TREE, recipes))
    alike = [name for name, recipe in zoo.collection("null", recipes).items() if int(name[-2:]) in seeds]
    roots = [f"zoo:{name}" for name in (*(name for name, parent in parents.items() if parent is None), *alike)]
    kin = [(f"zoo:{parent}", f"zoo:{name}") for name, parent in parents.items() if parent is not None]
    shown = {}
    for what, pairs in (("related", kin), ("independent", list(combinations(roots, 2)))):
        models = list(dict.fromkeys(name for pair in pairs for name in pair))
        report = provlab.study(models, statistics=["stream_score"], pairs=pairs, progress=False)
        shown[what] = [record.outcome.value for record in report.records if record.outcome]
    return {
        "related": round(min(shown["related"]), 2), "kin": len(shown["related"]),
        "independent": round(max(shown["independent"]), 3), "pairs": len(shown["independent"]),
    }  # fmt: skip


#: name of an entry -> what measures its numbers, and the seeds that it was quoted from
ENTRIES: Mapping[str, tuple[Callable[[Sequence[int]], dict[str, Any]], str]] = {
    "joined": (joined, "0"),
    "descends": (descends, "61843 27095"),
    "score": (score, "100-121 200"),
    "triples": (triples, "2000"),
    "edges": (edges, "0"),
    "nearest": (nearest_kin, "200 210 211"),
    "streams": (streams, "1-8"),
}


def spread(words: Sequence[str]) -> list[int]:
    """Seeds as they are written: 100-121 is each from 100 to 121."""
    ends = [(word.split("-")[0], word.split("-")[-1]) for word in words]
    return [seed for first, last in ends for seed in range(int(first), int(last) + 1)]


def as_toml(entries: Mapping[str, Measured]) -> str:
    """Return the table as its file has it."""
    text = HEAD
    for name, entry in entries.items():
        lines = " \\\n".join(textwrap.wrap(entry.words, 116, break_long_words=False, break_on_hyphens=False))
        text += f'\n[{name}]\nwords = """\\\n{lines}"""\n'
        for key in ("date", "commit", "machine", "command"):
            text += f"{key} = {json.dumps(getattr(entry, key), ensure_ascii=False)}\n"
        text += f"[{name}.numbers]\n"
        text += "".join(f"{key} = {json.dumps(number)}\n" for key, number in entry.numbers.items())
    return text


def main() -> None:
    """Measure an entry and write it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("name", choices=ENTRIES)
    parser.add_argument("--seeds", nargs="+", help="default: those that the entry was quoted from")
    parser.add_argument("--dry", action="store_true", help="print the numbers and write nothing")
    asked = parser.parse_args()
    function, usual = ENTRIES[asked.name]
    seeds = asked.seeds or usual.split()
    numbers = function(spread(seeds))
    print(json.dumps(numbers))
    if asked.dry:
        return
    entries = measured.table()
    drawn = f"{provenance.DRAW_VARIABLE}={draw} " if (draw := provenance.draw()) else ""  # of the zoo's models
    entries[asked.name] = replace(
        entries[asked.name],
        numbers=numbers,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=(provenance.commit() or measured.NOT_RECORDED),
        machine=provenance.processor(),
        command=f"{drawn}python benchmarks/measured.py {asked.name} --seeds {' '.join(seeds)}",
    )
    measured.TABLE.write_text(as_toml(entries), encoding="utf-8")


if __name__ == "__main__":
    main()
