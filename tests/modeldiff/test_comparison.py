"""rho(D), PD, PA and their ratio, held against counts by hand, brute force, and a known sampling law."""

import doctest

import numpy as np
import pytest

from provlab.errors import InputError, NotComparableError
from provlab.modeldiff import comparison
from provlab.modeldiff.comparison import (
    TERMS,
    Comparison,
    Direction,
    RepresentativeInputs,
    compare,
    from_enumeration,
    total_variation,
)
from provlab.modeldiff.composition import composition

Z = (2.0, 4.0)


def sampled(own, other, chain=None, log_weight=None):
    n = len(own)
    return RepresentativeInputs(
        np.arange(n)[:, None],
        np.asarray(own, dtype=float),
        np.asarray(other, dtype=float),
        np.zeros(n) if log_weight is None else np.asarray(log_weight, dtype=float),
        np.arange(n) % 4 if chain is None else np.asarray(chain),
    )


def space(n=4000, seed=0):
    """Losses of a whole space under two models that agree in part."""
    rng = np.random.default_rng(seed)
    common = rng.uniform(1.5, 6, n)
    return common + rng.normal(0, 0.4, n), common + rng.normal(0.1, 0.4, n)


# The papers' own numbers ----------------------------------------------------------------------------------------------


def test_the_worked_example_of_section_3_3():
    """60/80 : 40/80 : 150/200 : 150/200 = 3:2:3:3, from samples of 100 and 300."""
    a = sampled(np.full(100, 3.0), np.r_[np.full(40, 3.5), np.full(20, 9.0), np.full(40, 2.5)])
    b = sampled(np.full(300, 3.0), np.r_[np.full(150, 2.5), np.full(50, 3.5), np.full(100, 9.0)])
    a.own[40:60] = 3.9  # 60 with D < 0, of which B has 20 above Z
    found = compare(a, b, Z)
    assert found.a.weight[found.a.common].sum() == 80
    assert found.b.weight[found.b.common].sum() == 200
    np.testing.assert_array_equal(found.terms(), [60 / 80, 40 / 80, 150 / 200, 150 / 200])
    ratio = found.ratio()
    np.testing.assert_allclose(3 * ratio.value, [3, 2, 3, 3], rtol=1e-15)
    assert str(ratio) == "1.00 : 0.67 : 1.00 : 1.00"


def test_figure_2_by_its_labels():
    """Figure 2 and Table 1: X_A = {1, 2, 3, 5, 6}, X_B = {2, 3, 4, 5, 6, 7}, PD_AB of {1, 2, 5}, and so on."""
    labels = np.arange(1, 8)
    nll_a = np.array([3.0, 2.5, 3.5, 4.5, 2.5, 3.5, 5.0])  # labels 4 and 7 lie outside Z for A
    nll_b = np.array([4.5, 3.0, 3.0, 3.5, 3.5, 2.5, 3.0])
    found = from_enumeration(nll_a, nll_b, Z)
    d = nll_a - nll_b
    in_a, in_b = set(labels[nll_a <= 4]), set(labels[nll_b <= 4])
    assert {label for label in in_a if d[label - 1] < 0} == {1, 2, 5}
    assert {label for label in in_b if d[label - 1] > 0} == {3, 4, 6, 7}
    np.testing.assert_allclose(found.terms(), np.array([3, 2, 2, 4]) / 4)


def test_the_doctest_runs():
    assert doctest.testmod(comparison).attempted > 0
    assert doctest.testmod(comparison).failed == 0


