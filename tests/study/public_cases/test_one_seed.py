"""The case on models that are made here: begun from one draw, one tuned from another, begun from other seeds."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from planted import Plant, put, update

from provlab.errors import CheckpointError
from provlab_study.public_cases import layout, one_seed, replay
from provlab_study.public_cases.predicates import one_draw
from provlab_study.publishing.evidence import FAILS, NOT_RUN

SMALL = (
    replay.Layer("encoder.Linear0", 24, 16),
    replay.Layer("encoder.attn.k_linear", 16, 16, 0),
    replay.Layer("encoder.fc1", 16, 40),
    replay.Layer("decoder.attn.k_linear", 16, 16, 1),
    replay.Layer("decoder.fc", 16, 40),
)
RULE = {"level": -12, "share": 0.5, "models": 3}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(layout, "LAYERS", SMALL)
    monkeypatch.setattr(one_seed, "LAYERS", SMALL)


def trained(atom, seed, own, parent=None, far=0.3):
    """A model that the public script begins from a seed, or one of a parent, all moved at random but its fossil."""
    rng = np.random.default_rng(own)
    torch.manual_seed(seed)
    drawn = replay.weights(SMALL, seed, 4)
    tensors = {}
    for layer in SMALL:
        made = torch.nn.Linear(layer.inputs, layer.outputs)
        weight, bias = drawn[layer.name].reshape(layer.outputs, layer.inputs), made.bias.detach().numpy()
        if parent is not None:
            weight, bias = parent.tensors[f"{layer.name}.weight"], parent.tensors[f"{layer.name}.bias"]
        moved = far * np.std(drawn[layer.name]) * rng.standard_normal(weight.shape)
        tensors[f"{layer.name}.weight"] = (weight + moved).astype(np.float32)
        tensors[f"{layer.name}.bias"] = bias if layer.block is not None else bias + 1
    return layout.PlmCs(atom, tensors)


def judged(*models):
    named = {model.atom: model for model in models}
    seeded = one_seed.seeded(named, range(8), 4)
    kept = one_seed.kept(named, seeded[0].seed, 4)
    controls = asdict(one_seed.controls(models[0], seeded[0].seed, range(8), 4))
    return one_draw([asdict(row) for row in seeded], [asdict(row) for row in kept], controls, **RULE)


def test_three_trainings_from_one_draw_are_told_from_descent(small):
    verdict = judged(*(trained(atom, 5, own) for own, atom in enumerate("xyz")))
    assert verdict.status == "holds"
    assert "seed 5 for 3 models" in verdict.ours


def test_a_child_among_them_fails_the_claim(small):
    parent, other = trained("x", 5, 0), trained("y", 5, 1)
    verdict = judged(parent, other, trained("child", 5, 2, parent))
    assert verdict.status == "fails"
    assert "(child of x)" in verdict.ours


def test_a_model_of_another_draw_fails_the_claim(small):
    verdict = judged(trained("x", 5, 0), trained("y", 5, 1), trained("z", 6, 2))
    assert verdict.status == "fails"
    assert "name 2 seeds" in verdict.why


def test_models_of_no_seed_that_was_tried_fail_the_claim(small):
    assert judged(*(trained(atom, 50, own) for own, atom in enumerate("xyz"))).status == "fails"


@pytest.fixture
def good(small):
    """Records of three models of one seed, and of the networks that are made beside them."""
    named = {atom: trained(atom, 5, own) for own, atom in enumerate("xyz")}
    seeded = one_seed.seeded(named, range(8), 4)
    controls = asdict(one_seed.controls(named["x"], 5, range(8), 4))
    return [asdict(row) for row in seeded], [asdict(row) for row in one_seed.kept(named, 5, 4)], controls


def seed_42(records):
    """A search that names one seed for any network, as surely."""
    seeded, _, controls = records
    for row in (*seeded, *controls["drawn"]):
        row.update(seed=42, log10_p=-99.0)


def no_share(records):
    """A share that is 0 of any two."""
    for row in (*records[1], records[2]["descended"]):
        row["share"] = 0.0


PLANTS = [
    Plant("one seed for any model", seed_42, FAILS, "a control that seed 0 drew names seed 42"),
    Plant("no share of any two", no_share, FAILS, "share of its parent's path that a child has: 0"),
    Plant("another seed agrees as well", update(0, 1, next_best=1.0), FAILS, "with another by 1.00"),
    Plant("weights of another draw", update(0, 1, weights=0.01), FAILS, "y: its weights are not of this draw"),
    Plant("nothing was trained", update(0, 2, path=0.0), FAILS, "z: training moved it by 0 of its draw"),
    Plant("one model three times", lambda r: [row.update(atom="x") for row in r[0]], FAILS, "stands there twice"),
    Plant("one pair, counted again", lambda r: [row.update(r[1][0]) for row in r[1]], FAILS, "one pair stands"),
    Plant("no control", put(2, "drawn", value=[]), NOT_RUN, "it takes a control of another seed"),
]


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_what_cannot_fail_shows_nothing(plant, good):
    assert one_draw(*good, **RULE).status == "holds", one_draw(*good, **RULE)
    plant.check(lambda records: one_draw(*records, **RULE), good)


def test_without_the_packages_nothing_is_judged():
    verdict = one_draw([], [], None, **RULE)
    assert verdict.status == "not run"
    assert "provlab run public_cases -p fetch=true" in verdict.why


def test_a_card_draws_by_philox():
    """The first vector of Random123's known answers, and what torch prints on a card after manual_seed(42)."""
    words = replay.philox(0, np.zeros(1, np.uint64), 0)[:, 0]
    assert [f"{int(word):08x}" for word in words] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    drawn, counter = replay.uniform(6, 42, 0, 492)
    np.testing.assert_allclose(drawn, [0.6130, 0.0101, 0.3984, 0.0403, 0.1563, 0.4825], atol=5e-5)
    assert counter == 1


def test_the_threads_of_a_card_show_in_its_first_tensor():
    drawn, _ = replay.uniform(4 * 256 * 30, 7, 0, 23)
    cards = replay.blocks_at_work(drawn, 7)
    assert max(cards, key=cards.get) == 23
    assert cards[23] > 0.99


def test_another_pickle_is_refused(tmp_path):
    torch.save({"encoder.Linear0.weight": torch.zeros(2, 2)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="holds none of PLM-CS"):
        layout.read("C", tmp_path)
