"""Plan against actual in a shape that takes no time: every line is counted, and one that is off is marked."""

import json

import planned


def test_every_line_of_a_run_has_one_in_the_plan(capsys):
    planned.main(["tiny", "--blocks", "2", "--statistic", "phi_u,phi_match,phi_unseen", "--json"])
    measured = json.loads(capsys.readouterr().out)
    assert measured["failed"] == {}
    assert measured["planned"].keys() == measured["actual"].keys()
    assert {"run models", "read and prepare", "compare by phi_u"} <= measured["planned"].keys()
    assert measured["read"] == measured["planned_read"]
    assert measured["planned_memory"] > 0  # what the run took may be 0: earlier tests left this process room enough
    text = planned.table(measured | {"planned": {"run models": 1.0}, "actual": {"run models": 2.5}})
    assert text.splitlines()[1].endswith("2.50 *")
    text = planned.table(measured | {"planned": {"run models": 0.1}, "actual": {"run models": 0.4}})
    assert text.splitlines()[1].endswith("-")  # too little to be judged
