"""The predicate about retrained blocks holds on good records and fails for each of its reasons."""

from dataclasses import asdict

import pytest

from provlab.chapters.mlp_retraining.measure import BlockRecord
from provlab.engine.store import Store
from provlab.publishing import claims
from provlab.publishing.evidence import Evidence

ROW = next(row for row in claims.load_claims() if row["id"] == "I21")


def good():
    return [
        asdict(BlockRecord(block, 0.1, 0.01 + block / 100, 0.01, log10_p, 3 * log10_p, strange, strange))
        for block, (log10_p, strange) in enumerate([(-39.0, -0.1), (-32.0, -2.9), (-12.1, -0.4)])
    ]


def judged(tmp_path, rows, n_blocks=3):
    arguments = {key: value for key, value in ROW["predicate"].items() if key != "name"}
    measurements = {arguments["measurement"]: rows, arguments["blocks"]: n_blocks}
    experiment = {"name": "x", "profile": "default", "pairs": [], "measurements": measurements}
    return claims.predicate(ROW)(Evidence(experiment, Store(tmp_path)), **arguments)


def test_it_holds_and_says_how_well_the_students_fit(tmp_path):
    verdict = judged(tmp_path, good())
    assert verdict.status == "holds"
    assert "3 blocks retrained (relative error 0.01 to 0.03)" in verdict.ours
    assert "log10 p = -39.0 to -12.1 against the base, smallest -2.9 against a stranger" in verdict.ours


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[2].update(log10_p=-11.9), "1 of 3 blocks not below -12, the weakest is block 2"),
        (lambda rows: rows[2].update(log10_p=-12.0), "1 of 3 blocks not below -12"),
        (lambda rows: rows[1].update(log10_p_stranger=-3.0), "a stranger's block is at or below -3"),
        (lambda rows: rows[1].update(log10_p_stranger=None), "a block was not compared with a stranger"),
        (lambda rows: rows.pop(1), "block 1 was not retrained"),
    ],
)
def test_it_fails_for_each_reason(tmp_path, spoil, said):
    rows = good()
    spoil(rows)
    verdict = judged(tmp_path, rows)
    assert verdict.status == "fails"
    assert said in verdict.why


def test_without_blocks_nothing_is_judged(tmp_path):
    assert judged(tmp_path, []).status == "not run"


def test_the_row_judges_where_mlps_are_wide_enough():
    assert ROW["predicate"]["name"] == "found_after_retraining"
    assert ROW["profiles"] == ["default", "paper"]
    assert (ROW["predicate"]["log10_p"], ROW["predicate"]["control"]) == (-12, -3)
