"""The claims as data, and how they are judged from what a store holds; `test_plants` has their predicates."""

import inspect
import json
import re
from dataclasses import asdict
from datetime import date
from shutil import get_terminal_size

import numpy as np
import pytest

from provlab.errors import ParameterError
from provlab.inference import pvalues
from provlab_study.publishing import claims
from provlab_study.publishing.evidence import STATUSES, OldRecordsError, RunRecords
from provlab_study.publishing.results import Results
from provlab_study.publishing.scoreboard import scoreboard_table

ROWS = claims.load_claims()
IDS = [row["id"] for row in ROWS]
AFTER_DATA = "0 hold by a bar set after data, 0 hold in an experiment changed after data"


# The table -----------------------------------------------------------------------------------------------------------


def test_ids_are_unique_and_count_without_a_gap():
    """Those of either paper, and ours."""
    for letter in "IDO":
        numbers = [int(name[1:]) for name in IDS if name[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1))
    assert {name[0] for name in IDS} == set("IDO")


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_every_row_is_whole(row):
    claims.check_row(row)
    assert row["paper"] in ("independence", "model-diff", "ours")
    assert row["statement"]
    assert row["source"]
    assert set(row["profiles"]) <= {"smoke", "default", "paper"}
    parameters = inspect.signature(claims.predicate(row)).parameters
    bars = claims.bars(row, "smoke")
    assert set(bars) <= set(parameters)
    assert all(name in bars for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"margins": "none"}, "claim I1 has the unknown key 'margins'"),
        ({"source": None}, "claim I1: source must be str"),
        ({"settled": {"changed": "bar", "rule": "wider", "look": "it failed"}}, "claim I1: settled lacks date"),
        (
            {"settled": {"changed": "bar", "rule": "wider", "look": "it failed", "date": "May"}},
            "claim I1: settled: date must be date",
        ),
        (
            {"settled": {"changed": "bar", "rule": "wider", "look": "", "date": date(2026, 5, 1), "by": "me"}},
            "the unknown key 'by'",
        ),
        (
            {"settled": {"changed": "words", "rule": "wider", "look": "", "date": date(2026, 5, 1)}},
            "settled: changed must be bar or experiment",
        ),
        ({"settled": "afterwards"}, "claim I1: settled must be dict"),
        ({"same_records": "I2"}, "claim I1: same_records must be list"),
    ],
)
def test_a_row_with_a_fault_is_refused(fault, words):
    with pytest.raises(ParameterError, match=words):
        claims.check_row({**ROWS[IDS.index("I1")], **fault})


def test_rows_on_the_same_records_name_one_another():
    named = {row["id"]: set(row.get("same_records", [])) for row in ROWS}
    assert named["I4"] == {"I8", "I9"}
    assert all(name in named[other] for name, others in named.items() for other in others)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_published_values_resolve(row):
    shown = claims.published(row)
    assert shown.strip()
    assert "{" not in shown
    assert "}" not in shown


@pytest.mark.parametrize(
    "lookup",
    [
        {"table": "independence_table2", "where": {"theta_2": "none"}, "column": "p_U"},
        {"table": "independence_table2", "where": {}, "column": "p_U"},
    ],
    ids=["no cell", "several cells"],
)
def test_a_lookup_that_is_not_one_cell_is_refused(lookup):
    with pytest.raises(ParameterError, match=r"claim X1: .* matches [03] published values, not one"):
        claims.published({"id": "X1", "published": {"text": "{x}", "values": {"x": lookup}}})


def test_values_that_stand_in_the_paper():
    """By hand from the paper: Section 4.1 (69 pairs), Table 1 (log JSD), the abstract (37.5%)."""
    shown = {row["id"]: claims.published(row) for row in ROWS}
    assert shown["I4"].startswith("69 of 69 pairs, each p <2.2e-308; 141 independent")
    assert shown["I7"] == "log JSD of a dependent pair up to -10.24, of an independent pair down to -11.10"
    assert "37.5%" in shown["I9"]
    assert shown["I10"] == "p <2.2e-308; the other two 0.571 and 0.539"
    assert "750B" in shown["I9"]


