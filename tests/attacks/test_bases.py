"""T1 to T5, one by one: planted faults change the logits, and what is drawn has the law that the paper asks for.

That outputs stay on every architecture, or that the refusal says why, is in `test_attacks`.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from tiny_models import WIDTH

from provlab.attacks import bases, disguise
from provlab.attacks.state import Aim, AttackedModel
from provlab.errors import NoSuchSymmetryError
from provlab.reading import anatomy
from provlab.reading.architectures import described
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.symmetry import OWN_HEAD


@pytest.fixture
def attacked(tiny):
    """Apply an attack to a tiny model; return it before and after."""

    def apply(attack, label="llama"):
        state = AttackedModel.read(Checkpoint.open(tiny(label)))
        return state, attack(state, Aim(np.random.default_rng(5)))

    return apply


@pytest.mark.parametrize(
    ("label", "kind", "planted"),
    [
        pytest.param("gpt2", "T3", {"centred": False}, id="a rotation that moves the mean"),
        pytest.param("llama", "T4", {"rotary": False}, id="a rotation across rotary pairs"),
        pytest.param("gemma", "T5", {"norm_offset": 0.0}, id="a forgotten offset of the norms"),
    ],
)
def test_a_fault_is_noticed_and_nothing_is_written(label, kind, planted, tiny, tmp_path, monkeypatch):
    for module in (bases, anatomy):
        monkeypatch.setattr(module, "described", lambda name: replace(described(name), **planted))
    with pytest.raises(NoSuchSymmetryError, match="does not give the outputs of the original"):
        disguise.disguise(Checkpoint.open(tiny(label)), tmp_path / "new", seed=3, kinds=[kind])
    assert not (tmp_path / "new").exists()


def test_a_tied_head_becomes_one_of_its_own(attacked):
    before, after = attacked(bases.rotations, "llama_tied")
    assert (before.anatomy.tied, after.anatomy.tied) == (True, False)
    assert OWN_HEAD in after.weights
    assert after.config["tie_word_embeddings"] is False


@pytest.mark.parametrize("label", ["gpt2", "llama"])
def test_rotation_keeps_the_gram_matrix_of_the_embedding_and_mixes_all_directions(label, attacked):
    before, after = (state.part("embedding") for state in attacked(bases.rotations, label))
    assert torch.allclose(before @ before.T, after @ after.T, atol=1e-12)
    assert float(after.sum(1).sub(before.sum(1)).abs().max() < 1e-12) == (label == "gpt2")
    aligned = torch.nn.functional.cosine_similarity(before, after, dim=0)
    assert float(aligned.abs().max()) < 0.9


def test_random_rotations_are_uniform():
    """The first entry of a Haar matrix has the law of a coordinate of a point on the sphere: t/sqrt(t^2 + n - 1)."""
    n, rng = 4, np.random.default_rng(0)
    entries = np.array([bases.orthogonal(n, rng)[[0, 3], [0, 1]] for _ in range(2000)])
    law = stats.beta((n - 1) / 2, (n - 1) / 2, loc=-1, scale=2)
    for column in entries.T:
        assert stats.kstest(column, law.cdf).pvalue > 0.001
    matrix = bases.orthogonal(n, rng)
    assert np.allclose(matrix @ matrix.T, np.eye(n), atol=1e-14)


def test_new_norms_are_far_from_zero_and_of_either_sign_and_a_zero_cannot_be_undone(attacked):
    state, after = attacked(bases.norms)
    for name, block in (("input_norm", 0), ("post_attention_norm", 1), ("final_norm", None)):
        new = after.part(name, block)
        assert float(new.abs().min()) >= 0.5
        assert float(new.min()) < 0 < float(new.max())
    broken = state.part("input_norm", 1)
    broken[WIDTH // 2] = 0.0
    state = state.with_parts({("input_norm", 1): broken})
    with pytest.raises(NoSuchSymmetryError, match=r"layers.1.input_layernorm.weight holds a zero"):
        bases.norms(state, Aim(np.random.default_rng(0)))


def test_a_disguised_model_is_opened_by_name_and_made_once(tiny, monkeypatch):
    plain, first = Checkpoint.open(tiny("llama")), Checkpoint.open(f"disguised:T3+T6:{tiny('llama')}")
    monkeypatch.setattr(disguise, "disguise", lambda *_, **__: pytest.fail("made again"))
    assert Checkpoint.open(f"disguised:T3+T6:{tiny('llama')}").digest == first.digest != plain.digest


@pytest.mark.parametrize(
    ("reference", "kinds", "source"),
    [
        ("zoo:oak", disguise.ALL, "zoo:oak"),
        ("T1+split=2:zoo:oak@smoke", ("T1", "split=2"), "zoo:oak@smoke"),
        ("T6-:./folder", ("T6-",), "./folder"),
        ("org/name", disguise.ALL, "org/name"),
    ],
)
def test_names_of_disguised_models(reference, kinds, source):
    assert disguise.parse(reference) == (kinds, source)
