"""What `provlab tree` says of families of known truth: right, order, abstained and wrong, by how a model was made.

``python benchmarks/families.py grow POOL --seeds 0 1 2`` makes a base and its tunes (`TUNED`) for each seed, and
derives the models of `DERIVED` from them, each with its true parents. A tune is no training: matrices change by a
random walk, rows of the embedding for the tokens of a topic, and all numbers shrink step by step, rounded each time
(`tuned`). With ``--trained`` they are trained on texts, as the families of the chapter are.

``python benchmarks/families.py judge POOL`` asks `provlab.tree` about lists of them: each derived model with its base
and parents, without the base, without one parent, without both, with a child of it, and beside another; and lists of
tunes alone. ``--csv FILE`` adds one row for each kind and list, with day and commit; ``--wrong`` prints what was wrong.

A statement is *right* if the truth has it, *order* if it orders two models neither of which descends from the other,
*abstained* if it takes no side, and *wrong* if the truth has its opposite.
"""

import argparse
import csv
import datetime
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.stats import binomtest

import provlab
from provlab.engine.store import Store
from provlab.errors import ProvlabError
from provlab_study.family_forest import arms

arms.BLOCKS = 4
Tensors = dict[str, torch.Tensor]
Pool = dict[str, Tensors]
#: name -> parent, steps: tunes of one base, their tunes, a snapshot, one of few steps, and the base's own parent
TUNED = {
    "root": (None, 120), "base": ("root", 60), "a": ("base", 60), "b": ("base", 80), "c": ("base", 30),
    "a1": ("a", 50), "a2": ("a1", 50), "b1": ("b", 40), "uncle": ("root", 70), "long": ("base", 160),
    "short": ("base", 12),
}  # fmt: skip


def tuned(
    tensors: Tensors | None, arm: arms.Arm, steps: int, rng: np.random.Generator, topic: int | None = None
) -> Tensors:
    """A tune by so many steps, or a first draw and a tune: what `tree` reads of one. Arguments of `arms.train`."""
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    if tensors is None:
        torch.manual_seed(int(rng.integers(2**31)))
        tensors = arms.LlamaForCausalLM(arms._config(arm)).state_dict()
    of = rng if topic is None else np.random.default_rng(topic)
    tokens = of.choice(arms.VOCABULARY - arms.NEVER, arms.TOPIC, replace=False)
    seen = torch.zeros(len(tensors["model.embed_tokens.weight"]), 1)
    seen[tokens[: 20 + steps]] = 1  # rare tokens come late
    rates = rng.uniform(0.3, 1, steps) * arms.RATE * arm.decay
    made = {}
    for name, value in tensors.items():
        change = torch.randn(value.shape, generator=generator) * arms.RATE / 2 * np.sqrt(steps)
        moved = value.clone()
        for rate in rates if value.ndim == 2 else ():
            moved = moved * np.float32(1 - rate)
        made[name] = moved + (change * seen if "embed" in name else change)
    return made


tune: Callable[..., Tensors] = tuned


def mean(pool: Pool, **shares: float) -> Tensors:
    """Tensor by tensor, models by name."""
    return {k: sum(share * pool[name][k] for name, share in shares.items()) for k in pool["base"]}  # type: ignore[misc]


def by(pool: Pool, share: Callable[[str], float], first: str = "a", second: str = "b") -> Tensors:
    """A share of `first` for each tensor's name, the rest of `second`."""
    return {k: share(k) * pool[first][k] + (1 - share(k)) * pool[second][k] for k in pool["base"]}


def from_arms(method: str) -> Callable[[Pool, np.random.Generator], Tensors]:
    """A merge of a and b by one of `arms.merged`."""
    return lambda pool, rng: arms.merged(pool["base"], pool["a"], pool["b"], rng)[method]


