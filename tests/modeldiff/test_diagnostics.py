"""The gate: what it lets through and what it stops, on chains made by hand and on runs made too short."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from provlab.modeldiff.diagnostics import NotConverged, converged
from provlab.modeldiff.sampler import Samples


def samples(nll=None, **changes):
    """Three levels of eight chains that mix at once, unless changed."""
    nll = np.random.default_rng(0).normal([[[3.0]], [[2.0]], [[1.0]]], size=(3, 8, 400)) if nll is None else nll
    made = Samples(
        tokens=np.zeros((*nll.shape, 2), dtype=np.uint8),
        nll=nll,
        temperatures=np.array([math.inf, 1.0, 0.25]),
        vocabulary=4,
        moves=("single site", "2 sites"),
        replica=np.zeros(nll.shape, dtype=np.int16),
        accepted=np.array([[0, 0], [500, 300], [90, 10]]),
        attempted=np.array([[0, 0], [1000, 1000], [1000, 1000]]),
        swap_rate=np.array([0.5, 0.4]),
        round_trips=np.full(8, 20),
    )
    return replace(made, **changes)


def test_independent_draws_pass():
    report = converged(samples())
    assert report.ok
    assert str(report) == "converged"
    report.require()
    # draws that are independent: each is an effective one, and chains differ by chance alone
    assert_allclose(report.ess, 3200, rtol=0.15)
    assert_allclose(report.rhat, 1, atol=0.01)


def test_effective_draws_of_a_correlated_series():
    """An autoregressive series of coefficient 0.9 has (1 - 0.9) / (1 + 0.9) effective draws for each draw."""
    rng = np.random.default_rng(1)
    series = np.empty((3, 8, 4000))
    series[..., 0] = rng.normal(size=(3, 8))
    for t in range(1, 4000):
        series[..., t] = 0.9 * series[..., t - 1] + math.sqrt(1 - 0.81) * rng.normal(size=(3, 8))
    assert_allclose(converged(samples(series)).ess / (8 * 4000), 0.1 / 1.9, rtol=0.2)


def apart():
    """One of eight chains stays half a unit off, at the coldest level."""
    nll = samples().nll.copy()
    nll[2, 5] += 3
    return nll


def frozen():
    nll = samples().nll.copy()
    nll[2] = np.arange(8)[:, None]
    return nll


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"swap_rate": np.array([0.5, 0.01])}, r"levels 1 and 0.25 swap in 1.0% .* such as 0.5"),
        ({"swap_rate": np.array([0.01, 0.5])}, r"levels inf and 1 swap in 1.0% .* such as 2"),
        (
            {"accepted": np.array([[0, 0], [500, 300], [1, 0]])},
            r"temperature 0.25 accepts 0.05% .* smaller or informed",
        ),
        ({"nll": apart()}, r"R-hat is 1\.\d+ at temperature 0.25 .*chain 5 stands furthest out.*run more steps"),
        ({"nll": frozen()}, r"R-hat is inf at temperature 0.25"),
        (
            {"nll": samples().nll[:, :2, :40], "round_trips": np.full(2, 9)},
            r"temperature .* effective draws \(100 are needed\): run more steps or chains",
        ),
        ({"round_trips": np.array([0, 0, 1, 0, 0, 0, 0, 0])}, r"and back 0.1 times .* tune_ladder"),
    ],
    ids=["swaps", "swaps from infinity", "acceptance", "one chain apart", "frozen", "few draws", "round trips"],
)
def test_each_fault_is_named_with_its_remedy(changes, message):
    report = converged(samples(**changes))
    assert not report.ok
    with pytest.raises(NotConverged, match=f"^not converged: .*{message}") as caught:
        report.require()
    assert "\n" not in str(caught.value)


def test_one_level_needs_no_round_trips():
    whole = samples()
    alone = replace(
        whole,
        **{name: getattr(whole, name)[1:2] for name in ("tokens", "nll", "temperatures", "accepted", "attempted")},
        swap_rate=np.zeros(0),
        round_trips=np.zeros(8, dtype=int),
    )
    assert converged(alone).ok
