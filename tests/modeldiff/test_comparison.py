"""rho(D), PD, PA and their ratio, compared with counts by hand, brute force, and a known sampling law."""

import doctest

import numpy as np
import pytest

from provlab.errors import InputError, NotComparableError
from provlab.modeldiff import comparison
from provlab.modeldiff.comparison import (
    TERMS,
    BothDirections,
    from_enumeration,
    total_variation,
)
from provlab.modeldiff.composition import composition
from provlab.modeldiff.representative import Direction, Draws

Z = (2.0, 4.0)


def sampled(side, own, other, chain=None, log_weight=None, *, n_chains=4, counted=False, z=Z):
    """A direction from draws whose losses under both models are given."""
    n = len(own)
    draws = Draws(
        np.arange(n)[:, None],
        np.asarray(own, dtype=float),
        np.zeros(n) if log_weight is None else np.asarray(log_weight, dtype=float),
        np.arange(n) % n_chains if chain is None else np.asarray(chain),
        n_chains,
        counted,
    )
    return Direction.from_draws(draws, np.asarray(other, dtype=float), side, z)


def one_chain(difference, weight):
    """A direction of weighted differences, all in R3."""
    n = len(difference)
    return Direction("A", np.array(difference), np.array(weight), np.ones(n, bool), np.zeros(n, int), 1)


def compare(a, b, z=Z):
    """Arguments of `sampled` for both sides."""
    return BothDirections(sampled("A", *a, z=z), sampled("B", *b, z=z), z)


def space(n=4000, seed=0):
    """Losses of a whole space under two models that agree in part."""
    rng = np.random.default_rng(seed)
    common = rng.uniform(1.5, 6, n)
    return common + rng.normal(0, 0.4, n), common + rng.normal(0.1, 0.4, n)


# The papers' own numbers ----------------------------------------------------------------------------------------------


def test_the_worked_example_of_section_3_3():
    """60/80 : 40/80 : 150/200 : 150/200 = 3:2:3:3, from samples of 100 and 300."""
    own = np.r_[np.full(40, 3.0), np.full(20, 3.9), np.full(40, 3.0)]  # 60 with D < 0, of which B has 20 above Z
    a = own, np.r_[np.full(40, 3.5), np.full(20, 9.0), np.full(40, 2.5)]
    b = np.full(300, 3.0), np.r_[np.full(150, 2.5), np.full(50, 3.5), np.full(100, 9.0)]
    pair = compare(a, b)
    assert pair.a.weight[pair.a.common].sum() == 80
    assert pair.b.weight[pair.b.common].sum() == 200
    np.testing.assert_array_equal(pair.terms(), [60 / 80, 40 / 80, 150 / 200, 150 / 200])
    ratio = pair.ratio()
    np.testing.assert_allclose(3 * ratio.value, [3, 2, 3, 3], rtol=1e-15)
    assert str(ratio) == "1.00 : 0.67 : 1.00 : 1.00"


def test_figure_2_by_its_labels():
    """Figure 2 and Table 1: X_A = {1, 2, 3, 5, 6}, X_B = {2, 3, 4, 5, 6, 7}, PD_AB of {1, 2, 5}, and so on."""
    labels = np.arange(1, 8)
    nll_a = np.array([3.0, 2.5, 3.5, 4.5, 2.5, 3.5, 5.0])  # labels 4 and 7 lie outside Z for A
    nll_b = np.array([4.5, 3.0, 3.0, 3.5, 3.5, 2.5, 3.0])
    pair = from_enumeration(nll_a, nll_b, Z)
    d = nll_a - nll_b
    in_a, in_b = set(labels[nll_a <= 4]), set(labels[nll_b <= 4])
    assert {label for label in in_a if d[label - 1] < 0} == {1, 2, 5}
    assert {label for label in in_b if d[label - 1] > 0} == {3, 4, 6, 7}
    np.testing.assert_allclose(pair.terms(), np.array([3, 2, 2, 4]) / 4)


def test_the_doctest_runs():
    assert doctest.testmod(comparison).attempted > 0
    assert doctest.testmod(comparison).failed == 0


# Arithmetic -----------------------------------------------------------------------------------------------------------


