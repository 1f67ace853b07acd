"""Verdicts and the bars that they are judged by."""

import numpy as np
import pytest
from scipy import stats

from provlab.errors import ParameterError
from provlab_study.publishing.evidence import FAILS, HOLDS, WITHIN_SPREAD, Bar, ClaimStatus, judge
from provlab_study.publishing.judgement import Judgement


def judged(*values, at=-12.0, **options):
    return judge("ours", "it holds", bars=[Bar("weakest block", values, at, **options)])


def test_a_bar_without_values_is_refused():
    with pytest.raises(ParameterError, match="the bar of the weakest block has no value"):
        judged()


def test_one_value_is_judged_by_its_side_and_tells_its_margin():
    result = judged(-17.0)
    assert (result.status, result.why, result.margin) == (
        HOLDS,
        "it holds",
        "weakest block: -17.0, 5 below the bar of -12",
    )
    assert result.replicates == ""
    assert judged(-11.5).status == FAILS
    assert judged(-11.5).why == "weakest block: -11.5, 0.5 above the bar of -12, on the wrong side"
    assert judged(-12.0).status == FAILS
    assert judged(0.3, at=0.2, above=True).status == HOLDS
    assert judged(0.1, at=0.2, above=True).margin == "weakest block: 0.1, 0.1 below the bar of 0.2"
    assert judged(np.nan).status == FAILS


@pytest.mark.parametrize(
    ("value", "interval", "at", "words"),
    [
        (0.99985, (0.99975, 0.99992), 0.9995, "0.99985 (95% interval 0.99975 to 0.99992), 0.00035 above"),
        (1.1097, (1.061, 1.158), 1.2, "1.11 (95% interval 1.061 to 1.158), 0.09 below"),
        (0.0, (0.0, 0.073), 0.01, "0 (95% interval 0 to 0.073), 0.01 below"),
        (-863.4, None, -30, "-863.4, 833.4 below"),
        (12.0004, None, 12, "12.0004, 0.0004 above"),
        (3e-9, None, 1.0, "3e-09, 1 below"),
    ],
)
def test_a_value_is_written_as_finely_as_its_distance_from_the_bar(value, interval, at, words):
    assert words in judged(value, at=at, interval=interval).margin


def test_replicates_must_be_beyond_the_bar_by_more_than_their_spread():
    safe = judged(-17.0, -18.0, -17.5, -16.5, -18.5)
    assert (safe.status, safe.replicates) == (HOLDS, "5 of 5")
    assert safe.margin == "weakest block: mean -17.5, 5.5 below the bar of -12, spread 0.75"
    near = judged(-11.5, -17.0, -14.0, -13.0, -15.0)
    assert (near.status, near.replicates) == (WITHIN_SPREAD, "4 of 5")
    assert "or a replicate, is on the other side" in near.why
    assert judged(-12.1, -20.0, -13.0).status == WITHIN_SPREAD  # all beyond, but not by enough
    assert judged(-11.9, -12.2, -10.0, -7.0, -9.0).status == FAILS
    assert judged(-7.6, -13.7, -9.3).status == FAILS  # the mean is on the wrong side, and an interval of it on both
    lost = judged(-1.0, -2.0, -1.5)
    assert (lost.status, lost.replicates) == (FAILS, "0 of 3")
    assert judged(-17.0, np.nan, -16.0).status == FAILS
    assert judged(-2000.0, -2000.0, -2000.0).status == HOLDS  # at the floor there is no spread


def test_one_replicate_on_the_wrong_side_is_enough():
    assert judged(*[-20.0] * 19, -11.0).status == WITHIN_SPREAD


def test_the_interval_of_a_single_value_is_its_spread():
    def status(low, high):
        return judged(0.3, at=0.2, above=True, interval=(low, high)).status

    assert (status(0.25, 0.4), status(0.1, 0.4), status(-np.inf, 0.4)) == (HOLDS, WITHIN_SPREAD, WITHIN_SPREAD)
    assert judged(0.1, at=0.2, above=True, interval=(0.05, 0.15)).status == FAILS
    result = judged(0.3, at=0.2, above=True, interval=(0.25, 0.4))
    assert (result.margin, result.replicates) == (
        "weakest block: 0.3 (95% interval 0.25 to 0.4), 0.1 above the bar of 0.2",
        "",
    )


