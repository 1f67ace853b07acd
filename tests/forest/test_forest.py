"""Families, rows, roots and estimates against definitions and planted truths; the command and its JSON."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import grown
import numpy as np
import pytest
import tiny_models
import torch
from safetensors.torch import load_file

import provlab
from provlab import policy
from provlab.engine.store import Store
from provlab.errors import InputError, NotComparableError
from provlab.forest import estimate, families, grow, measure, merges, root, rows
from provlab.measured import quoted

D = 32
ABOUT = ("squares", "kurtosis", "gains")


# Families ------------------------------------------------------------------------------------------------------------


def planted(chance):
    """4,950 pairs of 100 models: families of 13 and 8, 79 models alone, and one pair across the families by chance."""
    rng = np.random.default_rng(0)
    models = [f"m{i}" for i in range(100)]
    family = [0] * 13 + [1] * 8 + list(range(2, 81))
    log10_p = {
        (models[i], models[j]): -400.0 if family[i] == family[j] else float(np.log10(rng.random()))
        for i, j in itertools.combinations(range(100), 2)
    }
    log10_p["m3", "m17"] = chance
    return models, log10_p


@pytest.mark.parametrize("chance", [-6.2, -9.0, -13.0, -90.0])
def test_one_chance_pair_in_4950_does_not_glue_two_families(chance):
    """A single link does from 10^-7.7 on, by Holm at 1% from 10^-5.7 on; the mean of cross pairs alone from 10^-13."""
    models, log10_p = planted(chance)
    result = families.join(models, log10_p, 0.01)
    assert [len(group) for group in result.groups[:2]] == [13, 8]
    assert not result.bridges
    assert [(yes, len(no)) for _, _, yes, no in result.partly] == [((("m3", "m17"),), 103)]
    assert chance < np.log10(0.01 / 4950)
    assert all(value >= families.log10_bar(100, 0.01) for *_, value in result.joins)


UNRELATED = -0.5
TWO = [("oak", "oak-chat"), ("elm", "elm-chat")]


def relations(related, models):
    """p-values of all pairs: of related ones at the floor, of the others as chance has it."""
    called = {frozenset(pair) for pair in related}
    return {pair: -300.0 if frozenset(pair) in called else UNRELATED for pair in itertools.combinations(models, 2)}


def related_to(bridge, *groups):
    return [(bridge, model) for group in groups for model in group]


BRIDGES = {
    "the mean of two families": (["half"], []),
    "three means": (["half", "third", "slerp"], [("half", "third"), ("half", "slerp"), ("third", "slerp")]),
    "means that are not alike": (["half", "third"], []),
}


@pytest.mark.parametrize(("between", "alike"), BRIDGES.values(), ids=BRIDGES)
def test_a_model_between_two_families_joins_neither(between, alike):
    """Independent models would be in one family, by the mean of all cross pairs as by single links."""
    models = [*TWO[0], *TWO[1], *between]
    related = [*TWO, *alike, *(pair for name in between for pair in related_to(name, *TWO))]
    for order in (models, models[::-1]):
        result = families.join(order, relations(related, order), 0.01)
        assert {frozenset(group) for group in result.groups} == {frozenset(g) for g in (*TWO, *([b] for b in between))}
        both = {frozenset(group) for group in TWO}
        assert list(result.bridges) == [name for name in order if name in between]
        assert all({*map(frozenset, groups)} == both for groups in result.bridges.values())
        assert not result.partly


@pytest.mark.parametrize("share", [0.5, 0.3])
def test_the_mean_of_two_models_stands_between_their_families(models, new_model, save_model, tmp_path, share):
    """Weights averaged by their shares, on two models of one family and a stranger; the tree was one family."""
    mean = new_model(0)
    sides = [load_file(f"{models[name]}/model.safetensors") for name in ("base", "stranger")]
    mean.load_state_dict({k: (1 - share) * v + share * sides[1][k] for k, v in sides[0].items()}, strict=False)
    between = str(save_model(mean, tmp_path / "mean"))
    forest = provlab.tree([models["base"], models["tuned"], between, models["stranger"]], progress=False)
    families_found = {frozenset(family.models) for family in forest.families}
    assert families_found == {
        frozenset({models["base"], models["tuned"]}),
        frozenset({between}),
        frozenset({models["stranger"]}),
    }
    assert "1 family of related models, 1 alone, 1 between families" in forest.title()
    assert "Bridge: mean stands between the family of base and the family of stranger" in " ".join(str(forest).split())
    assert forest.to_json()["bridges"] == [between]
    assert {(edge.b, edge.relation) for edge in forest.edges if edge.b == between} == {(between, "bridge")}


def test_two_bases_and_their_mean_are_no_family():
    models = ["oak", "mean", "elm"]
    result = families.join(models, relations(related_to("mean", ["oak"], ["elm"]), models), 0.01)
    assert result.groups == (("oak",), ("mean",), ("elm",))
    assert result.bridges == {"mean": (("oak",), ("elm",))}


def test_a_chain_of_bridges():
    """oak - half - elm - other half - fir: bridges share elm, and are related by that."""
    third = ("fir", "fir-chat")
    models = [*TWO[0], "half", *TWO[1], "other", *third]
    related = [*TWO, third, ("half", "other"), *related_to("half", *TWO), *related_to("other", TWO[1], third)]
    result = families.join(models, relations(related, models), 0.01)
    assert {*result.groups} == {*TWO, third, ("half",), ("other",)}
    assert result.bridges == {"half": tuple(TWO), "other": (TWO[1], third)}


def test_bridges_that_are_most_of_the_models_join_nobody_who_is_not_related():
    """Whatever is called a bridge then: no family holds a pair that was not called related."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        models = [f"m{i}" for i in range(12)]
        pairs = list(itertools.combinations(models, 2))
        log10_p = {pair: -300.0 if rng.random() < 0.6 else UNRELATED for pair in pairs}
        result = families.join(models, log10_p, 0.01)
        assert sorted(itertools.chain(*result.groups)) == sorted(models)
        for group in result.groups:
            assert all(log10_p[pair] == -300.0 for pair in itertools.combinations(sorted(group, key=models.index), 2))
        assert all(len(groups) > 1 for groups in result.bridges.values())


