"""The predicates about pruned models hold on good records and fail for each of their reasons."""

from dataclasses import asdict

import numpy as np
import pytest
from planted import Plant, put, update

from provlab_study.pruning_forensics.measure import MapRecord
from provlab_study.pruning_forensics.predicates import blocks_mapped, units_recovered
from provlab_study.publishing.evidence import FAILS, HOLDS, NOT_RUN

# I22, I23 ---------------------------------------------------------------------------------------------------


def child(name, kept, cut, n_blocks=6, seed=0):
    """A parent of six blocks: -30 where a block was kept, uniform elsewhere and nothing near the level of 32 tests."""
    log10_p = np.log10(np.random.default_rng(seed).uniform(0.05, 1, (n_blocks, len(kept))))
    log10_p[kept, range(len(kept))] = -30
    return asdict(MapRecord("p", name, True, cut, kept, log10_p.tolist(), -100.0)) | {"log10_p": log10_p.tolist()}


def stranger(name):
    log10_p = np.log10(np.random.default_rng(1).uniform(0.05, 1, (6, 3)))
    return {**child(name, [0, 1, 2], [], seed=1), "related": False, "kept": None, "log10_p": log10_p.tolist()}


@pytest.fixture
def maps():
    children = [child("deep", [0, 2, 5], ["depth"]), child("both", [0, 1, 4], ["depth", "width"])]
    return [*children, stranger("deep"), stranger("both")]


def judge(maps, cut="depth"):
    return blocks_mapped(maps, cut=cut, level=0.01)


def test_blocks_mapped(maps):
    verdict = judge(maps)
    assert verdict.status == "holds"
    assert "6 of 6 kept blocks of 2 children, the weakest log10 p = -30.0; 0 of 30 other pairs" in verdict.ours
    assert "0 of 36 with strangers" in verdict.ours
    # -30 times 18 tests; no other pair is below 0.05
    assert "weakest kept pair by Holm, log10 p: -28.7, 26.7 below the bar of -2" in verdict.margin
    assert "strongest other pair by Holm, log10 p: -0.1, 1.9 above the bar of -2" in verdict.margin
    assert "3 of 3 kept blocks of 1 children" in judge(maps, "width").ours


def at(which, old, new, value):
    """One pair of blocks of a record at this log10 p."""
    return put(which, "log10_p", old, new, value=value)


PLANTS = [
    # Holm over 18 pairs asks for less than -3.2
    Plant("a kept block is weak", at(0, 2, 1, -2.5), FAILS, "deep: missed 2 to 1"),
    Plant("a block too many", at(1, 3, 2, -9.0), FAILS, "both: wrongly found 3 to 2"),
    Plant("a stranger's block", at(2, 5, 0, -4.0), FAILS, "deep and a stranger (p): wrongly found 5 to 0"),
    Plant(
        "a test that follows depth and not origin",
        lambda maps: maps[2].update(log10_p=maps[0]["log10_p"]),
        FAILS,
        "stranger (p): wrongly found 0 to 0, 2 to 1, 5 to 2",
    ),
    Plant(
        "a stranger at -3.2",
        update(2, log10_p=[[-3.2] * 3] * 6),
        FAILS,
        "18 of 18 other pairs of blocks of deep and a str",
    ),
    Plant(
        "a stranger's map of ones",
        update(2, log10_p=[[0.0] * 3] * 6),
        FAILS,
        "18 of 18 other pairs of blocks of deep and a stranger (p) are above p = 0.5",
    ),
    Plant(
        "a map that can call nothing",
        update(0, floor=-2.0),
        FAILS,
        "deep: no pair can be called, since the floor is log10 p = -2.0",
    ),
    Plant("a stranger's floor, which is no measure", update(2, floor=0.0), HOLDS),
    Plant("below its floor", update(0, floor=-20.0), FAILS, "deep: a pair is below the floor of log10 p = -20.0"),
    Plant("another map", update(0, kept=[0, 3, 5]), FAILS, "deep: missed 3 to 1; deep: wrongly found 2 to 1"),
    Plant("one pair of 18 at 10^-3", at(2, 5, 0, -3.0), HOLDS),
    Plant("origins that nobody knows", lambda maps: [record.update(kept=None) for record in maps[:2]], NOT_RUN),
]


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_blocks_not_mapped(maps, plant):
    plant.check(judge, maps)


