"""Statistics that withstand disguise: what each still finds in a disguised copy, and what a sign does to phi_MATCH."""

import numpy as np
import pytest
import torch

from provlab import api
from provlab.models.checkpoint import Checkpoint
from provlab.statistics import USUAL

SIZES = {"n_sequences": 16, "sequence_length": 32, "progress": False}


def outcome(a, b, statistic, text):
    return api.compare(a, b, statistics=[statistic], text=text, **SIZES).records[0].outcome


def test_a_negative_scale_evades_phi_match_and_not_its_unsigned_form(models, text):
    negative = f"disguised:T6-:{models['base']}"
    assert outcome(models["base"], f"disguised:T1+T2+T3:{models['base']}", "phi_match", text).log10_p < -20
    assert outcome(models["base"], negative, "phi_match", text).log10_p > -3
    unsigned = outcome(models["base"], negative, "phi_match_unsigned", text)
    assert unsigned.log10_p < -20
    assert outcome(models["base"], models["stranger"], "phi_match_unsigned", text).log10_p > -3


def test_median_max_is_zero_for_a_disguised_copy_and_far_from_it_for_a_stranger(models, text):
    copy = outcome(models["base"], f"disguised:{models['base']}", "median_max", text)
    assert copy.log10_p is None
    assert abs(copy.value) < 1e-4
    assert outcome(models["base"], models["stranger"], "median_max", text).value > 0.3


def test_median_max_by_its_definition(models, text):
    """Appendix E step by step, block 0, without the library's activations or matching."""
    from scipy.optimize import linear_sum_assignment
    from transformers import AutoModelForCausalLM

    from provlab.statistics.base import Options
    from provlab.statistics.median_max import N_INPUTS
    from provlab.statistics.text import encode

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
    found = api.compare(models["base"], models["sibling"], statistics=["median_max"], text=text, blocks=[0], **SIZES)
    assert found.records[0].outcome.value == pytest.approx(expected, abs=1e-5)


def test_extensions_and_baselines_run_only_when_named():
    assert USUAL == ("phi_u", "phi_h", "phi_l2", "phi_jsd", "phi_match", "phi_match_unsigned")
