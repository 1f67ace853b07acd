"""Known descent of models: the zoo's tree is the published one, and nothing else is assumed."""

import csv
import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from provlab import report, zoo
from provlab.report.lineage import Lineage, published_parents, short_name, short_names
from provlab.zoo.scheme import tree_order

# read here without provlab's own reader
TABLE = (Path(report.__file__).parent / "llama7b_tree.csv").read_text(encoding="utf-8")
TREE = {row["model_id"]: row["parent"] or None for row in csv.DictReader(TABLE.splitlines())}
SOURCES = [f"zoo:{name}" for name in zoo.collection("tree", zoo.families("default"))]


@pytest.fixture(scope="module")
def lineage():
    return Lineage.of(SOURCES)


def test_the_zoo_is_the_published_tree():
    recipes = zoo.collection("tree", zoo.families("default"))
    mirrors = {name: recipe.mirrors for name, recipe in recipes.items()}
    assert sorted(mirrors.values()) == sorted(TREE)
    assert {mirrors[name]: mirrors.get(parent) for name, parent in zoo.parents(recipes).items()} == TREE
    small, large = (zoo.parents(zoo.families(edition)) for edition in ("smoke", "default"))
    assert small.items() <= large.items()  # of a series of models the smoke edition has the first few
    assert set(large) - set(small) == {name for name in set(large) - set(small) if re.search(r"-\d\d$", name)}


def test_the_counts_of_the_paper(lineage):
    """Section 4.1: 21 models, 210 pairs, 69 of them dependent; by their cards: 7 roots."""
    truth = Counter(lineage.dependent(a, b) for a, b in combinations(SOURCES, 2))
    assert len(SOURCES) == 21
    assert len(set(lineage.families().values())) == 7
    assert truth == {True: 69, False: 141}
    public = Lineage.of(list(TREE))
    assert Counter(public.dependent(a, b) for a, b in combinations(TREE, 2)) == truth
    assert published_parents() == TREE


def test_siblings_are_dependent_and_neither_an_ancestor(lineage):
    parents = zoo.parents(zoo.families("default"))

    def ancestors(source):
        parent = parents[source.removeprefix("zoo:")]
        return [f"zoo:{parent}", *ancestors(f"zoo:{parent}")] if parent else []

    result = 0
    for a, b in combinations(SOURCES, 2):
        line = a in ancestors(b) or b in ancestors(a)
        assert lineage.siblings(a, b) == lineage.siblings(b, a)
        assert lineage.siblings(a, b) == (bool(lineage.dependent(a, b)) and not line)
        result += lineage.siblings(a, b)
    assert result == 69 - sum(len(ancestors(source)) for source in SOURCES) > 0


def test_ancestors_and_roots(lineage):
    chain = ["EleutherAI/llemma_7b_muinstruct_camelmath", "EleutherAI/llemma_7b", "codellama/CodeLlama-7b-hf"]
    public = Lineage.of(chain[:1])  # ancestors outside the study count
    assert public.ancestors(chain[0]) == [*chain[1:], "meta-llama/Llama-2-7b-hf"]
    assert public.root(chain[0]) == "meta-llama/Llama-2-7b-hf"
    assert public.families() == {chain[0]: "meta-llama/Llama-2-7b-hf"}


def test_of_other_models_nothing_is_assumed():
    sources = ["/some/folder", "org/unknown", "zoo:no_such_model", "zoo:oak@no_such_edition", "zoo:", "zoo:oak"]
    result = Lineage.of(sources)
    assert all(result.dependent(a, b) is None for a, b in combinations(sources, 2))
    assert not any(result.siblings(a, b) for a, b in combinations(sources, 2))
    assert set(result.families().values()) == {"unknown", "zoo:oak"}
    assert result.root("org/unknown") is None


def test_editions_and_revisions():
    smoke = Lineage.of(["zoo:oak@smoke", "zoo:oak-explain@smoke", "zoo:elm@smoke"])
    assert smoke.dependent("zoo:oak@smoke", "zoo:oak-explain@smoke") is True
    assert smoke.dependent("zoo:elm@smoke", "zoo:oak-explain@smoke") is False
    revised = Lineage.of([f"{'EleutherAI/llemma_7b'}@main", "meta-llama/Llama-2-7b-hf"])
    assert revised.dependent(f"{'EleutherAI/llemma_7b'}@main", "meta-llama/Llama-2-7b-hf") is True


def test_a_base_pinned_to_a_commit_is_the_root_of_its_children():
    """The table of parents names no revisions; two revisions of one base are no strangers either."""
    base, child, other = "meta-llama/Llama-2-7b-hf@01c7f73", "lmsys/vicuna-7b-v1.5", "meta-llama/Llama-2-7b-hf@other"
    lineage = Lineage.of([base, child, other])
    assert lineage.dependent(base, child) is True
    assert lineage.root(child) == base
    assert lineage.dependent(base, other) is True
    assert lineage.dependent(other, child) is True


def test_the_edition_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("PROVLAB_ZOO_EDITION", "smoke")
    assert Lineage.of(["zoo:oak", "zoo:elm"]).dependent("zoo:oak", "zoo:elm") is False


def test_tree_order_puts_every_model_behind_its_parent():
    order = tree_order(TREE)
    assert sorted(order) == sorted(TREE)
    root = Lineage.of(order).root
    assert all(order.index(parent) < order.index(child) for child, parent in TREE.items() if parent)
    runs = [root(a) for a, b in zip(order, [*order[1:], None], strict=True) if b is None or root(a) != root(b)]
    assert len(runs) == 7  # each tree stands together


def test_a_disguised_model_descends_from_the_one_it_hides():
    lineage = Lineage.of(["zoo:oak-chat", "disguised:T3:zoo:oak", "disguised:zoo:elm", "disguised:org/unknown"])
    assert lineage.dependent("zoo:oak-chat", "disguised:T3:zoo:oak") is True
    assert lineage.dependent("zoo:oak-chat", "disguised:zoo:elm") is False
    assert lineage.labels["disguised:T3:zoo:oak"] == "T3"


def test_short_names_say_which_model_and_never_two_alike():
    sources = ["zoo:oak@smoke", "meta-llama/Llama-2-7b-hf@abc", "/folder/d/"]
    assert [short_name(source) for source in sources] == ["oak", "Llama-2-7b-hf", "d"]
    assert list(short_names(sources).values()) == ["oak", "Llama-2-7b-hf", "d"]
    made = ["disguised:T1:/folder/d", "disguised:org/name@abc", "./a:b/c"]
    assert [short_name(source) for source in made] == ["disguised:T1:d", "disguised:name", "c"]
    assert short_names(["/folder/d", "disguised:/folder/d"]) == {"/folder/d": "d", "disguised:/folder/d": "disguised:d"}
    alike = ["/one/model", "/two/model"]
    assert short_names(alike) == {source: source for source in alike}