def test_the_spread_misses_the_truth_as_often_as_it_says():
    """Five normal values: their truth is above their mean plus the spread in 5% of cases."""
    runs = np.random.default_rng(3).normal(size=(20_000, 5))
    above = [run.mean() + Bar("", run, 0.0).spread < 0 for run in runs]
    assert stats.binomtest(sum(above), len(above), 0.05).pvalue > 0.01


@pytest.mark.parametrize(
    ("truth", "rates"), [(-2, (0, 0, 1)), (-1, (0, 0.04, 0.96)), (0, (0.05, 0.45, 0.5)), (2, (0.71, 0.29, 0))]
)
def test_a_truth_on_the_wrong_side_fails(truth, rates):
    """Three replicates whose truth lies so many standard deviations beyond the bar: the rates of the docstring."""
    runs = truth + np.random.default_rng(4).normal(size=(4000, 3))
    statuses = [Bar("", run, 0.0, above=True).status for run in runs]
    shares = [statuses.count(status) / len(runs) for status in (HOLDS, WITHIN_SPREAD, FAILS)]
    np.testing.assert_allclose(shares, rates, atol=0.025)


def test_a_problem_fails_whatever_the_bars_say():
    bars = [Bar("a", [-20.0], -12), Bar("b", [-11.5, -17.0, -14.0], -12)]
    assert judge("", "", [(False, "x")], bars).status == WITHIN_SPREAD
    result = judge("", "", [(True, "strangers are missing")], bars)
    assert (result.status, result.why, result.replicates) == (FAILS, "strangers are missing", "2 of 3")
    assert result.margin == "a: -20.0, 8 below the bar of -12; b: mean -14.2, 2.2 below the bar of -12, spread 4.6"


def shown(status, **words):
    """The box of a claim: what stands open, and what folds."""
    claim = {"id": "X1", "statement": "it is so", "predicate": {"name": "rule"}, "profiles": ["smoke"]}
    box = Judgement(claim, ClaimStatus(status, **words), {}, "smoke")._repr_mimebundle_()[0]["text/html"]
    return box.split("<details>")


def test_a_box_of_a_claim_folds_reasons_and_never_those_of_a_failure():
    words = {"ours": f"first; {'x' * 200}", "why": "the reason", "margin": "the margin"}
    opened, folded = shown(HOLDS, **words)
    assert "first; …" in opened
    assert "the reason" not in opened
    assert "x" * 200 in folded
    opened, _ = shown(FAILS, **words)
    assert "x" * 200 in opened
    assert "the reason" in opened
    opened, folded = shown(WITHIN_SPREAD, **words)
    assert "the reason" in opened
    assert "the margin" in folded


def test_a_share_that_no_result_could_pass_says_how_many_trials_it_needs():
    """Without one error in 60 trials the interval of the share of errors ends at 0.06, whatever the truth is."""
    few = judge("ours", "it holds", bars=[Bar.share("share wrong", 0, 60, 0.01)])
    assert few.status == WITHIN_SPREAD
    assert few.why == ("share wrong: 0 (95% interval 0 to 0.06), 0.01 below the bar of 0.01: too few trials, 60 of 368")
    assert judge("ours", "it holds", bars=[Bar.share("share wrong", 0, 367, 0.01)]).status == WITHIN_SPREAD
    assert judge("ours", "it holds", bars=[Bar.share("share wrong", 0, 368, 0.01)]).status == HOLDS
    assert Bar.share("share right", 71, 71, 0.95, above=True).too_few == "too few trials, 71 of 72"
    assert Bar.share("share right", 72, 72, 0.95, above=True).status == HOLDS
    # enough trials, and an error: the interval is what is near
    assert Bar.share("share wrong", 1, 400, 0.01).too_few == ""
    assert Bar("share wrong", [0.0], 0.01, interval=(0.0, 0.06)).too_few == ""


def test_of_many_bars_the_nearest_is_the_margin():
    bars = [Bar(f"value {i}", [0.1 * i], 1.0) for i in range(6)]
    assert judge("ours", "it holds", bars=bars).margin == "nearest of 6: value 5: 0.5, 0.5 below the bar of 1"
    missed = judge("ours", "it holds", bars=[*bars, Bar("the last", [1.5], 1.0)])
    assert missed.margin == "of 7: the last: 1.5, 0.5 above the bar of 1"