def test_of_an_empty_store_nothing_was_run(tmp_path):
    rows = claims.evaluate(Results(tmp_path))
    assert [row["id"] for row in rows] == IDS
    assert {row["status"] for row in rows} == {"not run"}
    assert all(row["why"] and row["ours"] == "" and row["profile"] is None for row in rows)
    assert rows[3]["why"] == "make reproduce runs its page, llama_tree"
    json.dumps(rows, allow_nan=False)
    text = claims.as_text(rows)
    assert " ".join(text.split()).startswith(
        f"{len(IDS)} claims: 0 hold, {AFTER_DATA}, 0 within their spread, 0 fail, {len(IDS)} not run"
    )


def test_records_alone_are_not_judged(tmp_path):
    """Pages judge. What a page left without a judgement, however good, decides nothing."""
    store = Results(tmp_path)
    kept = {"name": "exchangeability", "profile": "default", "pairs": [], "measurements": {"example_one": EXAMPLE}}
    store.put_experiment("exchangeability", kept)
    row = next(row for row in claims.evaluate(store) if row["id"] == "I1")
    assert (row["status"], row["why"]) == ("not run", "its page kept no judgement of it: run its page again")


# Records in a store --------------------------------------------------------------------------------------------------

UNIT = {"value": 0.9, "reach": -60.0, "detail": {"paper_log10_p": -1.0}}
EXAMPLE = {"independent": [(1 + i % 100) / 100 for i in range(2000)], "dependent": [0.01] * 100, "n_permutations": 99}


I1 = ROWS[IDS.index("I1")]


def judged_i1(row=I1):
    return claims.verdict(row, {"example_one": EXAMPLE}, "default")


@pytest.fixture
def store(tmp_path):
    """Results of two experiments: units of a pair, and a judgement by which I1 holds."""
    store = Results(tmp_path)
    keys = [Results.key(block=block) for block in range(2)]
    for block, key in enumerate(keys):
        store.put(key, UNIT | {"block": block, "log10_p": -1.0 - block})
    pair = {"a": "a", "b": "b", "statistic": "phi_u", "dependent": False, "siblings": False, "error": None}
    kept = [
        {"name": "llama_tree", "pairs": [pair | {"keys": keys}], "measurements": {"chain_of_trees": []}},
        {"name": "exchangeability", "pairs": [], "measurements": {}, "judgements": {"I1": asdict(judged_i1())}},
    ]
    for experiment in kept:
        store.put_experiment(experiment["name"], {"profile": "default", **experiment})
    return store


def test_ours_come_from_the_units_and_not_from_the_experiment(store):
    """Values are aggregated again from the stored units by the statistic itself."""
    (row,) = RunRecords(store.experiment("llama_tree"), store).pairs.to_dict("records")
    assert row["log10_p"] == pytest.approx(pvalues.fisher(np.array([-1.0, -2.0])))
    assert row["blocks"] == [-1.0, -2.0]


def test_a_lost_unit_is_named(store):
    next((store.root / "units").rglob("*.json")).unlink()
    message = r"unit [0-9a-f]{64} of experiment llama_tree is no longer in .*; run it again"
    with pytest.raises(ParameterError, match=message):
        _ = RunRecords(store.experiment("llama_tree"), store).pairs


