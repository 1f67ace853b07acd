"""The far tail of Spearman's law, compared with all permutations of 11 to 14 ranks and against tilted draws."""

import math
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from provlab.errors import InputError
from provlab.inference import pvalues, tail
from provlab.inference.tail import exact_law, log10_tail


def counted(n):
    """Every D, and log10 of the share of permutations with at most that."""
    below = [math.log10(int(ways) / math.factorial(n)) for ways in np.cumsum(exact_law(n).astype(object))]
    return 2 * np.arange(len(below)), np.array(below)


def test_counts_of_four_as_published():
    """OEIS A175929, row 4."""
    assert exact_law(4).tolist() == [1, 3, 1, 4, 2, 2, 2, 4, 1, 3, 1]


@pytest.mark.parametrize("n", [11, 12, 13, 14])
def test_every_value_is_within_a_fiftieth_of_a_decade(n):
    distance, expected = counted(n)
    assert np.abs(log10_tail(distance, n) - expected).max() < 0.02


def test_students_t_is_not():
    """What the bound above would say of the t tail: it fails, by more than a decade at n = 12."""
    distance, expected = counted(12)
    closer = distance < distance[-1] // 2  # one-sided, where the correlation is positive
    t = pvalues.log10_p_t(distance[closer], 12) - math.log10(2)
    assert np.abs(t - expected[closer]).max() > 1.0


@pytest.mark.parametrize("n", [11, 48, 256, 11008, 50000])
def test_it_falls_steadily_to_the_floor(n):
    largest = (n**3 - n) // 3
    steps = np.unique(np.concatenate([np.arange(60), np.geomspace(1, largest // 2, 300).astype(np.int64)]))
    result = log10_tail(2 * steps, n)
    assert (np.diff(result) >= 0).all()
    assert result[0] == pytest.approx(pvalues.log10_floor(n), rel=1e-9)
    assert result[-1] == pytest.approx(0.0, abs=1e-12)
    # where counting ends, the curve goes on: each next value adds less than the one before
    growth = np.diff(log10_tail(2 * np.arange(0, 20), n))
    assert np.all(np.diff(growth)[2:] < 0.03)


@pytest.mark.parametrize("n", [20, 48, 256, 50000])
def test_more_points_change_nothing(n, monkeypatch):
    """Neither where K is computed nor where its curve is: linear between points, a bend would show."""
    largest = (n**3 - n) // 3
    distance = 2 * np.unique(np.geomspace(1, largest // 2, 400).astype(np.int64))
    result = log10_tail(distance, n)
    v = 0.5 * math.asinh(1.25 * tail._WIDEST) * (tail.chebpts1(48) + 1.0)
    with monkeypatch.context() as patch:
        for name, value in (("_POINTS", 30000), ("_V", v), ("_THETA", np.sinh(v))):
            patch.setattr(tail, name, value)
        for name in ("_curve", "_carried", "_beyond_the_determinant"):
            patch.setattr(tail, name, cache(getattr(tail, name).__wrapped__))
        assert log10_tail(distance, n) == pytest.approx(result, abs=0.02, rel=1e-6)


def test_no_splines_are_loaded():
    """Their import would take longer than all else here."""
    code = "import sys; from provlab.inference import tail; tail.log10_tail(9000, 48); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "scipy.special" in result
    assert "scipy.interpolate" not in result


def test_the_few_nearest_are_counted_for_any_width():
    """n = 12 by all permutations; n - 1 exchanges of neighbours, C(n - 2, 2) pairs of them, at any n."""
    _, expected = counted(12)
    assert tail._near_the_floor(12) / math.log(10) == pytest.approx(expected[:9], abs=1e-12)
    n = 5000
    ways = np.exp(tail._near_the_floor(n) + math.lgamma(n + 1))
    assert ways[:3] == pytest.approx([1, 1 + (n - 1), 1 + (n - 1) + math.comb(n - 2, 2)], rel=1e-6)


@pytest.mark.parametrize(("n", "theta"), [(64, 20.0), (64, 100.0), (96, 1500.0)])
def test_tilted_draws_have_the_mean_that_the_cumulants_say(n, theta):
    """K' against Metropolis draws of weight exp(-s D / 2), by exchanges of two ranks, in many chains side by side."""
    rng, s = np.random.default_rng(0), theta / n**2
    chains = 400
    rows = np.arange(chains)
    order = np.broadcast_to(np.arange(n), (chains, n)).copy()
    half, total, recorded = np.zeros(chains), np.zeros(chains), 0
    for step in range(60 * n):
        i = rng.integers(n, size=chains)
        offset = rng.integers(1, n, size=chains) if step % 2 else (n ** rng.random(chains)).astype(int)
        j = (i + offset) % n
        change = (order[rows, i] - order[rows, j]) * (i - j)
        take = np.flatnonzero(rng.random(chains) < np.exp(-s * np.maximum(change, 0)))
        first, second = order[take, i[take]].copy(), order[take, j[take]].copy()
        order[take, i[take]], order[take, j[take]] = second, first
        half[take] += change[take]
        if step >= 20 * n:
            total += half
            recorded += 1
    means = total / recorded
    wide = theta < tail._WIDEST
    points = (tail._points_where_wide if wide else tail._points_where_narrow)(n, min(tail._WIDEST, 0.6 * n * n))
    if wide:
        tilt = np.sinh(np.linspace(0.05, math.asinh(tail._WIDEST), tail._POINTS))
    else:
        tilt = n**2 * np.exp(np.linspace(math.log(tail._WIDEST / n**2), math.log(tail._NARROWEST), tail._POINTS))
    expected = np.interp(math.log(theta), np.log(tilt), points[0] + 0.5)
    assert means.mean() == pytest.approx(expected, abs=4 * means.std() / math.sqrt(chains) + 2e-4 * expected)


@pytest.mark.parametrize("n", [0, 15])
def test_a_law_that_cannot_be_counted_is_refused(n):
    with pytest.raises(InputError, match=f"n is {n}; .* 1 to 14"):
        exact_law(n)
