"""Figures of others on models of known origin."""

import math

import numpy as np
import pytest

from provlab import zoo
from provlab.report.lineage import Lineage
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab_study.in_the_wild import accusers, measure


@pytest.fixture(scope="module")
def portraits(models, text):
    options = Options(text=text, n_sequences=4, sequence_length=16)
    return {name: accusers.Portrait(Model.open(models[name]), options) for name in ("base", "tuned", "stranger")}


def test_every_figure_accuses_a_model_of_itself(portraits):
    base = portraits["base"]
    scores = {item.name: item.score(base, base) for item in accusers.ACCUSERS}
    assert scores == {name: pytest.approx(1) for name in scores}


def test_figures_are_those_of_plain_formulas(portraits):
    a, b = portraits["base"], portraits["tuned"]
    flat = [np.concatenate([item.matrices[place].ravel() for place in a.matrices]) for item in (a, b)]
    assert accusers.weight_cosine(a, b) == pytest.approx(
        float(flat[0] @ flat[1]) / math.sqrt(float(flat[0] @ flat[0]) * float(flat[1] @ flat[1])), abs=1e-5
    )
    of_roles = [
        np.corrcoef(*([item.matrices[role, block].std() for block in range(3)] for item in (a, b)))[0, 1]
        for role in ("query", "key", "value", "output")
    ]
    assert accusers.attention_spread(a, b) == pytest.approx(np.mean(of_roles), abs=1e-4)
    kernels = [item.last_layer @ item.last_layer.T for item in (a, b)]  # the kernels themselves, tokens by tokens
    shared = (kernels[0] * kernels[1]).sum() / np.sqrt((kernels[0] ** 2).sum() * (kernels[1] ** 2).sum())
    assert accusers.last_layer_cka(a, b) == pytest.approx(shared)


def test_a_sketch_stands_for_the_cosine_of_weights(portraits):
    near, far = (accusers.sketch_score(portraits["base"], portraits[name]) for name in ("tuned", "stranger"))
    assert near > 0.6 > 0.2 > abs(far)


def test_strangers_of_one_shape_are_accused_by_norms(portraits):
    assert accusers.norm_cosine(portraits["base"], portraits["stranger"]) >= 0.98
    assert accusers.same_settings(portraits["base"], portraits["stranger"]) == 1


def test_a_figure_that_is_not_defined_gives_no_score(portraits, new_model, save_model, tmp_path, text):
    other = save_model(new_model(7, intermediate_size=40, num_hidden_layers=2), tmp_path / "narrow")
    narrow = accusers.Portrait(Model.open(str(other)), portraits["base"].options)
    for figure in (accusers.weight_cosine, accusers.sketch_score, accusers.spread, accusers.attention_spread):
        assert figure(portraits["base"], narrow) is None
    assert accusers.same_settings(portraits["base"], narrow) == 0


@pytest.mark.parametrize("label", ["bert_masked", "gpt2", "phi3"])
def test_norms_and_projections_are_those_of_the_blocks(tiny, text, label):
    model = Model.open(str(tiny(label)))  # a BERT has norms outside its blocks, a Phi-3 fused projections
    portrait = accusers.Portrait(model, Options())
    blocks = set(range(model.anatomy.n_blocks))
    assert {block for _, block in portrait.norms} == {block for _, block in portrait.matrices} == blocks
    assert all(array.ndim == 1 for array in portrait.norms.values())
    assert {"query", "up", "down"} <= set(portrait.spreads)
    assert accusers.spread(portrait, portrait) == pytest.approx(1)


def test_strangers_of_the_zoo_are_independent_by_their_recipes():
    recipes = zoo.families("default")
    pairs = measure.strangers("default", 500, seed=0)
    assert len(set(map(frozenset, pairs))) == len(pairs) == 500
    known = Lineage.of(sorted({model for pair in pairs for model in pair}))
    for a, b in pairs:
        assert known.dependent(a, b) is False
        first, second = (recipes[name.removeprefix("zoo:").partition("@")[0]] for name in (a, b))
        roots = [recipes[known.root(name).removeprefix("zoo:").partition("@")[0]] for name in (a, b)]
        assert roots[0].seed != roots[1].seed
        assert first.shape == second.shape or "tree" in (first.collection, second.collection)
    assert measure.strangers("default", 500, seed=1) != pairs
    assert len(measure.strangers("smoke", 20, seed=0)) == 20
