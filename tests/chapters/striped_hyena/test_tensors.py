"""Tensor by tensor: planted copies are found where they are, strangers are not, and what is called is counted right."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from provlab.chapters.striped_hyena import tensors
from provlab.engine.store import Store
from provlab.errors import InputError, NotComparableError
from provlab.files import write_json
from provlab.inference import pvalues
from provlab.models.checkpoint import Checkpoint

SIZES = {"wide": (48, 24), "square": (24, 24)}


def folder_with(root, weights):
    root.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, root / "model.safetensors")
    write_json(root / "config.json", {"architectures": ["NoSuchModel"]})
    return Checkpoint.open(root)


def draw(seed, names):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(SIZES[name.split(".")[0]], generator=generator) for name in names}


@pytest.fixture
def pair(tmp_path):
    """A parent, and a child that took `wide.a` in place and `square.a` under another name, both with noise."""
    parent = draw(1, ["wide.a", "wide.b", "square.a", "square.b", "square.c"])
    child = draw(2, ["wide.a", "wide.b", "square.a", "square.b", "norm"][:4]) | {"norm": torch.ones(24)}
    noise = draw(3, ["wide.a", "square.b"])
    child["wide.a"] = parent["wide.a"] + 0.3 * noise["wide.a"]
    child["square.b"] = parent["square.a"] + 0.3 * noise["square.b"]
    return folder_with(tmp_path / "child", child), folder_with(tmp_path / "parent", parent)


TRUTH = {"wide.a": "wide.a", "square.b": "square.a"}


def test_every_pair_of_equal_shape_is_tested_over_both_axes(pair):
    tests = tensors.compare_tensors(*pair)
    assert len(tests) == 2 * (2 * 2 + 2 * 3)
    assert {test.n for test in tests} == {24, 48}
    assert len({(test.first, test.second, test.axis) for test in tests}) == len(tests)
    assert not any("norm" in test.first for test in tests)


@pytest.mark.parametrize("axis", tensors.AXES)
@pytest.mark.parametrize("correction", list(tensors.CORRECTIONS))
def test_what_was_taken_is_found_wherever_it_went(pair, axis, correction):
    frame = tensors.corrected(tensors.compare_tensors(*pair), axis, TRUTH)
    found = tensors.recovery(frame, 0.01, correction)
    assert sorted(found.found) == sorted(TRUTH.items())
    assert found.missed == found.wrong == []
    assert found.precision == found.recall == 1.0
    assert found.n_tests == len(frame) == 10
    assert frame["taken"].tolist()[:2] == [True, True]  # strongest first
    assert frame["cosine"][:2].min() > 0.9
    assert frame["cosine"][2:].abs().max() < 0.3


def test_the_corrections_count_every_test(pair):
    frame = tensors.corrected(tensors.compare_tensors(*pair), "rows")
    assert frame["holm"].to_numpy() == pytest.approx(pvalues.holm(frame["log10_p"].to_numpy()))
    assert frame["holm"][0] == pytest.approx(frame["log10_p"][0] + 1)  # the smallest of ten


def test_a_finished_comparison_is_read_again(pair, tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    first = tensors.compare_tensors(*pair, store=store)
    monkeypatch.setattr(tensors, "_test", None)
    assert tensors.compare_tensors(*pair, store=store) == first
    with pytest.raises(TypeError):  # another seed is another comparison
        tensors.compare_tensors(*pair, store=store, seed=1)


def test_recovery_counts_each_kind_of_error(pair):
    tests = tensors.compare_tensors(*pair)
    planted = tensors.recovery(tensors.corrected(tests, "rows", {"wide.a": "wide.a", "wide.b": "wide.b"}), 0.01)
    assert planted.found == [("wide.a", "wide.a")]
    assert planted.missed == [("wide.b", "wide.b")]
    assert planted.wrong == [("square.b", "square.a")]
    assert (planted.precision, planted.recall) == (0.5, 0.5)
    precision, recall = planted.intervals()
    assert precision == recall == pytest.approx((0.01258, 0.98742), abs=1e-4)  # Clopper-Pearson, 1 of 2
    nothing = tensors.recovery(tensors.corrected(tests, "rows", {}).assign(holm=0.0), 0.01)
    assert (nothing.precision, nothing.recall) == (1.0, 1.0)
    assert nothing.intervals() == ((0.0, 1.0), (0.0, 1.0))


def test_strangers_share_nothing(tmp_path):
    one, other = (folder_with(tmp_path / str(seed), draw(seed, ["wide.a", "square.a"])) for seed in (4, 5))
    tests = tensors.compare_tensors(one, other)
    assert min(test.log10_p for test in tests) > -3
    assert np.abs([test.rho for test in tests]).max() < 0.6


def test_what_cannot_be_compared_is_refused(pair, tmp_path):
    lonely = folder_with(tmp_path / "lonely", {"x": torch.ones(3, 5)})
    with pytest.raises(NotComparableError, match="no matrix of lonely has the shape of a matrix of parent"):
        tensors.compare_tensors(lonely, pair[1])
    tests = tensors.compare_tensors(*pair)
    with pytest.raises(InputError, match="no test over diagonals"):
        tensors.corrected(tests, "diagonals")
    frame = tensors.corrected(tests, "rows")
    with pytest.raises(InputError, match="does not say what was taken"):
        tensors.recovery(frame, 0.01)
    with pytest.raises(InputError, match="correction is 'none'"):
        tensors.recovery(frame.assign(taken=False), 0.01, "none")
