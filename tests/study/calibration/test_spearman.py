"""The law of Spearman's distance: by enumeration, by other ways, and equivariance of MATCH."""

import math

import numpy as np
import pytest
from scipy import stats

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import match
from provlab_study.calibration import spearman as law


def test_renumbering_a_model_renumbers_its_matching():
    """A shuffle of the matching is therefore an exact null draw, whether the pair is dependent or not."""
    rng = np.random.default_rng(0)
    W1 = rng.normal(size=(40, 12))
    for W2 in (rng.normal(size=(40, 12)), W1 + 0.1 * rng.normal(size=(40, 12))):
        whole = match(W1, W2).indices
        for _ in range(5):
            order = rng.permutation(40)
            assert match(W1[order], W2).indices.tolist() == whole[order].tolist()


def test_splitting_finds_the_exact_tail():
    """Ten ranks down to the perfect match, one permutation in 3.6 million; the interval, widened by half, holds it."""
    exact = law.counted(10)
    for estimate in law.tail_by_splitting(10, [0, 10, 40, 100], seed=3):
        half = (estimate.high - estimate.low) / 2
        assert abs(estimate.log10_p - exact[estimate.distance // 2]) < 1.5 * half
        assert half < 0.3


def outside_splittings_intervals(estimates, log10_p):
    """Whether each of these log10 p lies outside splitting's interval, at a joint level of 5% over all depths.

    One estimate's interval holds the truth 95% of the time; for all to do so, t's quantile is that of 5% over their
    number (Bonferroni).
    """
    own, joint = stats.t.isf([0.025, 0.025 / len(estimates)], law._RUNS - 1)
    half = np.array([(e.high - e.low) / 2 for e in estimates]) * joint / own
    return np.abs(np.asarray(log10_p) - [e.log10_p for e in estimates]) > half


@pytest.mark.slow
@pytest.mark.parametrize(("n", "depths"), [(64, (4, 12, 24, 48)), (256, (4, 12, 24))])
def test_the_saddlepoint_lies_in_splittings_intervals_and_the_t_tail_does_not(n, depths):
    targets = [pvalues.distance_at(-depth, n) for depth in depths]
    estimates = law.tail_by_splitting(n, targets, seed=1)
    assert max(e.high - e.low for e in estimates) < 0.5
    saddlepoint = np.array([pvalues.log10_p_spearman(target, n) for target in targets])
    assert not outside_splittings_intervals(estimates, saddlepoint).any()
    one_sided_t = [pvalues.log10_p_t(target, n) - math.log10(2) for target in targets]
    assert outside_splittings_intervals(estimates, one_sided_t)[-1]
    for off in (math.log10(2), -math.log10(2)):  # nor does twice or half the law, where intervals are narrowest
        assert outside_splittings_intervals(estimates, saddlepoint + off)[0]


def test_splitting_is_right_on_average_when_copies_stay_alike(monkeypatch):
    """A fifth of the exchanges and few permutations widen its interval, and move nothing."""
    monkeypatch.setattr(law, "_PARTICLES", 100)
    monkeypatch.setattr(law, "_SWEEPS", 1)
    monkeypatch.setattr(law, "_RUNS", 100)
    exact = law.counted(10)
    (estimate,) = law.tail_by_splitting(10, [10], seed=0)
    assert estimate.low < exact[5] < estimate.high


def test_splitting_that_never_mixes_is_refused(monkeypatch):
    """The planted fault: copies stay copies, so that the population dies out in a few ancestors."""
    monkeypatch.setattr(law, "_transpose", lambda *arguments: None)
    monkeypatch.setattr(law, "_RUNS", 2)
    monkeypatch.setattr(law, "_PARTICLES", 50)
    with pytest.raises(InputError, match="no way down"):
        law.tail_by_splitting(10, [0], seed=3)


def test_the_table_of_tails_has_the_worst_errors():
    tails = law.far_tails([14], seed=0)
    table = tails[14]
    np.testing.assert_allclose(table["saddlepoint"], table["exact"], rtol=0, atol=0.02)
    assert table["splitting"].sub(table["exact"]).abs().max() < 0.3
    assert (table["t tail"] < table["exact"]).all()
    errors = law.worst_errors(tails).split("**")
    # the saddlepoint's bound is that of tests/inference/test_tail.py; t is two decades off next to the perfect match
    assert float(errors[1]) < 0.02
    assert float(errors[3]) > 1.0
    planted = law.worst_errors({14: table.assign(saddlepoint=table["high"] + 1)})
    assert f"**0 of {len(table)}**" in planted
    assert set(law.gaps(tails)) == {"14 units", "14 units, saddlepoint", "14 units, exact"}
    assert list(law.tail_table(tails)["exact"]) == [f"{value:.2f}" for value in table["exact"]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: law.tail_by_splitting(10, [165], seed=0), "below the middle"),
        (lambda: law.tail_by_splitting(10, [], seed=0), "targets"),
    ],
)
def test_what_has_no_law_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
