"""The predicate on single tensors: it holds on good records, and fails or waits for each reason alone."""

import copy

import pytest

from provlab.chapters.striped_hyena.predicates import taken_tensors_found
from provlab.engine.store import Store
from provlab.publishing import claims
from provlab.publishing.evidence import Evidence

ROW = next(row for row in claims.load_claims() if row["id"] == "I12")
HEAD = "lm_head.weight"


def pair(first, second, holm, *, taken=False):
    return {
        "first": first,
        "second": second,
        "log10_p": holm - 2,
        "holm": holm,
        "benjamini_yekutieli": holm,
        "taken": taken,
    }


def good():
    related = {"hybrid": "h", "against": "p", "related": True, "axis": "rows", "n_tests": 340, "n_taken": 2, "pairs": [
        pair("e", "e", -900.0, taken=True), pair("q", "q3", -86.0, taken=True), pair("k", "q", -1.9),
        pair(HEAD, HEAD, -40.0), pair("e", HEAD, -4.0),
    ]}  # fmt: skip
    unrelated = {**related, "against": "u", "related": False, "n_taken": 0, "pairs": [pair("q", "o", -1.2)]}
    columns = {**related, "axis": "columns", "pairs": []}  # another axis is not looked at
    return [related, unrelated, columns]


def judged(tmp_path, runs):
    arguments = {key: value for key, value in ROW["predicate"].items() if key != "name"}
    experiment = {"name": "x", "profile": "default", "pairs": [], "measurements": {arguments["measurement"]: runs}}
    return taken_tensors_found(Evidence(experiment, Store(tmp_path)), **arguments)


def test_it_holds_and_says_what_it_leaves_out(tmp_path):
    verdict = judged(tmp_path, good())
    assert verdict.status == "holds"
    assert "2 of 2 taken tensors called in 1 hybrids, 0 of the other 338 pairs; 0 against unrelated" in verdict.ours
    assert f"beyond the table's kinds 2 more ({HEAD} ~ {HEAD}, e ~ {HEAD})" in verdict.ours


@pytest.mark.parametrize(
    ("run", "change", "said"),
    [
        (0, lambda pairs: pairs[1].update(holm=-1.99), "1 taken tensors not called"),
        (0, lambda pairs: pairs.pop(0), "1 taken tensors not called"),
        (0, lambda pairs: pairs[2].update(holm=-2.01), "called though not taken: k ~ q"),
        (1, lambda pairs: pairs[0].update(holm=-2.01), "called between unrelated models: q ~ o"),
        (1, lambda pairs: pairs.append(pair(HEAD, HEAD, -5.0)), f"called between unrelated models: {HEAD}"),
    ],
)
def test_it_fails_for_each_reason(tmp_path, run, change, said):
    runs = copy.deepcopy(good())
    change(runs[run]["pairs"])
    verdict = judged(tmp_path, runs)
    assert verdict.status == "fails"
    assert said in verdict.why


@pytest.mark.parametrize("left", [0, 1])
def test_it_waits_for_both_sides(tmp_path, left):
    assert judged(tmp_path, [good()[left]]).status == "not run"
