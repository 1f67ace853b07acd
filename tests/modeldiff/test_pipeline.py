"""The four steps end to end on two tiny models whose whole space can be listed."""

import itertools
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from provlab.errors import InputError
from provlab.kept import ArrayCache
from provlab.modeldiff import held_out, pipeline
from provlab.modeldiff.comparison import BothDirections, from_enumeration
from provlab.modeldiff.representative import Direction, within
from provlab.reading import local

VOCABULARY, LENGTH = 4, 5


@pytest.fixture(scope="module")
def models(gpt2, tmp_path_factory):
    folders = [str(tmp_path_factory.mktemp("model")) for _ in range(2)]
    for seed, folder in enumerate(folders, 1):
        gpt2(seed).save_pretrained(folder)
    return list(pipeline.open_models(folders).values())


@pytest.fixture
def kept(tmp_path):
    return ArrayCache(tmp_path / "kept")


@pytest.fixture(scope="module")
def truth(models):
    tokens = np.array(list(itertools.product(range(VOCABULARY), repeat=LENGTH)))
    losses = [model.nll(tokens) for model in models]
    z = tuple(np.quantile(np.concatenate(losses), [0.02, 0.4]))
    return from_enumeration(*losses, z)


def test_of_no_models_none_are_opened():
    assert pipeline.open_models([]) == {}  # a page may be given none of a kind


def test_generation_finds_what_the_enumeration_knows(models, kept, truth):
    """All four terms, by R3 and by counts, within 10%; |X| and |R3| too."""
    diff = pipeline.model_diff(*models, truth.z, pipeline.Generation(20_000, LENGTH), kept)
    np.testing.assert_allclose(diff.ratio().value, truth.ratio().value, rtol=0.1)
    np.testing.assert_allclose(diff.ratio("count").value, truth.ratio().value, rtol=0.1)
    summary = vars(diff.summary())
    np.testing.assert_allclose(summary["log10_inputs"], [truth.a.log10_number, truth.b.log10_number], atol=0.04)
    common = np.log10(truth.a.weight[truth.a.common].sum())
    np.testing.assert_allclose(summary["log10_common"], common, atol=0.05)
    assert summary["by_r3"]["reference"] == "PD_AB"
    assert summary["below_a"][1] <= truth.a.share_below()[0] <= summary["below_a"][2]
    value, low, high = diff.log10_more()
    assert low <= value <= high
    assert value == pytest.approx(truth.log10_more()[0], abs=0.04)


def test_draws_of_both_models_are_one_sample(models, kept, truth):
    """The mixture counts A's inputs and B's as their enumeration does; without its weights it would not."""
    drawn = pipeline.mixed(*models, pipeline.Generation(10_000, LENGTH), kept)
    sides = [
        Direction.from_draws(draws.within(truth.z), other.nll[within(draws.nll, truth.z)], side, truth.z)
        for side, draws, other in zip("AB", drawn, drawn[::-1], strict=True)
    ]
    diff = BothDirections(*sides, truth.z, joint=True)
    for by in ("R3", "count"):
        np.testing.assert_allclose(diff.ratio(by).value, truth.ratio().value, rtol=0.1)
    # the same chains are resampled for both sides: of a side and itself nothing is left to chance
    assert replace(diff, b=replace(diff.a, side="B")).log10_more() == (0, 0, 0)
    # R3 is one set of draws, so that both estimates of its number are one
    assert diff.log10_common[0] == pytest.approx(diff.log10_common[1])
    assert diff.log10_common[0] == pytest.approx(np.log10(truth.a.common.sum()), abs=0.03)


def test_a_ladder_is_laid_through_the_models_own_temperature(models, kept, truth):
    settings = pipeline.Exchange(LENGTH, n_steps=500)
    diff = pipeline.model_diff(*models, truth.z, settings, kept)
    for by in ("R3", "count"):
        np.testing.assert_allclose(diff.ratio(by).value, truth.ratio().value, rtol=0.2)
    samples = pipeline.exchanged(models[0], settings, kept)
    assert np.isinf(samples.temperatures[0])
    assert samples.temperatures[-1] == 1 / (LENGTH - 1)
    colder = pipeline.exchanged(models[0], pipeline.Exchange(LENGTH, n_steps=100, coldest=1.5), kept).temperatures
    assert 1 / (LENGTH - 1) in colder
    assert colder[-1] == pytest.approx(1 / (LENGTH - 1) / 1.5)
    below = pipeline.exchanged(models[0], pipeline.Exchange(LENGTH, n_steps=100, below=True, coldest=2.0), kept)
    assert below.temperatures[[0, -1]] == pytest.approx([1 / (LENGTH - 1), 1 / (LENGTH - 1) / 2])


