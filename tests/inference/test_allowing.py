"""Matchings that may agree on some units without evidence: sizes at, below and above the allowance."""

import math

import numpy as np
import pytest
from scipy import stats

from provlab.errors import InputError
from provlab.inference.allowing import COMMON, QUANTILE, allowance, counted, log10_p_allowing
from provlab.inference.pvalues import log10_floor, log10_p_spearman, spearman


def with_common_units(n, common, rng):
    """Two matchings that agree on `common` units at random places, and elsewhere as a uniform permutation does."""
    places, order = rng.permutation(n), rng.permutation(n)
    up = order.copy()
    up[places[common:]] = rng.permutation(order[places[common:]])
    return order, up


def share_below(level, n, common, allowed, draws=3000):
    rng = np.random.default_rng([n, common, allowed])
    p = [log10_p_allowing(*with_common_units(n, common, rng), allowed, rng=rng) for _ in range(draws)]
    return np.mean(np.array(p) <= math.log10(level)), stats.binom.ppf([1e-4, 1 - 1e-4], draws, level) / draws


@pytest.mark.parametrize("level", [0.05, 0.01])
def test_an_allowance_keeps_the_level_up_to_as_many_common_units(level):
    """100 units, 5 allowed for: none in common, a few, as many. Exact at as many, and too large a p-value below."""
    for common in (0, 2, 5):
        result, (least, most) = share_below(level, 100, common, 5)
        assert result <= most
    assert result >= least


def test_an_allowance_breaks_beyond():
    for common, allowed in ((15, 5), (5, 0)):  # three times as many, and without an allowance
        result, (_, most) = share_below(0.05, 100, common, allowed)
        assert result > most


def test_an_allowance_costs_a_copy_little():
    order = np.random.default_rng(0).permutation(256)
    rng = np.random.default_rng(1)
    assert log10_p_allowing(order, order, 12, rng=rng) == pytest.approx(log10_floor(244), rel=1e-12)
    assert log10_p_allowing(order, order, 0, rng=rng) == pytest.approx(log10_floor(256), rel=1e-12)
    # fewer agree than are allowed for: these are left out, and the others are judged
    other = np.roll(order, 1)
    other[:4] = [order[0], order[1], *other[[0, 3]]]
    assert sorted(other) == sorted(order)
    assert counted(order, other, 12, rng=rng).tolist() == list(range(2, 256))


def test_the_order_of_units_is_not_read():
    """Units numbered along one cycle of sigma: by gate unit k has partner k, by up partner k + 1."""
    order = np.arange(256)
    assert spearman(order, np.roll(order, 1)).log10_p < -100
    p = [log10_p_allowing(order, np.roll(order, 1), 0, rng=np.random.default_rng(i)) for i in range(400)]
    assert stats.kstest(10 ** np.array(p), "uniform").pvalue > 1e-3


def test_units_swapped_in_pairs_do_not_count():
    """Half of 256 units swapped in pairs, the others at random: all of the former would double the variance."""
    rng = np.random.default_rng(0)
    p = []
    for _ in range(2000):
        order = rng.permutation(256)
        up = np.concatenate([order[64:128], order[:64], rng.permutation(order[128:])])
        p.append(log10_p_allowing(order, up, 0, rng=rng))
        assert counted(order, up, 0, rng=rng).min() >= 128
    assert (np.array(p) <= -2).mean() <= stats.binom.ppf(0.999, 2000, 0.01) / 2000


def test_idle_units_never_count():
    order = np.arange(40)
    idle = order < 30
    assert counted(order, order, 4, rng=np.random.default_rng(0), idle=idle).tolist()[-1] >= 30
    p = log10_p_allowing(order, order, 4, rng=np.random.default_rng(0), idle=idle)
    assert p == pytest.approx(log10_floor(6))
    assert log10_p_allowing(order, order, 4, rng=np.random.default_rng(0), idle=order < 39) == 0.0


@pytest.mark.parametrize(("n", "expected"), [(1, 0), (24, 3), (256, 19), (11_008, 680)])
def test_the_allowance_costs_little(n, expected):
    """At 5% of the units in common, 32 blocks together gain less than a twentieth of a deviation."""
    assert allowance(n) == expected
    f = np.arange(n + 1)
    excess = np.maximum(f - expected, 0) @ stats.binom.pmf(f, n, 0.05) / np.sqrt(n)
    assert np.sqrt(32) * excess < 0.05 + (n == 1)


def test_an_allowance_of_injections_ranks_what_is_left():
    """By hand: 70 and 90 agree and go; of 10, 40, 20 against 40, 10, 30 the ranks are 0, 2, 1 and 2, 0, 1: D = 8."""
    result = log10_p_allowing([70, 10, 40, 20, 90], [70, 40, 10, 30, 90], 2, rng=np.random.default_rng(0))
    assert result == pytest.approx(log10_p_spearman(8, 3))


def test_an_allowance_beyond_the_units_is_refused():
    with pytest.raises(InputError, match="common is 2; of 2 units from 0"):
        log10_p_allowing([0, 1], [1, 0], 2, rng=np.random.default_rng(0))


def test_the_allowance_is_the_quantile_of_the_beta_binomial_law():
    """By scipy's own distribution, at small widths and at those of language models."""
    for n in (*range(1, 40), 256, 2816, 11_008, 28_672):
        assert allowance(n) == min(int(stats.betabinom(n, *COMMON).ppf(QUANTILE)), n - 1)
