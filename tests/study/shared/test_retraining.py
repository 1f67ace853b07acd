"""Retrained blocks compared with a model: copies and turned units, whose p-values are known."""

import numpy as np
import pytest
import torch
from random_students import INPUTS, N_UNITS, TOKENS, compare, student, views

from provlab.errors import InputError, NotComparableError
from provlab.statistics.options import Options
from provlab_study.shared import retraining
from provlab_study.shared.students import Settings


def compared(first, second):
    return compare(views(first), views(second), 0, Options())


def test_turned_units_say_the_same_and_are_lost_to_the_signed_statistic_alone():
    plain, turned = student(), student(turned=N_UNITS // 2)
    rows = torch.from_numpy(INPUTS)
    np.testing.assert_allclose(plain(rows), turned(rows), rtol=1e-4, atol=1e-3)
    results = compared(plain, turned)
    floor = results["phi_match"].reach
    assert results["phi_match_unsigned"].log10_p == floor
    # a correlation of one half, give or take what the random rest adds
    assert results["phi_match"].value == pytest.approx(0.5, abs=0.25)
    assert compared(plain, plain)["phi_match"].log10_p == floor


def test_strangers_are_strangers():
    results = compared(student(0), student(1))
    assert all(result.log10_p > -3 for result in results.values())


def test_other_tokens_are_refused():
    activations = student().activations(INPUTS)
    with pytest.raises(NotComparableError, match="cut the text differently"):
        compare(retraining.as_views(activations, TOKENS), retraining.as_views(activations, TOKENS + 1), 0, Options())


def test_a_model_is_opened_retrained_and_compared(models, text):
    options = Options(text=text, n_sequences=4, sequence_length=8)
    suspect = retraining.Retrained.open(str(models["base"]), options)
    base = retraining.reference(str(models["base"]), options)
    assert [rows.shape for rows in suspect.inputs] == [(32, suspect.model.anatomy.width)] * 3
    # the block itself, not retrained, reaches the floor: the same views as the statistic records by hooks
    mlp = suspect.mlp(1)
    views = retraining.as_views(mlp.activations(suspect.inputs[1]), suspect.places)
    results = compare(base.block(1), views, 1, options)
    assert results["phi_match"].log10_p == results["phi_match"].reach
    fresh = suspect.student(1, Settings(steps=3, batch=8, inputs="matched"))
    again = compare(base.block(1), suspect.views(1, fresh), 1, options)
    assert again["phi_match"].matching.shape == (2, mlp.mlp_width)
    # the loss is transformers' own, and the block itself in its place changes nothing
    network = suspect.model.checkpoint.load_model(dtype=torch.float32, device="cpu")
    ids = torch.from_numpy(suspect.tokens)
    with torch.no_grad():
        reference = float(network(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss)
    assert suspect.loss() == pytest.approx(reference, rel=1e-5)
    assert suspect.loss(1, mlp) == pytest.approx(reference, rel=1e-5)
    assert suspect.loss(1, fresh) != pytest.approx(reference, rel=1e-5)
    with pytest.raises(InputError, match="block and student belong together"):
        suspect.loss(1)