# Arithmetic -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_terms_are_counts_over_r3(threshold):
    nll_a, nll_b = space()
    in_a, in_b = (nll_a >= 2) & (nll_a <= 4), (nll_b >= 2) & (nll_b <= 4)
    d = nll_a - nll_b
    counts = [
        (in_a & (d < -threshold)).sum(),
        (in_a & (d > threshold)).sum(),
        (in_b & (d < -threshold)).sum(),
        (in_b & (d > threshold)).sum(),
    ]
    found = from_enumeration(nll_a, nll_b, Z)
    np.testing.assert_allclose(found.terms(threshold), np.array(counts) / (in_a & in_b).sum())
    ratio = found.ratio(threshold)
    np.testing.assert_allclose(ratio.value, np.array(counts) / counts[0])
    np.testing.assert_array_equal(ratio.low, ratio.value)  # nothing is left to chance
    assert ratio.neither[0] == pytest.approx((in_a & (abs(d) <= threshold)).sum() / in_a.sum())


def test_equal_losses_are_neither():
    found = from_enumeration([3.0, 3.0, 3.0], [3.0, 3.5, 2.5], Z)
    np.testing.assert_allclose(found.terms(), [1 / 3] * 4)
    np.testing.assert_allclose(found.ratio().neither, [1 / 3] * 2)


def test_both_ends_of_z_belong_to_it():
    found = from_enumeration([2.0, 4.0, 4.1], [4.0, 2.0, 3.0], Z)
    assert len(found.a.difference) == 2
    assert len(found.b.difference) == 3


def test_samples_drawn_unevenly_give_the_enumeration_back():
    """Inputs drawn with a known bias, and weighted by its inverse: every term within its sampling error."""
    nll_a, nll_b = space()
    truth = from_enumeration(nll_a, nll_b, Z)
    rng = np.random.default_rng(1)
    drawn = []
    for own, other in ((nll_a, nll_b), (nll_b, nll_a)):
        rows = np.flatnonzero((own >= 2) & (own <= 4))
        bias = np.exp(-1.5 * own[rows])
        pick = rows[rng.choice(len(rows), 200_000, p=bias / bias.sum())]
        drawn.append(sampled(own[pick], other[pick], np.arange(200_000) % 20, 1.5 * own[pick]))
    found = compare(*drawn, Z)
    ratio = found.ratio()
    np.testing.assert_allclose(found.terms(), truth.terms(), rtol=0.02)
    assert ((ratio.low <= ratio.value) & (ratio.value <= ratio.high)).all()
    edges = np.linspace(-2, 2, 21)
    for side in ("A", "B"):
        distance = total_variation(found.rho(side, edges).value, truth.rho(side, edges).value)
        assert distance < 0.02
    flat = compare(*(RepresentativeInputs(d.tokens, d.own, d.other, 0 * d.own, d.chain) for d in drawn), Z)
    assert abs(flat.terms() / truth.terms() - 1).max() > 0.05  # without the weights it misses


def test_normalisation_makes_sample_sizes_irrelevant():
    """Equations 12 and 13: drawing three times as much from B changes no term."""
    rng = np.random.default_rng(2)
    own, other = rng.uniform(2, 4, 500), rng.uniform(1.5, 4.5, 500)
    once = compare(sampled(own, other), sampled(other.clip(2, 4), own), Z)
    thrice = compare(sampled(own, other), sampled(np.tile(other.clip(2, 4), 3), np.tile(own, 3)), Z)
    np.testing.assert_allclose(once.terms(), thrice.terms())


def test_a_constant_in_the_log_weights_does_not_matter():
    rng = np.random.default_rng(5)
    own, other, weight = rng.uniform(2, 4, 50), rng.uniform(2, 4, 50), rng.normal(0, 1, 50)
    plain = compare(sampled(own, other, log_weight=weight), sampled(own, other, log_weight=weight), Z)
    moved = compare(sampled(own, other, log_weight=weight + 800), sampled(own, other, log_weight=weight - 900), Z)
    np.testing.assert_allclose(plain.terms(), moved.terms())


