"""The hidden units that an MLP really has.

Reference values: what the MLP computes, and its units before they were spread. Sizes are those of random MLPs, which
are independent, with units planted on both sides.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from spread_units import dead, decoys, duplicates, up_split

from provlab.arrays import here, on
from provlab.attacks import exact, lossy
from provlab.attacks.state import Aim
from provlab.engine.device import _Multiply
from provlab.inference import pvalues
from provlab.inference.matching import match_shuffled, multiplied_by, unit_rows
from provlab.reading import canonical
from provlab.reading.canonical import NEGLIGIBLE, applied, merged, shares, silu, spanned
from provlab.statistics.phi_u import correlation_with_identity

UNITS, WIDTH = 40, 16


def attack(name, value=0.0):
    """Apply an attack of the catalogue, which changes the units of every MLP of a model, to one MLP."""

    def change(gate, up, down, rng):
        units = {role: rows.double() for role, rows in (("gate", gate), ("up", up), ("down", down.T))}
        state = SimpleNamespace(with_units=lambda made, gated=False: made(units))
        aim = Aim(np.random.default_rng(int(torch.randint(1000, (), generator=rng))), value)
        attacked = (getattr(exact, name, None) or getattr(lossy, name))(state, aim)
        return *(attacked[role].float() for role in ("gate", "up")), attacked["down"].T.float()

    return change


WAYS = {
    "decoys": (decoys(3),),
    "duplicates": (duplicates(2),),
    "scaled duplicates": (duplicates(3, scaled=True),),
    "dead": (dead(2),),
    "split by u": (up_split("u"),),
    "split by 3 u": (up_split("3u"),),
    "split by others": (up_split("natural"),),
    "half split": (up_split("natural", share=0.5),),
    "all of it": (duplicates(2), up_split("3u"), decoys(2), up_split("natural", share=0.3)),
}

OPPOSITE = {  # which keep the outputs and change a quadratic form, by gates that are opposite
    "mirror": (attack("mirror", 3.0),),
    "quadratic": (attack("quadratic"),),
    "turned": (attack("turned"),),
    "all of it and opposite": (duplicates(2), attack("mirror", 1.0), decoys(2), attack("mirror", 1.0)),
}
ALL = WAYS | OPPOSITE


def mlp(seed):
    rng = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=rng) for shape in ((UNITS, WIDTH), (UNITS, WIDTH), (WIDTH, UNITS)))


def spread(three, changes, seed=0):
    rng = torch.Generator().manual_seed(seed)
    for change in changes:
        three = change(*three, rng)
    gate, up, down = (item.numpy() for item in three)
    return gate, up, np.ascontiguousarray(down.T)


def output(gate, up, down, x):
    """Sum of d silu(g x) (u x), ``(n, width)``."""
    visible = x @ gate.T.astype(float)
    return (visible / (1 + np.exp(-visible)) * (x @ up.T)) @ down


def really(gate, up, down):
    units = merged(gate, up, down)
    return tuple(applied(units, rows, role) for rows, role in ((gate, "gate"), (up, "up"), (down, "down")))


@pytest.mark.parametrize("way", ALL)
def test_the_units_that_are_left_compute_the_same_and_are_those_before(way):
    first, attacked = spread(mlp(1), ()), spread(mlp(1), ALL[way])
    gate, up, down = really(*attacked)
    x = np.random.default_rng(0).standard_normal((50, WIDTH))
    before, between, after = (output(*three, x) for three in (first, attacked, (gate, up, down)))
    np.testing.assert_allclose(between, before, atol=2e-3)
    if way in OPPOSITE:  # the odd part: a quadratic form is even, and the rest is odd in x
        before, after = before - output(*first, -x), after - output(gate, up, down, -x)
    np.testing.assert_allclose(after, before, atol=2e-3)
    kept = up.any(axis=1)
    assert kept.sum() == UNITS
    cosines = np.abs(unit_rows(up[kept]).unit @ unit_rows(first[1]).unit.T)
    assert cosines.max(axis=1).min() > 0.9999
    assert np.array_equal(np.unique(cosines.argmax(axis=1)), np.arange(UNITS))


def minus_up(units):
    """Mirror each unit with w = -u, so that its gate is left with -(a(gx) + 2 a(-gx)) (ux)."""
    minus = {**units, "up": -units["up"], "down": -units["down"]}
    return exact.with_more({**units, "up": 0 * units["up"]}, exact._three(minus))


def shares_of(gate, up, down, x):
    units = merged(gate, up, down)
    return applied(units, up, "up"), shares(gate @ x.T, up @ x.T, down, units)


@pytest.mark.parametrize("way", [*ALL, "w = -u"])
def test_shares_of_the_output_survive_any_rewriting(way):
    """A merged unit's gate may have either sign, on which it depends how much it fires, give or take a half."""
    first = spread(mlp(1), ())
    if way == "w = -u":
        units = {role: torch.as_tensor(rows) for role, rows in zip(("gate", "up", "down"), first, strict=True)}
        attacked = tuple(rows.numpy() for rows in minus_up(units).values())
    else:
        attacked = spread(mlp(1), ALL[way])
    x = np.random.default_rng(0).standard_normal((400, WIDTH)).astype(np.float32)
    of_first = shares_of(*first, x)[1]
    up, written = shares_of(*attacked, x)
    kept = up.any(axis=1)
    assert kept.sum() == UNITS
    assert not written[~kept].any()
    origin = np.abs(unit_rows(up[kept]).unit @ unit_rows(first[1]).unit.T).argmax(axis=1)
    times = 1.01 if way in WAYS else 3
    assert np.abs(np.log(written[kept] / of_first[origin])).max() < np.log(times)
    assert written.sum() == pytest.approx(of_first.sum(), rel=0.01 if way in WAYS else 0.3)


