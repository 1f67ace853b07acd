"""A long training is found where it is known of, and every model of the zoo's tree stands for a published one."""

import pytest

from provlab import zoo
from provlab.report.lineage import Lineage, published_parents
from provlab_study.llama_tree import measure
from provlab_study.llama_tree.measure import LONG_TRAINED

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