def test_three_models_through_a_reference():
    """Equations 16, 17 on a whole space: PD_BA against PD_CA is the plain ratio of counts."""
    nll_a, nll_b = space(seed=3)
    nll_c = nll_a + np.random.default_rng(4).normal(0.3, 0.5, len(nll_a))
    units = [from_enumeration(nll_a, other, Z).in_units_of_reference() for other in (nll_b, nll_c)]
    counts = []
    for other in (nll_b, nll_c):
        own = (other >= 2) & (other <= 4)
        counts.append([(own & (nll_a < other)).sum(), (own & (nll_a > other)).sum()])
    n_a = ((nll_a >= 2) & (nll_a <= 4)).sum()
    np.testing.assert_allclose([unit[2:] for unit in units], np.array(counts) / n_a)


def test_groups_count_as_their_members():
    nll_a, nll_b = space(200)
    counts = np.random.default_rng(0).integers(0, 5, 200)
    grouped = from_enumeration(nll_a, nll_b, Z, counts)
    apart = from_enumeration(np.repeat(nll_a, counts), np.repeat(nll_b, counts), Z)
    np.testing.assert_allclose(grouped.terms(), apart.terms())


def test_histograms_hold_every_difference_once():
    nll_a, nll_b = space(500)
    found = from_enumeration(nll_a, nll_b, Z)
    edges = np.linspace(-3, 3, 13)
    rho = found.rho("A", edges)
    expected, _ = np.histogram(found.a.difference, edges)
    np.testing.assert_allclose(rho.value, expected / found.a.common.sum())
    assert rho.value.sum() == pytest.approx(1 / found.a.common_share)


def test_weighted_quantiles():
    """Rows that stand for several inputs count as often; a sorted list by hand."""
    one = Direction("A", np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 1.0]), np.ones(3, bool), np.zeros(3, int), 1)
    np.testing.assert_array_equal(one.quantile([0.0, 0.5, 0.51, 0.75, 1.0]), [1.0, 1.0, 2.0, 2.0, 3.0])
    assert one.extent == (1.0, 3.0)
    assert one.n_effective == pytest.approx(16 / 6)


# Intervals ------------------------------------------------------------------------------------------------------------


def correlated(rng, n_chains=24, n=40):
    """Inputs of two models whose D has a mean of its own in every chain: within a chain the draws hang together."""
    made = []
    for sign in (-1, 1):
        shift = sign * 0.3 + rng.normal(0, 0.5, n_chains)
        d = shift[:, None] + rng.normal(0, 0.3, (n_chains, n))
        own = np.full(d.size, 3.0)
        made.append(sampled(own, own - sign * -1 * d.ravel() * 1.0, np.repeat(np.arange(n_chains), n)))
    return compare(*made, (1.0, 5.0))


def test_intervals_cover_when_draws_of_a_chain_hang_together():
    """95% intervals of all four terms over repeats; taking the rows for independent would cover half as often."""
    rng = np.random.default_rng(6)
    truth = np.mean([correlated(rng, 4000, 10).terms() for _ in range(3)], axis=0)
    truth = truth / truth[0]
    covered, as_rows = [], []
    for repeat in range(60):
        found = correlated(rng)
        ratio = found.ratio(seed=repeat, n_resamples=400)
        covered.append((ratio.low <= truth) & (truth <= ratio.high))
        rows = [
            Direction(d.side, d.difference, d.weight, d.common, np.arange(len(d.difference)), len(d.difference))
            for d in (found.a, found.b)
        ]
        naive = Comparison(rows[0], rows[1], found.z).ratio(seed=repeat, n_resamples=400)
        as_rows.append((naive.low <= truth) & (truth <= naive.high))
    assert np.mean(np.array(covered)[:, 1:]) > 0.9
    assert np.mean(np.array(as_rows)[:, 1:]) < 0.6


