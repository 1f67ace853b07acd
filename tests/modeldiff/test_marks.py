"""Pictures of Model-diff: each from plain arrays, with words that hold the numbers, and what cannot be drawn."""

import numpy as np
import pandas as pd
import pytest

from provlab.errors import InputError
from provlab.modeldiff.marks import Panel, densities, differences
from provlab_study.plagiarism.figures import both_evidence

EDGES = np.linspace(-1, 1, 5)


def panel(title="a pair", a=(2.0, 1.0, 0.5, 0.5), b=(0.0, 0.0, 1.0, 3.0)):
    return Panel(title, EDGES, *(np.stack([np.array(v), 0.8 * np.array(v), 1.2 * np.array(v)]) for v in (a, b)))


def test_differences_say_on_which_side():
    """By hand: 3 of 4 and 0 of 4 below zero."""
    figure = differences(
        [panel(), panel("b"), panel("c")], labels=("A's", "B's"), xlabel="D", caption="Two directions."
    )
    assert "a pair: 75% of A's inputs and 0% of B's have D below zero" in figure.alt
    assert figure.png().startswith(b"\x89PNG")


def test_an_unbounded_band_is_still_drawn():
    item = panel()
    item.a[2, 1] = np.inf
    assert differences([item], labels=("A's", "B's"), xlabel="D", caption="One.").png()


def test_densities_name_their_ends():
    known = {"y": [np.nan, 10.0, 20.0], "low": [np.nan, 9.0, 19.0], "high": [np.nan, 11, 21]}
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], **known, "seen": [1.0, 2.0, 2.0]})
    figure = densities({"small": frame}, xlabel="NLL", caption="Counts.", ranges={"Z": (1.5, 2.5)})
    assert "small from 10^10 at 2.00 to 10^20" in figure.alt
    assert [spot.text for spot in figure.spots][:1] == ["NLL 1.00: small at least the 10 that were drawn"]
    nothing = densities({"none": frame.assign(y=np.nan)}, xlabel="NLL", caption="Counts.")
    assert "none: no bin holds draws enough" in nothing.alt


def test_both_evidence_tells_every_row():
    shares = {"base's": ([0.9, 0.5], [0.8, 0.4], [1.0, 0.6])}
    figure = both_evidence(["copy", "stranger"], shares, {"phi_u": [-300.0, np.nan]}, caption="Two kinds.")
    assert "copy: 90% below zero (base's), φ_U -300.0" in figure.alt


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: differences([], labels=("a", "b"), xlabel="D", caption="c"), "nothing to draw"),
        (lambda: differences([panel(a=(1, 2))], labels=("a", "b"), xlabel="D", caption="c"), "of 4 bins"),
        (lambda: densities({}, xlabel="x", caption="c"), "nothing to draw"),
        (lambda: densities({"a": pd.DataFrame({"x": [1]})}, xlabel="x", caption="c"), "needs the columns"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InputError, match=message):
        call()
