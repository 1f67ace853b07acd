"""The polish of a toy: its second loss by hand, its place in the zoo, and the other models' addresses untouched."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from provlab.zoo import kinds, polish, reading, recipes, toy


def recipe(steps=6):
    return replace(reading.families()["toy-small-sure"], steps=steps, batch=32)


@pytest.fixture(scope="module")
def model():
    third = reading.families()["toy-early-third"]
    return toy.start(replace(third, shape=replace(third.shape, num_hidden_layers=1)), None)


def test_the_second_loss_is_the_mass_on_digits_that_can_follow(model):
    """By hand: after seven digits of sum s one digit is allowed; after few all ten are, and nothing is lost."""
    digits = torch.from_numpy(toy.valid_sequences()[0][:5].astype(np.int64))
    law = torch.from_numpy(toy.next_digit()).float()
    of_law, of_rule = polish.losses(model, digits, law)
    logits = model(input_ids=digits[:, :-1]).logits
    last = -torch.log_softmax(logits[:, -1], dim=-1).gather(1, digits[:, -1:])[:, 0]
    torch.testing.assert_close(of_rule[:, -1], last)
    torch.testing.assert_close(of_law[:, -1], last)
    assert of_rule[:, :3].abs().max() < 1e-5
    assert (of_rule >= -1e-5).all()


def test_it_lowers_the_mass_on_invalid_digits_and_repeats(model, monkeypatch):
    """Twice the same weights; with the sign of the second loss turned (the plant) that mass does not fall so."""
    law = torch.from_numpy(toy.next_digit()).float()
    digits = torch.from_numpy(toy.valid_sequences()[1][:512].astype(np.int64))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    ends = []
    for weight in (20.0, 20.0, -20.0):
        monkeypatch.setattr(polish, "_WEIGHT", weight)
        model.load_state_dict(start)
        ends.append(polish.train(model, recipe(30), lambda _: None)[0].state_dict())
    for name, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][name], rtol=0, atol=0)
    wrong = []
    for state in (start, ends[0], ends[2]):
        model.load_state_dict(state)
        with torch.no_grad():
            wrong.append(polish.losses(model, digits, law)[1].mean().item())
    assert wrong[1] < wrong[0]
    assert wrong[1] < wrong[2]


def test_a_recipe_of_its_own_leaves_the_parents_address(monkeypatch):
    known = reading.families()
    assert known["toy-small-sure"].parent == "toy-small"
    assert "polish" not in kinds.KINDS["digits"].code
    before = recipes.address("toy-small", known)
    without = {name: recipe for name, recipe in known.items() if recipe.kind != "polished"}
    assert recipes.address("toy-small", without) == before
    assert recipes.address("toy-small-sure", known) != before
