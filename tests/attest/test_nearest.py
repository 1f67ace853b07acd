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
