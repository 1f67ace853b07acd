"""Affine relations: one answer in any order of the models, and a direction only where rows give one."""

from itertools import permutations

import pytest
import torch
from forest_families import TUNES, measured, mixed, trained

from provlab.forest import combinations as affine

BASE = trained(None, 0)
POOL = {"base": BASE} | {name: trained(BASE, seed) for name, seed in TUNES.items()}
POOL["a's child"] = trained(POOL["a"], 9)
FORMULAS = {
    "mean": {"a": 0.4, "b": 0.6},
    "half": {"a": 0.5, "b": 0.5},
    "three": {"a": 0.3, "b": 0.5, "c": 0.2},
    "sum": {"base": -1, "a": 1, "b": 1},
    "chat vector": {"b": 1, "a": -1, "a's child": 1},
    "negation": {"base": 1, "a": 1, "b": -1},
    "arithmetic": {"base": -0.4, "a": 0.7, "b": 0.7},
    "four": {"base": -2, "a": 1, "b": 1, "c": 1},
}
FAR = {"base": -0.75, "a": 1.75}
SILENT = {
    "mean without a fourth": ({"a": 0.4, "b": 0.6}, []),
    "base and tune": ({"base": 0.43, "a": 0.57}, ["b"]),
    "extrapolation": (FAR, ["b"]),
}


def answer(models, names):
    """Which of the names were made of which, and sets that are left open."""
    distances, rows = measured([models[name] for name in names])
    made, unknown = affine.resolve(affine.find(distances, range(len(names))), rows)
    shares = {names[m]: {names[i]: round(s, 3) for i, s in one.shares(m).items()} for m, one in made.items()}
    return shares, {frozenset(names[i] for i in one.members) for one in unknown}


def some_orders(names, n=12):
    every = list(permutations(names))
    return every[:: max(1, len(every) // n)]


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_combination_is_named_in_any_order_with_its_shares(formula):
    """The one that was listed first was named: shares of +-1 tie."""
    shares = FORMULAS[formula]
    models = {name: POOL[name] for name in {*shares, "base", "c"}} | {"x": mixed(POOL, shares)}
    for names in some_orders(sorted(models)):
        assert answer(models, names) == ({"x": pytest.approx(shares, abs=2e-3)}, set())


@pytest.mark.parametrize("kind", SILENT)
def test_where_rows_give_no_direction_the_set_is_named_and_nothing_else(kind):
    shares, more = SILENT[kind]
    models = {name: POOL[name] for name in {*shares, *more}} | {"x": mixed(POOL, shares)}
    for names in some_orders(sorted(models)):
        assert answer(models, names) == ({}, {frozenset({*shares, "x"})})


def test_trainings_are_no_combinations():
    models = POOL | {"stranger": trained(None, 50)}
    assert answer(models, sorted(models)) == ({}, set())


def test_two_merges_of_the_same_models_are_named_with_those_models():
    """All four lie on a line, so that either merge is one of the other and a parent, too."""
    models = {name: POOL[name] for name in ("base", "a", "b", "c")}
    models |= {"x": mixed(POOL, {"a": 0.4, "b": 0.6}), "y": mixed(POOL, {"a": 0.75, "b": 0.25})}
    for names in some_orders(sorted(models)):
        shares, unknown = answer(models, names)
        assert {name: set(parents) for name, parents in shares.items()} == {"x": {"a", "b"}, "y": {"a", "b"}}
        assert not unknown


def test_parents_that_two_sets_explain_as_well_are_not_named():
    """An extrapolation of the tune stands for it, or for the base, in the second relation: the first was named."""
    models = {name: POOL[name] for name in ("base", "a", "b", "c")}
    models |= {"x": mixed(POOL, {"base": 0.7, "a": 0.7, "b": -0.4}), "beyond": mixed(POOL, FAR)}
    for names in some_orders(sorted(models)):
        shares, unknown = answer(models, names)
        assert not shares
        assert frozenset({"base", "a", "beyond"}) in unknown
        assert {one - {"x", "b"} for one in unknown if "x" in one} == {
            frozenset(two) for two in (("base", "a"), ("base", "beyond"), ("a", "beyond"))
        }
    # the smaller set counts: a mean of two is none of three one of which was extrapolated
    models["x"] = mixed(POOL, {"a": 0.4, "b": 0.6})
    for names in some_orders(sorted(models)):
        assert set(answer(models, names)[0].get("x", {})) == {"a", "b"}


def test_a_child_of_a_merge_does_not_hide_it():
    """The child keeps rows that the merge changed, and none of the parents has them."""
    models = {name: POOL[name] for name in ("base", "a", "b")} | {"x": mixed(POOL, {"a": 0.4, "b": 0.6})}
    models["x's child"] = trained(models["x"], 21)
    for names in some_orders(sorted(models)):
        assert set(answer(models, names)[0]) == {"x"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_files_of_sixteen_bits(dtype):
    short = {name: {k: torch.tensor(v).to(dtype).double().numpy() for k, v in m.items()} for name, m in POOL.items()}
    x = mixed(short, {"a": 0.4, "b": 0.6})
    short["x"] = {k: torch.tensor(v).to(dtype).double().numpy() for k, v in x.items()}
    names = ["c", "x", "base", "b", "a"]
    distances, _ = measured([short[name] for name in names], dtype)
    found = affine.find(distances, range(len(names)))
    assert [{names[i] for i in one.members} for one in found] == [{"x", "a", "b"}]
    assert names[found[0].middle] == "x"


def test_rows_exclude_what_shares_more_with_a_third_model_than_its_parts_do():
    """The rule by itself, on sets of rows: m is the mean of a and b, y their base."""
    models = {name: POOL[name] for name in ("a", "b", "base")} | {"m": mixed(POOL, {"a": 0.5, "b": 0.5})}
    names = list(models)
    _, rows = measured([models[name] for name in names])
    a, b, base, m = range(4)
    half = affine.Circuit((a, b, m), (-0.5, -0.5, 1.0), 1.0)
    assert affine.may_be_made(half, rows) == [m]
    assert not rows.beyond(m, base, a)
    assert rows.beyond(a, base, b)
    rows.readable[:] = False
    assert affine.may_be_made(half, rows) == [a, b, m]