def test_shares_by_hand_and_beside_units_that_add_nothing():
    """silu(z) - silu(-z) = z: at z and -z, without the mean, a unit gives z / 2 and -z / 2; its down row is 2 or 1."""
    z = np.array([[1.0, -1.0], [3.0, -3.0]], np.float32)
    down = np.array([[2.0, 0.0], [0.0, 1.0]], np.float32)
    ones = np.ones_like(z)
    want = np.array([4 * 0.25, 2.25]) / 3.25
    np.testing.assert_allclose(shares(z, ones, down), want, rtol=1e-5)
    constant = np.full((1, 2), -7, np.float32), np.array([[3e4, 1e4]], np.float32)
    more = np.vstack([z, constant[0]]), np.vstack([ones, ones[:1]]), np.vstack([down, constant[1]])
    np.testing.assert_allclose(shares(*more), [*want, 0], rtol=1e-5, atol=1e-9)
    loud = np.array([[50.0, -20.0]] * 2, np.float32), np.array([[300.0, 100.0], [-300.0, -100.0]], np.float32)
    more = np.vstack([z, loud[0]]), np.vstack([ones, ones]), np.vstack([down, loud[1]])
    np.testing.assert_allclose(shares(*more)[:2], want, rtol=1e-3)
    assert shares(z, ones, 0 * down).tolist() == [0, 0]
    np.testing.assert_allclose(shares(z, None, down), shares(z, ones, down))


