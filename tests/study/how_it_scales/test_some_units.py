"""phi_U on some of the units: partners that are among them, sizes, bytes."""

import numpy as np
import pytest

from provlab.statistics.base import Model
from provlab_study.how_it_scales import some_units
from provlab_study.how_it_scales.some_units import AMONG, FIRST, PARTNERS, evidence, expected_inside
from provlab_study.shared.calibration.bands import size_interval


def share_rejected(row):
    return np.mean(np.array(row["log10_p"]) <= -2)


@pytest.mark.parametrize("kind", PARTNERS)
@pytest.mark.parametrize("way", [FIRST, AMONG])
def test_as_many_partners_are_inside_as_the_formula_says(kind, way):
    h, k, counts = 256, 96, []
    for draw in range(300):
        rng = np.random.default_rng(draw)
        order = PARTNERS[kind](h, rng)
        counts.append(np.isin(order[:k], np.arange(k if way == FIRST else h)).sum())
    assert np.mean(counts) == pytest.approx(expected_inside(kind, way, k, h), abs=1.0)


def test_a_copy_is_seen_by_its_first_units_and_among_all_where_they_were_cut_off():
    rows = some_units.drawn(128, 64, [32], noise=0.5, draws=4, seed=0)
    power = {(row["kind"], row["way"]): share_rejected(row) for row in rows}
    assert power["in place", FIRST] == power["in place", AMONG] == power["first half cut off", AMONG] == 1
    assert power["first half cut off", FIRST] == power["independent", FIRST] == power["independent", AMONG] == 0
    figure = some_units.figure(rows, caption="What to see.")
    assert "drawn, 128 units, in place, first 32: " in figure.alt


def test_a_planted_partner_makes_strangers_kin():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 64, 32)).astype(np.float32)
    (stranger, _) = evidence("x", a, b, [32], draws=3, seed=0, kind="independent")
    (planted, _) = evidence("x", a, a, [32], draws=3, seed=0, kind="independent")
    assert share_rejected(stranger) < 1 == share_rejected(planted)


def test_models_are_read(models):
    base, tuned = (Model.open(models[name]) for name in ("base", "tuned"))
    rows = some_units.of_models(base, tuned, [16, 48], block=1, draws=2, seed=0, kin=True)
    assert {row["units"] for row in rows if row["kind"] == "in place"} == {16, 48}
    all_units = {row["kind"]: row for row in rows if row["units"] == 48 and row["way"] == FIRST}
    cut = all_units["first half cut off"]
    assert cut["inside"] == cut["expected"] == 24
    assert share_rejected(cut) == 1
    assert all_units["moved"]["inside"] == 48
    assert {row["units"] for row in rows if row["kind"] == "half left out" and row["way"] == AMONG} == {16}


def test_sizes_are_counted():
    rows = some_units.sizes(40, seed=0)
    assert {(row["pairs"], row["way"], row["units"]) for row in rows} == {
        ("trained networks", FIRST, 16),
        ("trained networks", FIRST, 32),
        ("trained networks", AMONG, 16),
        ("rows that share directions", FIRST, 32),
    }
    for row in rows:
        low, high = size_interval(row["rejected"], row["n"])
        assert low <= row["level"] <= high
