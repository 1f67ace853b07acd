"""What `compare` says, from checkpoints to the sentence, of each kind of pair that a reader may bring.

Models of 48 units in three blocks: independent ones agree on one unit in 48 by chance. The kin are the base after noise
of 1.5 standard deviations in its up projections: phi_u finds them, phi_match, which has gate and up noise of two models
to withstand, in some draws only.
"""

import numpy as np
import pytest
import torch

import provlab
from provlab.inference import pvalues
from provlab.inference.matching import match
from provlab.models.checkpoint import Checkpoint
from provlab.models.disguise import disguise

SMALL = {"n_permutations": 19, "n_block_permutations": 99, "n_sequences": 8, "sequence_length": 32, "progress": False}


@pytest.fixture(scope="module")
def verdict(text):
    """Verdict of two sources by some statistics, in one line."""

    def of(a, b, *statistics, **settings):
        result = provlab.compare(str(a), str(b), statistics=list(statistics) or None, text=text, **SMALL, **settings)
        return result, " ".join(result.verdict().split())

    return of


@pytest.fixture(scope="module")
def aligned(models, new_model, save_model, tmp_path_factory):
    """The stranger, its units in the order of the base's: outputs stay as they are."""
    stranger = new_model(4)
    stranger.load_state_dict(type(stranger).from_pretrained(models["stranger"]).state_dict())
    base = type(stranger).from_pretrained(models["base"])
    with torch.no_grad():
        for mine, theirs in zip(stranger.model.layers, base.model.layers, strict=True):
            order = match(theirs.mlp.up_proj.weight.numpy(), mine.mlp.up_proj.weight.numpy()).indices
            for projection in (mine.mlp.up_proj, mine.mlp.gate_proj):
                projection.weight.copy_(projection.weight[order])
            mine.mlp.down_proj.weight.copy_(mine.mlp.down_proj.weight[:, order])
    return save_model(stranger, tmp_path_factory.mktemp("aligned") / "model")


@pytest.fixture(scope="module")
def disguised(models, tmp_path_factory):
    """The base itself with its hidden units and its embedding in another order.

    No noise: what is asked is whether order alone is seen through, not how much noise phi_match withstands.
    """
    folder = tmp_path_factory.mktemp("disguised") / "model"
    disguise(Checkpoint.open(models["base"]), folder, seed=1, kinds=("T1", "T2"))
    return folder


def test_identical(verdict, models, spoilt):
    """A copy of the base's folder, not spoilt here."""
    _, message = verdict(models["base"], spoilt, "phi_u")
    assert message.startswith(
        "The two models are identical: configuration and weight files are the same, byte for byte."
    )


def test_kin(verdict, models):
    result, message = verdict(models["base"], models["tuned"])
    assert message.startswith("Independent training is rejected by phi_u, phi_h")
    assert "(Holm over 5 tests, family-wise error at most 0.01): the weights of the two are not independent." in message
    assert "Possible causes: a common ancestor, a common initial draw, or hidden units of one put into the" in message
    assert "phi_match ignores the order of units, so that order alone is not the cause." in message
    assert "by the paper's two-sided form)" in message  # the paper's number beside ours
    agree = result.to_frame().set_index("statistic")["agree"]
    assert agree["phi_u"] > 0.3
    # of 144 units in all blocks independent models have 3 by chance; 15 or more once in a million pairs
    assert agree["phi_match"] > 0.1
    assert f"{agree['phi_u']:.1%}" in str(result)


def test_stranger(verdict, models):
    result, message = verdict(models["base"], models["other"])
    tests = "phi_u, phi_h, phi_l2, phi_match, phi_match_unsigned (Holm over 5 tests"
    assert message.startswith(f"Independent training is not rejected by {tests}")
    assert "That is no proof of independence." in message
    assert "phi_l2 cannot reject here: its smallest p is 0.05 over 5 tests." in message  # T = 19
    assert "Hidden units shuffled after training hide a common origin from phi_u, phi_h and phi_l2." in message
    assert (
        "Split units whose gates are then moved, at a loss, hide it from phi_match and phi_match_unsigned." in message
    )
    assert result.to_frame().set_index("statistic").loc["phi_u", "agree"] < 0.15


def test_a_rare_draw(verdict, models):
    """Base and stranger stand near 10^-3 by phi_match, by nothing but their order of units.

    One or none of 48 units is matched alike in each block. Units numbered again, which independent models must bear
    (Theorem 1), give the same two matchings any p-value, as often as its level says.
    """
    result, message = verdict(models["base"], models["stranger"])
    assert "rejected by phi_match (Holm over 5 tests" in message
    assert "phi_u" not in message.split("):")[0]
    outcome = next(record.outcome for record in result.records if record.statistic == "phi_match")
    assert outcome.log10_p < -2.9
    assert max(block.detail["agree"] for block in outcome.blocks) <= 1
    rng = np.random.default_rng(0)
    drawn = np.empty((2000, len(outcome.blocks)))
    for row in drawn:
        for i, block in enumerate(outcome.blocks):
            by_gate, by_up = rng.permutation(48)[block.matching]
            row[i] = pvalues.log10_p_allowing(by_gate, by_up, 2, rng=rng)
    p = 10 ** pvalues.fisher(drawn, axis=1)
    for level in (0.05, 0.01, 0.001):
        assert (p <= level).mean() <= level + 3 * np.sqrt(level * (1 - level) / len(p))


def test_aligned_stranger(verdict, models, aligned):
    _, message = verdict(models["base"], aligned, "phi_u", "phi_match")
    assert message.startswith("Independent training is rejected by phi_u (Holm over 2 tests, family-wise error at most")
    assert "phi_match ignores the order of units, and nothing is rejected by that: suspect that units" in message
    assert "which changes no output" in message


def test_disguised_kin(verdict, models, disguised):
    """phi_u is silent, phi_match is not."""
    result, message = verdict(models["base"], disguised, "phi_u", "phi_match")
    assert result.to_frame()["adjusted_log10_p"].iloc[0] > -2
    assert message.startswith("Independent training is rejected by phi_match (Holm over 2 tests")
    assert "suspect" not in message
    assert "phi_u" not in message.split("):")[0]


def test_statistics_refused(verdict, models, new_model, save_model, tmp_path):
    """Another width: what needs equal ones says so, and is counted in no correction."""
    wide = save_model(new_model(9, hidden_size=32), tmp_path / "wide")
    _, message = verdict(models["base"], wide)
    assert message.startswith(
        "Independent training is not rejected by phi_h, phi_match, phi_match_unsigned (Holm over 3"
    )
    assert "Not run: phi_u (phi_u needs models of equal width" in message
    assert "Not run: phi_l2 (phi_l2 needs equal shapes" in message


def test_no_gates(verdict, gpt2, save_model, tmp_path):
    two = [save_model(gpt2(seed), tmp_path / str(seed)) for seed in (1, 2)]
    _, message = verdict(*two, "phi_u", "phi_match")
    assert message.startswith("Independent training is not rejected by phi_u (one test, level 0.01)")
    assert "Not run: phi_match (phi_match needs a gated MLP, which GPT2LMHeadModel" in message
    assert "phi_views, for models without gates, withstands that." in message
