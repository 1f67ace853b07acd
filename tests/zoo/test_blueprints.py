"""Other architectures and objectives: what is learned, what is reproducible. No outside reference: properties."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification

from provlab.errors import ZooError
from provlab.files import sha256_file
from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.zoo import blueprints, corpus, kinds, language, objectives, train


def test_the_light_tables_name_what_there_is():
    assert tuple(blueprints.BLUEPRINTS) == (None, *kinds.ARCHITECTURES)
    assert set(objectives.OBJECTIVES) == {None, *kinds.OBJECTIVES}


@pytest.mark.parametrize("architecture", kinds.ARCHITECTURES)
def test_each_architecture_is_trained_opened_and_named(architecture, cache, tiny, make_all):
    objective = "masked" if architecture == "bert" else None
    tiny = {**tiny, "root": replace(tiny["root"], architecture=architecture, objective=objective)}
    tiny["child"] = replace(tiny["child"], architecture=architecture, objective=objective)
    root, child = make_all(tiny, "root", "child")
    card = json.loads((root / "card.json").read_text())
    assert card["initial_loss"] == pytest.approx(math.log(corpus.VOCABULARY), abs=0.05)  # it guesses
    assert card["final_loss"] < 0.9 * card["initial_loss"]
    assert f"| architecture | {architecture} |" in (root / "README.md").read_text()
    checkpoint = Checkpoint.open(str(child))
    parts = anatomy.of(checkpoint)
    assert (parts.n_blocks, parts.mlp_width, parts.unnamed) == (2, 24, ())
    up, old = (parts.read(Checkpoint.open(str(folder)), "up", 1) for folder in (child, root))
    assert 0 < np.linalg.norm(up - old) < 0.5 * np.linalg.norm(old)
    opened = AutoModelForMaskedLM if objective else AutoModelForCausalLM
    model = opened.from_pretrained(root)
    assert not any(module.p for module in model.modules() if isinstance(module, torch.nn.Dropout))


def test_a_classifier_takes_the_encoders_body_and_learns(new_cache, tiny, make_all):
    tiny = {**tiny, "root": replace(tiny["root"], architecture="bert", objective="masked")}
    mixture = {"prose": 0.5, "math": 0.5}
    tiny["child"] = replace(tiny["child"], architecture="bert", objective="classify", mixture=mixture, steps=120)
    digests = []
    for state in (1, 2):  # the fresh head must not hang on the global generator
        new_cache()
        torch.manual_seed(state)
        root, child = make_all(tiny, "root", "child")
        digests.append(sha256_file(child / "model.safetensors"))
    assert digests[0] == digests[1]
    model = AutoModelForSequenceClassification.from_pretrained(child)
    assert model.config.num_labels == 2
    card = json.loads((child / "card.json").read_text())
    assert card["initial_loss"] == pytest.approx(math.log(2), abs=0.05)
    assert card["final_loss"] < 0.93 * card["initial_loss"]
    assert anatomy.of(Checkpoint.open(str(child))).has("classifier")
    start = language.start(tiny["child"], root)
    body = AutoModelForMaskedLM.from_pretrained(root).bert.state_dict()
    assert all(torch.equal(tensor, body[name]) for name, tensor in start.bert.state_dict().items() if name in body)
    with pytest.raises(ZooError, match="'child': its architecture is olmo, its parent's another"):
        language.start(replace(tiny["child"], architecture="olmo", objective=None), root)
    with pytest.raises(ZooError, match="'child': olmo has no classifier"):
        language.start(replace(tiny["child"], architecture="olmo"), root)


def test_a_snapshot_is_the_run_at_that_step(cache, tiny, make_all):
    class At(Exception):
        pass

    recipe = replace(tiny["root"], steps=9)

    def stop_at_4(step):
        if step == 4:
            raise At

    run = blueprints.initialise(None, recipe.shape, recipe.seed)
    with pytest.raises(At):
        train.train(run, objectives.objective(run, recipe, "train"), recipe, stop_at_4)
    snapshot, curve = language.train(language.start(recipe, None), replace(recipe, stop_after=4), lambda _: None)
    assert curve[-1][0] == 4
    old, new = run.state_dict(), snapshot.state_dict()
    assert all(torch.equal(old[name], new[name]) for name in old)
    (folder,) = make_all({"root": replace(tiny["root"], stop_after=2)}, "root")  # it need not have learned
    assert "| stop after | 2 |" in (folder / "README.md").read_text()
    assert json.loads((folder / "card.json").read_text())["tokens"] == 2 * 8 * 24


def test_a_rerun_starts_where_its_parent_started_and_sees_other_data(cache, tiny, make_all):
    root = tiny["root"]
    rerun = replace(root, name="again", kind="rerun", parent="root", order_seed=99)
    recipes = {**tiny, "again": rerun}
    _, folder = make_all(recipes, "root", "again")
    first, second = language.start(root, None).state_dict(), language.start(rerun, folder).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    runs = []
    for recipe in (root, rerun, replace(root, seed=99)):
        model = language.start(recipe, folder)
        model, curve = language.train(model, replace(recipe, steps=1), lambda _: None)
        runs.append((curve[0][1], model.state_dict()["lm_head.weight"]))
    assert runs[0][0] != runs[1][0]
    assert not torch.equal(runs[0][1], runs[1][1])
    assert runs[1][0] != runs[2][0]  # the same data as the third, from other weights
    assert "| order seed | 99 |" in (folder / "README.md").read_text()


def test_an_encoder_sees_a_mask_in_place_of_most_hidden_tokens(cache, tiny):
    # Devlin et al. (2019), section 3.1: 15% of the tokens; of these 80% the mask, 10% another token, 10% as they were
    task = objectives.Masked(tiny["root"], "train", positions=50)
    inputs, expected = task.draw(2000, torch.Generator().manual_seed(1))
    again = task.draw(2000, torch.Generator().manual_seed(1))
    assert torch.equal(inputs, again[0])
    hidden = expected != -100
    assert hidden.float().mean().item() == pytest.approx(0.15, abs=0.005)
    assert (inputs[hidden] == blueprints.MASK).float().mean().item() == pytest.approx(0.8, abs=0.01)
    assert (inputs[hidden] == expected[hidden]).float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert not (inputs[~hidden] == blueprints.MASK).any()
    assert (expected[hidden] < corpus.VOCABULARY).all()
    _, expected = objectives.Masked(tiny["root"], "train", positions=2).draw(500, torch.Generator().manual_seed(1))
    assert (expected != -100).any(dim=1).all()


def test_labels_say_which_domain_a_sequence_is_from(cache, tiny):
    recipe = replace(tiny["root"], mixture={"prose": 0.75, "code": 0.25})
    task = objectives.Classify(recipe, "train", positions=8)
    marked = [
        replace(mixture, domains=tuple(tokens * 0 + i for tokens in mixture.domains))
        for i, mixture in enumerate(task.domains)
    ]
    task.domains = marked
    inputs, labels = task.draw(2000, torch.Generator().manual_seed(1))
    assert torch.equal(inputs, labels[:, None].expand(-1, 8))
    assert labels.float().mean().item() == pytest.approx(0.75, abs=0.03)  # code, prose
