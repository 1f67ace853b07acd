"""Tests on one axis: each p-value uniform, together dependent. Reference values by symmetry or by Fisher's law."""

import math

import numpy as np
import pytest
from scipy import stats

from provlab.chapters.shared import calibration
from provlab.chapters.shared.joint_null import relabelled_null
from provlab.chapters.striped_hyena import shared_axis
from provlab.errors import InputError
from provlab.inference import pvalues

N, DRAWS, TESTS, LEVEL = 64, 3000, 6, 0.05


@pytest.fixture(scope="module")
def unrelated():
    rng = np.random.default_rng(0)
    return relabelled_null([rng.permutation(N) for _ in range(TESTS)], DRAWS, rng=rng)


@pytest.fixture(scope="module")
def repeated():
    rng = np.random.default_rng(1)
    return relabelled_null([np.arange(N)] * TESTS, DRAWS, rng=rng)


def within(count, rate):
    """Whether a count of `DRAWS` agrees with a rate, at 99.9%."""
    low, high = calibration.size_interval(count, DRAWS, 0.999)
    return low <= rate <= high


def test_each_test_alone_is_uniform(unrelated, repeated):
    """Also for matchings in perfect order, as between a model and its copy: the relabelling makes the null."""
    for draws in (unrelated[:, 0], unrelated[:, -1], repeated[:, 0]):
        assert calibration.ks_uniform(draws).p > 0.001


def test_the_p_values_are_those_of_the_library():
    rng = np.random.default_rng(2)
    matchings = [rng.permutation(9) for _ in range(3)]
    drawn = relabelled_null(matchings, 1, rng=np.random.default_rng(5))[0]
    sigma = np.random.default_rng(5).permutation(9)
    assert drawn == pytest.approx([pvalues.spearman(sigma[pi]).log10_p for pi in matchings], abs=1e-9)


def test_one_test_counted_several_times_breaks_fisher_alone(repeated):
    """Fisher of m equal p-values rejects where p^m is small: an exact rate, from the chi-squared quantile."""
    rate = math.exp(-stats.chi2.isf(LEVEL, 2 * TESTS) / (2 * TESTS))
    counts = shared_axis.rejections(repeated, LEVEL)
    assert rate > 3 * LEVEL
    assert within(counts["Fisher"], rate)
    assert within(counts["Holm"], LEVEL / TESTS)
    assert counts["Benjamini-Yekutieli"] <= 1.2 * LEVEL * DRAWS


def test_unrelated_tests_are_what_fisher_asks_for(unrelated):
    counts = shared_axis.rejections(unrelated, LEVEL)
    assert within(counts["Fisher"], LEVEL)
    assert within(counts["Holm"], 1 - (1 - LEVEL / TESTS) ** TESTS)
    assert within(counts["smallest p, uncorrected"], 1 - (1 - LEVEL) ** TESTS)
    assert counts["Benjamini-Yekutieli"] < counts["Holm"]


def test_a_common_profile_ties_the_tests_together():
    rng = np.random.default_rng(3)
    apart = shared_axis.common_profile(N, 128, 2, 0.0, rng=rng)
    together = shared_axis.common_profile(N, 128, 2, 1.0, rng=rng)
    assert pvalues.spearman(*together).rho == 1.0
    assert abs(pvalues.spearman(*apart).rho) < 5 / math.sqrt(N)
    # the models themselves have nothing in common
    assert abs(pvalues.spearman(together[0]).rho) < 5 / math.sqrt(N)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda rng: relabelled_null([[0, 1, 1]], 1, rng=rng), "no permutation"),
        (lambda rng: relabelled_null([0, 1, 2], 1, rng=rng), r"shape \(3,\)"),
        (lambda rng: relabelled_null([[1, 0]], 1, rng=rng), "at least 3"),
        (lambda rng: shared_axis.common_profile(4, 4, 1, 1.5, rng=rng), "overlap is 1.5"),
    ],
)
def test_bad_input_is_refused(call, said):
    with pytest.raises(InputError, match=said):
        call(np.random.default_rng(0))