def test_the_scoreboard_counts(store, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = claims.evaluate(store)
    assert {row["id"] for row in rows if row["status"] == "holds"} == {"I1"}
    text = claims.as_text(rows)
    assert " ".join(text.split()).startswith(
        f"{len(IDS)} claims: 1 hold, {AFTER_DATA}, 0 within their spread, 0 fail, {len(IDS) - 1} not run"
    )
    assert max(map(len, text.splitlines())) <= get_terminal_size().columns
    assert len(text.splitlines()) <= 22  # one screen
    assert re.search(r"^holds +I1\nnot run +I2, I3, ", text, re.MULTILINE)
    worst = [row | {"status": STATUSES[i % len(STATUSES)]} for i, row in enumerate(rows)]
    text = claims.as_text(worst)
    assert max(map(len, text.splitlines())) <= 80
    assert all(re.search(rf"\b{row['id']}\b", text) for row in worst)
    assert re.search(r"^fails +[IDO]\d+ +.*\w", text, re.MULTILINE)  # what does not hold says what it is
    text = claims.as_text(rows, verbose=True)
    assert "published  " in text
    assert "ours         2,000 independent pairs" in text
    json.dumps(rows, allow_nan=False)


@pytest.mark.parametrize(
    ("changed", "status"),
    [("bar", "holds, bar set after data"), ("experiment", "holds, experiment changed after data")],
)
@pytest.mark.parametrize("kept_as", ["holds", "holds_post_hoc"])  # the second by an older version
def test_a_rule_settled_after_a_look_is_told(store, monkeypatch, changed, status, kept_as):
    settled = {"changed": changed, "rule": "the bar is -30", "date": date(2026, 5, 1), "look": "-12 was reached"}
    planted = {"settled": settled, "same_records": ["I8", "I9"]}
    rows = [row | planted if row["id"] in ("I1", "I2") else row for row in ROWS]
    monkeypatch.setattr(claims, "load_claims", lambda: rows)
    i1 = next(row for row in rows if row["id"] == "I1")
    assert judged_i1(i1).status == status
    kept = {"I1": asdict(judged_i1(i1)) | {"status": kept_as}}
    store.put_experiment("exchangeability", store.experiment("exchangeability") | {"judgements": kept})
    judged = {row["id"]: row for row in claims.evaluate(store)}
    assert judged["I1"]["status"] == status
    assert [judged["I1"][key] for key in ("changed", "rule", "look", "date")] == [
        changed, "the bar is -30", "-12 was reached", "2026-05-01",
    ]  # fmt: skip
    assert judged["I1"]["same_records"] == ["I8", "I9"]
    assert judged["I2"]["status"] == "not run"  # only what holds can hold by a rule settled after a look
    assert (judged["I4"]["changed"], judged["I4"]["date"]) == (None, None)
    text = claims.as_text(list(judged.values()), verbose=True)
    assert f"I1  {status}" in text
    assert "records      rests on the same records as I8, I9" in text


def test_models_trained_once_are_named():
    """Models of one training and a verdict over replicates exclude each other, except where the sampler is repeated."""
    rows = {row["id"]: row for row in claims.load_claims()}
    assert rows["I4"]["trained_once"] == "the tree of 21 models"
    assert "trained once: the tree of 21 models" in scoreboard_table(
        [{"id": "I4", "status": "holds", "statement": "", "trained_once": rows["I4"]["trained_once"]}]
    )
    assert [name for name in ("I1", "I2", "I11", "I17", "I21", "I25") if "trained_once" in rows[name]] == []


def test_units_of_another_version_are_not_judged(store):
    """Units that an older version kept have no reach."""
    older = {key: value for key, value in UNIT.items() if key != "reach"}
    for path in (store.root / "units").rglob("*.json"):
        path.write_text(json.dumps(older | {"block": 0, "log10_p": -1.0, "detail": {}}))
    with pytest.raises(OldRecordsError, match="those of another version: run its page again"):
        _ = RunRecords(store.experiment("llama_tree"), store).pairs


def test_records_of_another_version_are_not_judged():
    """Fields that the chapter no longer measures: the claim says what to run, and the page goes on."""
    row = ROWS[IDS.index("D10")]
    judged = claims.verdict(row, {"domains": {"old": 1}}, "default")
    assert (judged.status, judged.why) == ("not run", "its records are those of another version: run its page again")


def test_a_page_that_lacks_a_record_stops():
    """It is no claim that was not run, but a page that calls its function wrongly."""
    with pytest.raises(TypeError, match="missing 2 required positional arguments: 'capability' and 'ways'"):
        claims.verdict(ROWS[IDS.index("D8")], {}, "default")


def test_the_scoreboard_shows_what_the_page_judged(store):
    """The judgement that is kept, and not a second one from the records."""
    kept = {"status": "fails", "ours": "nothing", "why": "as it says", "margin": "", "replicates": ""}
    experiment = store.experiment("exchangeability") | {"judgements": {"I1": kept}}
    store.put_experiment("exchangeability", experiment)
    row = next(row for row in claims.evaluate(store) if row["id"] == "I1")
    assert {key: row[key] for key in kept} == kept
