"""T3 to T6 leave the logits of every architecture as they are, in float64 to 1e-9, or are refused with the reason.

Which architecture has which transformation is written down here by hand, from the mathematics in the docstring of
`provlab.models.evasion`.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny_models
import torch
from scipy import stats
from tiny_models import TINY, WIDTH

from provlab.errors import InputError, MissingRoleError, NoSuchSymmetryError
from provlab.models import anatomy, disguise, evasion
from provlab.models.activations import random_tokens
from provlab.models.architectures import described
from provlab.models.checkpoint import Checkpoint
from provlab.models.symmetry import OWN_HEAD, read_all, save

TOKENS = random_tokens(tiny_models.VOCABULARY, 3, 9, seed=1)
KINDS = ("T3", "T4", "T5", "T6")
NEGATIVE = {kind: kind for kind in KINDS} | {"T6-": "T6"}
# norms behind the sublayers, norms on queries and keys, no norm with weights before a matrix, no gate
REFUSED = {
    "qwen3": {"T4"},
    "gemma2": {"T3"},
    "gemma3": {"T3", "T4"},
    "olmo": {"T5"},
    "olmo2": {"T3", "T4"},
    "gpt2": {"T6"},
    "gpt_neox": {"T6"},
    "bert_masked": {"T3", "T5", "T6"},
    "bert_classifier": {"T3", "T5", "T6"},
}
WITH_HEAD = sorted(label for label in TINY if not label.endswith("_base"))


def transformed(checkpoint, folder, family, seed=5):
    weights = read_all(checkpoint, anatomy.of(checkpoint), torch.float64)
    changed = family.sample(np.random.default_rng(seed))(weights)
    assert any(name not in weights or not torch.equal(changed[name], weights[name]) for name in changed)
    return Checkpoint.open(str(save(changed, checkpoint, folder)))


def difference(a, b):
    before, after = disguise.logits(a, TOKENS), disguise.logits(b, TOKENS)
    assert float(before.abs().max()) > 0.1
    return float((after - before).abs().max())


@pytest.mark.parametrize("kind", NEGATIVE)
@pytest.mark.parametrize("label", WITH_HEAD)
def test_outputs_are_preserved_or_the_refusal_says_why(label, kind, tiny, tmp_path):
    checkpoint = Checkpoint.open(tiny(label))
    if NEGATIVE[kind] in REFUSED.get(label, ()):
        with pytest.raises(
            NoSuchSymmetryError, match=rf"cannot be disguised by {kind}: .*\w+ has no gate|{kind} does not exist"
        ):
            disguise.disguise(checkpoint, tmp_path / "new", seed=5, kinds=[kind])
        return
    disguise.disguise(checkpoint, tmp_path / "new", seed=5, kinds=[kind])  # refuses what it does not prove
    assert 0 < difference(checkpoint, Checkpoint.open(str(tmp_path / "new"))) < 1e-3


@pytest.mark.parametrize("label", WITH_HEAD)
def test_disguise_applies_what_there_is_and_says_what_there_is_not(label, tiny, tmp_path):
    checkpoint = Checkpoint.open(tiny(label))
    result = disguise.disguise(checkpoint, tmp_path / "new", seed=3)
    assert set(result.refused) == REFUSED.get(label, set())
    assert set(result.applied) == {"T1", "T2", *KINDS} - REFUSED.get(label, set())
    assert result.difference <= disguise.EXACT
    # float32 weights, float32 arithmetic: some hundreds of roundings of 6e-8, relative to the logits
    assert result.difference < result.difference_saved < 1e-3 * result.scale
    new = Checkpoint.open(str(result.folder))
    assert {new.tensor(name).dtype for name in new.tensor_names} == {
        checkpoint.tensor(name).dtype for name in checkpoint.tensor_names
    }


# Planted faults -------------------------------------------------------------------------------------------


def test_a_rotation_that_moves_the_mean_is_noticed(tiny, tmp_path, monkeypatch):
    checkpoint = Checkpoint.open(tiny("gpt2"))
    monkeypatch.setattr(evasion, "described", lambda name: replace(described(name), centred=False))
    family = evasion.EmbeddingRotations(anatomy.of(checkpoint))
    assert difference(checkpoint, transformed(checkpoint, tmp_path / "new", family)) > 1e-3


def test_a_rotation_across_rotary_pairs_is_noticed(tiny, tmp_path, monkeypatch):
    checkpoint = Checkpoint.open(tiny("llama"))
    monkeypatch.setattr(evasion, "described", lambda name: replace(described(name), rotary=False))
    family = evasion.QueryKeyRotations(checkpoint)
    assert difference(checkpoint, transformed(checkpoint, tmp_path / "new", family)) > 1e-3


def test_a_forgotten_offset_of_the_norms_is_noticed_and_nothing_is_written(tiny, tmp_path, monkeypatch):
    checkpoint = Checkpoint.open(tiny("gemma"))
    monkeypatch.setattr(evasion, "described", lambda name: replace(described(name), norm_offset=0.0))
    with pytest.raises(NoSuchSymmetryError, match="does not give the outputs of the original"):
        disguise.disguise(checkpoint, tmp_path / "new", seed=3)
    assert not (tmp_path / "new").exists()


# The parts ------------------------------------------------------------------------------------------------


def test_a_tied_head_becomes_one_of_its_own(tiny, tmp_path):
    checkpoint = Checkpoint.open(tiny("llama_tied"))
    assert OWN_HEAD not in checkpoint.tensor_names
    new = transformed(checkpoint, tmp_path / "new", evasion.EmbeddingRotations(anatomy.of(checkpoint)))
    assert OWN_HEAD in new.tensor_names
    assert json.loads((tmp_path / "new" / "config.json").read_text())["tie_word_embeddings"] is False
    assert anatomy.of(new).tied is False


@pytest.mark.parametrize("label", ["gpt2", "llama"])
def test_rotation_keeps_the_gram_matrix_of_the_embedding_and_mixes_all_directions(label, tiny):
    checkpoint = Checkpoint.open(tiny(label))
    outcome = anatomy.of(checkpoint)
    weights = read_all(checkpoint, outcome, torch.float64)
    changed = evasion.EmbeddingRotations(outcome).sample(np.random.default_rng(2))(weights)
    before, after = (w[outcome.tensor_name("embedding")] for w in (weights, changed))
    assert torch.allclose(before @ before.T, after @ after.T, atol=1e-12)
    assert float(after.sum(1).sub(before.sum(1)).abs().max() < 1e-12) == (label == "gpt2")
    aligned = torch.nn.functional.cosine_similarity(before, after, dim=0)
    assert float(aligned.abs().max()) < 0.9


def test_random_rotations_are_uniform():
    """The first entry of a Haar matrix has the law of a coordinate of a point on the sphere: t/sqrt(t^2 + n - 1)."""
    n, rng = 4, np.random.default_rng(0)
    entries = np.array([evasion.orthogonal(n, rng)[[0, 3], [0, 1]] for _ in range(2000)])
    law = stats.beta((n - 1) / 2, (n - 1) / 2, loc=-1, scale=2)
    for column in entries.T:
        assert stats.kstest(column, law.cdf).pvalue > 0.001
    matrix = evasion.orthogonal(n, rng)
    assert np.allclose(matrix @ matrix.T, np.eye(n), atol=1e-14)


def test_new_norms_and_scales_are_far_from_zero_and_of_either_sign(tiny):
    checkpoint = Checkpoint.open(tiny("llama"))
    outcome = anatomy.of(checkpoint)
    weights = read_all(checkpoint, outcome, torch.float64)
    changed = evasion.ReplacedNorms(outcome).sample(np.random.default_rng(2))(weights)
    for name, block in (("input_norm", 0), ("post_attention_norm", 1), ("final_norm", None)):
        new = changed[outcome.tensor_name(name, block)]
        assert float(new.abs().min()) >= 0.5
        assert float(new.min()) < 0 < float(new.max())


# Refusals -------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_by_name(tiny, tmp_path):
    checkpoint = Checkpoint.open(tiny("llama"))
    with pytest.raises(InputError, match="no attack 'T7'"):
        disguise.disguise(checkpoint, tmp_path / "new", seed=0, kinds=["T7"])
    with pytest.raises(MissingRoleError, match="has no head"):
        disguise.disguise(Checkpoint.open(tiny("llama_base")), tmp_path / "new", seed=0)
    with pytest.raises(NoSuchSymmetryError, match=r"cannot be disguised by T6: GPT2LMHeadModel has no gate"):
        disguise.disguise(Checkpoint.open(tiny("gpt2")), tmp_path / "new", seed=0, kinds=["T6"])
    assert not (tmp_path / "new").exists()


def test_a_norm_weight_of_zero_cannot_be_undone(tiny):
    checkpoint = Checkpoint.open(tiny("llama"))
    outcome = anatomy.of(checkpoint)
    weights = read_all(checkpoint, outcome, torch.float64)
    name = outcome.tensor_name("input_norm", 1)
    weights[name] = weights[name].clone()
    weights[name][WIDTH // 2] = 0.0
    with pytest.raises(NoSuchSymmetryError, match=f"{name} holds a zero"):
        evasion.ReplacedNorms(outcome).sample(np.random.default_rng(0))(weights)


# By name --------------------------------------------------------------------------------------------------


def test_a_disguised_model_is_opened_by_name_and_made_once(tiny, monkeypatch):
    plain = Checkpoint.open(tiny("llama"))
    first = Checkpoint.open(f"disguised:T3+T6:{tiny('llama')}")
    assert difference(plain, first) < 1e-3  # saved in float32
    monkeypatch.setattr(disguise, "disguise", lambda *_, **__: pytest.fail("made again"))
    assert Checkpoint.open(f"disguised:T3+T6:{tiny('llama')}").digest == first.digest != plain.digest


@pytest.mark.parametrize(
    ("reference", "kinds", "source"),
    [
        ("zoo:oak", ("T1", "T2", "T3", "T4", "T5", "T6"), "zoo:oak"),
        ("T3:zoo:oak@smoke", ("T3",), "zoo:oak@smoke"),
        ("T1+T2:./folder", ("T1", "T2"), "./folder"),
        ("T6-:zoo:oak", ("T6-",), "zoo:oak"),
        ("org/name", ("T1", "T2", "T3", "T4", "T5", "T6"), "org/name"),
    ],
)
def test_names_of_disguised_models(reference, kinds, source):
    assert disguise.parse(reference) == (kinds, source)
