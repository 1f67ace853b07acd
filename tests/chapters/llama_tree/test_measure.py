"""A long training is found where it is known of, and every model of the zoo's tree stands for a published one."""

from types import SimpleNamespace

import pandas as pd
import pytest

from provlab import zoo
from provlab.chapters.llama_tree import measure
from provlab.chapters.llama_tree.measure import LONG_TRAINED
from provlab.engine.lineage import Lineage, published_parents

TREE = published_parents()
SOURCES = [f"zoo:{name}" for name in zoo.collection("tree", zoo.families("default"))]


@pytest.fixture(scope="module")
def lineage():
    return Lineage.of(SOURCES)


def test_the_long_chain(lineage):
    chain = measure.long_training(lineage)
    recipes = zoo.families("default")
    mirrors = {
        key: recipes[getattr(chain, key).removeprefix("zoo:")].mirrors for key in ("base", "child", "grandchild")
    }
    assert mirrors == {
        "base": "meta-llama/Llama-2-7b-hf",
        "child": LONG_TRAINED,
        "grandchild": "EleutherAI/llemma_7b_muinstruct_camelmath",
    }
    name, base = (getattr(chain, key).removeprefix("zoo:") for key in ("child", "base"))
    shape = recipes[base].shape

    def tokens(recipe):
        return recipe.steps * recipe.batch * shape.max_position_embeddings

    assert chain.share == pytest.approx(tokens(recipes[name]) / tokens(recipes[base]))
    assert chain.share >= 0.375


def test_the_long_chain_of_public_models_and_of_too_few(monkeypatch):
    chain = measure.long_training(Lineage.of(list(TREE)))
    assert (chain.base, chain.child, chain.share) == ("meta-llama/Llama-2-7b-hf", LONG_TRAINED, None)
    assert chain.grandchild == "EleutherAI/llemma_7b_muinstruct_camelmath"
    assert measure.long_training(Lineage.of(SOURCES[:2])) is None
    # without the model in Llemma's place the next chain that is long enough
    without = Lineage.of([source for source in SOURCES if source != measure.long_training(Lineage.of(SOURCES)).child])
    assert measure.long_training(without) == measure.LongTraining("zoo:oak", "zoo:oak-code", "zoo:oak-code-python", 0.5)
    assert measure.long_training(Lineage.of(["/a", "/b"])) is None
    monkeypatch.setattr(measure, "LONG", 50.0)
    assert measure.long_training(Lineage.of(SOURCES)) is None


def test_mirrors(lineage):
    assert sorted(measure.mirrors(lineage).values()) == sorted(TREE)
    others = Lineage.of(["/a", f"{LONG_TRAINED}@main", "org/unknown"])
    assert measure.mirrors(others) == {f"{LONG_TRAINED}@main": LONG_TRAINED}


def test_permtest_of_chosen_pairs():
    def record(a, b, log10_p, *blocks, statistic="phi_l2"):
        own = [SimpleNamespace(block=i, log10_p=p) for i, p in enumerate(blocks)]
        return SimpleNamespace(statistic=statistic, a=a, b=b, outcome=SimpleNamespace(blocks=own, log10_p=log10_p))

    lost = SimpleNamespace(statistic="phi_l2", a="zoo:c", b="zoo:d", outcome=None)
    records = [
        record("zoo:b", "zoo:a", -2.0, -1.0, -1.0),
        record("zoo:b", "zoo:a", -3.5, -3.0, 0.0, statistic="phi_l2_blocks"),
        record("zoo:a", "zoo:c", -1.0, -1.0, -1.0),
        record("zoo:a", "zoo:b", -9.0, -9.0, statistic="phi_u"),
        lost,
    ]
    table = measure.permtest_of(SimpleNamespace(records=records), [("zoo:a", "zoo:b"), ("zoo:c", "zoo:d")])
    assert table.to_dict("records") == [
        {"a": "b", "b": "a", "whole model": "0.01", "block 0": "0.001", "block 1": "1.000"}
    ]


def test_areas_of_the_papers_tables_and_of_ours():
    """Tables 1 and 5 by hand: a dependent pair is the closer one in 17 of 6 x 7 comparisons."""
    rows = [("a", "b", True, 0.1), ("a", "c", False, 0.2), ("b", "c", None, 0.0)]
    frame = pd.DataFrame(rows, columns=["a", "b", "dependent", "value"]).assign(statistic="phi_jsd", error=None)
    areas = measure.divergence_areas(frame)
    assert areas.loc["published"].tolist()[:3] == [6, 7, f"{17 / 42:.2f}"]
    assert areas.loc["ours"].tolist() == [1, 1, "1.00", "1.00 to 1.00"]
    assert list(measure.divergence_areas(frame.assign(dependent=None)).index) == ["published"]