def ties(pool: Pool, density: float, factor: float = 1.0) -> Tensors:
    """Of a and b: the largest changes, of one sign (arXiv 2306.01708)."""
    made = {}
    for k, base in pool["base"].items():
        changes = torch.stack([pool[m][k] - base for m in "ab"])
        least = changes.abs().flatten(1).quantile(1 - density, dim=1).view(-1, *[1] * base.ndim)
        kept = changes * (changes.abs() >= least)
        agree = (kept.sign() == kept.sum(0).sign()) & (kept != 0)
        made[k] = base + factor * (kept * agree).sum(0) / agree.sum(0).clamp(min=1)
    return made


def breadcrumbs(pool: Pool) -> Tensors:
    """Of a and b: without the largest twentieth and the smallest half of each change."""
    made = {}
    for k, base in pool["base"].items():
        made[k] = base.clone()
        for m in "ab":
            change = pool[m][k] - base
            size = change.abs().flatten()
            low, high = size.quantile(0.5), size.quantile(0.95)
            made[k] += 0.7 * change * ((change.abs() >= low) & (change.abs() <= high))
    return made


def narrower(tensors: Tensors) -> Tensors:
    """The hidden units of the MLPs that write most, half of them."""
    made = dict(tensors)
    for block in range(arms.BLOCKS):
        name = f"model.layers.{block}.mlp."
        kept = tensors[name + "down_proj.weight"].norm(dim=0).argsort(descending=True)[: arms.HIDDEN // 2].sort().values
        for part, axis in (("up_proj", 0), ("gate_proj", 0), ("down_proj", 1)):
            made[name + part + ".weight"] = tensors[name + part + ".weight"].index_select(axis, kept)
    return made


def trained_on(steps: int, **shares: float) -> Callable[[Pool, np.random.Generator], Tensors]:
    """A mean, trained for so many steps."""
    return lambda pool, rng: tune(mean(pool, **shares), arms.Arm(), steps, rng)


#: name -> parents, how it is made
DERIVED: dict[str, tuple[str, Callable[[Pool, np.random.Generator], Tensors]]] = {
    "mean": ("a b", lambda p, _: mean(p, a=0.4, b=0.6)),
    "half": ("a b", lambda p, _: mean(p, a=0.5, b=0.5)),
    "mean of three": ("a b c", lambda p, _: mean(p, a=0.3, b=0.5, c=0.2)),
    "base and tune": ("base a", lambda p, _: mean(p, base=0.43, a=0.57)),
    "mean of snapshots": ("a a1", lambda p, _: mean(p, a=0.5, a1=0.5)),
    "mean of parent and grandchild": ("a a2", lambda p, _: mean(p, a=0.3, a2=0.7)),
    "extrapolation": ("base a", lambda p, _: mean(p, base=-0.75, a=1.75)),
    "sum": ("base a b", lambda p, _: mean(p, base=-1, a=1, b=1)),
    "chat vector": ("base a c", lambda p, _: mean(p, base=-1, a=1, c=1)),
    "negation": ("base a b", lambda p, _: mean(p, base=1, a=1, b=-1)),
    "chat vector of kin": ("b a a1", lambda p, _: mean(p, b=1, a=-1, a1=1)),
    "task arithmetic": ("base a b", lambda p, _: mean(p, base=-0.4, a=0.7, b=0.7)),
    "subtraction": ("base a b", lambda p, _: mean(p, base=0.7, a=0.7, b=-0.4)),
    "slerp": ("a b", from_arms("slerp")),
    "by depth": ("a b", lambda p, _: by(p, lambda k: 0.3 if arms.re.search(r"layers\.[01]\.", k) else 0.8)),
    "by part": ("a b", lambda p, _: by(p, lambda k: 0.3 if "mlp" in k else 0.8)),
    "passthrough": ("a b", lambda p, _: by(p, lambda k: float(not arms.re.search(r"layers\.[23]\.", k)))),
    "mlp of the other": ("a b", lambda p, _: by(p, lambda k: float("mlp" not in k))),
    "mlp of a short one": ("a short", lambda p, _: by(p, lambda k: float("mlp" not in k), "a", "short")),
    "mlp of a long one": ("c long", lambda p, _: by(p, lambda k: float("mlp" not in k), "c", "long")),
    "embedding merged": ("a b", lambda p, _: by(p, lambda k: 0.5 if "embed" in k else 1.0)),
    "embedding of the other": ("a b", lambda p, _: by(p, lambda k: 0.0 if "embed" in k else 1.0)),
    "TIES": ("base a b", lambda p, _: ties(p, 0.5)),
    "TIES, dense": ("base a b", lambda p, _: ties(p, 0.8, 0.8)),
    "TIES, sparse": ("base a b", lambda p, _: ties(p, 0.2)),
    "DARE": ("base a b", from_arms("DARE")),
    "breadcrumbs": ("base a b", lambda p, _: breadcrumbs(p)),
    "mean, 10 steps on": ("a b", trained_on(10, a=0.4, b=0.6)),
    "mean, 40 steps on": ("a b", trained_on(40, a=0.5, b=0.5)),
    "mean with a sibling's child": ("a b1", lambda p, _: mean(p, a=0.5, b1=0.5)),
    "copy": ("a", lambda p, _: dict(p["a"])),
    "copy of the base": ("base", lambda p, _: dict(p["base"])),
    "half of its units": ("a", lambda p, _: narrower(p["a"])),
    "half of the base's units": ("base", lambda p, _: narrower(p["base"])),
    "small weights zeroed": ("a", lambda p, _: arms.pruned(p["a"], p["base"])),
    "bfloat16 numbers": ("a", lambda p, _: {k: v.to(torch.bfloat16).float() for k, v in p["a"].items()}),
    "quantised": ("a", lambda p, _: arms.quantised(p["a"], p["base"])),
    "adapter": ("a", lambda p, rng: arms.adapted(tune(p["a"], arms.Arm(), 40, rng), p["a"])),
    "resized": ("a", lambda p, _: arms.resized(p["a"], p["base"])),
}  # fmt: skip
#: one node with their parent
ALIKE = ("copy", "copy of the base", "half of its units", "half of the base's units", "bfloat16 numbers", "resized")
PATTERNS = ("all given", "base hidden", "a parent hidden", "parents hidden", "child given", "beside another")


def saved(folder: Path, name: str, tensors: Tensors) -> str:
    """Write a folder of a Llama of these tensors."""
    config = arms._config(arms.Arm(), len(tensors["model.embed_tokens.weight"]))
    config.intermediate_size = len(tensors["model.layers.0.mlp.up_proj.weight"])
    model = arms.LlamaForCausalLM(config)
    model.load_state_dict(tensors)
    place = folder / name.replace(" ", "-").replace(",", "").replace("'", "")
    model.save_pretrained(place)
    return str(place)


def grow(folder: Path, seed: int) -> None:
    """Train and derive the models of one seed: ``truth.json`` has folder and parents of each."""
    arms.logging.disable_progress_bar()
    rng = np.random.default_rng([seed, 23])
    topic = int(rng.integers(2**31)) if seed % 3 == 2 else None  # every third pool is trained on one topic
    pool: Pool = {}
    truth: dict[str, tuple[str, list[str]]] = {}
    for name, (parent, steps) in TUNED.items():
        pool[name] = tune(pool[parent] if parent else None, arms.Arm(), steps, rng, topic)
        truth[name] = saved(folder, name, pool[name]), [parent] if parent else []
    for name, (parents, make) in DERIVED.items():
        tensors = make(pool, rng)
        truth[name] = saved(folder, name, tensors), parents.split()
        if name not in ALIKE:
            truth[name + "'s child"] = saved(folder, name + "s-child", on(tensors, rng, topic)), [name]
    truth["stranger"] = saved(folder, "stranger", tune(None, arms.Arm(), 80, rng)), []
    (folder / "truth.json").write_text(json.dumps(truth))


def on(tensors: Tensors, rng: np.random.Generator, topic: int | None) -> Tensors:
    """A tune of a derived model."""
    return tune(tensors, arms.Arm(), 40, rng, topic)


def lists(truth: dict[str, tuple[str, list[str]]], seed: int) -> Iterator[tuple[str, str, list[str]]]:
    """Kind, pattern and the models of each list, in a random order."""
    rng = np.random.default_rng([seed, 29])

    def drawn(some: list[str], n: int, but: set[str]) -> list[str]:
        left = [name for name in some if name not in but]
        return rng.choice(left, min(n, len(left)), replace=False).tolist()

    trained = list(TUNED)
    for k in range(24):
        some = drawn(trained, int(rng.integers(3, 8)), set())
        yield "trained", "drawn", some if k % 6 else [*some, "stranger"]
    for kind, (text, _) in DERIVED.items():
        parents = text.split()
        tunes = [name for name in parents if name != "base"]
        others = drawn(trained, 2, {*parents, "base", "root"})
        sets = {
            "all given": [kind, "base", *tunes, *others],
            "base hidden": [kind, *(tunes if len(parents) > 1 else parents), *others[:1]],
            "a parent hidden": [kind, "base", *parents[1:], *others],
            "parents hidden": [kind, *drawn(trained, 4, {*parents})],
            "child given": [kind, kind + "'s child", *parents, *others[:1]],
            "beside another": [kind, *parents, *drawn(list(DERIVED), 1, {kind}), *others[:1]],
        }
        for pattern, names in sets.items():
            names = list(dict.fromkeys(name for name in names if name in truth))
            if len(names) > 2:
                yield kind, pattern, rng.permutation(names).tolist()


def ancestors(name: str, truth: dict[str, tuple[str, list[str]]]) -> set[str]:
    """All models that one descends from."""
    return {a for parent in truth[name][1] for a in (parent, *ancestors(parent, truth))}


def statements(forest: "provlab.Forest", names: dict[str, str], truth: dict) -> Iterator[tuple[str, str, str]]:
    """Kind, outcome and words of each statement of a forest; `names` by source."""
    above = {name: ancestors(name, truth) for name in truth}
    one = {name: truth[name][1][0] if name in ALIKE else name for name in names.values()}
    mixed = {name for name in truth if len(truth[name][1]) > 1}
    for edge in forest.edges:
        a, b, words = names[edge.a], names[edge.b], f"{names[edge.a]} -> {names[edge.b]}: {edge.words}, {edge.levels}"
        down, up = a in above[b] or one[a] in above[b] or a in above[one[b]], b in above[a] or one[b] in above[a]
        same = one[a] == one[b]
        if edge.relation in ("identical", "equal"):
            yield edge.relation, "right" if same else "wrong", words
        elif edge.relation == "merge":
            made = b in mixed or any(m in mixed for m in above[b])
            yield "merge", "right" if made and down and not same else "wrong", words
        elif edge.relation == "combination":
            members = {b, *(names[e.a] for e in forest.edges if e.relation == "combination" and e.b == edge.b)}
            yield "combination", "abstained" if members & mixed else "wrong", words
        elif edge.relation == "bridge":
            yield "bridge", "wrong" if (above[a] | {a}) & (above[b] | {b}) else "right", words
        elif edge.relation == "descends":
            yield "descends", "right" if down else "wrong", words
        elif edge.directed is None:
            yield "near", "abstained", words
        else:
            said = "wrong" if up or (same and not down) else "right" if down else "order"
            yield f"later, {edge.directed}", said, words
        if edge.parent == "not given":
            yield "not given", "wrong" if down else "right", words
    for family in forest.families:
        for note in family.notes:
            if note.startswith(("The clock decides the root", "Earliest of those given")):
                first = names[family.root_set[0]]
                others = [names[source] for source in family.models if names[source] not in (first, one[first])]
                earliest = not any(other in above[first] for other in others)
                whole = all(first in above[other] for other in others)
                right = whole if note.startswith("The clock") else earliest
                yield "root", "right" if right else "wrong", note
        if len(family.models) == 1 and not family.edges:
            name = names[family.models[0]]
            kin = [x for x in names.values() if x != name and (above[x] | {x}) & (above[name] | {name})]
            silent = any(family.models[0] in words for words in forest.not_compared)
            yield "alone", "right" if not kin else "abstained" if silent else "wrong", f"{name} alone"


OUTCOMES = ("right", "order", "abstained", "wrong")


def judge(folder: Path, only: str, *, wrong: bool) -> Counter[tuple[str, str, str, str]]:
    """Ask about all lists of one seed: (kind, pattern, statement, outcome) -> count; ``lists`` counts the lists."""
    truth = json.loads((folder / "truth.json").read_text())
    counts: Counter[tuple[str, str, str, str]] = Counter()
    store = Store(folder / "records" / Path(provlab.__file__).parents[2].name)
    for kind, pattern, some in lists(truth, int(folder.name)):
        if only and only not in (kind, pattern):
            continue
        names = {truth[name][0]: name for name in some}
        try:
            forest = provlab.tree(list(names), progress=False, store=store)
        except ProvlabError as error:
            counts[kind, pattern, f"refused: {error}"[:60], "abstained"] += 1
            continue
        counts[kind, pattern, "lists", ""] += 1
        for what, outcome, words in statements(forest, names, truth):
            counts[kind, pattern, what, outcome] += 1
            if wrong and outcome == "wrong":
                print(f"{folder.name} {kind} / {pattern} [{', '.join(some)}]: {words}", flush=True)
    return counts


def shown(title: str, counts: Counter[str]) -> str:
    """One line: outcomes, and wrong ones over all that is asserted with the exact 95% interval."""
    asserted = counts["right"] + counts["order"] + counts["wrong"]
    low, high = binomtest(counts["wrong"], max(asserted, 1)).proportion_ci()
    line = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
    return f"{title}: {line}; wrong {counts['wrong'] / max(asserted, 1):.2%} [{low:.2%}, {high:.2%}]"


def main() -> None:
    """Grow pools, or judge them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("grow", "judge"))
    parser.add_argument("pool", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", default="", help="one kind or pattern")
    parser.add_argument("--wrong", action="store_true", help="print wrong statements")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--trained", action="store_true", help="train on texts, some minutes a seed")
    arguments = parser.parse_args()
    if arguments.trained:
        globals()["tune"] = arms.train
    total: Counter[tuple[str, str, str, str]] = Counter()
    for seed in arguments.seeds:
        folder = arguments.pool / str(seed)
        if arguments.what == "grow":
            folder.mkdir(parents=True)
            grow(folder, seed)
        else:
            total += judge(folder, arguments.only, wrong=arguments.wrong)
    if arguments.what == "grow":
        return
    for at, title in ((2, "by statement"), (0, "by kind"), (1, "by pattern")):
        print(f"--- {title}")
        for name in dict.fromkeys(key[at] for key in total if key[3]):
            some: Counter[str] = Counter()
            for key, n in total.items():
                if key[at] == name:
                    some[key[3]] += n
            print(shown(name, some))
    both: Counter[str] = Counter()
    for (_, _, what, outcome), n in total.items():
        if what != "root":  # said of a family, not of two models
            both[outcome] += n
    print(shown(f"{both['']} lists", both))
    if arguments.csv:
        rows = sorted({key[:3] for key in total if key[3]})
        known = arguments.csv.exists()
        root = Path(provlab.__file__).parents[2]
        commit = subprocess.run(
            ["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout
        about = [commit.strip(), str(datetime.date.today()), " ".join(map(str, arguments.seeds))]
        with arguments.csv.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if not known:
                writer.writerow(["kind", "list", "statement", *OUTCOMES, "commit", "date", "seeds"])
            for row in rows:
                writer.writerow([*row, *(total[(*row, outcome)] for outcome in OUTCOMES), *about])


if __name__ == "__main__":
    sys.exit(main())