def test_a_member_that_is_not_related_to_one_of_many_is_said_to_be_related_in_part():
    models = [f"m{i}" for i in range(8)]
    log10_p = {pair: -300.0 if "m7" not in pair else -90.0 for pair in itertools.combinations(models, 2)}
    result = families.join(models, log10_p | {("m0", "m7"): UNRELATED}, 0.01)
    assert not result.bridges
    assert sorted(map(len, result.groups)) == [1, 7]
    ((_, _, related, others),) = result.partly
    assert (len(related), others) == (6, (("m0", "m7"),))


def test_families_keep_their_error_though_all_pairs_share_models():
    """20 independent models, p-values of pairs from one number a model: as dependent as pairs can be."""
    rng, level, wrong = np.random.default_rng(1), 0.2, 0
    for _ in range(400):
        own = rng.random(20)
        log10_p = {(i, j): np.log10((own[i] + own[j]) % 1) for i, j in itertools.combinations(range(20), 2)}
        result = families.join(list(range(20)), log10_p, level)
        wrong += len(result.groups) < 20
    assert wrong / 400 <= level


def test_pairs_that_were_not_tested_join_nobody():
    assert families.join("abc", {("a", "b"): -90.0}, 0.01).groups == (("a", "b"), ("c",))


# Rows ----------------------------------------------------------------------------------------------------------------


