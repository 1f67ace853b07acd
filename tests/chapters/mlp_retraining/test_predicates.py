"""The predicate about retrained blocks holds on good records and fails for each of its reasons."""

from dataclasses import asdict

import pytest

from provlab.chapters.mlp_retraining.measure import BlockRecord
from provlab.engine.store import Store
from provlab.publishing import claims
from provlab.publishing.evidence import Evidence

ROW = next(row for row in claims.load_claims() if row["id"] == "I21")


def good(seed=0):
    return [
        asdict(BlockRecord(seed, block, 0.1, 0.01 + block / 100, 0.01, log10_p - seed, 3 * log10_p, strange, strange))
        for block, (log10_p, strange) in enumerate([(-39.0, -0.1), (-32.0, -2.5), (-12.1, -0.4)])
    ]


def judged(tmp_path, rows, n_blocks=3):
    arguments = {key: value for key, value in ROW["predicate"].items() if key != "name"}
    measurements = {arguments["measurement"]: rows, arguments["blocks"]: n_blocks}
    experiment = {"name": "x", "profile": "default", "pairs": [], "measurements": measurements}
    return claims.predicate(ROW)(Evidence(experiment, Store(tmp_path)), **arguments)


def test_it_holds_and_says_how_well_the_students_fit(tmp_path):
    verdict = judged(tmp_path, good())
    assert verdict.status == "holds"
    assert "3 blocks retrained with 1 seeds (relative error 0.01 to 0.03)" in verdict.ours
    assert (
        "log10 p = -39.0 to -12.1 against the base; weakest block by seed -12.1; smallest -2.5 against a stranger"
        in verdict.ours
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rows: rows[2].update(log10_p=-11.9), "weakest block: 0.1 above -12"),
        (lambda rows: rows[2].update(log10_p=-12.0), "weakest block: 0 below -12"),
        (lambda rows: rows[1].update(log10_p_stranger=-3.0), "a stranger's block is at or below -3"),
        (lambda rows: rows[1].update(log10_p_stranger=None), "a block was not compared with a stranger"),
        (lambda rows: rows.pop(1), "block 1 was not retrained"),
    ],
)
def test_it_fails_for_each_reason(tmp_path, spoil, message):
    rows = good()
    spoil(rows)
    verdict = judged(tmp_path, rows)
    assert verdict.status == "fails"
    assert message in verdict.why


def test_replicates_near_the_bar_are_within_their_spread(tmp_path):
    rows = [row for seed in range(3) for row in good(seed)]
    verdict = judged(tmp_path, rows)  # -12.1, -13.1 and -14.1
    assert (verdict.status, verdict.replicates) == ("within_its_spread", "3 of 3")
    far = [{**row, "log10_p": row["log10_p"] - 5} for row in rows]
    assert judged(tmp_path, far).status == "holds"
    lost = [{**row, "log10_p": row["log10_p"] + 9} for row in rows]
    assert (judged(tmp_path, lost).status, judged(tmp_path, lost).replicates) == ("fails", "0 of 3")


NAN = float("nan")
PLANTS = {
    "one retraining as three": lambda rows: rows.extend({**row, "seed": seed} for seed in (1, 2) for row in good()),
    "one block twice for another": lambda rows: rows.__setitem__(1, rows[0]),
    "a further seed without one block": lambda rows: rows.extend(good(1)[:2]),
    "students that imitate nothing": lambda rows: [row.update(relative=1.0) for row in rows],
    "each block of a stranger a little above the control's bar": lambda rows: [
        row.update(log10_p_stranger=-2.9) for row in rows
    ],
    "no number": lambda rows: rows[1].update(log10_p=NAN),
    "no number in the last": lambda rows: rows[2].update(log10_p=NAN),
    "no number for a stranger": lambda rows: rows[1].update(log10_p_stranger=NAN),
    "no number for an error": lambda rows: rows[1].update(relative=NAN),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_broken_claim_does_not_hold(plant, tmp_path):
    rows = good()
    PLANTS[plant](rows)
    assert judged(tmp_path, rows).status != "holds"


def test_without_blocks_nothing_is_judged(tmp_path):
    assert judged(tmp_path, []).status == "not run"


def test_the_row_judges_where_mlps_are_wide_enough():
    assert ROW["predicate"]["name"] == "found_after_retraining"
    assert ROW["profiles"] == ["default", "paper"]
    assert (ROW["predicate"]["log10_p"], ROW["predicate"]["control"]) == (-12, -3)
