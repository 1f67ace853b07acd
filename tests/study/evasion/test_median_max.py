"""Median of largest activation cosines against its definition, and what disguise leaves of it (Appendix E)."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from transformers import AutoModelForCausalLM

from provlab import api
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics.options import Options
from provlab.statistics.text import encode
from provlab_study.evasion.median_max import N_INPUTS

SIZES = {"n_sequences": 16, "sequence_length": 32, "progress": False}


def value(a, b, text, **settings):
    (record,) = api.compare(a, b, statistics=["median_max"], text=text, **SIZES, **settings).records
    assert record.outcome.log10_p is None
    return record.outcome.value


def test_median_max_is_zero_for_a_disguised_copy_and_far_from_it_for_a_stranger(models, text):
    assert abs(value(models["base"], f"disguised:{models['base']}", text)) < 1e-4
    assert value(models["base"], models["stranger"], text) > 0.3


def test_median_max_by_its_definition(models, text):
    """Appendix E step by step, block 0, without the library's activations or matching."""
    names = ("base", "sibling")
    ids = encode(Checkpoint.open(models["base"]), Options(text=text, n_sequences=16, sequence_length=32))
    gates, rows = [], []
    for name in names:
        network = AutoModelForCausalLM.from_pretrained(models[name], dtype=torch.float32).eval()
        kept = []
        mlp = network.model.layers[0].mlp.gate_proj
        mlp.register_forward_hook(lambda _, __, out, kept=kept: kept.append(out.reshape(-1, out.shape[-1]).numpy()))
        with torch.no_grad():
            network(torch.from_numpy(ids))
        gates.append(np.concatenate(kept).T.astype(np.float64))
        norm = network.model.layers[0].post_attention_layernorm.weight.detach().double().numpy()
        rows.append(mlp.weight.detach().double().numpy() * norm)
    unit = [g / np.linalg.norm(g, axis=1, keepdims=True) for g in gates]
    _, partner = linear_sum_assignment(unit[0] @ unit[1].T, maximize=True)
    second = rows[1][partner]
    v = np.random.default_rng([0, 1]).standard_normal((N_INPUTS, len(partner)))
    answers = [(v @ g) @ g.T for g in (rows[0], second)]
    unit = [(a / np.linalg.norm(a, axis=0)).T for a in answers]
    expected = 1 - np.median((unit[0] @ unit[1].T).max(axis=1))
    assert value(models["base"], models["sibling"], text, blocks=[0]) == pytest.approx(expected, abs=1e-5)