def tables(dtype=np.float32, decay=0.98):
    """A chain a, b, c and a fork d from b: each training reaches other rows of 60, the first 30 none."""
    rng = np.random.default_rng(2)
    made = {"a": rng.normal(size=(60, D)).astype(np.float32)}
    for parent, child, touched in (("a", "b", range(30, 40)), ("b", "c", range(40, 50)), ("b", "d", range(50, 60))):
        table = (made[parent] * np.float32(decay)).astype(np.float32)
        table[list(touched)] += rng.normal(size=(10, D)).astype(np.float32)
        made[child] = table
    return {name: dtype(table) for name, table in made.items()}


def bfloat16(table):
    return torch.tensor(table).to(torch.bfloat16).float().numpy()


def rows_of(made, bound=1e-5):
    names, n = list(made), len(made)
    kept = np.zeros((n, n, 8), dtype=np.uint8)
    kept[range(n), range(n)] = 255
    factor, readable = np.zeros((n, n)), np.eye(n, dtype=bool)
    for i, j in itertools.permutations(range(n), 2):
        ids, factor[i, j], readable[i, j] = measure.kept_rows(*(made[names[k]].astype(float) for k in (i, j)), bound)
        kept[i, j] = np.packbits(np.isin(np.arange(64), ids))
    return rows.Rows(kept, readable, factor, np.full((n, n), bound), 60)


def test_rows_tell_neighbours_and_the_clock_tells_the_later_model():
    tree = rows_of(tables())
    a, b, c, d = range(4)
    assert tree.count()[a].tolist() == [64, 50, 40, 40]
    assert tree.excluded(a, b).tolist() == [False, False, True, True]
    assert tree.excluded(b, c).tolist() == [True, False, False, True]
    assert tree.excluded(a, c).tolist() == [False, False, False, True]  # b lies between, d does not
    assert tree.excluded(c, d).tolist() == [True, False, False, False]
    assert [tree.later(*pair) for pair in [(a, b), (b, a), (b, c), (c, d)]] == [1, -1, 1, 0]
    assert tree.factor[a, b] + tree.factor[b, c] == pytest.approx(tree.factor[a, c], abs=1e-6)
    assert tree.factor[a, b] == pytest.approx(np.log(0.98), abs=1e-6)


def test_a_model_that_shares_no_rows_with_two_others_is_never_excluded():
    """Two copies that were rounded alike share rows that their common parent lacks."""
    made = tables()
    made = {"a": made["a"], "b": made["b"], "p": np.random.default_rng(6).normal(size=(60, D)).astype(np.float32)}
    assert not rows_of(made).excluded(0, 1)[2]
    made["p"][:2] = made["a"][:2]
    assert rows_of(made).excluded(0, 1)[2]


def shaken(change):
    """The tables, the one numbered i changed by `change(i, table, noise of its shape)`."""
    noise = np.random.default_rng(5).normal(size=(4, 60, D)).astype(np.float32)
    return {name: change(i, table, noise[i]) for i, (name, table) in enumerate(tables().items())}


BY_ROW = np.linspace(0.5, 1.5, 60)[:, None]
SILENT = {
    "no decay": (tables(decay=1.0), 1e-5, "kept rows have one length"),
    "bfloat16": (tables(bfloat16, 0.999), 2.0**-7, "kept rows have one length"),
    "every row trained": (shaken(lambda i, table, noise: table + noise), 1e-5, "0 rows"),
    "frozen": (dict.fromkeys("abcd", tables()["a"]), 1e-5, "the embedding was frozen"),
    "rescaled row by row": (shaken(lambda i, table, noise: table * BY_ROW**i), 1e-5, "0 rows"),
    "trained a little": (
        shaken(lambda i, table, noise: bfloat16(table + 0.005 * BY_ROW * noise)), 2.0**-7, "rounding hides"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "bound", "why"), SILENT.values(), ids=SILENT)
def test_the_clock_is_silent_and_says_why(made, bound, why):
    tree = rows_of(made, bound)
    assert tree.later(0, 1) == 0
    assert why in rows.silent_because(tree, 0, 1, tied=False)
    assert "the head is the embedding" in rows.silent_because(tree, 0, 1, tied=True) or not tree.readable[0, 1]


