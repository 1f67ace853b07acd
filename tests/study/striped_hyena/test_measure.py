"""Tensor by tensor: planted copies are found where they are, strangers are not; tests on one axis are dependent.

Reference values by symmetry or by Fisher's law.
"""

import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy import stats

from provlab.errors import NotComparableError
from provlab.files import write_json
from provlab.inference import pvalues
from provlab.inference.matching import match_shuffled
from provlab.reading.checkpoint import Checkpoint
from provlab_study.shared import calibration
from provlab_study.shared.joint_null import relabelled_null
from provlab_study.striped_hyena import measure

SIZES = {"wide": (48, 24), "square": (24, 24)}
TRUTH = {"wide.a": "wide.a", "square.b": "square.a"}


def folder_with(root, weights):
    root.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, root / "model.safetensors")
    write_json(root / "config.json", {"architectures": ["NoSuchModel"]})
    return Checkpoint.open(root)


def draw(seed, names):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(SIZES[name.split(".")[0]], generator=generator) for name in names}


def compared(a, b):
    return measure.every_pair(a, b, lambda x, y: pvalues.spearman(match_shuffled(x, y, seed=0).indices))


@pytest.fixture(scope="module")
def tests(tmp_path_factory):
    """A parent, and a child that took `wide.a` in place and `square.a` under another name, both with noise."""
    root = tmp_path_factory.mktemp("pair")
    parent = draw(1, ["wide.a", "wide.b", "square.a", "square.b", "square.c"])
    child = draw(2, ["wide.a", "wide.b", "square.a", "square.b"]) | {"norm": torch.ones(24)}
    noise = draw(3, ["wide.a", "square.b"])
    child["wide.a"] = parent["wide.a"] + 0.3 * noise["wide.a"]
    child["square.b"] = parent["square.a"] + 0.3 * noise["square.b"]
    return compared(folder_with(root / "child", child), folder_with(root / "parent", parent))


def test_every_pair_of_equal_shape_is_tested_over_both_axes(tests):
    assert len(tests) == 2 * (2 * 2 + 2 * 3)
    assert not tests.duplicated(["first", "second", "axis"]).any()
    assert not tests["first"].str.contains("norm").any()


@pytest.mark.parametrize("axis", measure.AXES)
@pytest.mark.parametrize("correction", list(measure.CORRECTIONS))
def test_tensors_that_were_taken_are_found_wherever_they_went(tests, axis, correction):
    frame = tests[tests["axis"] == axis]
    called = measure.CORRECTIONS[correction](frame["log10_p"]) <= -2
    assert sorted(zip(frame["first"][called], frame["second"][called], strict=True)) == sorted(TRUTH.items())
    assert frame["cosine"][called].min() > 0.9
    assert frame["cosine"][~called].abs().max() < 0.3


def test_strangers_share_nothing(tmp_path):
    tests = compared(*(folder_with(tmp_path / str(seed), draw(seed, ["wide.a", "square.a"])) for seed in (4, 5)))
    assert tests["log10_p"].min() > -3


def test_rows_of_zeros_are_left_out_and_so_is_an_axis_of_tokens(tmp_path, monkeypatch):
    """As many checkpoints have them: a row for padding, and a table of more tokens than are matched."""
    parent = draw(1, ["wide.a"])
    child = {"wide.a": parent["wide.a"].clone()}
    child["wide.a"][3] = 0.0
    parent["wide.a"][5:7] = 0.0
    folders = [folder_with(tmp_path / name, model) for name, model in (("c", child), ("p", parent))]
    found = compared(*folders).set_index("axis")
    assert found.loc["rows", "log10_p"] == pytest.approx(pvalues.log10_floor(48 - 3))
    assert found.loc["rows", "cosine"] == pytest.approx(1.0)
    monkeypatch.setattr(measure, "LONGEST", 40)
    assert list(compared(*folders)["axis"]) == ["columns"]


def test_models_without_a_common_shape_are_refused(tmp_path):
    lonely, parent = (
        folder_with(tmp_path / name, {"x": torch.ones(shape)}) for name, shape in (("l", (3, 5)), ("p", 3))
    )
    with pytest.raises(NotComparableError, match="no matrix of l has the shape of a matrix of p"):
        compared(lonely, parent)


