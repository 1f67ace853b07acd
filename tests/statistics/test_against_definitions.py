"""The statistics compared with independent float64 computations from the paper's definitions.

Reference values come from scipy alone: cosine similarity in float64, `scipy.optimize.linear_sum_assignment`,
`scipy.stats.spearmanr` and `scipy.stats.combine_pvalues` (Fisher), on all ten pairs of five models. Activations are
recorded by hooks of this file's own. scipy's p-values live in double precision, so the models are made such that no
block of any pair lies below its underflow or at the floor of a perfect match, which scipy does not know.
"""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import optimize, spatial, stats
from transformers import AutoModelForCausalLM, AutoTokenizer

from provlab import studying

NAMES = ("base", "tuned", "sibling", "stranger", "other")
PAIRS = list(combinations(NAMES, 2))
N_SEQUENCES, LENGTH = 8, 32
RELATIVE = 1e-6  # in log10 p, as the study promises


@pytest.fixture(scope="module")
def networks(models):
    """The five models in float32, as transformers loads them."""
    return {name: AutoModelForCausalLM.from_pretrained(models[name], dtype=torch.float32).eval() for name in NAMES}


@pytest.fixture(scope="module")
def report(models, text):
    """What provlab says of all ten pairs."""
    return studying.study(
        [models[name] for name in NAMES],
        statistics=["phi_u", "phi_h", "phi_jsd", "phi_match"],
        text=text,
        seed=7,
        n_sequences=N_SEQUENCES,
        sequence_length=LENGTH,
        progress=False,
    )


@pytest.fixture(scope="module")
def outcomes(models, report):
    """``(statistic, name, name)`` -> outcome."""
    back = {folder: name for name, folder in models.items()}
    return {(r.statistic, back[r.a], back[r.b]): r.outcome for r in report.records}


def activations(network, tokens):
    """Per block the hidden, gate and up activations, ``(h, tokens)``, by hooks."""
    kept = {}

    def keep(key, value):
        kept[key] = value.reshape(-1, value.shape[-1]).T.double().numpy()

    handles = []
    for i, layer in enumerate(network.model.layers):
        mlp = layer.mlp
        handles += [
            mlp.down_proj.register_forward_pre_hook(lambda m, x, i=i: keep(("hidden", i), x[0])),
            mlp.gate_proj.register_forward_hook(lambda m, x, y, i=i: keep(("gate", i), y)),
            mlp.up_proj.register_forward_hook(lambda m, x, y, i=i: keep(("up", i), y)),
        ]
    with torch.no_grad():
        logits = network(tokens).logits
    for handle in handles:
        handle.remove()
    return kept, logits.double()


@pytest.fixture(scope="module")
def on_random_tokens(networks):
    """Activations on uniformly random tokens, drawn as the documentation says: numpy's generator from the seed."""
    tokens = np.random.default_rng(7).integers(0, 300, size=(N_SEQUENCES, LENGTH))
    return {name: activations(networks[name], torch.from_numpy(tokens))[0] for name in NAMES}


@pytest.fixture(scope="module")
def on_text(networks, models, text):
    """Activations and logits on the head of the text."""
    ids = AutoTokenizer.from_pretrained(models["base"]).encode(text, add_special_tokens=False)
    tokens = torch.tensor(ids[: N_SEQUENCES * LENGTH]).reshape(N_SEQUENCES, LENGTH)
    return {name: activations(networks[name], tokens) for name in NAMES}


def reference_match(a, b):
    """MATCH (Algorithm 2) in float64: for each row of `a` its partner in `b`."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    similarity = (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T
    return optimize.linear_sum_assignment(similarity, maximize=True)[1]


def reference_outcome(matchings):
    """Per block (rho, p) of ``(x, y)``, and Fisher's p over the blocks."""
    blocks = [stats.spearmanr(x, y) for x, y in matchings]
    p = [block.pvalue for block in blocks]
    assert min(p) > 1e-300, "the models are too close for double precision: the comparison would say nothing"
    return blocks, stats.combine_pvalues(p, method="fisher").pvalue


def agree(outcome, matchings):
    blocks, fisher = reference_outcome(matchings)
    for ours, reference in zip(outcome.blocks, blocks, strict=True):
        assert ours.value == pytest.approx(reference.statistic, rel=1e-12, abs=1e-12)
        assert ours.detail.paper_log10_p == pytest.approx(math.log10(reference.pvalue), rel=RELATIVE, abs=1e-12)
    assert outcome.detail.paper_log10_p == pytest.approx(math.log10(fisher), rel=RELATIVE, abs=1e-12)
    assert outcome.value == pytest.approx(np.mean([block.statistic for block in blocks]), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_phi_u(a, b, networks, outcomes):
    up = {
        name: [layer.mlp.up_proj.weight.detach().double().numpy() for layer in networks[name].model.layers]
        for name in (a, b)
    }
    identity = np.arange(48)
    agree(outcomes["phi_u", a, b], [(identity, reference_match(x, y)) for x, y in zip(up[a], up[b], strict=True)])


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_phi_h(a, b, on_random_tokens, outcomes):
    hidden = {name: [on_random_tokens[name]["hidden", i] for i in range(3)] for name in (a, b)}
    identity = np.arange(48)
    agree(
        outcomes["phi_h", a, b], [(identity, reference_match(x, y)) for x, y in zip(hidden[a], hidden[b], strict=True)]
    )


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_phi_match(a, b, on_text, outcomes):
    (x, _), (y, _) = on_text[a], on_text[b]
    matchings = [
        (reference_match(x["gate", i], y["gate", i]), reference_match(x["up", i], y["up", i])) for i in range(3)
    ]
    agree(outcomes["phi_match", a, b], matchings)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_phi_jsd(a, b, on_text, outcomes):
    p, q = (on_text[name][1].softmax(dim=-1).reshape(-1, 300).numpy() for name in (a, b))
    # scipy gives the distance, the square root of the divergence
    expected = float(np.mean(spatial.distance.jensenshannon(p, q, axis=1) ** 2))
    assert outcomes["phi_jsd", a, b].value == pytest.approx(expected, rel=1e-5)
    assert outcomes["phi_jsd", a, b].log10_p is None


def test_the_pairs_test_both_ends_of_the_scale(outcomes):
    """The ten pairs would prove little were all of them near 1, or all at the floor."""
    related = [("base", "tuned"), ("base", "sibling")]  # the siblings themselves lie between: each moved
    for statistic in ("phi_u", "phi_h"):
        for pair in PAIRS:
            outcome = outcomes[statistic, *pair]
            if pair in related:
                assert outcome.reach < outcome.log10_p < -6, (statistic, pair)
            elif pair != ("tuned", "sibling"):
                assert outcome.log10_p > -4, (statistic, pair)