@pytest.mark.parametrize("loud", [4, 16])
def test_some_loud_units_do_not_make_the_others_dead(loud):
    """The bar once was a share of what the loudest write."""
    gate, up, down = spread(mlp(1), ())
    rng = np.random.default_rng(0)
    more = [rng.standard_normal((loud, WIDTH)).astype(np.float32) for _ in range(3)]
    rows = [
        np.vstack([ones, other * np.float32(factor)])
        for ones, other, factor in zip((gate, up, down), more, (1, 1, 1e7), strict=True)
    ]
    assert really(*rows)[1][:UNITS].any(axis=1).all() == (loud == 4)  # by weights: fewer than a quarter
    x = rng.standard_normal((100, WIDTH)).astype(np.float32)
    hidden = rows[0] @ x.T * (rows[1] @ x.T)
    of_output = float(np.linalg.norm(output(gate, up, down, x)))
    units = merged(*rows, np.linalg.norm(hidden, axis=1), output=of_output)  # which cancel, as the output says
    assert applied(units, rows[1], "up").any(axis=1).all()


def test_an_honest_model_stays_as_it_is():
    gate, up, down = spread(mlp(1), ())
    assert len(merged(gate, up, down)) == 0
    assert applied(np.empty((0, 5)), up, "up") is up


def test_two_units_of_one_gate_stay_two_and_a_trace_of_a_third_does_not():
    gate, up, down = spread(mlp(1), ())
    gate[1] = gate[0]
    assert really(gate, up, down)[1].any(axis=1).sum() == UNITS
    down[1] *= 0.5 * NEGLIGIBLE
    kept = really(gate, up, down)[1]
    assert kept.any(axis=1).sum() == UNITS - 1
    assert min(kept[0].any(), kept[1].any()) == 0


def test_units_without_gates_are_one_if_they_read_and_are_biased_alike():
    _, up, down = spread(mlp(1), ())
    biased = np.column_stack([up, np.zeros(UNITS, np.float32)])
    biased[1] = biased[0]
    biased[3, :-1], biased[3, -1] = biased[2, :-1], 20
    units = merged(None, biased, down)
    result = applied(units, down, "down")
    assert np.flatnonzero(~applied(units, up, "up").any(axis=1)) in ([0], [1])
    np.testing.assert_allclose(result[0] + result[1], down[0] + down[1], rtol=1e-6)
    np.testing.assert_array_equal(result[2:], down[2:])


def test_units_without_gates_are_one_if_they_read_the_opposite():
    """d a(ux) = (d + c) a(ux) - c a(-ux) - c (ux): a linear map apart, which other units may write, one unit."""
    _, up, down = spread(mlp(1), ())
    units = merged(None, np.concatenate([up, -up]), np.concatenate([3 * down, -2 * down]))
    ups, downs = (
        applied(units, np.concatenate(rows), role)
        for rows, role in (((up, -up), "up"), ((3 * down, -2 * down), "down"))
    )
    kept = ups.any(axis=1)
    order = np.abs(unit_rows(ups[kept]).unit @ unit_rows(up).unit.T).argmax(axis=1)
    assert np.array_equal(np.sort(order), np.arange(UNITS))
    np.testing.assert_allclose(downs[kept], down[order], atol=1e-6)


def test_units_that_never_fire_are_seen_by_their_activations_alone():
    gate, up, down = spread(mlp(1), ())
    activity = np.full(UNITS, 3.0)
    activity[7] = 1e-6
    assert merged(gate, up, down, activity).tolist() == [[-1, 7, 0, 0, 0]]
    assert len(merged(gate, up, down)) == 0


@pytest.mark.parametrize("changes", ALL.values(), ids=ALL)
def test_units_in_another_order_become_the_same_units(changes):
    rows = spread(mlp(2), changes)
    order = np.random.default_rng(5).permutation(len(rows[1]))
    first, second = (really(*some)[1] for some in (rows, [item[order] for item in rows]))
    kept = [item[item.any(axis=1)] for item in (first, second)]
    assert len(kept[0]) == len(kept[1])
    assert (unit_rows(kept[0]).unit @ unit_rows(kept[1]).unit.T).max(axis=1).min() > 0.999


