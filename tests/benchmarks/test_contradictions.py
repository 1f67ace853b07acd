"""Configs that contradict: a sample of those that `benchmarks/contradictions.py` makes, and faults that it must see."""

import json

import contradictions
import numpy as np
import pytest
import tiny_models

from provlab.reading import roles, tying

LABELS = ("llama", "llama_tied", "gpt2", "gemma")


@pytest.mark.filterwarnings("ignore")
def test_a_sample_is_read_as_transformers_reads_it_or_refused():
    outcomes = list(contradictions.tried(24, 3, LABELS))
    assert [one for one in outcomes if one.outcome == "different"] == []
    assert {one.outcome for one in outcomes} >= {"right", "refused"}
    assert all(one.why.count("\n") == 0 for one in outcomes)


def test_another_reading_is_seen(llama, monkeypatch):
    """Planted: the rows of every matrix in another order."""
    assert contradictions.judged(llama)[0] == "right"
    read = roles.Anatomy.read
    monkeypatch.setattr(roles.Anatomy, "read", lambda *args, **how: np.ascontiguousarray(read(*args, **how)[::-1]))
    assert contradictions.judged(llama)[0] == "different"


def test_a_head_that_is_guessed_is_seen(llama, monkeypatch):
    """Planted: where the file lacks the head, it is taken for the embedding, whatever the class says."""

    def lost(config):
        del config["tie_word_embeddings"]

    tiny_models.rewrite(llama, lambda tensors: tensors.pop("lm_head.weight"))
    tiny_models.edit_json(llama / "config.json", lost)
    assert contradictions.judged(llama)[0] == "refused"
    monkeypatch.setattr(tying, "declared", lambda config: tying.Tying(True, ""))
    assert json.loads((llama / "config.json").read_text())["model_type"] == "llama"
    assert contradictions.judged(llama)[0] == "alone"  # transformers draws that head at random
