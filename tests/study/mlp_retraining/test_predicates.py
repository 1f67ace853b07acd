"""The predicate about retrained blocks (`found_after_retraining`) holds on good records and fails for each reason."""

import planted
import pytest

ROW = planted.row("I21")


def good(seed=0):
    return [
        {"seed": seed, "block": block, "relative": 0.01 + block / 100, "log10_p": log10_p - seed}
        | {"log10_p_stranger": strange}
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
    far = [{**row, "log10_p": row["log10_p"] - 5} for row in rows]
    assert judged(far).status == "holds"
    lost = [{**row, "log10_p": row["log10_p"] + 9} for row in rows]
    assert (judged(lost).status, judged(lost).replicates) == ("fails", "0 of 3")


NAN = float("nan")
# what is planted, how, and what the verdict says of it
PLANTS = {
    "weakest block: -11.9, 0.1 above the bar of -12": lambda rows: rows[2].update(log10_p=-11.9),
    "weakest block: -12.0, at the bar of -12": lambda rows: rows[2].update(log10_p=-12.0),
    "weakest block: no value": lambda rows: rows[1].update(log10_p=NAN),
    "a stranger's block is at or below -3": lambda rows: rows[1].update(log10_p_stranger=-3.0),
    "a stranger's blocks together are at -6.4": lambda rows: [row.update(log10_p_stranger=-2.9) for row in rows],
    "a block was not compared with a stranger": lambda rows: rows[1].update(log10_p_stranger=None),
    "not compared with a stranger": lambda rows: rows[1].update(log10_p_stranger=NAN),
    "block 1 was not retrained": lambda rows: rows.pop(1),
    "block 1 was not retrained with seed 0; a block was": lambda rows: rows.__setitem__(1, rows[0]),
    "block 2 was not retrained with seed 1": lambda rows: rows.extend(good(1)[:2]),
    "imitates no better than 1": lambda rows: [row.update(relative=1.0) for row in rows],
    "imitates no better than nan": lambda rows: rows[1].update(relative=NAN),
    "two seeds gave the same numbers": lambda rows: rows.extend(
        {**row, "seed": seed} for seed in (1, 2) for row in good()
    ),
    "no block was retrained": lambda rows: rows.clear(),
}


@pytest.mark.parametrize("message", PLANTS)
def test_a_broken_claim_does_not_hold_and_says_why(message):
    rows = good()
    PLANTS[message](rows)
    verdict = judged(rows)
    assert verdict.status in ("fails", "not run")
    assert message in verdict.why
