"""The tuned ladder: its ends, its rates on a run of its own, and what it refuses."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from provlab.errors import InputError
from provlab.modeldiff import ladder
from provlab.modeldiff.diagnostics import NotConverged
from provlab.modeldiff.ladder import tune_ladder
from provlab.modeldiff.moves import SingleSite
from provlab.modeldiff.sampler import replica_exchange

SPACE = {"vocabulary": 6, "length": 12}


def separate(tokens):
    """NLL of independent positions: the swap rates of any ladder can be computed from it."""
    return tokens.mean(axis=1) / 2


def tuned(**settings):
    return tune_ladder(separate, **SPACE, **{"coldest": 0.03, "moves": SingleSite(), "seed": 0} | settings)


def test_neighbours_swap_as_often_as_asked():
    laid = tuned()
    assert laid.temperatures[[0, -1]].tolist() == [math.inf, 0.03]
    assert (np.diff(laid.temperatures) < 0).all()
    settings = {**SPACE, "n_chains": 16, "moves": SingleSite(), "seed": 9}
    run = replica_exchange(separate, temperatures=laid.temperatures, n_steps=1500, burn_in=500, **settings)
    # rounding the number of levels up can only raise the rate; more than one level less would fall below it
    assert laid.swap_rate >= 0.3
    assert_allclose(run.swap_rate, laid.swap_rate, atol=0.08)
    # and a geometric ladder with as many levels is not as even
    even = np.geomspace(1.0, 0.03, len(laid.temperatures))
    plain = replica_exchange(separate, temperatures=even, n_steps=600, **settings)
    assert np.ptp(run.swap_rate) < np.ptp(plain.swap_rate)


def test_a_temperature_on_the_way_is_a_level_and_the_hottest_can_be_finite():
    laid = tuned(through=1 / 7)
    assert 1 / 7 in laid.temperatures
    assert laid.temperatures[[0, -1]].tolist() == [math.inf, 0.03]
    assert (np.diff(laid.temperatures) < 0).all()
    assert laid.swap_rate >= 0.3
    assert len(laid.temperatures) <= len(tuned().temperatures) + 1
    cold = tuned(hottest=1 / 7).temperatures
    assert cold[[0, -1]].tolist() == [1 / 7, 0.03]
    assert len(cold) < len(laid.temperatures)


def test_a_higher_rate_takes_more_levels(monkeypatch):
    usual = tuned()
    monkeypatch.setattr(ladder, "_SWAP_RATE", 0.7)
    assert len(tuned().temperatures) > len(usual.temperatures)


def test_what_cannot_be_laid_is_named(monkeypatch):
    with pytest.raises(InputError, match="coldest must lie between 0 and inf, not 0"):
        tuned(coldest=0.0)
    monkeypatch.setattr(ladder, "_MOST_LEVELS", 3)
    with pytest.raises(NotConverged, match=r"temperatures down to 0\.03 are needed .* a higher coldest"):
        tuned()
