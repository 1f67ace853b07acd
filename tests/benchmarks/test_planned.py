"""Plan against actual in a shape that takes no time: every line is counted, and one that is off is marked."""

import json

import planned
import pytest

from provlab.statistics import USUAL


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return planned.study(planned.make_pair("tiny", 2, tmp_path_factory.mktemp("pair")), list(USUAL))


def test_every_line_of_a_run_has_one_in_the_plan(measured):
    assert measured["actual"].keys() - measured["planned"].keys() <= {"rest", "compare phi_u", "compare phi_h"} | {
        "compare phi_match", "compare phi_match_unsigned"
    }  # fmt: skip
    run = {line for line in measured["planned"] if measured["actual"].get(line, 0) > 0}
    assert {"read", "load models", "run models", "canonical form", "sorted?", "multiply", "assign"} <= run
    assert measured["read"] == measured["planned_read"]
    assert sum(measured["actual"].values()) < 3 * measured["clock"] + 1


def test_a_line_that_is_off_is_marked(measured):
    off = {"read": (1.0, 1.0), "hash": (1.0, 1.0), "assign": (1.0, 3.0), "multiply": (0.01, 0.01)}
    took = {"read": 2.0, "hash": 1.2, "assign": 2.5, "multiply": 0.1}
    text = planned.table({**measured, "planned": off, "actual": took})
    lines = {line.split()[0]: line for line in text.splitlines() if "GB" not in line}
    assert lines["read"].endswith("2.00 *")
    assert lines["hash"].endswith("1.20")
    assert lines["assign"].endswith("1.00")  # within its span
    assert lines["multiply"].endswith("-")  # too little to be judged


def test_the_command_prints_both(capsys, tmp_path):
    planned.main(["tiny", "--blocks", "1", "--statistic", "phi_u", "--json", "--folder", str(tmp_path)])
    assert json.loads(capsys.readouterr().out)["failed"] == {}
    planned.main(["tiny", "--statistic", "phi_u", "--peak", "phi_u", "--folder", str(tmp_path)])
    peak = json.loads(capsys.readouterr().out)
    assert peak["planned"] == 2 * 176 * 64 * 8 + 8 * 176**2