def test_intervals_repeat_with_their_seed():
    found = correlated(np.random.default_rng(7))
    first, second, other = (found.ratio(seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.high, second.high)
    assert (first.high != other.high).any()
    rho = found.rho("A", np.linspace(-2, 2, 9))
    assert ((rho.low <= rho.value) & (rho.value <= rho.high)).all()


# Refusals -------------------------------------------------------------------------------------------------------------


def test_no_disagreement_of_a_takes_another_reference():
    found = from_enumeration([3.0, 3.0], [2.5, 2.6], Z)
    ratio = found.ratio()
    assert ratio.reference == "PD_BA"
    assert ratio.value[TERMS.index("PD_BA")] == 1
    with pytest.raises(NotComparableError, match=r"PD_AB is 0, .* leave reference out, or take one of PA_AB, PD_BA"):
        found.ratio(reference="PD_AB")
    with pytest.raises(InputError, match="reference must be one of PD_AB"):
        found.ratio(reference="PD")


def test_two_copies_have_no_ratio():
    with pytest.raises(NotComparableError, match="no input differs by more than 0"):
        from_enumeration([3.0], [3.0], Z).ratio()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_enumeration([3.0, 9.0], [9.0, 3.0], Z).terms(), r"R3 is empty.*widen Z"),
        (lambda: from_enumeration([9.0], [3.0], Z), "model A has no input with NLL in Z"),
        (lambda: from_enumeration([3.0], [9.0], Z), "model B has no input with NLL in Z"),
        (lambda: from_enumeration([3.0], [3.0, 2.0], Z), "agree in size: 1, 2"),
        (lambda: from_enumeration([3.0], [3.0], (4.0, 2.0)), r"Z = \[4, 2\] is empty"),
        (lambda: compare(sampled([3.0, 5.0], [3.0, 3.0]), sampled([3.0], [3.0]), Z), "must have NLL in Z"),
        (lambda: sampled([3.0], [np.inf]), "other must be finite"),
        (lambda: sampled([3.0, 3.0], [3.0]), "other must hold one row for each of the 2 inputs, not 1"),
        (lambda: from_enumeration([3.0, 3.1], [3.1, 3.0], Z).ratio(-0.1), "threshold must be at least 0"),
        (lambda: from_enumeration([3.0], [3.1], Z).rho("A", [1, 0]), "edges must be two or more rising"),
        (lambda: total_variation([0, 0], [1, 1]), "the same bins, and each something"),
    ],
)
def test_refusals_name_the_way_out(call, message):
    with pytest.raises((InputError, NotComparableError), match=message):
        call()


def test_one_chain_gives_no_interval():
    own, other = [3.0, 3.2, 3.0, 3.2], [3.1, 3.1, 3.1, 3.1]
    one = sampled(own, other, chain=[5, 5, 5, 5])
    with pytest.raises(InputError, match="at least two independent"):
        compare(one, one, Z).ratio()
    with pytest.raises(InputError, match="level must lie between 0 and 1"):
        compare(sampled(own, other), sampled(own, other), Z).ratio(level=95)


def test_a_handful_of_common_draws_is_refused():
    """One heavy draw in R3 would decide the unit of everything: 20 draws worth 1.0 equal ones."""
    own, other = np.full(20, 3.0), np.full(20, 3.1)
    heavy = np.r_[50.0, np.zeros(19)]
    with pytest.raises(NotComparableError, match=r"20 draws of model A, worth 1\.0 equal ones.*or compare counts"):
        compare(sampled(own, other, log_weight=heavy), sampled(own, other), Z).terms()


# Composition ----------------------------------------------------------------------------------------------------------


def test_composition_tells_shares_labels_and_examples():
    """By hand: of weights 1, 3 below zero and 4, 0.5, 0.5 above."""
    found = Direction(
        "A",
        np.array([-1.0, -0.5, 0.5, 0.6, 0.7]),
        np.array([1.0, 3.0, 4.0, 0.5, 0.5]),
        np.ones(5, bool),
        np.zeros(5, int),
        1,
    )
    below, above, empty = composition(
        found,
        [-2, 0, 1, 2],
        labels={"code": [1, 0, 0, 1, 1]},
        distinct=["x", "y", "same", "same", "other"],
        n_examples=3,
    )
    assert (below.n, above.n, empty.n) == (2, 3, 0)
    np.testing.assert_allclose([below.share, above.share, empty.share], [4 / 9, 5 / 9, 0])
    assert below.labels["code"] == pytest.approx(0.25)
    assert above.labels["code"] == pytest.approx(0.2)
    assert empty.labels["code"] is None
    assert len(empty.examples) == 0
    assert sorted(below.examples) == [0, 1]
    assert len(above.examples) == 2
    assert 4 in above.examples
    with pytest.raises(InputError, match="label code must hold one number"):
        composition(found, [-2, 2], labels={"code": [1.0]})


