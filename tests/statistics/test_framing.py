"""Units that only imitate another model's make nobody related: their agreement carries none of the output.

The base is the tiny model. The stranger has its embedding and attention, and MLPs drawn again: tiny models that share
nothing share no language either, which is what lets copies be fitted. Each construction must bite: a phi_MATCH that
counts every agreement, as it once did, rejects the faint copies.
"""

import numpy as np
import pytest
import torch

from provlab import api
from provlab.attacks.disguise import disguise
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics import get
from provlab.statistics.options import Options
from provlab.statistics.phi_match import GateAndUp, PhiMatch

SIZES = {"n_sequences": 16, "sequence_length": 32, "progress": False}
FORMS = ["phi_match", "phi_match_unsigned", "phi_anchor"]


@pytest.fixture(scope="module")
def stranger(models, new_model, save_model, tmp_path_factory):
    torch.manual_seed(5)
    model = new_model(4)
    model.load_state_dict(type(model).from_pretrained(models["base"]).state_dict())
    with torch.no_grad():
        for layer in model.model.layers:
            for matrix in layer.mlp.parameters():
                matrix.copy_(torch.randn_like(matrix) * matrix.std())
    return save_model(model, tmp_path_factory.mktemp("stranger") / "model")


@pytest.fixture(scope="module")
def framed(models, stranger, tmp_path_factory):
    def of(kind):
        folder = tmp_path_factory.mktemp("framed") / kind
        others = [Checkpoint.open(str(models["base"]))]
        disguise(Checkpoint.open(str(stranger)), folder, seed=1, kinds=[kind], others=others)
        return str(folder)

    return of


def outcomes(a, b, text, names=FORMS):
    return {r.statistic: r.outcome for r in api.compare(str(a), str(b), statistics=names, text=text, **SIZES).records}


@pytest.mark.parametrize("kind", ["faint=0.001", "faint=0.1", "mimics"])
def test_no_copy_of_a_unit_accuses(models, framed, text, kind):
    for outcome in outcomes(models["base"], framed(kind), text).values():
        assert outcome.log10_p is None or outcome.log10_p > -2
        if outcome.reach == 0:  # copies that may not count, or so many units that others may have been spread
            assert "write less than 5% of the output" in outcome.why or "a copy each of whose units" in outcome.why


def test_faint_copies_bite_where_every_agreement_counts(models, framed, text, monkeypatch):
    monkeypatch.setattr(PhiMatch, "WRITTEN", -np.inf)
    assert outcomes(models["base"], framed("faint=0.01"), text, ["phi_match"])["phi_match"].log10_p < -20


@pytest.mark.parametrize("kind", ["decoys=2", "cancelling=1", "dead=1", "split=3", "T3"])
def test_kin_carry_their_output_whatever_was_added(models, tmp_path, text, kind):
    disguise(Checkpoint.open(str(models["base"])), tmp_path / "new", seed=1, kinds=[kind])
    outcome = outcomes(models["base"], tmp_path / "new", text, ["phi_match_unsigned"])["phi_match_unsigned"]
    assert outcome.log10_p < -50
    assert min(min(block.detail.written) for block in outcome.blocks) > 0.5


def tied_pair(cosine, n_pairs, rng):
    """log10 p of pairs of independent blocks whose gate and up have this cosine, and the outcome of the last."""
    inputs = rng.normal(size=(32, 128))
    for seed in range(n_pairs):
        sides = []
        for _ in range(2):
            gate, up = rng.normal(size=(2, 96, 32))
            rows = gate @ inputs, (cosine * gate + np.sqrt(1 - cosine**2) * up) @ inputs
            views = [np.asarray(some, np.float32) for some in rows]
            sides.append(GateAndUp([views[0]], [views[1]], np.zeros((1, 128), np.int64)).block(0))
        yield get("phi_match_unsigned").compare_block(*sides, 0, Options(seed=seed))


def test_tied_gates_and_ups_are_no_evidence():
    """Gate = up: every unit's two matchings are one, between independent models too. It once was at the floor."""
    rng = np.random.default_rng(0)
    (result,) = tied_pair(1.0, 1, rng)
    assert result.detail.paper_log10_p < -100
    assert (result.log10_p, result.detail.tied) == (0.0, [1.0, 1.0])
    outcome = PhiMatch().aggregate([result] * 3)
    assert outcome.log10_p is None
    assert "too much alike" in outcome.why
    for cosine in (0.6, 0.65):  # below, sizes hold
        results = list(tied_pair(cosine, 100, rng))
        assert not any(result.why for result in results)
        assert np.mean([result.log10_p <= np.log10(0.05) for result in results]) <= 0.11  # 5 of 100, 99.7%


def test_one_tied_block_silences_no_other():
    rng = np.random.default_rng(1)
    blocks = [*tied_pair(1.0, 1, rng), *tied_pair(0.0, 1, rng)]
    assert PhiMatch().aggregate(blocks).log10_p is not None


def test_copies_dealt_out_to_experts_that_take_each_other_back_accuse_nobody(models, stranger, text, tmp_path):
    """Each expert is loud, and all together write what the stranger wrote: nothing is changed, and it was rejected."""
    others = [Checkpoint.open(str(models["base"]))]
    disguise(Checkpoint.open(str(stranger)), tmp_path / "new", seed=1, kinds=["mimics", "experts=2"], others=others)
    for outcome in outcomes(models["base"], tmp_path / "new", text).values():
        assert outcome.log10_p is None or outcome.log10_p > -2
