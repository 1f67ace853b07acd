"""The tuned ladder: its ends, its rates on a run of its own, and what it refuses."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from provlab.errors import InputError
from provlab.modeldiff.diagnostics import NotConverged
from provlab.modeldiff.ladder import tune_ladder
from provlab.modeldiff.sampler import replica_exchange

SPACE = {"vocabulary": 6, "length": 12}


def separate(tokens):
    """NLL of independent positions: the swap rates of any ladder can be computed from it."""
    return tokens.mean(axis=1) / 2


def tuned(**settings):
    settings = {"coldest": 0.03, "swap_rate": 0.4, "n_chains": 16, "n_steps": 200, "seed": 0} | settings
    return tune_ladder(separate, **SPACE, **settings)


@pytest.mark.parametrize("hottest", [math.inf, 0.5])
def test_neighbours_swap_as_often_as_asked(hottest):
    ladder = tuned(hottest=hottest)
    assert ladder.temperatures[[0, -1]].tolist() == [hottest, 0.03]
    assert (np.diff(ladder.temperatures) < 0).all()
    run = replica_exchange(
        separate, **SPACE, temperatures=ladder.temperatures, n_chains=16, n_steps=1500, burn_in=500, seed=9
    )
    # rounding the number of levels up can only raise the rate; more than one level less would fall below it
    assert ladder.swap_rate >= 0.4
    assert_allclose(run.swap_rate, ladder.swap_rate, atol=0.08)
    # and a geometric ladder with as many levels is not as even
    hot = hottest if math.isfinite(hottest) else 1.0
    plain = replica_exchange(
        separate,
        **SPACE,
        temperatures=np.geomspace(hot, 0.03, len(ladder.temperatures)),
        n_chains=16,
        n_steps=600,
        seed=9,
    )
    assert np.ptp(run.swap_rate) < np.ptp(plain.swap_rate)


def test_a_higher_rate_takes_more_levels():
    assert len(tuned(swap_rate=0.7).temperatures) > len(tuned(swap_rate=0.3).temperatures)


def test_seeds_decide():
    assert_array_equal(tuned(rounds=2).temperatures, tuned(rounds=2).temperatures)
    assert tuned(rounds=2).temperatures.tolist() != tuned(rounds=2, seed=1).temperatures.tolist()


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"coldest": 0.5, "hottest": 0.5}, InputError, "coldest must lie between 0 and hottest = 0.5"),
        ({"swap_rate": 1.0}, InputError, "swap_rate must lie between 0 and 1"),
        ({"rounds": 0}, InputError, "rounds must be at least 1"),
        ({"max_levels": 3}, NotConverged, "temperatures between inf and 0.03 are needed .* a higher coldest"),
    ],
)
def test_what_cannot_be_laid_is_named(settings, error, said):
    with pytest.raises(error, match=said):
        tuned(**settings)
