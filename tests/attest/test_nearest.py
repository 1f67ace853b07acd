"""The set that holds the nearest ancestor: which models are ruled out, which stay, and what rules nothing out."""

import numpy as np
import pytest

from provlab.attest import nearest

SHAPE = (40, 24)


def weights(rng, parent=None, size=1.0):
    """Rows of a model, or of a child whose change has this size."""
    change = size * rng.normal(size=SHAPE)
    return change if parent is None else parent + 0.1 * change


@pytest.fixture
def family():
    """A line g, p, x, with a child c of x, a sibling s of x, a merge of x and another child of p."""
    rng = np.random.default_rng(0)
    g = weights(rng)
    p = weights(rng, g)
    x, s = weights(rng, p), weights(rng, p)
    return {"g": g, "p": p, "x": x, "s": s, "c": weights(rng, x), "merge": (x + s) / 2}


def kept_of(models, own, *shelf):
    rows = [[(models[name] / np.abs(models[name]).max()).astype(np.float16)] for name in (own, *shelf)]
    return {shelf[k - 1] for k in nearest.candidates(*nearest.distances(rows))}


@pytest.mark.parametrize(
    ("own", "shelf", "kept"),
    [
        ("x", "gps", "p"),
        ("x", "gp", "p"),
        ("x", "gpsc", "pc"),  # a child of x looks like a parent
        ("x", "gs", "gs"),  # the parent is not there: neither lies between the other and x
        ("x", "g", "g"),
        ("c", "gpxs", "x"),
        ("x", "", ""),
    ],
)
def test_who_may_be_the_nearest_ancestor(family, own, shelf, kept):
    assert kept_of(family, own, *shelf) == set(kept)


def test_a_mean_keeps_both_parents_and_rules_out_no_parent_of_theirs(family, monkeypatch):
    assert {"x", "s"} <= kept_of(family, "merge", "g", "p", "x", "s")
    assert "p" in kept_of(family, "x", "p", "s", "merge")
    monkeypatch.setattr(nearest, "OPPOSITE", -2.0)
    assert "p" not in kept_of(family, "x", "p", "s", "merge")


def test_rounding_rules_nothing_out(family):
    """Models that are equal but for the rounding of fingerprints, as where training left these rows alone."""
    p = family["p"]
    models = {name: p * factor for name, factor in (("x", 1.0), ("p", 1.1), ("g", 1.3), ("s", 0.9))}
    assert kept_of(models, "x", "p", "g", "s") == {"p", "g", "s"}


def test_a_child_that_hardly_trained_rules_out_no_parent(family):
    rng = np.random.default_rng(1)
    models = family | {"c": weights(rng, family["x"], 0.05)}
    assert "p" in kept_of(models, "x", "p", "c")


def test_distances_are_those_of_the_rows_before_rounding():
    """By hand: over the units that both have, each kind scaled to length 1; rounding adds its own squared error."""
    rng = np.random.default_rng(2)
    first = [3.0 * rng.normal(size=(200, 64)), rng.normal(size=(200, 64))]
    second = [(rows + 8e-4 * rows.std() * rng.normal(size=rows.shape))[:150] for rows in first]
    kept = [[rows.astype(np.float16) for rows in model] for model in (first, second)]
    own, others = ([rows[:150] / np.linalg.norm(rows[:150]) for rows in model] for model in (first, second))
    squared, noise = nearest.distances(kept)
    error = sum(
        np.square(rounded[:150] - rows[:150]).sum() / np.square(rows[:150]).sum()
        for model, exact in zip(kept, (first, second), strict=True)
        for rounded, rows in zip(model, exact, strict=True)
    )
    assert noise[0, 1] == pytest.approx(error, rel=0.05)
    apart = sum(np.square(a - b).sum() for a, b in zip(own, others, strict=True))
    assert squared[0, 1] == pytest.approx(apart, rel=0.03)
    assert noise[0, 1] > 0.08 * apart  # more than the tolerance: it has to be taken off
    assert np.array_equal(squared, squared.T)


@pytest.mark.parametrize(
    ("to_t", "t_to_s", "noise", "kept"),
    [
        (1.0, 1.0, {}, [1]),  # at a right angle: t is on the path
        (1.0, 1.0, {(0, 1): 0.24, (1, 2): 0.24}, [1]),
        (1.0, 1.0, {(0, 1): 0.26}, [1, 2]),  # less than twice the rounding, as lengths
        (1.0, 1.0, {(1, 2): 0.26}, [1, 2]),
        (0.05, 1.0, {}, [1]),
        (0.03, 1.0, {}, [1, 2]),  # too short a step: it looks like a child of the first
        (1.0, 0.03, {}, [1, 2]),
    ],
)
def test_bounds_below_which_nothing_is_ruled_out(to_t, t_to_s, noise, kept):
    """By hand, models 0, t = 1 and s = 2 with a right angle at t: ratios of lengths are 1, 0.22 and 0.17."""
    squared, rounding = np.zeros((3, 3)), np.zeros((3, 3))
    for (i, j), value in {(0, 1): to_t, (1, 2): t_to_s, (0, 2): to_t + t_to_s}.items():
        squared[i, j] = squared[j, i] = value
        rounding[i, j] = rounding[j, i] = noise.get((i, j), 0.0)
    assert nearest.candidates(squared, rounding) == kept
