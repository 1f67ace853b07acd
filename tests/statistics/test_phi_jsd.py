"""phi_JSD: a definition's value at any chunking, no copy in double precision of all laws, and laws far from uniform."""

import tracemalloc

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from provlab import compare
from provlab.arrays import on
from provlab.attacks.state import AttackedModel
from provlab.reading import steps
from provlab.reading.checkpoint import Checkpoint
from provlab.running.predictions import next_token_log_probs
from provlab.statistics import phi_jsd
from provlab.statistics.options import Options
from provlab.statistics.phi_jsd import NextTokens, PhiJSD, jensen_shannon


def laws(n, vocabulary, spread=3.0, seed=0):
    """Natural logarithms of `n` distributions, float32."""
    logits = np.random.default_rng(seed).normal(size=(n, vocabulary)) * spread
    return (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("vocabulary", [7, 1000])
def test_value_is_that_of_the_definition_whatever_is_taken_at_once(vocabulary, monkeypatch):
    p, q = laws(5, vocabulary), laws(5, vocabulary, seed=1)
    expected = [jensenshannon(*np.exp([a, b], dtype=np.float64)) ** 2 for a, b in zip(p, q, strict=True)]
    np.testing.assert_allclose(jensen_shannon(p, q), expected, rtol=1e-5)  # scipy takes their float32 sums to 1
    whole = jensen_shannon(p, q)
    monkeypatch.setattr(phi_jsd, "_AT_ONCE", 1)
    assert np.array_equal(jensen_shannon(p, q), whole)


def test_tokens_that_are_all_but_impossible_add_nothing():
    """Where both models give a token less than the smallest double, it has no logarithm, and must not make NaN."""
    p = np.array([[0.0, -800.0, -np.inf], [0.0, -800.0, -900.0]], np.float32)
    q = np.array([[0.0, -790.0, -800.0], [-800.0, 0.0, -900.0]], np.float32)
    p[0, 2] = -900.0
    np.testing.assert_allclose(jensen_shannon(p, q), [0, np.log(2)], atol=1e-12)
    some = np.array([1, 2])
    np.testing.assert_allclose(jensen_shannon(p, q, (some, some))[1], 0, atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 4000, 1 << 22])
def test_on_a_device_divergences_are_those_of_the_cpu(at_once, as_device, monkeypatch, tmp_path):
    """The laws lie in a file that is mapped for reading; some tokens are all but impossible."""
    monkeypatch.setattr(phi_jsd, "_AT_ONCE_THERE", at_once)
    p, q = laws(30, 500, spread=40.0), laws(30, 500, spread=40.0, seed=1)
    p[3:6, 100:], q[3:6, 100:] = -800.0, -790.0
    np.save(tmp_path / "p.npy", p)
    p = np.load(tmp_path / "p.npy", mmap_mode="r")
    rng = np.random.default_rng(2)
    rows = []

    def there(values):
        rows.append(len(values))
        return go(values)

    go = on("cpu")
    for common in (None, (rng.permutation(500)[:300], rng.permutation(500)[:300])):
        result = jensen_shannon(p, q, common, there)
        np.testing.assert_allclose(result, jensen_shannon(p, q, common), rtol=1e-12, atol=1e-15)
    assert set(rows) == {max(1, min(at_once // 500, 30)), *([30 % 8] if at_once == 4000 else [])}
    assert as_device >= {"jensen_shannon", "_given"}


def test_the_statistic_compares_on_the_device_of_the_options(as_device):
    p, q, words = laws(30, 50), laws(30, 50, seed=1), np.arange(50)
    sides = [NextTokens(words, np.zeros((1, 30), np.int64), law, np.ones(6)) for law in (p, q)]
    result = PhiJSD().compare_block(*sides, None, Options())
    assert result.value == pytest.approx(jensen_shannon(p, q).mean(), rel=1e-12)
    assert as_device >= {"jensen_shannon"}


def test_a_large_vocabulary_makes_no_copy_of_all_laws():
    """Two models' laws are 32 MB; what is held beside them is what a few laws take in double precision."""
    p, q = laws(64, 2**16), laws(64, 2**16, seed=1)
    tracemalloc.start()
    jensen_shannon(p, q)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < p.nbytes / 2


def test_few_sequences_are_run_at_once_where_the_vocabulary_is_large(tiny, monkeypatch):
    checkpoint = Checkpoint.open(tiny("llama"))
    tokens = np.random.default_rng(0).integers(0, 16, size=(6, 4))
    whole = list(next_token_log_probs(checkpoint, tokens))
    monkeypatch.setattr(steps, "_LOGITS", 2 * whole[0].size // 6)
    parts = list(next_token_log_probs(checkpoint, tokens))
    assert (len(whole), len(parts)) == (1, 3)
    np.testing.assert_allclose(np.concatenate(parts), whole[0], atol=1e-5)


@pytest.mark.parametrize("power", [20, 60])
def test_a_loud_unit_that_is_read_faintly_does_not_move_the_rounding(models, text, tmp_path, power):
    """Its up row is 2^k times as long and its down column 2^-k: the outputs are equal, to the last bit."""

    def loud(units):
        scales = torch.ones(len(units["up"]), 1, dtype=torch.float64)
        scales[0] = 2.0**power
        return units | {"up": units["up"] * scales, "down": units["down"] / scales}

    state = AttackedModel.read(Checkpoint.open(models["base"]))
    changed = state.with_units(loud).write(tmp_path / "loud")
    of = [compare(models["base"], other, statistics=["phi_jsd"], text=text) for other in (models["tuned"], changed)]
    plain, rounded = (result.records[0].outcome.detail.rounding for result in of)
    assert rounded < 3 * plain


@pytest.mark.parametrize("others", [["phi_match_all"], ["phi_match", "phi_match_all"]])
def test_a_run_over_the_beginning_of_the_text_does_not_stand_for_the_whole(models, text, others):
    """`phi_match_all` reads some sequences; what the model predicts on these is not what it predicts on all."""
    pair, how = (models["base"], models["tuned"]), {"text": text, "n_sequences": 16, "sequence_length": 32}
    alone, beside = (
        {record.statistic: record for record in compare(*pair, statistics=statistics, **how).records}["phi_jsd"]
        for statistics in (["phi_jsd"], [*others, "phi_jsd"])
    )
    assert beside.error is None
    assert beside.outcome.value == pytest.approx(alone.outcome.value, rel=1e-4)