# Root ----------------------------------------------------------------------------------------------------------------


def test_the_root_is_as_likely_as_it_has_histories():
    """All orders in which a tree of seven can have grown, counted one by one."""
    edges = [(0, 1), (0, 2), (2, 3), (2, 4), (4, 5), (0, 6)]
    near = {u: {v for edge in edges for v in edge if u in edge} - {u} for u in range(7)}
    counts = np.zeros(7)
    for order in itertools.permutations(range(7)):
        counts[order[0]] += all(near[node] & set(order[:i]) for i, node in enumerate(order) if i)
    assert root.posterior(7, edges) == pytest.approx(counts / counts.sum())
    assert root.side(7, edges, (0, 2)).tolist() == [False, False, True, True, True, True, False]


def grown_tree(n, rng, preferential):
    """Edges of a tree in which each model chooses its parent evenly, or by its number of children."""
    edges, ends = [], [0]
    for child in range(1, n):
        parent = int(rng.choice(ends)) if preferential and edges else int(rng.integers(child))
        edges.append((parent, child))
        ends += [parent, child]
    return edges


@pytest.mark.parametrize(("law", "least"), [("uniform", 0.92), ("preferential", 0.92), ("chain", -1.0)])
def test_root_sets_cover_under_their_models_and_not_on_chains(law, least):
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        edges = [(i, i + 1) for i in range(11)] if law == "chain" else grown_tree(12, rng, law == "preferential")
        covered += 0 in root.root_set(12, edges, np.ones(12, dtype=bool))
        assert root.is_chain(edges) or law != "chain"
    assert covered / 200 >= least
    assert law != "chain" or covered == 0


# Estimates -----------------------------------------------------------------------------------------------------------


def test_a_tree_takes_rows_before_distances_and_one_parent_for_each():
    zeros, silent = np.zeros((3, 3), dtype=int), lambda i, j: 0
    far = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]], dtype=float)
    assert estimate.spanning(3, zeros, zeros, far, [], silent) == [(0, 1), (0, 2)]
    changed = np.array([[0, 9, 2], [9, 0, 3], [2, 3, 0]])
    assert estimate.spanning(3, zeros, changed, far, [], silent) == [(0, 2), (1, 2)]
    ages = [0, 0, 1]  # 2 is later than both, and has one parent
    later = lambda i, j: int(np.sign(ages[j] - ages[i]))  # noqa: E731
    assert estimate.spanning(3, zeros, changed, far, [], later) == [(0, 2), (0, 1)]
    assert estimate.spanning(3, zeros, changed, far, [(1, 2)], later)[0] == (1, 2)  # a merge's edge comes first
    only = [[0, 9, 2], [9, 0, 3], [2, 3, 0]]  # 2 as the second parent of 1 is taken where no other edge is left
    assert len(estimate.spanning(3, zeros, np.array(only), far, [(0, 1)], lambda i, j: 1)) == 2


TINY = {"width": 24, "n_blocks": 2, "has": lambda role: role == "gate"}


def three(changed, distance, squares=(1.0, 1.0, 1.0), **shape):
    """A family of three models whose pairs ab, ac and bc are so far apart."""

    def square(values):
        ab, ac, bc = values
        return np.array([[0, ab, ac], [ab, 0, bc], [ac, bc, 0]])

    kept = np.zeros((3, 3, 8), dtype=np.uint8)
    for i, j in itertools.permutations(range(3), 2):
        kept[i, j] = np.packbits(np.arange(64) >= square(changed)[i, j])
    known = rows.Rows(kept, np.ones((3, 3), dtype=bool), np.zeros((3, 3)), np.ones((3, 3)), 64)
    opened = [
        Mock(
            checkpoint=Mock(dtype=lambda name: "float32"),
            anatomy=Mock(tied=False, architecture="LlamaForCausalLM", **TINY | shape),
        )
    ] * 3
    ones = np.ones((1, 3))
    distances = merges.Distances([(None, "all")], square(distance).astype(float)[None] ** 2, 100 * ones, 1e-9 * ones)
    about = [dict.fromkeys(ABOUT, 1.0) | {"squares": square} for square in squares]
    return grow.Tree(list("abc"), opened, known, distances, about).grow()


