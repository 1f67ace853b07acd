"""p-values in log space against mpmath, all permutations, and scipy where it does not underflow."""

import itertools
import math
from collections import Counter
from functools import cache

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from provlab.errors import InputError
from provlab.inference.pvalues import (
    benjamini_hochberg,
    benjamini_yekutieli,
    distance_at,
    distances,
    fisher,
    fisher_threshold,
    holm,
    in_words,
    log10_floor,
    log10_p_correlation,
    log10_p_normal,
    log10_p_spearman,
    log10_p_t,
    log10_signs,
    p_signs,
    p_student,
    spearman,
)

mpmath.mp.dps = 50


def t_tail(distance: int, n: int) -> float:
    """log10 of Student's two-sided tail in 50 digits, through the incomplete beta function of mpmath."""
    e = mpmath.mpf(6 * distance) / (n * (n * n - 1))
    q, a = e * (2 - e), mpmath.mpf(n - 2) / 2
    log_two_sided = (
        a * mpmath.log(q)
        + mpmath.log(1 - q) / 2
        - mpmath.log(a)
        - mpmath.log(mpmath.beta(a, 0.5))
        + mpmath.log(mpmath.hyp2f1(a + 0.5, 1, a + 1, q))
    )
    return float(log_two_sided / mpmath.log(10))


@cache
def all_distances(n: int) -> Counter:
    """How many of the n! permutations have each distance D."""
    ranks = np.arange(n)
    every = np.array(list(itertools.permutations(range(n))))
    return Counter(((every - ranks) ** 2).sum(axis=1).tolist())


def exact_p(distance: int, n: int) -> float:
    """Two-sided: the share of permutations at least as far from the middle."""
    largest = (n**3 - n) // 3
    edge = abs(largest - 2 * distance)
    ways = sum(count for other, count in all_distances(n).items() if abs(largest - 2 * other) >= edge)
    return ways / math.factorial(n)


@pytest.mark.parametrize("n", range(1, 10))
def test_the_law_against_all_permutations(n):
    below = 0
    for distance, count in sorted(all_distances(n).items()):
        below += count
        assert 10 ** log10_p_spearman(distance, n) == pytest.approx(below / math.factorial(n), rel=1e-12)


def paper_floor(n: int) -> float:
    """log10 of 2/n!."""
    return (math.log(2) - math.lgamma(n + 1)) / math.log(10)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 33, 256, 1024, 11008])
def test_t_tail_against_mpmath(n):
    largest = (n**3 - n) // 3
    for share in (1e-4, 1e-3, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.49, 0.499, 0.51, 0.6, 0.8, 0.999):
        distance = int(share * largest) // 2 * 2
        if distance == 0 or 2 * distance == largest:
            continue
        reference = max(t_tail(distance, n), paper_floor(n))
        assert log10_p_t(distance, n) == pytest.approx(reference, abs=1e-9)


@pytest.mark.parametrize("share", [1e-4, 1e-3, 0.1])
def test_t_tail_down_to_minus_fifty_thousand(share):
    """The floor of 40,000 ranks is -166,713."""
    distance = int(share * (40_000**3 - 40_000) / 3) // 2 * 2
    reference = t_tail(distance, 40_000)
    assert reference < -50_000 or share > 1e-4
    assert log10_p_t(distance, 40_000) == pytest.approx(reference, abs=1e-9)