@pytest.mark.parametrize("cut", ["depth", "width"])
def test_without_a_stranger_nothing_holds(maps, cut):
    assert judge(maps[:2], cut).status == "not run"
    verdict = judge(maps[:3])  # one for the first child alone
    assert (verdict.status, verdict.why) == ("not run", "no stranger was mapped with both")
    at(1, 3, 2, -9.0)(maps)  # what is wrong without one is wrong
    assert judge(maps[:2], cut).status == "fails"


def test_a_child_without_a_stranger_of_its_cut_decides_nothing(maps):
    assert judge(maps[:1] + maps[2:], "width").status == "not run"


# I24 --------------------------------------------------------------------------------------------------------


def unit_row(placed, called=None, by="both", kept_ones=None):
    called = placed if called is None else called
    kept_ones = placed if kept_ones is None else kept_ones
    return {"by": by, "called": called, "kept": 100, "found": kept_ones, "placed": placed, "width": 200}


STRANGERS = [{"called": 1, "units": 100}] * 9


def judge_units(rows, strangers=STRANGERS):
    return units_recovered(rows, strangers, precision=0.95, recall=0.5, weakest=0.25)


def test_units_recovered():
    rows = [unit_row(90), unit_row(40, 41), unit_row(10, 100, by="up")]  # one matching alone does not decide
    verdict = judge_units(rows)
    assert verdict.status == "holds"
    assert verdict.ours == (
        "precision 0.992, recall 0.65 over 200 kept units of 2 blocks, each unit at its very place; recall from 0.40 "
        "in one block; 0 of 131 units named are kept ones of another place; between strangers 9 of 900 are named"
    )
    # Clopper-Pearson of 130 in 131 and in 200
    precision = "precision of the exact place: 0.992 (95% interval 0.958 to 1), 0.042 above the bar of 0.95"
    assert precision in verdict.margin
    assert "recall: 0.65 (95% interval 0.58 to 0.72), 0.15 above the bar of 0.5" in verdict.margin
    assert judge_units([unit_row(96, 100)]).status == "within_its_spread"


def test_four_of_nine_blocks_that_recover_a_twentieth_fail():
    verdict = judge_units([unit_row(95)] * 5 + [unit_row(5)] * 4)  # a recall of 0.55 over all
    assert verdict.status == "fails"
    assert "recall in the weakest block: 0.05 (95% interval 0.016 to 0.11), 0.2 below the bar of 0.25" in verdict.why


def test_units_of_strangers_are_not_named():
    """By chance one unit of all agrees; a matching that names them all says nothing of a child's."""
    rows = [unit_row(90), unit_row(60)]
    assert judge_units(rows, [{"called": 100, "units": 100}] * 9).status == "fails"
    assert judge_units(rows, [{"called": 4, "units": 100}]).status == "within_its_spread"
    verdict = judge_units(rows, [])
    assert (verdict.status, verdict.why) == ("not run", "no units of strangers were matched")
    assert judge_units([unit_row(9)], []).status == "fails"


def test_kept_units_named_at_wrong_places_fail():
    verdict = judge_units([unit_row(0, 90, kept_ones=90), unit_row(0, 41, kept_ones=40)])
    assert verdict.status == "fails"
    assert (
        "precision of the exact place: 0 (95% interval 0 to 0.028), 0.95 below the bar of 0.95, on the wrong side"
        in verdict.why
    )
    assert "2 blocks are no better than naming units at random" in verdict.why
    assert "130 of 131 units named are kept ones of another place" in verdict.ours
    assert judge_units([unit_row(90), unit_row(32, 40, kept_ones=40)]).status == "fails"  # eight of 130 shuffled


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (
            [unit_row(90), unit_row(40, 50)],
            "precision of the exact place: 0.929 (95% interval 0.873 to 0.965), 0.021 below the bar of 0.95",
        ),
        ([unit_row(52), unit_row(38)], "recall: 0.45 (95% interval 0.38 to 0.522), 0.05 below the bar of 0.5"),
        ([unit_row(99), unit_row(4, 5)], "1 blocks are no better than naming units at random"),
        ([unit_row(99), unit_row(0)], "1 blocks are no better"),
        ([unit_row(0)], "recall: 0 (95% interval 0 to 0.036), 0.5 below the bar of 0.5"),
    ],
)
def test_units_not_recovered(rows, why):
    verdict = judge_units(rows)
    assert verdict.status == "fails"
    assert why in verdict.why


def test_without_a_known_child_units_are_not_judged():
    assert judge_units([]).status == "not run"