@pytest.mark.parametrize(
    ("changed", "distance", "odd"),
    [
        ((9, 3, 9), (2, 4, 3), "b"),  # rows come before the distance
        ((9, 9, 3), (2, 4, 3), "a"),
        ((9, 9, 9), (3, 4, 5), "c"),  # rows tie, as where all were trained
        ((3, 3, 9), (4, 4, 5), None),  # the middle of a chain, say
    ],
)
def test_a_family_of_three_names_its_odd_one_with_its_count(changed, distance, odd):
    notes = [note for note in three(changed, distance).notes if note.startswith("Odd one out")]
    words = f"Odd one out of three, an estimate: <{odd}> ({quoted('triples').says()}). "
    assert [note[: len(words)] for note in notes] == [words] * (odd is not None)


@pytest.mark.parametrize(
    ("shape", "directed"),
    [
        ({}, ["estimated", "estimated"]),
        ({"width": 4096}, [None, None]),
        ({"n_blocks": 32}, [None, None]),
        ({"has": lambda role: False}, [None, None]),  # a BERT
    ],
)
def test_counts_of_tiny_models_are_quoted_of_no_others(shape, directed):
    """The three public BERTs of one package had a count of tiny Llamas beside their odd one."""
    family = three((9, 3, 9), (2, 4, 3), squares=(1.0, 1.5, 2.3), **shape)
    assert [edge.directed for edge in family.edges] == directed
    text = " ".join([*family.notes, *(edge.evidence for edge in family.edges)])
    assert ("right on" in text) == ("no population like this one" not in text) == (not shape)


# End to end ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def family(tmp_path_factory, new_model, save_model):
    """Folders: oak, its children b and d, c of b, the mean of c and d, a model of another family, a wider one."""
    top = tmp_path_factory.mktemp("family")
    made = {"a": new_model(1).state_dict()}
    for i, (parent, child) in enumerate((("a", "b"), ("b", "c"), ("a", "d"))):
        made[child] = grown.trained(made[parent], i, touched=grown.draw(60, 300, i))
    made["mean"] = {name: 0.25 * made["c"][name] + 0.75 * made["d"][name] for name in made["a"]}
    made["x"] = new_model(9).state_dict()
    folders = {}
    for name, tensors in made.items():
        model = new_model(0)
        model.load_state_dict(tensors)
        folders[name] = str(save_model(model, top / name))
    folders["wide"] = str(save_model(new_model(2, hidden_size=32), top / "wide"))
    return folders


def inner(folders, *names):
    return [folders[name] for name in names]


def test_a_forest_from_files(family, tmp_path):
    store = Store(tmp_path)
    result = provlab.tree(inner(family, "d", "c", "x", "a", "mean", "b"), store=store, progress=False)
    short = {folder: name for name, folder in family.items()}
    assert [sorted(short[m] for m in f.models) for f in result.families] == [["a", "b", "c", "d", "mean"], ["x"]]
    edges = {(short[e.a], short[e.b]): e for e in result.edges}
    assert set(edges) == {("a", "b"), ("b", "c"), ("a", "d"), ("c", "mean"), ("d", "mean")}
    assert {e.directed for e in result.edges} == {"rows"}
    assert edges["a", "b"].joined == "rows"
    assert edges["d", "mean"].numbers["share"] == pytest.approx(0.75, abs=1e-5)
    assert [short[m] for m in result.families[0].root_set] == ["a"]
    content = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert content["schema"] == "provlab.tree/3"
    edges = [e for f in content["families"] for e in f["edges"]]
    assert {(e["relation"], e["parent"]) for e in edges} == {("later", "may not be given"), ("merge", "shown")}
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    again = provlab.tree(inner(family, "d", "c", "x", "a", "mean", "b"), store=store, progress=False)
    assert str(again) == str(result)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == before
    assert "5 edges" in result.drawn().caption
    assert "<figure" in result._repr_html_()