def test_terms_are_counts_over_r3():
    nll_a, nll_b = space()
    in_a, in_b = (nll_a >= 2) & (nll_a <= 4), (nll_b >= 2) & (nll_b <= 4)
    d = nll_a - nll_b
    counts = [(in_a & (d < 0)).sum(), (in_a & (d > 0)).sum(), (in_b & (d < 0)).sum(), (in_b & (d > 0)).sum()]
    pair = from_enumeration(nll_a, nll_b, Z)
    np.testing.assert_allclose(pair.terms(), np.array(counts) / (in_a & in_b).sum())
    ratio = pair.ratio()
    np.testing.assert_allclose(ratio.value, np.array(counts) / counts[0])
    np.testing.assert_array_equal(ratio.low, ratio.value)  # nothing is left to chance
    np.testing.assert_allclose(pair.ratio("count").value, ratio.value)
    for in_units in (pair.terms("count"), pair.in_units_of_reference()):  # of A's inputs: Equations 14 to 17
        np.testing.assert_allclose(in_units, np.array(counts) / in_a.sum())


def test_equal_losses_are_neither():
    pair = from_enumeration([3.0, 3.0, 3.0], [3.0, 3.5, 2.5], Z)
    np.testing.assert_allclose(pair.terms(), [1 / 3] * 4)
    np.testing.assert_allclose(pair.ratio().neither, [1 / 3] * 2)


def test_both_ends_of_z_belong_to_it():
    pair = from_enumeration([2.0, 4.0, 4.1], [4.0, 2.0, 3.0], Z)
    assert len(pair.a.difference) == 2
    assert len(pair.b.difference) == 3


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
        drawn.append((own[pick], other[pick], 1.5 * own[pick]))
    settings = {"n_chains": 20}
    pair = BothDirections(*(sampled(s, *d[:2], None, d[2], **settings) for s, d in zip("AB", drawn, strict=True)), Z)
    flat = BothDirections(*(sampled(s, *d[:2], **settings) for s, d in zip("AB", drawn, strict=True)), Z)
    ratio = pair.ratio()
    np.testing.assert_allclose(pair.terms(), truth.terms(), rtol=0.02)
    assert ((ratio.low <= ratio.value) & (ratio.value <= ratio.high)).all()
    edges = np.linspace(-2, 2, 21)
    for side in ("A", "B"):
        distance = total_variation(pair.rho(side, edges)[0], truth.rho(side, edges)[0])
        assert distance < 0.02
    assert abs(flat.terms() / truth.terms() - 1).max() > 0.05  # without the weights it misses


def test_neither_sizes_of_samples_nor_constants_in_log_weights_matter():
    """Equations 12 and 13: drawing three times as much from B changes no term."""
    rng = np.random.default_rng(2)
    own, other, weight = rng.uniform(2, 4, 500), rng.uniform(1.5, 4.5, 500), rng.normal(0, 1, 500)
    once = compare((own, other, None, weight), (other.clip(2, 4), own, None, weight))
    b = (np.tile(values, 3) for values in (other.clip(2, 4), own))
    thrice = compare((own, other, None, weight + 800), (*b, None, np.tile(weight, 3) - 900))
    np.testing.assert_allclose(once.terms(), thrice.terms())


def test_histograms_hold_every_difference_once():
    nll_a, nll_b = space(500)
    pair = from_enumeration(nll_a, nll_b, Z)
    edges = np.linspace(-3, 3, 13)
    rho = pair.rho("A", edges)
    expected, _ = np.histogram(pair.a.difference, edges)
    np.testing.assert_allclose(rho[0], expected / pair.a.common.sum())
    assert rho[0].sum() == pytest.approx(1 / pair.a.common_share)


def test_weighted_quantiles():
    """Rows that stand for several inputs count as often; a sorted list by hand."""
    direction = one_chain([3.0, 1.0, 2.0], [1.0, 2.0, 1.0])
    np.testing.assert_array_equal(direction.quantile([0.0, 0.5, 0.51, 0.75, 1.0]), [1.0, 1.0, 2.0, 2.0, 3.0])


def test_an_extent_is_of_inputs_and_not_of_draws():
    """One draw far out that stands for hardly any input, and one that stands for many."""
    own = np.full(400, 3.0)
    other, log_weight = np.random.default_rng(0).uniform(2.9, 3.1, 400), np.zeros(400)
    other[:2], log_weight[:2] = (2.0, 4.0), (-9.0, 5.0)
    direction = sampled("A", own, other, log_weight=log_weight, counted=True)
    pair = BothDirections(direction, sampled("B", own, other, counted=True), Z).summary()
    assert pair.extent_a[0] == -1.0
    assert pair.extent_a[1] < 0.11


def test_draws_are_worth_what_their_weights_and_their_chains_leave():
    rng = np.random.default_rng(1)
    own, d = np.full(400, 3.0), rng.normal(0, 0.1, 400)
    assert sampled("A", own, own - d, n_chains=40).effective == pytest.approx(400, rel=0.4)
    # one draw decides
    assert sampled("A", own, own - d, log_weight=np.r_[9.0, np.zeros(399)]).effective < 2
    # D is one number a chain, though losses of the own model are mixed as well as can be
    chain = np.repeat(np.arange(40), 10)
    assert sampled("A", own, own - d[:40][chain], chain, n_chains=40).effective == pytest.approx(40, rel=0.3)