def p_of_strangers(n, place=None):
    """phi_U of pairs of random MLPs, in each of which a third of the units stands two to four times, in random order.

    The repeated ones are alike in both: pairs of units that MATCH would rather join with one another. Every copy has a
    sign of its own at its gate. Where a merged unit stands at a `place` of its parts' choosing, these stand too early
    in both models.
    """
    result = []
    for pair in range(n):
        sides = []
        for side in (0, 1):
            rng = np.random.default_rng([pair, side])
            gate, up, down = (rng.standard_normal((24, 12)).astype(np.float32) for _ in range(3))
            up[:8, :4] += 6  # what the repeated ones have in common
            copies = np.repeat(np.arange(24), np.where(np.arange(24) < 8, rng.integers(2, 5, 24), 1))
            order = rng.permutation(len(copies))
            copies = copies[order]
            side = rng.choice(np.float32([-1, 1]), (len(copies), 1))
            units = merged(side * gate[copies], up[copies], down[copies])
            if place:
                units = at(units, place)
            rows = applied(units, up[copies], "up")
            sides.append(unit_rows(rows, keep=rows.any(axis=1)))
        assert len(sides[0]) == 24
        result.append(correlation_with_identity(*sides, 0, pair).log10_p)
    return np.array(result)


def at(units, place):
    """Move merged units to the first, or last, place of their parts."""
    moved = units.copy()
    for unit in np.unique(units[:, 0]):
        lines = units[:, 0] == unit
        if unit >= 0:
            moved[lines, 0] = place(units[lines, 1])
    return moved


def test_p_values_of_strangers_are_uniform_where_merged_units_stand_at_a_random_part():
    p = 10.0 ** p_of_strangers(500)
    for level in (0.01, 0.05, 0.2):
        assert (p <= level).sum() <= 500 * level + 3 * np.sqrt(500 * level * (1 - level))
    assert p.mean() > 0.46


def test_the_first_part_would_be_the_wrong_place():
    p = 10.0 ** p_of_strangers(150, min)
    assert (p <= 0.05).mean() > 0.12
    assert pvalues.fisher(np.log10(p)) < -10