def test_a_copy_does_not_write_what_its_base_writes(models, kept, tmp_path):
    """One seed, by generation and by replica exchange; the models differ in the digest of their files alone."""
    copied = models[0].nll.network
    with torch.no_grad():
        copied.lm_head.weight[0, 0] += 1e-6
    copied.save_pretrained(tmp_path / "copy")
    (copy,) = pipeline.open_models([str(tmp_path / "copy")]).values()
    for settings in (pipeline.Generation(400, LENGTH, n_chains=4), pipeline.Exchange(LENGTH, (np.inf, 0.5), 4, 20)):
        draw = pipeline.generated if isinstance(settings, pipeline.Generation) else pipeline.exchanged
        ours, theirs = (draw(model, settings, kept).tokens.reshape(-1, LENGTH)[:400] for model in (models[0], copy))
        assert (ours == theirs).all(axis=1).mean() < 0.05


def test_a_second_run_reads_what_the_first_kept(models, kept, truth):
    settings = pipeline.Generation(400, LENGTH, n_chains=4)
    first = pipeline.model_diff(*models, truth.z, settings, kept)
    before = [model.nll.evaluations for model in models]
    second = pipeline.model_diff(*models, truth.z, settings, kept)
    assert [model.nll.evaluations for model in models] == before
    np.testing.assert_array_equal(first.a.draws.tokens, second.a.draws.tokens)
    np.testing.assert_array_equal(first.b.difference, second.b.difference)
    other = pipeline.generated(models[0], pipeline.Generation(400, LENGTH, n_chains=4, seed=1), kept)
    assert (other.tokens != pipeline.generated(models[0], settings, kept).tokens).any()


def test_judging_keeps_the_order_and_judges_once(models, kept):
    tokens = np.array([[3, 1, 2, 0, 1], [0, 0, 1, 2, 3], [3, 1, 2, 0, 1]])
    before = models[0].nll.evaluations
    losses = pipeline.judged(models[0], tokens, kept)
    assert models[0].nll.evaluations == before + 2
    np.testing.assert_allclose(losses, models[0].nll(tokens), atol=1e-6)
    assert len(pipeline.judged(models[0], tokens[:0], kept)) == 0


def test_the_rule_for_z_and_its_pieces(models, kept):
    text = np.random.default_rng(0).integers(0, VOCABULARY, 300)
    pieces = held_out.pieces(text, LENGTH, 50, seed=1)
    assert pieces.shape == (50, LENGTH)
    assert all(any((text[i : i + LENGTH] == piece).all() for i in range(296)) for piece in pieces[:5])
    pool = held_out.HeldOut({"text": ""}, 50, kept, 1)
    pool._encoded[models[0].source] = {"text": text}
    low, high = pool.range_of(*models, LENGTH, (0.05, 0.5))
    both = np.concatenate([model.nll(pieces) for model in models])
    assert (low, high) == pytest.approx(tuple(np.quantile(both, [0.05, 0.5])))
    assert pool.range_of(*models, LENGTH, (0.05, 0.5), (1.0, 2.0)) == (1.0, 2.0)
    with pytest.raises(InputError, match="shares must rise"):
        pool.range_of(*models, LENGTH, (0.5, 0.05))
    with pytest.raises(InputError, match="too few for pieces of 400"):
        held_out.pieces(text, 400, 2)


def test_files_are_hashed_while_models_are_loaded(gpt2, tmp_path, monkeypatch):
    """Two models of 13 GB are hashed for half a minute, and what is drawn depends on the hashes."""
    folders = [str(tmp_path / name) for name in "ab"]
    for seed, folder in enumerate(folders, 1):
        gpt2(seed).save_pretrained(folder)
    begun, load = threading.Event(), pipeline.sequence_nll
    hashes, file_hash = [], local.remembered_sha256

    def hashed(path):
        begun.set()
        hashes.append(path)
        return file_hash(path)

    def loaded(*arguments, **settings):
        assert begun.wait(20)
        return load(*arguments, **settings)

    monkeypatch.setattr(local, "remembered_sha256", hashed)
    monkeypatch.setattr(pipeline, "sequence_nll", loaded)
    models = pipeline.open_models(folders)
    n = len(hashes)
    assert len({model.key["model"] for model in models.values()}) == 2
    assert len(hashes) == n


def test_who_stops_while_models_are_loaded_does_not_wait_for_hashes(gpt2, tmp_path, monkeypatch):
    folder, stopped = str(tmp_path / "a"), threading.Event()
    gpt2(1).save_pretrained(folder)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "remembered_sha256", lambda path: stopped.wait(20) and "0" * 64)
    monkeypatch.setattr(pipeline, "sequence_nll", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pipeline.open_models([folder])
    waited = time.monotonic() - began
    stopped.set()
    assert waited < 10