# Intervals ------------------------------------------------------------------------------------------------------------


def correlated(rng, n_chains=24, n=40):
    """Inputs of two models whose D has a mean of its own in every chain: within a chain the draws hang together."""
    made = []
    for sign in (-1, 1):
        shift = sign * 0.3 + rng.normal(0, 0.5, n_chains)
        d = shift[:, None] + rng.normal(0, 0.3, (n_chains, n))
        own = np.full(d.size, 3.0)
        side, chain, z = ("A" if sign < 0 else "B"), np.repeat(np.arange(n_chains), n), (1.0, 5.0)
        made.append(sampled(side, own, own - sign * -1 * d.ravel() * 1.0, chain, n_chains=n_chains, z=z))
    return BothDirections(*made, z)


def test_intervals_cover_when_draws_of_a_chain_hang_together():
    """95% intervals of all four terms over repeats; taking the rows for independent would cover half as often."""
    rng = np.random.default_rng(6)
    truth = np.mean([correlated(rng, 4000, 10).terms() for _ in range(3)], axis=0)
    truth = truth / truth[0]
    covered, as_rows = [], []
    for repeat in range(60):
        pair = correlated(rng)
        ratio = pair.ratio(seed=repeat)
        covered.append((ratio.low <= truth) & (truth <= ratio.high))
        rows = [
            Direction(d.side, d.difference, d.weight, d.common, np.arange(len(d.difference)), len(d.difference))
            for d in (pair.a, pair.b)
        ]
        naive = BothDirections(rows[0], rows[1], pair.z).ratio(seed=repeat)
        as_rows.append((naive.low <= truth) & (truth <= naive.high))
    assert np.mean(np.array(covered)[:, 1:]) > 0.9
    assert np.mean(np.array(as_rows)[:, 1:]) < 0.6


def test_intervals_repeat_with_their_seed():
    pair = correlated(np.random.default_rng(7))
    first, second, other = (pair.ratio(seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.high, second.high)
    assert (first.high != other.high).any()
    rho = pair.rho("A", np.linspace(-2, 2, 9))
    assert ((rho[1] <= rho[0]) & (rho[0] <= rho[2])).all()


# Refusals -------------------------------------------------------------------------------------------------------------


def test_no_disagreement_of_a_takes_another_reference():
    pair = from_enumeration([3.0, 3.0], [2.5, 2.6], Z)
    ratio = pair.ratio()
    assert ratio.reference == "PD_BA"
    assert ratio.value[TERMS.index("PD_BA")] == 1


PAIR, TWENTY = ([3.0, 3.2], [3.1, 3.1]), (np.full(20, 3.0), np.full(20, 3.1))
HANDFUL = r"20 draws of model A, worth 1\.0 equal ones.*or compare counts"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_enumeration([3.0, 9.0], [9.0, 3.0], Z).terms(), r"R3 is empty.*widen Z"),
        (lambda: from_enumeration([3.0], [3.0], Z).ratio(), "no input has another loss under the other model"),
        (lambda: from_enumeration([9.0], [9.0], Z), r"neither model has an input with NLL in Z = \[2, 4\]"),
        (lambda: from_enumeration([3.0], [3.0, 2.0], Z), "agree in size: 1 and 2"),
        (lambda: from_enumeration([3.0], [3.0], (4.0, 2.0)), r"Z = \[4, 2\] is empty"),
        (lambda: compare(([3.0, 5.0], [3.0, 3.0]), ([3.0], [3.0])), "must have NLL in Z"),
        (lambda: sampled("A", [3.0], [np.inf]), "other must be finite"),
        (lambda: sampled("A", [3.0, 3.0], [3.0]), "other must hold one row for each of the 2 inputs, not 1"),
        (lambda: sampled("A", [3.0, 3.0], [3.0, 3.0], chain=[0, 4]), "chain must hold numbers from 0 to 3"),
        (lambda: from_enumeration([3.0], [3.1], Z).rho("A", [1, 0]), "edges must be two or more rising"),
        (lambda: total_variation([0, 0], [1, 1]), "the same bins, and each something"),
        (lambda: compare(PAIR, PAIR).terms("count"), "known up to a factor only; compare by R3"),
        (
            lambda: BothDirections(*(sampled(s, *TWENTY, n_chains=1) for s in "AB"), Z).ratio(),
            "at least two independent",
        ),
        # one heavy draw in R3 would decide the unit of everything: 20 draws worth 1.0 equal ones
        (lambda: compare((*TWENTY, None, np.r_[50.0, np.zeros(19)]), TWENTY).terms(), HANDFUL),
    ],
)
def test_refusals_name_the_way_out(call, message):
    with pytest.raises((InputError, NotComparableError), match=message):
        call()


