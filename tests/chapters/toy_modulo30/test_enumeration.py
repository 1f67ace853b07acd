"""Enumeration of spaces small enough for plain forward passes of every input."""

import numpy as np
import pytest

from provlab.chapters.toy_modulo30 import enumeration
from provlab.chapters.toy_modulo30.enumeration import Space, enumerate_all
from provlab.errors import CheckpointError, InputError, NotComparableError
from provlab.modeldiff import nll
from provlab.modeldiff.comparison import from_enumeration
from provlab.models.checkpoint import Checkpoint


def even(tokens):
    """A label: the sum is even."""
    return tokens.sum(axis=1) % 2 == 0


@pytest.fixture
def pair(gpt2, tmp_path, monkeypatch):
    """Two GPT-2s of four tokens on disk, and a cache that nothing is in."""
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "cache"))
    for seed, name in enumerate(("first", "second")):
        gpt2(seed, n_layer=2 + seed).save_pretrained(tmp_path / name)
    return [Checkpoint.open(tmp_path / name) for name in ("first", "second")]


@pytest.fixture
def small_units(monkeypatch):
    monkeypatch.setattr(enumeration, "_UNIT", 64)


@pytest.mark.usefixtures("small_units")
def test_all_is_what_plain_forward_passes_give(pair):
    space = Space(4, 5)
    found = enumerate_all(pair, space, even, jobs=1)
    sequences = space.tokens(np.arange(space.size))
    plain = [nll.sequence_nll(checkpoint)(sequences) for checkpoint in pair]
    for model in (0, 1):
        np.testing.assert_allclose(found.nll(model), plain[model], atol=1e-5)
        for sort in (0, 1):
            chosen = plain[model][even(sequences) == sort]
            mass = np.exp(-4 * chosen).sum() / 4
            np.testing.assert_allclose(found.totals[model, sort], [len(chosen), chosen.sum(), mass], rtol=1e-4)
        # a distribution: what plain sampling gives is one of them
        assert found.totals[model, :, 2].sum() == pytest.approx(1, abs=1e-5)
    joint = found.joint(0, 1)
    assert joint.size == space.size
    z = (1.0, 1.5)
    single = from_enumeration(found.nll(0), found.nll(1), z)
    np.testing.assert_allclose(from_enumeration(*joint.losses(), z, joint.count).terms(), single.terms(), rtol=1e-12)


@pytest.mark.usefixtures("small_units")
def test_a_stopped_run_goes_on_with_what_is_missing(pair, tmp_path, monkeypatch):
    space = Space(4, 5)
    done = []
    work = enumeration._do

    def until_the_seventh(number):
        if len(done) == 7:
            raise KeyboardInterrupt
        done.append(number)
        return work(number)

    monkeypatch.setattr(enumeration, "_do", until_the_seventh)
    with pytest.raises(KeyboardInterrupt):
        enumerate_all(pair, space, even, jobs=1)
    (folder,) = (tmp_path / "cache" / "enumerations").iterdir()
    assert len(list((folder / "units").iterdir())) == 7

    later = []
    monkeypatch.setattr(enumeration, "_do", lambda number: (later.append(number), work(number))[1])
    found = enumerate_all(pair, space, even, jobs=1)
    assert sorted(done + later) == list(range(16))
    assert not (folder / "units").exists()
    np.testing.assert_allclose(found.nll(1), nll.sequence_nll(pair[1])(space.tokens(np.arange(1024))), atol=1e-5)

    # and a finished one is read, not made
    monkeypatch.setattr(enumeration, "_do", None)
    again = enumerate_all(pair, space, even, jobs=1)
    assert np.array_equal(again.joint(0, 1).count, found.joint(0, 1).count)


@pytest.mark.usefixtures("small_units")
def test_several_processes_leave_what_one_leaves(pair, tmp_path, monkeypatch):
    space = Space(4, 4)
    one = enumerate_all(pair, space, even, jobs=1)
    monkeypatch.setenv("PROVLAB_CACHE", str(tmp_path / "another"))
    two = enumerate_all(pair, space, even, jobs=2)
    assert np.array_equal(one.joint(0, 1).key, two.joint(0, 1).key)
    np.testing.assert_allclose(one.totals, two.totals)


def test_a_table_answers_like_the_model(pair):
    space = Space(4, 6, (2, 1))
    found = enumerate_all(pair, space, even, jobs=1)
    table = found.table(1)
    tokens = np.random.default_rng(0).integers(0, 4, (30, 4)).astype(np.uint8)
    whole = np.concatenate([np.tile([2, 1], (30, 1)), tokens], axis=1)
    np.testing.assert_allclose(table(tokens), nll.sequence_nll(pair[1])(whole), atol=1e-5)
    assert (table.vocabulary, table.length, table.evaluations) == (4, 4, 30)
    with pytest.raises(InputError, match="shape"):
        table(whole)
    with pytest.raises(InputError, match="from 0 to 3"):
        table(tokens + 2)


def test_a_single_model_has_its_density_of_states(pair):
    found = enumerate_all(pair[:1], Space(4, 4), even, jobs=1)
    assert found.joint(0, 0).density("A")[1].sum() == 256
    with pytest.raises(InputError, match="no pair"):
        found.joint(0, 1)


def test_index_and_tokens_are_inverse():
    space = Space(7, 5, (3,))
    index = np.arange(space.size)
    tokens = space.tokens(index)
    assert tokens.shape == (7**4, 5)
    assert np.array_equal(space.index(tokens[:, 1:]), index)
    assert tokens.tolist() == sorted(tokens.tolist())
    assert sum(unit.size for unit in Space(10, 8).units()) == 10**8


def test_what_does_not_fit_is_refused(pair, gpt2, tmp_path):
    with pytest.raises(InputError, match=r"50257\^25 = 10\^117.5 inputs are too many .* fix a longer head, or sample"):
        enumerate_all(pair, Space(50257, 25), even, jobs=1)
    with pytest.raises(InputError, match="first has 4 tokens, the space 10"):
        enumerate_all(pair, Space(10, 5), even, jobs=1)
    with pytest.raises(InputError, match="at least one model"):
        enumerate_all([], Space(4, 5), even, jobs=1)
    with pytest.raises(InputError, match="head must leave"):
        Space(4, 3, (1, 2, 3))
    with pytest.raises(InputError, match="tokens from 0 to 3"):
        Space(4, 3, (4,))
    gpt2(vocab_size=5).save_pretrained(tmp_path / "five")
    with pytest.raises((InputError, NotComparableError)):
        enumerate_all([pair[0], Checkpoint.open(tmp_path / "five")], Space(4, 5), even, jobs=1)


def test_a_damaged_result_is_made_again_once_it_is_deleted(pair):
    found = enumerate_all(pair, Space(4, 4), even, jobs=1)
    cells = found.folder / "cells.npz"
    cells.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"cells\.npz is damaged .*delete that file"):
        enumerate_all(pair, Space(4, 4), even, jobs=1)
    cells.unlink()
    again = enumerate_all(pair, Space(4, 4), even, jobs=1)
    np.testing.assert_array_equal(again.totals, found.totals)
