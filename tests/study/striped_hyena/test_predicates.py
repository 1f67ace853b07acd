"""`taken_tensors_found`, on single tensors: it holds on good records, and fails or waits for each reason alone."""

import math

import planted
import pytest
from planted import Plant, put

from provlab_study.publishing.evidence import FAILS, HOLDS, NOT_RUN

ROW = planted.row("I12")
HEAD = "lm_head.weight"


def pair(first, second, holm, *, shared=False):
    return {
        "first": first,
        "second": second,
        "log10_p": holm - 2,
        "holm": holm,
        "benjamini_yekutieli": holm,
        "taken": shared,
    }


def good():
    """By columns the list of the recipe; by rows, which do not decide, the heads as well."""
    called = [pair("e", "e", -900.0, shared=True), pair("q", "q3", -86.0, shared=True), pair("k", "q", -1.9)]
    related = {"hybrid": "h", "against": "p", "related": True, "n_tests": 340, "n_taken": 2}
    related |= {"axis": "columns", "pairs": called}
    even = [pair(f"x{k}", "y", 0.0) | {"log10_p": math.log10((k + 0.5) / 339)} for k in range(339)]
    unrelated = {**related, "against": "u", "related": False, "n_taken": 0, "pairs": [pair("q", "o", -1.2), *even]}
    rows = {**related, "axis": "rows", "pairs": [*related["pairs"], pair(HEAD, HEAD, -40.0), pair("e", HEAD, -4.0)]}
    return [related, unrelated, rows]


def judged(runs, **others):
    return planted.judged(ROW, {"sharing": runs}, **others)


def test_it_holds_and_says_what_the_other_axis_calls():
    verdict = judged(good())
    assert verdict.status == "holds"
    assert "by columns 2 of 2 taken tensors called in 1 hybrids, 0 of the other 338 pairs; 0 ag" in verdict.ours
    assert "by rows, not judged, 2 of 2 taken tensors called" in verdict.ours
    assert f"2 of the other 338 pairs ({HEAD} ~ {HEAD}, e ~ {HEAD})" in verdict.ours
    assert verdict.margin == (
        "strongest pair not taken, by Holm, log10 p: -1.6, 0.4 above the bar of -2; weakest taken pair, by "
        "Holm, log10 p: -85.7, 83.7 below the bar of -2"
    )


def test_by_rows_it_would_fail():
    """As the paper matches them; that columns decide was settled after a look, and the claim's row says so."""
    runs = [run | {"axis": "rows"} if not run["related"] else run for run in good()]
    assert judged(runs, axis="rows").status == "fails"
    assert ROW["predicate"]["axis"] == "columns"
    assert "by rows" in ROW["settled"]["look"]


PLANTS = [
    Plant(
        "15 small ones between strangers",
        lambda runs: [p.update(log10_p=-2.3) for p in runs[1]["pairs"][1:15]],
        FAILS,
        "15 of 340 pairs of tensors of unrelated",
    ),
    Plant("a taken one above", put(0, "pairs", 1, "holm", value=-1.99), FAILS, "1 taken tensors not called"),
    Plant("a taken one lost", lambda runs: runs[0]["pairs"].pop(0), FAILS, "1 taken tensors not called"),
    Plant("one not taken", put(0, "pairs", 2, "holm", value=-2.31), FAILS, "called though not taken: k ~ q"),
    # no tensor is left out of what decides, whatever was called in a run before
    Plant(
        "a head that was never taken",
        lambda runs: runs[0]["pairs"].extend(runs[2]["pairs"][-2:]),
        FAILS,
        f"called though not taken: {HEAD} ~ {HEAD}, e ~ {HEAD}",
    ),
    Plant("a stranger's", put(1, "pairs", 0, "holm", value=-2.31), FAILS, "called between unrelated models: q ~ o"),
    Plant(
        "a stranger's head",
        lambda runs: runs[1]["pairs"].__setitem__(1, pair(HEAD, HEAD, -5.0)),
        FAILS,
        f"called between unrelated models: {HEAD}",
    ),
    Plant(
        "taken tensors alone",
        put(0, "n_tests", value=3),
        FAILS,
        "tested only 1 pairs that were not taken, fewer than the 2 taken",
    ),
    Plant(
        "a test that is dead between strangers",
        lambda runs: [p.update(log10_p=0.0) for p in runs[1]["pairs"]],
        FAILS,
        "340 of 340 pairs of tensors of unrelated models are above p = 0.5",
    ),
    Plant(
        "no null comparison, counted all the same",
        put(1, "pairs", value=[]),
        FAILS,
        "340 pairs of tensors of unrelated models are counted and not there",
    ),
    # two comparisons share the level: below it within its own is not below it over both
    Plant("one comparison in a hundred", put(1, "pairs", 0, "holm", value=-2.29), HOLDS),
    Plant("no stranger", lambda runs: runs.__delitem__(slice(1, None)), NOT_RUN),
    Plant("strangers alone", lambda runs: [runs.pop(2), runs.pop(0)], NOT_RUN),
]


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_it_fails_or_waits_for_each_reason(plant):
    plant.check(judged, good())