def random_mlps(n):
    """Pairs of MLPs as ``(gate, up, down)``: of six kinds, on one or both sides, of equal size or not."""
    changes = [*ALL.values(), (duplicates(2), dead(2))]
    for k in range(n):
        rng = np.random.default_rng(k)
        h, d, more = (int(number) for number in rng.integers([6, 4, 0], [40, 150, 9]))
        sides = []
        for units in (h, h + more * (k % 2)):
            # MLPs in the layout of a model: units are the columns of the down projection
            sides.append(
                [rng.standard_normal(shape).astype(np.float32) for shape in ((units, d), (units, d), (d, units))]
            )
        first, second = sides
        if k % 3 == 0:  # related
            for mine, theirs in zip(first[:2], second[:2], strict=True):
                theirs[:h] = mine + 0.3 * theirs[:h]
        if k % 6 == 1:
            sides = [[np.sign(rows) for rows in side] for side in sides]  # many cosines are equal
        elif k % 6 == 2:
            first[1][: h // 3] = first[2][:, h // 2 :] = 0
            second[0][-2:] = 0
        elif k % 6 > 3:  # units that stand twice, cancel, are split over g and -g, ...
            torch.manual_seed(k)
            sides = [
                list(spread([torch.from_numpy(rows) for rows in side], changes[k % len(changes)])) for side in sides
            ]
            sides = [[gate, up, np.ascontiguousarray(down.T)] for gate, up, down in sides]
        yield k, d, sides


@pytest.mark.parametrize("gated", [True, False])
def test_on_a_device_the_units_shares_and_p_values_are_those_of_the_cpu(gated, as_device):
    there, of_device, equal = on("cpu"), _Multiply("cpu"), 0
    for k, d, sides in random_mlps(200):
        x = np.random.default_rng([k, 1]).standard_normal((d, 40)).astype(np.float32)
        rows = []
        for gate, up, writes in sides:
            gates, ups = gate @ x, up @ x
            fires = silu(gates) * ups if gated else silu(ups)
            of_text = {} if k % 4 == 0 else {"on_text": gates if gated else ups, "output": float(len(up))}
            activity = None if k % 4 == 1 else np.linalg.norm(fires, axis=1)
            matrices = [gate if gated else None, up, writes.T]
            units = merged(*matrices, activity, **of_text)
            moved = [None if matrix is None else there(matrix) for matrix in matrices]
            equal += np.array_equal(merged(*moved, activity, **of_text), units)
            flows = (gates, ups) if gated else (ups, None)
            np.testing.assert_allclose(
                shares(*flows, moved[2], units), shares(*flows, matrices[2], units), rtol=2e-5, atol=1e-9
            )
            for role, matrix, sent in zip(("gate", "up", "down"), matrices, moved, strict=True):
                if matrix is not None:
                    assert np.array_equal(here(applied(units, sent, role)), applied(units, matrix, role))
            really = applied(units, up, "up")
            rows.append(unit_rows(really, keep=really.any(axis=1)))
        (p, objective), (p_there, objective_there) = (matched_by(product, rows, k) for product in (None, of_device))
        assert objective_there == pytest.approx(objective, abs=1e-9)
        # where many cosines are equal, or units of one side stand twice, several matchings are as good
        assert p_there == p or k % 6 == 1 or any(map(stand_twice, rows))
    assert equal == 400
    assert as_device >= {"near_pairs", "shares", "sum_of_squares", "applied", "squared", "silu"}


def stand_twice(rows):
    """Whether two rows have one direction."""
    exact = rows.rows.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    return bool((np.triu(exact @ exact.T, k=1) > 1 - 1e-12).any())  # (h, d) @ (d, h)


def matched_by(product, rows, k):
    """log10 p and objective of a matching of which the similarity comes of a product."""
    with multiplied_by(product):
        return correlation_with_identity(*rows, 0, k).log10_p, match_shuffled(*rows, seed=k).objective


def test_a_block_comes_back_from_a_device_only_where_gates_are_near(as_device, monkeypatch):
    gate, up, down = spread(mlp(1), ())
    moved = [on("cpu")(rows) for rows in (gate, up, down)]
    brought = []
    monkeypatch.setattr(canonical, "here", lambda values: brought.append(values.shape) or here(values))
    assert len(merged(*moved)) == 0
    assert gate.shape not in brought
    moved[0][3] = -moved[0][5]
    assert len(merged(*moved)) > 0
    assert brought.count(gate.shape) == 3


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_units_of_one_gate_are_solved_together_as_each_group_is_by_itself(size):
    """Against numpy's singular vectors of M = sum d u^T, of groups of this size and of seven units."""
    rng = np.random.default_rng(size)
    up, down = rng.normal(size=(40, WIDTH)), rng.normal(size=(40, WIDTH))
    groups = [np.arange(k, k + size) for k in range(0, 20, size)] + [np.arange(20, 20 + 7 * k, k)[:7] for k in (1, 2)]
    for units, (written, of_up, of_down) in zip(groups, spanned(groups, up, down), strict=True):
        left, singular, right = np.linalg.svd(down[units].T @ up[units])  # (d, k) @ (k, d)
        n = len(written)
        np.testing.assert_allclose(written, singular[:n])
        assert singular[n:].max(initial=0) <= NEGLIGIBLE * singular[0]
        # the merged unit: an up row of length one, and what it writes
        reads, writes = of_up @ up[units], of_down @ down[units]  # (r, k) @ (k, d)
        sides = (reads * right[:n]).sum(axis=1)  # (r, d) with (r, d) -> (r,)
        np.testing.assert_allclose(np.abs(sides), 1)
        np.testing.assert_allclose(writes, (sides * singular[:n] * left[:, :n]).T)
        assert ((up[units] @ reads.T).sum(axis=0) > 0).all()