@pytest.fixture(scope="module")
def derived(tmp_path_factory, new_model, save_model):
    """Folders: oak, its tunes chat and code, chat's own, what was made of them, and code with half of its units."""
    top = tmp_path_factory.mktemp("derived")
    made = {"oak": new_model(1).state_dict()}
    for i, (parent, child) in enumerate((("oak", "chat"), ("oak", "code"), ("chat", "chat-2"))):
        made[child] = grown.trained(made[parent], i, touched=grown.draw(60, 300, i), decay=0.99 - 0.001 * i)
    made["sum"] = {k: made["code"][k] + (made["chat"][k] - made["oak"][k]) for k in made["oak"]}
    made["back"] = {k: made["code"][k] - (made["chat"][k] - made["oak"][k]) for k in made["oak"]}
    made["copy a>b"], made["short"] = made["code"], {k: v.bfloat16().float() for k, v in made["code"].items()}
    units = made["code"]["model.layers.0.mlp.up_proj.weight"].shape[0] // 2
    axis = {"up_proj": 0, "gate_proj": 0, "down_proj": 1}
    made["half"] = {
        k: v.narrow(next((axis[p] for p in axis if p in k), 0), 0, units) if "mlp" in k else v
        for k, v in made["code"].items()
    }
    order = torch.randperm(2 * units, generator=torch.Generator().manual_seed(0))
    made["shuffled"] = {
        k: v.index_select(next((axis[p] for p in axis if p in k), 0), order) if "mlp" in k else v
        for k, v in made["code"].items()
    }
    folders = {}
    for name, tensors in made.items():
        model = new_model(0, **({"intermediate_size": units} if name == "half" else {}))
        model.load_state_dict(tensors)
        folders[name] = str(save_model(model, top / name))
    return folders


def said(folders, names):
    """What the tree of these models says, by their names: relation, direction and ends of each edge."""
    result = provlab.tree([folders[name] for name in names], progress=False)
    short = {folder: name for name, folder in folders.items()}
    ends = [(short[e.a], short[e.b]) for e in result.edges]
    return {
        (e.relation, *(pair if e.directed else sorted(pair))) for e, pair in zip(result.edges, ends, strict=True)
    }, result


@pytest.mark.parametrize("made", ["sum", "back"])
def test_a_chat_vector_is_named_in_any_order(derived, made):
    """Named was the model that was given first: oak was a merge of its own tunes."""
    names = ["oak", "chat", "code", made]
    first, _ = said(derived, names)
    assert {("merge", name, made) for name in ("oak", "chat", "code")} <= first
    for order in (names[::-1], [made, "oak", "chat", "code"], ["chat", made, "code", "oak"]):
        assert said(derived, order)[0] == first


def test_a_change_taken_back_is_not_the_ancestor_of_what_it_was_taken_from(derived):
    """Its rows are longer than those of code; the model that was subtracted is not given."""
    edges, result = said(derived, ["back", "code", "chat-2"])
    assert ("later", "back", "code") not in edges
    assert "earlier, unless it is made of others" in result.edges[0].evidence + result.edges[1].evidence


def test_a_child_of_a_merge_is_on_no_line_of_its_own(new_model, save_model, tmp_path):
    """By its angles chat lies between the child and code, which was subtracted: a combination was seen."""
    made = {"root": new_model(1).state_dict()}
    steps = [("root", "oak", 0.99), ("root", "uncle", 0.99), ("oak", "chat", 0.99), ("oak", "code", 0.98)]
    for i, (parent, child, decay) in enumerate(steps):
        made[child] = grown.trained(made[parent], i, touched=grown.draw(60, 300, i), decay=decay)
    made["back"] = {k: made["oak"][k] + made["chat"][k] - made["code"][k] for k in made["oak"]}
    made["child"] = grown.trained(made["back"], 9, touched=grown.draw(60, 300, 9), decay=0.995)
    folders = {}
    for name, tensors in made.items():
        model = new_model(0)
        model.load_state_dict(tensors)
        folders[name] = str(save_model(model, tmp_path / name))
    edges, _ = said(folders, ["uncle", "oak", "chat", "code", "back", "child"])
    assert {parent for relation, parent, child in edges if (relation, child) == ("merge", "back")} == {
        "oak",
        "chat",
        "code",
    }
    assert ("descends", "back", "child") in edges
    assert "combination" not in {relation for relation, *_ in edges}