def test_examples_are_drawn_by_weight():
    """First examples over seeds are a draw by weight: 0.8 against 0.2, within four standard errors."""
    found = Direction("A", np.array([0.1, 0.2]), np.array([4.0, 1.0]), np.ones(2, bool), np.zeros(2, int), 1)
    first = [composition(found, [0, 1], n_examples=1, seed=seed)[0].examples[0] for seed in range(400)]
    assert abs(np.mean(np.array(first) == 0) - 0.8) < 4 * np.sqrt(0.16 / 400)


# By counts instead of R3 ----------------------------------------------------------------------------------------------


def test_counts_need_no_common_inputs():
    """Weights that are numbers of inputs: 4 of A against 12 of B, though no input is in Z for both."""
    a = RepresentativeInputs(
        np.zeros((2, 1), int),
        np.full(2, 3.0),
        np.array([9.0, 2.0]) + 3.0,
        np.log([1.0, 3.0]),
        np.array([0, 1]),
        2,
        True,
    )
    b = RepresentativeInputs(
        np.zeros((2, 1), int), np.full(2, 3.0), np.array([9.0, 1.5]), np.log([8.0, 4.0]), np.array([0, 1]), 2, True
    )
    found = compare(a, b, Z, normalisation="count")
    np.testing.assert_allclose(found.terms(), [1, 0, 4 / 4, 8 / 4])
    np.testing.assert_allclose(found.in_units_of_reference(), found.terms())
    assert 10**found.b.log10_number == pytest.approx(12)
    with pytest.raises(NotComparableError, match=r"R3 is empty.*or compare counts"):
        compare(a, b, Z).terms()


def test_both_normalisations_agree_on_an_enumeration():
    nll_a, nll_b = space()
    by_r3 = from_enumeration(nll_a, nll_b, Z)
    by_count = Comparison(by_r3.a, by_r3.b, Z, "count")
    np.testing.assert_allclose(by_r3.ratio().value, by_count.ratio().value)
    np.testing.assert_allclose(by_r3.in_units_of_reference(), by_count.in_units_of_reference())


def test_relative_weights_are_no_counts():
    one = sampled([3.0, 3.2], [3.1, 3.1])
    with pytest.raises(NotComparableError, match="known up to a factor only; compare by R3"):
        compare(one, one, Z, normalisation="count").terms()


def test_a_chain_without_inputs_still_counts():
    """Of 8 chains, half left nothing in Z: the number of inputs is known to within their spread only."""
    own = np.full(400, 3.0)
    other = np.where(np.arange(400) % 2, 2.9, 3.1)
    chain = np.repeat(np.arange(4), 100)
    seen = RepresentativeInputs(np.zeros((400, 1), int), own, other, np.zeros(400), chain, 4, True)
    all_ = RepresentativeInputs(np.zeros((400, 1), int), own, other, np.zeros(400), chain, 8, True)
    few, many = (compare(one, seen, Z, normalisation="count").ratio(reference="PD_BA") for one in (seen, all_))
    assert np.ptp([few.low[0], few.high[0]]) < np.ptp([many.low[0], many.high[0]])
    with pytest.raises(InputError, match="chain must hold numbers from 0 to 2"):
        RepresentativeInputs(np.zeros((400, 1), int), own, other, np.zeros(400), chain, 3)
