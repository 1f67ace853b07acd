"""`taken_tensors_found`, on single tensors: it holds on good records, and fails or waits for each reason alone."""

import copy
import math

import planted
import pytest

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


def test_a_head_that_was_never_taken_and_is_called_fails():
    """No tensor is left out of what decides, whatever was called in a run before."""
    runs = good()
    runs[0]["pairs"] += runs[2]["pairs"][-2:]
    verdict = judged(runs)
    assert verdict.status == "fails"
    assert f"called though not taken: {HEAD} ~ {HEAD}, e ~ {HEAD}" in verdict.why


def test_by_rows_it_would_fail():
    """As the paper matches them; that columns decide was settled after a look, and the claim's row says so."""
    runs = [run | {"axis": "rows"} if not run["related"] else run for run in good()]
    assert judged(runs, axis="rows").status == "fails"
    assert ROW["predicate"]["axis"] == "columns"
    assert "by rows" in ROW["settled"]["look"]


@pytest.mark.parametrize(
    ("run", "change", "message"),
    [
        (1, lambda pairs: [p.update(log10_p=-2.3) for p in pairs[1:15]], "15 of 340 pairs of tensors of unrelated"),
        (0, lambda pairs: pairs[1].update(holm=-1.99), "1 taken tensors not called"),
        (0, lambda pairs: pairs.pop(0), "1 taken tensors not called"),
        (0, lambda pairs: pairs[2].update(holm=-2.31), "called though not taken: k ~ q"),
        (1, lambda pairs: pairs[0].update(holm=-2.31), "called between unrelated models: q ~ o"),
        (1, lambda pairs: pairs.append(pair(HEAD, HEAD, -5.0)), f"called between unrelated models: {HEAD}"),
    ],
)
def test_it_fails_for_each_reason(run, change, message):
    runs = copy.deepcopy(good())
    change(runs[run]["pairs"])
    verdict = judged(runs)
    assert verdict.status == "fails"
    assert message in verdict.why


def test_a_comparison_of_taken_tensors_alone_fails():
    runs = good()
    runs[0]["n_tests"] = 3
    assert "tested only 1 pairs that were not taken, fewer than the 2 taken" in judged(runs).why


def test_one_in_a_hundred_comparisons_may_have_such_a_pair():
    """Two comparisons share the level: below it within its own is not below it over both."""
    runs = good()
    runs[1]["pairs"][0].update(holm=-2.29)
    assert judged(runs).status == "holds"


@pytest.mark.parametrize("left", [0, 1])
def test_it_waits_for_both_sides(left):
    assert judged([good()[left]]).status == "not run"