@pytest.mark.parametrize(
    ("copy", "words"),
    [
        ("copy a>b", "identical"),
        ("half", "equal where shapes agree"),
        ("short", "equal up to the rounding of one file"),
    ],
)
def test_a_copy_is_one_node_with_its_original(derived, copy, words):
    """With one, or with half of its units, the original was a merge of it and another model, with a share of 1.0000."""
    edges, result = said(derived, ["oak", "chat", "code", copy])
    assert {relation for relation, *_ in edges} == {words.split()[0], "later"}
    (edge,) = [e for e in result.edges if e.words == words]
    assert {edge.a, edge.b} == {derived["code"], derived[copy]}
    assert "that were read" in edge.evidence
    assert edge.parent != "shown"  # it has no direction: a report's pedigree names no ancestor by it
    for text in (str(result), result.to_mermaid(), result.to_dot(), result.drawn().alt):
        assert Path(derived[copy]).name in text
    for order in (["code", copy], [copy, "code"], [copy, "code", "chat", "oak"], [copy, "oak", "chat", "code"]):
        assert f"({words})" in str(said(derived, order)[1].card().body)  # the short form


def test_a_model_with_moved_units_is_not_said_to_be_alone(derived, text):
    """Its rows agree with code's: phi_match is asked, and where that cannot tell, so it says."""
    result = provlab.tree([derived[name] for name in ("oak", "chat", "shuffled")], text=text, progress=False)
    alone = dict(result._single({source: source for source in result.sources}))["alone"]
    assert derived["shuffled"] not in alone
    assert "their embeddings agree" in " ".join(result.not_compared) or len(result.families) == 1


@pytest.mark.parametrize("noise", [0.0, 0.01, 99.0])
def test_moved_blocks_are_found_where_embeddings_agree_and_else_named_as_a_blind_spot(
    new_model, save_model, text, tmp_path, noise
):
    """An empty block in front, and the last one gone, so that nothing is in its place: the embedding leads to it.

    With noise in it no row is kept, and the two were said to be alone.
    """
    base, moved = (save_model(new_model(1, intermediate_size=256), tmp_path / name) for name in ("base", "moved"))

    def move(tensors):
        own, generator = dict(tensors), torch.Generator().manual_seed(0)
        for name, values in own.items():
            if name.startswith("model.layers."):
                number = int(name.split(".")[2])
                drawn = values.std() * torch.randn(values.shape, generator=generator) if values.ndim == 2 else values
                empty = torch.zeros_like(values) if name.endswith(("down_proj.weight", "o_proj.weight")) else drawn
                tensors[name] = (
                    own[name.replace(f"layers.{number}", f"layers.{number - 1}")].clone() if number else empty
                )
            elif "embed" in name:
                tensors[name] = values + noise * values.std() * torch.randn(values.shape, generator=generator)

    tiny_models.rewrite(moved, move)
    result = provlab.tree([str(base), str(moved)], text=text, progress=False)
    alone = dict(result._single({source: source for source in result.sources}))["alone"]
    if noise < 1:
        assert len(result.families) == 1
        assert result.statistics == ("phi_u", "phi_e", "phi_match_all")
        assert not alone
    else:
        assert result.statistics == ("phi_u", "phi_e")
        assert alone.endswith(
            "(by phi_u and phi_e; what hides from that: a permuted residual stream, a rotated residual stream)"
        )


