"""Limits from draws, on shares whose crossing is known by hand."""

import numpy as np
import pytest

from provlab.inference import pvalues
from provlab_study.power.limits import detection_limit, limit_over_blocks, mean_crossing


def is_nowhere(limit):
    return np.isnan([limit.value, limit.low, limit.high]).all()


def test_a_limit_is_where_the_share_of_draws_passes_the_power():
    """Shares 0, 0.4, 0.8, 1 at x = 1, 2, 3, 4: 0.6 is passed half-way from 2 to 3."""
    draws = np.array([[-30.0] * k + [-1.0] * (10 - k) for k in (0, 4, 8, 10)])
    rng = np.random.default_rng(7)
    rising = detection_limit([1, 2, 3, 4], draws, power=0.6, rng=rng)
    assert rising.value == pytest.approx(2.5)
    assert 1.0 < rising.low < 2.5 < rising.high < 4.0
    assert is_nowhere(detection_limit([1, 2], draws[:2], power=0.9, rng=rng))


def test_the_interval_holds_the_crossing_of_the_law_behind_the_draws():
    """Power x, drawn 50 times at eleven places: 0.6 is crossed at x = 0.6."""
    rng = np.random.default_rng(1)
    places = np.linspace(0, 1, 11)
    held = 0
    for _ in range(100):
        draws = np.where(rng.random((11, 50)) < places[:, None], -30.0, 0.0)
        limit = detection_limit(places, draws, power=0.6, rng=rng)
        held += limit.low <= 0.6 <= limit.high
    assert held >= 85


def test_the_mean_crossing_follows_each_draw():
    """Straight lines -40 + 10 x + shift cross -20 at x = 2 - shift / 10; a dip takes the mean of its points."""
    places = np.arange(5.0)
    shifts = np.array([-4.0, 0.0, 4.0, 8.0])
    lines = -40 + 10 * places[:, None] + shifts
    limit = mean_crossing(places, lines, rng=np.random.default_rng(2))
    assert limit.value == pytest.approx(2 - shifts.mean() / 10)
    assert limit.low < limit.value < limit.high
    dipping = np.array([[-30.0], [-10.0], [-20.0], [0.0]])  # fitted -30, -15, -15, 0
    assert mean_crossing(np.arange(4), dipping, rng=np.random.default_rng(2)).value == pytest.approx(2 / 3)
    for shift in (-50, 50):
        assert is_nowhere(mean_crossing(places, lines + shift, rng=np.random.default_rng(2)))


def test_a_limit_over_blocks_is_where_fisher_reaches_the_target():
    """Blocks all alike at -x: four of them reach -20 where Fisher's own p does, at any power."""
    places = np.linspace(3, 12, 19)
    blocks = np.tile(-places[:, None], (1, 30))
    limit = limit_over_blocks(places, blocks, 4, rng=np.random.default_rng(3))
    first = next(x for x in places if pvalues.fisher([-x] * 4) <= -20.0)
    assert first - 0.5 <= limit.value <= first
    assert limit.low == limit.high  # no spread, no interval
    spread = np.random.default_rng(4).exponential(1.0, (19, 30)) * -places[:, None]
    wide = limit_over_blocks(places, spread, 4, power=0.5, rng=np.random.default_rng(5))
    assert wide.low < wide.value < wide.high
    assert is_nowhere(limit_over_blocks([3, 4], blocks[:2], 1, rng=np.random.default_rng(3)))