@pytest.mark.parametrize("n", [33, 256, 11008, 40_000])
def test_t_tail_near_p_of_one(n):
    """Where 1 - rho^2 rounds to 1 the p-value must still be short of it by as much as it is."""
    middle = (n**3 - n) // 6
    D = np.unique([middle // 2 * 2 - 2 * int(step) for step in np.geomspace(1, middle / 1000, 12)])
    reference = [t_tail(int(d), n) if 6 * d != n**3 - n else 0.0 for d in D]
    assert_allclose(log10_p_t(D, n), reference, rtol=0, atol=1e-9)
    assert_allclose([log10_p_t(int(d), n) for d in D], reference, rtol=0, atol=1e-9)


@pytest.mark.parametrize("log10_p", [log10_p_t, log10_p_spearman])
@pytest.mark.parametrize("n", [1, 2, 3, 14, 256, 11008])
def test_an_array_of_distances_has_the_p_values_of_each(n, log10_p):
    """From p = 1 through the bulk and the series to the floor, at both ends; single values are held to mpmath above."""
    largest = (n**3 - n) // 3
    near_0 = np.concatenate([np.geomspace(1e-9, 0.5, 60), 0.5 - np.geomspace(1e-6, 0.4, 20)])
    D = np.unique((np.concatenate([[0.0, 1.0], near_0, 1 - near_0]) * largest).astype(np.int64) // 2 * 2)
    one_by_one = [log10_p(int(d), n) for d in D]
    assert_allclose(log10_p(D, n), one_by_one, rtol=1e-13, atol=1e-9)
    table = log10_p(np.stack([D, D[::-1]]), n)
    assert table.shape == (2, len(D))
    assert_array_equal(table[0], log10_p(D, n))
    if n > 200:
        floor = paper_floor(n) if log10_p is log10_p_t else log10_floor(n)
        assert min(one_by_one) == pytest.approx(floor, rel=1e-12)
        assert sum(value < -260 for value in one_by_one) > 20  # the series has been there


def test_distances_of_many_permutations():
    rng = np.random.default_rng(0)
    a, b = (np.stack([rng.permutation(50) for _ in range(6)]).reshape(2, 3, 50) for _ in range(2))
    for i, j in itertools.product(range(2), range(3)):
        assert distances(a, b)[i, j] == spearman(a[i, j], b[i, j]).distance
        assert distances(a)[i, j] == spearman(a[i, j]).distance
    assert_array_equal(distances(a.astype(np.int32), b.astype(np.int32)), distances(a, b))
    n = 70_000  # whose square is beyond 32 bits
    assert distances(np.arange(n, dtype=np.int32)[::-1]) == (n**3 - n) // 3


@pytest.mark.parametrize(("n", "level"), [(14, -2.0), (64, -8.0), (256, -400.0), (5, -9.0)])
def test_the_distance_at_a_level_is_the_last_below_it(n, level):
    d = distance_at(level, n)
    assert d == 0 or log10_p_spearman(d, n) <= level
    assert log10_p_spearman(d + 2, n) > level


def test_a_correlation_against_scipy_and_beyond_it():
    x, y = np.random.default_rng(1).random((2, 30))
    reference = stats.pearsonr(x, y)
    assert log10_p_correlation(reference.statistic, 30) == pytest.approx(math.log10(reference.pvalue), abs=1e-12)
    # 1 - rho^2 = 0.19 to the power of 999, where stats.t.logsf is -inf: within a factor of 100
    assert log10_p_correlation(0.9, 2000) == pytest.approx(999 * math.log10(0.19), abs=2.0)


@pytest.mark.parametrize("n", range(1, 9))
def test_where_the_t_tail_is_exact(n):
    """The ends, the whole of n = 1 and 2, and rho = 0: equal to enumeration."""
    largest = (n**3 - n) // 3
    for distance in sorted(all_distances(n)):
        value = 10 ** log10_p_t(distance, n)
        if n <= 2 or distance in (0, largest):
            assert value == pytest.approx(exact_p(distance, n), rel=1e-12)
        if 2 * distance == largest:
            assert value == 1.0


@pytest.mark.parametrize(("n", "smallest_ratio"), [(6, 0.56), (7, 0.57), (8, 0.68)])
def test_how_far_the_t_tail_is_from_enumeration(n, smallest_ratio):
    """The t tail is the smaller one: by at most these factors where the exact p is above 0.02."""
    ratios = [
        10 ** log10_p_t(distance, n) / exact_p(distance, n)
        for distance in all_distances(n)
        if exact_p(distance, n) > 0.02
    ]
    assert smallest_ratio < min(ratios) < smallest_ratio + 0.02
    assert max(ratios) <= 1.0 + 1e-12


@pytest.mark.parametrize("n", [2, 3, 7, 11, 20, 60])
def test_a_better_match_never_has_a_larger_p(n):
    largest = (n**3 - n) // 3
    D = np.arange(0, largest + 1, 2)
    assert (np.diff(log10_p_spearman(D, n)) >= 0.0).all()
    two_sided = log10_p_t(D, n)
    assert (np.diff(two_sided[: (len(D) + 1) // 2]) >= -1e-13).all()
    assert_allclose(two_sided, two_sided[::-1], atol=1e-12)


def test_disagreement_is_no_evidence():
    """The reverse order has p = 1 by the law, and the smallest there is by the paper's two sides."""
    reverse = spearman(np.arange(256)[::-1])
    assert (reverse.rho, reverse.log10_p) == (-1.0, 0.0)
    assert reverse.paper_log10_p == pytest.approx(paper_floor(256))


def test_no_p_value_goes_below_a_perfect_match():
    for n in (2, 10, 256, 11008, 50_000):
        largest = (n**3 - n) // 3
        assert log10_p_spearman(0, n) == pytest.approx(log10_floor(n), rel=1e-12)
        assert log10_p_t(0, n) == pytest.approx(paper_floor(n), rel=1e-12)
        assert log10_p_t(largest, n) == log10_p_t(0, n)
    assert log10_p_t(2, 256) == log10_p_t(0, 256)  # the t tail alone would give -742
    # one exchange of neighbours, of which there are 255, or none
    assert log10_p_spearman(2, 256) == pytest.approx(log10_floor(256) + math.log10(256), abs=1e-9)


def test_spearman_of_vectors():
    rng = np.random.default_rng(0)
    for n in (3, 10, 200):
        a, b = rng.permutation(n), rng.permutation(n)
        for x, y in ((a, b), (a, None)):
            result = spearman(x, y)
            reference = stats.spearmanr(x, np.arange(n) if y is None else y)
            assert result.rho == pytest.approx(reference.statistic, abs=1e-12)
            assert result.paper_log10_p == pytest.approx(math.log10(reference.pvalue), abs=1e-9)
            assert result.log10_p == log10_p_spearman(result.distance, n)


def test_spearman_ranks_index_vectors_and_counts_a_distance():
    # worked by hand: ranks of 70, 10, 40 are 2, 0, 1, so D = 4 + 1 + 1
    result = spearman([70, 10, 40])
    assert (result.distance, result.n, result.rho) == (6, 3, -0.5)
    assert spearman([5, 900, 17], [1, 3, 2]).distance == 0


def test_one_and_two_ranks():
    item = spearman([4])
    assert math.isnan(item.rho)
    assert item.log10_p == spearman([1, 0]).log10_p == 0.0
    assert spearman([0, 1]).log10_p == pytest.approx(math.log10(0.5))
    assert item.paper_log10_p == spearman([0, 1]).paper_log10_p == spearman([1, 0]).paper_log10_p == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spearman([]), "a has shape"),
        (lambda: spearman([[1, 2]]), "a has shape"),
        (lambda: spearman([0.0, 1.0]), "a has dtype float64"),
        (lambda: spearman([1, 1, 2]), "a repeats 1 of its 3 values"),
        (lambda: spearman([1, 2], [3, 3]), "b repeats"),
        (lambda: spearman([1, 2], [3]), "a has 2 entries and b has 1"),
        (lambda: log10_p_spearman(3, 5), "distance is 3"),
        (lambda: log10_p_spearman(-2, 5), "distance is -2"),
        (lambda: log10_p_spearman(42, 5), "between 0 and 40"),
        (lambda: log10_p_spearman(0, 0), "n is 0"),
        (lambda: log10_p_t(3, 5), "distance is 3"),
        (lambda: log10_p_spearman(np.array([[0, 3], [8, 5]]), 5), "distance is 3"),
        (lambda: log10_p_spearman(np.array([0, 42]), 5), "distance is 42; for n = 5 it must be even and between 0"),
        (lambda: fisher([]), "log10_p is empty"),
        (lambda: fisher([-1.0, math.nan]), "1 NaN"),
        (lambda: fisher([-1.0, -math.inf]), "never zero"),
        (lambda: fisher([-1.0, 0.5]), "at most 0"),
        (lambda: fisher([[-1.0]]), "one-dimensional"),
        (lambda: fisher([[-1.0, math.nan]], axis=1), "1 NaN"),
        (lambda: fisher(np.zeros((0, 3)), axis=1), "log10_p is empty"),
        (lambda: holm([math.nan]), "1 NaN"),
        (lambda: benjamini_hochberg([math.nan]), "1 NaN"),
        (lambda: benjamini_yekutieli([1.0]), "at most 0"),
    ],
)
def test_what_has_no_p_value_is_refused(call, message):
    with pytest.raises(InputError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("n_blocks", [1, 2, 4, 32, 400])
def test_fisher_against_mpmath(n_blocks):
    """The upper incomplete gamma function in 50 digits, from all p near 1 down to log10 p = -50,000."""
    rng = np.random.default_rng(n_blocks)
    for scale in (1e-6, 0.43, 30.0, 50_000.0 / n_blocks):
        values = -scale * rng.exponential(size=n_blocks)
        y = -mpmath.fsum(values.tolist()) * mpmath.log(10)
        upper = mpmath.fsum(y**j / mpmath.factorial(j) for j in range(n_blocks))
        reference = float((-y + mpmath.log(upper)) / mpmath.log(10))
        assert fisher(values) == pytest.approx(reference, abs=1e-9)


def test_fisher_against_scipy_and_at_its_ends():
    p = np.random.default_rng(1).random(32)
    assert fisher(np.log10(p)) == pytest.approx(math.log10(stats.combine_pvalues(p).pvalue), abs=1e-10)
    assert fisher([-3.25]) == pytest.approx(-3.25, abs=1e-12)
    assert fisher([0.0, 0.0]) == 0.0


@pytest.mark.parametrize("n_blocks", [1, 2, 4, 32, 400])
def test_fisher_along_an_axis_is_fisher_of_each(n_blocks):
    """From all p near 1 through the incomplete gamma function to the sum beyond it; single ones are held to mpmath."""
    rng = np.random.default_rng(n_blocks)
    scales = np.array([0.0, 1e-9, 1e-6, 0.1, 0.43, 3.0, 600.0 / n_blocks, 5e4 / n_blocks, 1e9])
    table = -scales[:, None] * rng.exponential(size=(len(scales), n_blocks))
    one_by_one = [fisher(row) for row in table]
    assert_allclose(fisher(table, axis=1), one_by_one, rtol=1e-12, atol=1e-12)
    assert_allclose(fisher(table.T, axis=0), one_by_one, rtol=1e-12, atol=1e-12)
    assert_allclose(fisher(np.stack([table, table]), axis=-1), [one_by_one] * 2, rtol=1e-12, atol=1e-12)


def test_the_threshold_is_where_fisher_reaches_its_level():
    for level, n in itertools.product((-1.3, -20.0, -300.0), (1, 4, 32)):
        needed = float(fisher_threshold(level, n))
        assert fisher(np.full(n, -needed / math.log(10) / n)) == pytest.approx(level, abs=1e-9)


def test_holm_by_hand():
    # 0.01 x 4, 0.02 x 3, 0.03 x 2 raised to 0.06, 0.9; given out of order
    adjusted = holm(np.log10([0.9, 0.02, 0.01, 0.03]))
    assert_allclose(10**adjusted, [0.9, 0.06, 0.04, 0.06], rtol=1e-12)
    assert_allclose(10 ** holm(np.log10([0.6, 0.7])), [1.0, 1.0])
    assert_allclose(holm([-7520.25, -1.0]), [-7520.25 + math.log10(2), -1.0])


def test_false_discovery_adjustments_against_scipy():
    rng = np.random.default_rng(3)
    for m in (1, 2, 10, 210):
        p = rng.random(m) ** 3
        p[: m // 3] = p[0]  # ties
        assert_allclose(10 ** benjamini_hochberg(np.log10(p)), stats.false_discovery_control(p), rtol=1e-10)
        reference = stats.false_discovery_control(p, method="by")
        assert_allclose(10 ** benjamini_yekutieli(np.log10(p)), reference, rtol=1e-10)


def test_adjusting_keeps_order_size_and_input():
    values = np.array([-3.0, -9000.0, -0.5, -3.0])
    for adjust in (holm, benjamini_hochberg, benjamini_yekutieli):
        before = values.copy()
        adjusted = adjust(values)
        assert_array_equal(values, before)
        assert adjusted.shape == values.shape
        assert (adjusted >= values).all()
        assert (adjusted <= 0.0).all()
        assert adjusted[0] == adjusted[3]
        assert adjusted.argmin() == 1
        assert adjust([]).size == 0


@pytest.mark.parametrize(("p", "words"), [(0.0123, "p = 0.012"), (1e-12, "p = 1e-12"), (0.0, "p < 1e-300")])
def test_a_p_value_is_never_written_as_zero(p, words):
    assert in_words(p) == words


def test_tails_of_the_normal_law_students_and_signs_are_those_of_scipy():
    z = np.array([-3.0, 0.0, 5.0, 30.0])
    assert_allclose(log10_p_normal(z), stats.norm.logsf(z) / math.log(10), rtol=1e-12)
    assert log10_p_normal(60.0) == pytest.approx(float(mpmath.log10(mpmath.erfc(60 / mpmath.sqrt(2)) / 2)))
    assert p_student(2.2, 3) == pytest.approx(stats.t.sf(2.2, 3))
    for losses, gains in itertools.product(range(8), repeat=2):
        exact = stats.binomtest(losses, losses + gains).pvalue if losses + gains else 1.0
        assert p_signs(losses, gains) == pytest.approx(exact)
        assert log10_signs(losses, gains) == pytest.approx(math.log10(exact))
    assert p_signs(0, 2000) == 0  # so that it is never shown
    assert log10_signs(0, 2000) == pytest.approx(-1999 * math.log10(2))