def test_an_outgroup_directs_all_edges_but_its_own(family, new_model, save_model, tmp_path):
    """Without decay no clock speaks."""
    made = {"a": new_model(1).state_dict()}
    for i, (parent, child) in enumerate((("a", "b"), ("b", "c"), ("b", "d"))):
        made[child] = grown.trained(made[parent], i, touched=grown.draw(60, 300, i), decay=1.0)
    folders = []
    for name, tensors in made.items():
        model = new_model(0)
        model.load_state_dict(tensors)
        folders.append(str(save_model(model, tmp_path / name)))
    result = provlab.tree(folders, outgroup=folders[0], progress=False)
    ways = {(e.a[-1], e.b[-1]): e.directed for e in result.edges}
    assert ways["b", "c"] == ways["b", "d"] == "root"
    assert ways.get(("a", "b"), ways.get(("b", "a"))) != "root"
    assert all("one length" in e.evidence for e in result.edges)


def test_pairs_without_a_p_value_since_both_are_sorted_are_tested_by_phi_match(family, text, monkeypatch):
    calls, ask = [], policy.ask

    def sorted_pairs(opened, names, *arguments, **settings):
        calls.append((list(names), settings["pairs"]))
        records, *more = ask(opened, names, *arguments, **settings)
        if calls[-1][0] == ["phi_u"]:
            records = [replace(record, outcome=record.outcome.without_p("both are sorted")) for record in records]
        return records, *more

    monkeypatch.setattr(policy, "ask", sorted_pairs)
    result = provlab.tree(inner(family, "a", "b"), text=text, progress=False, n_sequences=4, sequence_length=16)
    assert calls[1] == (["phi_match"], [tuple(inner(family, "a", "b"))])
    assert len(result.families) == 1
    assert "phi_match where both are sorted" in str(result)
    assert "exact: family-wise" not in str(result)  # phi_match rests on no theorem


def test_the_command(run, family, tmp_path, monkeypatch):
    monkeypatch.setenv("PROVLAB_RESULTS", str(tmp_path))
    models = inner(family, "a", "b", "x")
    status, out, err = run("tree", *models)
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "3 models: 1 family of related models, 1 alone."
    assert "└── b  (later; parent may not be given)" in out
    monkeypatch.setenv("COLUMNS", "300")  # a narrower table folds its cells
    whole = " ".join(run("tree", *models, "-v")[1].split())
    assert "1 alone (phi_u, phi_e where one seems alone, exact: family-wise error" in whole
    assert "240 of 300 rows kept; clock: 1.00%" in whole
    assert "Two models alone never show descent" in whole
    label = '"later; parent may not be given (families, direction rows)"'
    assert f"-->|{label}|" in run("tree", *models, "--mermaid")[1]
    assert f"arrowhead=normal, label={label}" in run("tree", *models, "--dot")[1]
    assert run("tree", *models, "--picture", tmp_path / "f.png", "--json", "-")[1].startswith("{")
    assert (tmp_path / "f.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("names", "more", "message"),
    [
        (["a"], [], "give at least two models, not 1"),
        (["a", "a"], [], "models must be distinct, but given more than once"),
        (["a", "wide"], [], "phi_u needs models of equal width"),
        (["a", "b"], ["--outgroup", "c"], "the outgroup c is not among the models"),
    ],
)
def test_bad_input_is_refused_in_one_line(run, family, tmp_path, names, more, message):
    status, out, err = run("tree", *inner(family, *names), *more, "--results", tmp_path)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_models_of_another_shape_are_listed_where_others_can_be_compared(family):
    result = provlab.tree(inner(family, "a", "b", "wide"), progress=False)
    assert len(result.not_compared) == 2
    assert "Not compared" in str(result)
    with pytest.raises((InputError, NotComparableError)):
        provlab.tree(inner(family, "a", "wide"), progress=False)
    assert grow.READINGS == ("kept_rows", "weight_distance")
