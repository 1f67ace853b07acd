"""Enumeration of spaces small enough for plain forward passes of every input."""

from types import SimpleNamespace

import numpy as np
import pytest

from provlab.errors import CheckpointError, InputError, NotComparableError
from provlab.modeldiff import nll
from provlab.reading.checkpoint import Checkpoint
from provlab_study.toy_modulo30 import enumeration
from provlab_study.toy_modulo30.enumeration import Space, enumerate_all


@pytest.fixture
def pair(gpt2, tmp_path, monkeypatch):
    """Two GPT-2s of four tokens on disk, an empty cache, and units of 64 inputs."""
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(enumeration, "_UNIT", 64)
    for seed, name in enumerate(("first", "second")):
        gpt2(seed, n_layer=2 + seed).save_pretrained(tmp_path / name)
    return [Checkpoint.open(tmp_path / name) for name in ("first", "second")]


def test_all_is_what_plain_forward_passes_give(pair):
    space = Space(4, 5)
    every = enumerate_all(pair, space, jobs=1)
    sequences = space.tokens(np.arange(space.size))
    for model in (0, 1):
        np.testing.assert_allclose(every.nll(model), nll.sequence_nll(pair[model])(sequences), atol=1e-5)
        # a distribution: plain sampling gives one of them, its first token uniform
        assert np.exp(-4 * every.nll(model)).sum() / 4 == pytest.approx(1, abs=1e-5)
    even = space.where(lambda tokens: tokens.sum(axis=1) % 2 == 0)
    np.testing.assert_array_equal(even, sequences.sum(axis=1) % 2 == 0)


def test_models_whose_ids_mean_different_tokens_are_refused(pair, monkeypatch):
    monkeypatch.setattr(enumeration, "shared_tokens", lambda _: SimpleNamespace(moved=1, left_out=(0, 0)))
    with pytest.raises(NotComparableError, match="one id means different tokens"):
        enumerate_all(pair, Space(4, 5), jobs=1)


def test_a_stopped_run_goes_on_with_the_missing_units(pair, monkeypatch):
    space, done, work = Space(4, 5), [], enumeration._do

    def until_the_seventh(sources, files, number, unit):
        if len(done) == 7:
            raise KeyboardInterrupt
        done.append(number)
        work(sources, files, number, unit)

    monkeypatch.setattr(enumeration, "_do", until_the_seventh)
    with pytest.raises(KeyboardInterrupt):
        enumerate_all(pair, space, jobs=1)
    later = []
    monkeypatch.setattr(enumeration, "_do", lambda *task: (later.append(task[2]), work(*task)))
    every = enumerate_all(pair, space, jobs=1)
    assert sorted(done + later) == list(range(16))
    np.testing.assert_allclose(every.nll(1), nll.sequence_nll(pair[1])(space.tokens(np.arange(1024))), atol=1e-5)

    # and a finished one is read, not made; a file that is gone is made again
    monkeypatch.setattr(enumeration, "_do", lambda *task: pytest.fail("a finished unit is done again"))
    np.testing.assert_array_equal(enumerate_all(pair, space, jobs=1).nll(0), every.nll(0))
    monkeypatch.setattr(enumeration, "_do", work)
    whole = np.array(every.nll(1))
    every.files[1].unlink()
    np.testing.assert_array_equal(enumerate_all(pair, space, jobs=1).nll(1), whole)
    every.files[1].write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"nll-1\.npy is damaged .*delete that file"):
        enumerate_all(pair, space, jobs=1)


def test_several_processes_leave_the_same_losses(pair, tmp_path, monkeypatch):
    space = Space(4, 4)
    alone = enumerate_all(pair, space, jobs=1)
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "another"))
    together = enumerate_all(pair, space, jobs=2)
    np.testing.assert_allclose(alone.nll(1), together.nll(1), atol=1e-6)


def test_a_lookup_answers_like_the_model(pair):
    every = enumerate_all(pair, Space(4, 6, (2, 1)), jobs=1)
    tokens = np.random.default_rng(0).integers(0, 4, (30, 4)).astype(np.uint8)
    sequences = np.concatenate([np.tile([2, 1], (30, 1)), tokens], axis=1)
    np.testing.assert_allclose(every.lookup(1)(tokens), nll.sequence_nll(pair[1])(sequences), atol=1e-5)


def test_index_and_tokens_are_inverse():
    space = Space(7, 5, (3,))
    index = np.arange(space.size)
    tokens = space.tokens(index)
    assert tokens.shape == (7**4, 5)
    assert np.array_equal(space.index(tokens[:, 1:]), index)
    assert tokens.tolist() == sorted(tokens.tolist())
    assert sum(unit.size for unit in Space(10, 8).units()) == 10**8


def test_unfit_spaces_and_models_are_refused(pair):
    with pytest.raises(InputError, match=r"50257\^25 = 10\^117.5 inputs are too many .* fix a longer head, or sample"):
        enumerate_all(pair, Space(50257, 25), jobs=1)
    with pytest.raises(InputError, match="first has 4 tokens, the space 10"):
        enumerate_all(pair, Space(10, 5), jobs=1)
    with pytest.raises(InputError, match="head must leave"):
        Space(4, 3, (1, 2, 3))
    with pytest.raises(InputError, match="tokens from 0 to 3"):
        Space(4, 3, (4,))
