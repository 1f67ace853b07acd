"""The predicate about retrained blocks (`found_after_retraining`) holds on good records and fails for each reason."""

import planted
import pytest
from planted import Plant, every, put

from provlab_study.publishing.evidence import FAILS, NOT_RUN

ROW = planted.row("I21")


def good(seed=0):
    return [
        {"seed": seed, "block": block, "relative": 0.01 + block / 100, "paper_log10_p": log10_p - seed}
        | {"paper_log10_p_stranger": strange}
        for block, (log10_p, strange) in enumerate([(-39.0, -0.1), (-32.0, -2.5), (-12.1, -0.4)])
    ]


def judged(rows, n_blocks=3):
    return planted.judged(ROW, {"blocks": rows, "n_blocks": n_blocks})


def test_it_holds_and_says_how_well_the_students_fit():
    verdict = judged(good())
    assert verdict.status == "holds"
    assert "3 blocks retrained with 1 seeds (relative error 0.01 to 0.03)" in verdict.ours
    assert "-39.0 to -12.1 against the base; weakest block by seed -12.1; smallest -2.5 against" in verdict.ours


def test_replicates_near_the_bar_are_within_their_spread():
    rows = [row for seed in range(3) for row in good(seed)]
    verdict = judged(rows)  # -12.1, -13.1 and -14.1
    assert (verdict.status, verdict.replicates) == ("within_its_spread", "3 of 3")
    far = [{**row, "paper_log10_p": row["paper_log10_p"] - 5} for row in rows]
    assert judged(far).status == "holds"
    lost = [{**row, "paper_log10_p": row["paper_log10_p"] + 9} for row in rows]
    assert (judged(lost).status, judged(lost).replicates) == ("fails", "0 of 3")


NAN = float("nan")
NEAR = "weakest block: "
PLANTS = [
    Plant("a little above", put(2, "paper_log10_p", value=-11.9), FAILS, NEAR + "-11.9, 0.1 above the bar of -12"),
    Plant("at the bar", put(2, "paper_log10_p", value=-12.0), FAILS, NEAR + "-12.0, at the bar of -12"),
    Plant("no number", put(1, "paper_log10_p", value=NAN), FAILS, NEAR + "no value"),
    Plant("a stranger", put(1, "paper_log10_p_stranger", value=-3.0), FAILS, "a stranger's block is at or below -3"),
    Plant(
        "a stranger's blocks",
        every(change=lambda k, row: {"paper_log10_p_stranger": -2.9}),
        FAILS,
        "a stranger's blocks together are at -6.4",
    ),
    Plant(
        "no stranger", put(1, "paper_log10_p_stranger", value=None), FAILS, "a block was not compared with a stranger"
    ),
    Plant("no stranger's number", put(1, "paper_log10_p_stranger", value=NAN), FAILS, "not compared with a stranger"),
    Plant("one block lacks", lambda rows: rows.pop(1), FAILS, "block 1 was not retrained"),
    Plant(
        "one block twice",
        lambda rows: rows.__setitem__(1, rows[0]),
        FAILS,
        "block 1 was not retrained with seed 0; a block was",
    ),
    Plant("a seed lacks one", lambda rows: rows.extend(good(1)[:2]), FAILS, "block 2 was not retrained with seed 1"),
    Plant("no imitation", every(change=lambda k, row: {"relative": 1.0}), FAILS, "imitates no better than 1"),
    Plant("no number of it", put(1, "relative", value=NAN), FAILS, "imitates no better than nan"),
    Plant(
        "one retraining kept three times",
        lambda rows: rows.extend({**row, "seed": seed} for seed in (1, 2) for row in good()),
        NOT_RUN,
        "two seeds gave the same numbers",
    ),
    Plant("nothing", lambda rows: rows.clear(), NOT_RUN, "no block was retrained"),
]


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_a_broken_claim_does_not_hold_and_says_why(plant):
    plant.check(judged, good())