# Composition ----------------------------------------------------------------------------------------------------------


def test_composition_tells_labels_and_examples():
    """By hand: weights 1, 3 below zero and 4, 0.5, 0.5 above."""
    side = one_chain([-1.0, -0.5, 0.5, 0.6, 0.7], [1.0, 3.0, 4.0, 0.5, 0.5])
    settings = {"distinct": ["x", "y", "same", "same", "other"], "n_examples": 3}
    below, above, empty = composition(side, [-2, 0, 1, 2], labels={"code": [1, 0, 0, 1, 1]}, **settings)
    assert [bin_.labels["code"] for bin_ in (below, above, empty)] == [pytest.approx(0.25), pytest.approx(0.2), None]
    assert sorted(below.examples) == [0, 1]
    assert len(above.examples) == 2
    assert 4 in above.examples
    assert len(empty.examples) == 0
    with pytest.raises(InputError, match="label code must hold one number"):
        composition(side, [-2, 2], labels={"code": [1.0]}, **settings)


def test_examples_are_drawn_by_weight():
    """First examples over seeds are a draw by weight: 0.8 against 0.2, within four standard errors."""
    side, settings = one_chain([0.1, 0.2], [4.0, 1.0]), {"labels": {}, "distinct": "ab", "n_examples": 1}
    first = [composition(side, [0, 1], **settings, seed=seed)[0].examples[0] for seed in range(400)]
    assert abs(np.mean(np.array(first) == 0) - 0.8) < 4 * np.sqrt(0.16 / 400)


# By counts instead of R3 ----------------------------------------------------------------------------------------------


def test_counts_need_no_common_inputs():
    """Weights that are numbers of inputs: 4 of A against 12 of B, though no input is in Z for both."""
    a = sampled("A", [3.0, 3.0], [12.0, 5.0], [0, 1], np.log([1.0, 3.0]), n_chains=2, counted=True)
    b = sampled("B", [3.0, 3.0], [9.0, 1.5], [0, 1], np.log([8.0, 4.0]), n_chains=2, counted=True)
    pair = BothDirections(a, b, Z)
    np.testing.assert_allclose(pair.terms("count"), [1, 0, 4 / 4, 8 / 4])
    assert 10**pair.b.log10_number == pytest.approx(12)
    with pytest.raises(NotComparableError, match=r"R3 is empty.*or compare counts"):
        pair.terms()


@pytest.mark.parametrize("first", [True, False])
def test_a_model_without_inputs_leaves_the_other_ones(first):
    """Twenty inputs of one model, all of which the other finds less likely, and none of the other's: 1 and unknown."""
    full, empty = ("A", "B") if first else ("B", "A")
    sides = {
        full: sampled(full, np.full(40, 3.0), np.full(40, 9.0), counted=True),
        empty: sampled(empty, np.empty(0), np.empty(0), counted=True),
    }
    pair = BothDirections(sides["A"], sides["B"], Z)
    ratio = pair.ratio("count")
    np.testing.assert_array_equal(ratio.value, [1, 0, 0, 0] if first else [0, 0, 0, 1])
    assert ratio.reference == ("PD_AB" if first else "PD_BA")
    assert np.isinf(ratio.high[2:] if first else ratio.high[:2]).all()
    summary = pair.summary()
    assert "R3" in summary.by_r3["error"]
    mine, none = (summary.below_a, summary.below_b) if first else (summary.below_b, summary.below_a)
    assert none == [None, 0.0, 1.0]
    assert abs(mine[1] - mine[2]) == pytest.approx(1 - 0.025 ** (1 / 40))  # 40 of 40: Clopper and Pearson by hand
    assert summary.effective[1 if first else 0] == 0


def test_a_chain_without_inputs_still_counts():
    """Half of 8 chains left nothing in Z: the number of inputs is known to within their spread only."""
    own = np.full(400, 3.0)
    other = np.where(np.arange(400) % 2, 2.9, 3.1)
    chain = np.repeat(np.arange(4), 100)
    reached, all_ = (sampled("A", own, other, chain, n_chains=n, counted=True) for n in (4, 8))
    b = sampled("B", own, other, chain, counted=True)
    few, many = (BothDirections(direction, b, Z).ratio("count") for direction in (reached, all_))
    assert np.ptp([few.low[3], few.high[3]]) < np.ptp([many.low[3], many.high[3]])