def test_records_keep_taken_pairs_and_those_that_are_near(tests):
    """One comparison of ten tests: two taken, one that is near, and one of another hybrid, which no claim is about."""
    frame = tests[tests["axis"] == "rows"].assign(holm=0.0, benjamini_yekutieli=0.0)
    frame["taken"] = [TRUTH.get(first) == second for first, second in zip(frame["first"], frame["second"], strict=True)]
    near = frame.index[~frame["taken"]][0]
    frame.loc[near, "holm"] = -1.5
    (record,) = measure.sharing({("h", "p", "rows"): frame, ("control", "p", "rows"): frame}, ["h"], "p")
    assert (record["related"], record["n_tests"], record["n_taken"], len(record["pairs"])) == (True, 10, 2, 3)
    assert [pair["holm"] for pair in record["pairs"] if not pair["taken"]] == [-1.5]
    assert set(record["pairs"][0]) == {"first", "second", "log10_p", "holm", "benjamini_yekutieli", "taken"}


# Tests on one axis --------------------------------------------------------------------------------------------------

N, DRAWS, TESTS, LEVEL = 64, 3000, 6, 0.05
UNRELATED = [np.random.default_rng(seed).permutation(N) for seed in range(TESTS)]
REPEATED = [np.arange(N)] * TESTS


def null(matchings):
    return relabelled_null(matchings, DRAWS, rng=np.random.default_rng(1))


def within(log10_p, rate):
    """Whether the share of draws below the level agrees with a rate, at 99.9%."""
    low, high = stats.binomtest(int((log10_p <= np.log10(LEVEL)).sum()), DRAWS).proportion_ci(0.999)
    return low <= rate <= high


@pytest.mark.parametrize("matchings", [UNRELATED, REPEATED])
def test_each_test_alone_is_uniform(matchings):
    """Also for matchings in perfect order, as between a model and its copy: the relabelling makes the null."""
    drawn = null(matchings)
    assert calibration.ks_uniform(drawn[:, 0]).p > 0.001
    assert calibration.ks_uniform(drawn[:, -1]).p > 0.001


def test_the_p_values_are_those_of_the_library():
    rng = np.random.default_rng(2)
    matchings = [rng.permutation(9) for _ in range(3)]
    drawn = relabelled_null(matchings, 1, rng=np.random.default_rng(5))[0]
    sigma = np.random.default_rng(5).permutation(9)
    assert drawn == pytest.approx([pvalues.spearman(sigma[pi]).log10_p for pi in matchings], abs=1e-9)


# Fisher over m equal p-values rejects where p^m is small: an exact rate, from the chi-squared quantile
TWICE = math.exp(-stats.chi2.isf(LEVEL, 2 * TESTS) / (2 * TESTS))


@pytest.mark.parametrize(
    ("matchings", "fisher", "holm"),
    [(REPEATED, TWICE, LEVEL / TESTS), (UNRELATED, LEVEL, 1 - (1 - LEVEL / TESTS) ** TESTS)],
)
def test_one_test_counted_several_times_breaks_fisher_alone(matchings, fisher, holm):
    assert TWICE > 3 * LEVEL
    drawn = null(matchings)
    assert within(pvalues.fisher(drawn, axis=1), fisher)
    assert within(np.array([pvalues.holm(row).min() for row in drawn]), holm)
    stricter = np.array([pvalues.benjamini_yekutieli(row).min() for row in drawn])
    assert (stricter <= np.log10(LEVEL)).sum() <= 1.2 * LEVEL * DRAWS


def test_a_common_profile_ties_the_tests_together():
    rng = np.random.default_rng(3)
    apart = measure.common_profile(N, 128, 2, 0.0, rng=rng)
    together = measure.common_profile(N, 128, 2, 1.0, rng=rng)
    assert pvalues.spearman(*together).rho == 1.0
    assert abs(pvalues.spearman(*apart).rho) < 5 / math.sqrt(N)
    # the models themselves have nothing in common
    assert abs(pvalues.spearman(together[0]).rho) < 5 / math.sqrt(N)


@pytest.mark.parametrize("model", ["zoo:oak", "zoo:none", "/mine", "org/mine"])
def test_what_a_model_took_that_is_no_hybrid_of_the_zoo_is_not_known(model):
    assert measure.origins(model) is None
