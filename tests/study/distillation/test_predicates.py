"""The predicate about distilled MLPs, `distilled_is_found`: when it holds, and each way in which it fails."""

import numpy as np
import planted
import pytest
from planted import Plant, put, update

from provlab_study.publishing.evidence import FAILS, HOLDS, NOT_RUN, WITHIN_SPREAD

ROW = planted.row("I25")
JUDGED = ROW["predicate"]["recipe"]


def good():
    uniform = list(np.log10((np.arange(28) + 0.5) / 28))  # one of 28 below 0.05
    recipe = {"independent": uniform, "dependent": [-40.0, -30.0, -9.0], "cosine": 0.1, "relative": 0.05}
    recipe["width_factor"] = 2.0
    return {
        "distilled": {JUDGED: recipe, "another": {**recipe, "dependent": [-0.1, -0.2, -2.0]}},
        "one_teacher": [-0.2, -1.4, -0.1],
        "perfect": list(uniform),
    }


def judged(record):
    return planted.judged(ROW, record)


def test_it_holds_with_power_and_size_and_reports_the_other_recipes():
    verdict = judged(good())
    assert verdict.status == "holds"
    assert "3 of 3 dependent pairs found, strongest log10 p = -40.0" in verdict.ours
    # Clopper-Pearson of 1 in 28 from tables: 0.0009 to 0.1835
    assert "28 independent pairs: share below 0.05 is 0.04 (0.00 to 0.18)" in verdict.ours
    assert "another: 0.33 of the dependent and 0.04 of the independent pairs below" in verdict.ours
    assert "perfect" not in verdict.why


def recipe(change):
    return lambda record: change(record["distilled"][JUDGED])


PLANTS = [
    Plant("a pair is missed", recipe(put("dependent", 2, value=-1.9)), FAILS, "Holm at 0.01 misses 1 dependent pairs"),
    # 5 of 28: the interval is 0.06 to 0.37
    Plant(
        "too many are small",
        recipe(put("independent", slice(0, 5), value=[-4.7] * 5)),
        FAILS,
        "independent pairs are below 0.05 significantly more often",
    ),
    Plant("four of 28 are not", recipe(put("independent", slice(0, 4), value=[-2.0] * 4)), HOLDS),  # 0.04 to 0.33
    Plant("one stranger", recipe(put("independent", 0, value=-300.0)), FAILS, "calls 1 independent pairs related"),
    Plant("all strangers", recipe(update(independent=[-2.0] * 28)), FAILS, "significantly more often"),
    Plant("narrow", recipe(update(width_factor=1.0)), NOT_RUN, "students 1 times as wide as their teachers, not 2"),
    Plant("none", recipe(update(dependent=[])), NOT_RUN, "0 dependent and 28 independent pairs"),
    Plant("few", recipe(update(independent=[-1.0] * 19)), NOT_RUN, "19 independent pairs; it takes 20"),
    Plant("no number", recipe(put("dependent", 0, value=float("nan"))), NOT_RUN, "a pair has no value"),
    Plant("no number", recipe(put("independent", 0, value=float("nan"))), NOT_RUN, "a pair has no value"),
    Plant("no perfect form", update(perfect=[]), NOT_RUN),
    # ten times the level of 0.01: 3 of 30, the interval begins at 0.02
    Plant("perfect forms at 0.01", update(perfect=[-2.1] * 3 + [-0.3] * 27)),
    Plant("perfect forms at 0.05 alone", update(perfect=[-1.4] * 6 + [-0.3] * 24)),
    Plant("three perfect forms", update(perfect=[-0.3] * 3), WITHIN_SPREAD),  # of which none, and it may be 0.71
    Plant("forty perfect forms", update(perfect=[-0.3] * 40), HOLDS),
]


@pytest.mark.parametrize("plant", PLANTS, ids=str)
def test_it_fails_or_waits_for_each_reason_and_says_why(plant):
    plant.check(judged, good())


def test_a_failure_says_what_one_teacher_does_to_two_students():
    verdict = PLANTS[0].check(judged, good())
    assert "of pairs of students of one and the same MLP, 1 of 3 are below 0.05" in verdict.why


def test_a_test_that_finds_independent_models_in_gated_form_is_invalid():
    """Whatever the students show: they come ever nearer to this form."""
    measurements = {**good(), "perfect": [-1166.2, -1166.2]}
    verdict = judged(measurements)
    assert verdict.status == "fails"
    assert verdict.why.startswith("invalid as a test: of pairs of independent MLPs in their exact gated form")
    assert "2 of 2 are below 0.01, the largest at log10 p = -1,166.2" in verdict.why
