"""The predicate about distilled MLPs, `distilled_is_found`: when it holds, and each way in which it fails."""

import numpy as np
import planted
import pytest

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


def test_it_holds_with_power_and_size_and_reports_the_other_recipes():
    verdict = planted.judged(ROW, good())
    assert verdict.status == "holds"
    assert "3 of 3 dependent pairs found, strongest log10 p = -40.0" in verdict.ours
    # Clopper-Pearson of 1 in 28 from tables: 0.0009 to 0.1835
    assert "28 independent pairs: share below 0.05 is 0.04 (0.00 to 0.18)" in verdict.ours
    assert "another: 0.33 of the dependent and 0.04 of the independent pairs below" in verdict.ours
    assert "perfect" not in verdict.why


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda recipe: recipe["dependent"].__setitem__(2, -1.9), "Holm at 0.01 misses 1 dependent pairs"),
        # 5 of 28: the interval is 0.06 to 0.37
        (
            lambda recipe: recipe["independent"].__setitem__(slice(0, 5), [-4.7] * 5),
            "independent pairs are below 0.05 significantly more often",
        ),
        (lambda recipe: recipe["independent"].__setitem__(0, -300.0), "calls 1 independent pairs related"),
        (lambda recipe: recipe.update(independent=[-2.0] * 28), "significantly more often"),
    ],
)
def test_it_fails_for_each_reason_and_says_why(plant, message):
    measurements = good()
    plant(measurements["distilled"][JUDGED])
    verdict = planted.judged(ROW, measurements)
    assert verdict.status == "fails"
    assert message in verdict.why
    assert "of pairs of students of one and the same MLP, 1 of 3 are below 0.05" in verdict.why


def test_a_test_that_finds_independent_models_in_gated_form_is_invalid():
    """Whatever the students show: they come ever nearer to this form."""
    measurements = {**good(), "perfect": [-1166.2, -1166.2]}
    verdict = planted.judged(ROW, measurements)
    assert verdict.status == "fails"
    assert verdict.why.startswith("invalid as a test: of pairs of independent MLPs in their exact gated form")
    assert "2 of 2 are below 0.01, the largest at log10 p = -1,166.2" in verdict.why
    assert planted.judged(ROW, {**measurements, "perfect": []}).status == "not run"


@pytest.mark.parametrize(
    ("perfect", "status"),
    [
        ([-2.1] * 3 + [-0.3] * 27, "fails"),  # ten times the level of 0.01: 3 of 30, the interval begins at 0.02
        ([-1.4] * 6 + [-0.3] * 24, "fails"),  # 6 of 30 at 0.05, none at 0.01
        ([-0.3] * 3, "within_its_spread"),  # of three none, which may be 0.71
        ([-0.3] * 40, "holds"),
    ],
)
def test_perfect_forms_are_judged_at_both_levels_and_with_their_interval(perfect, status):
    assert planted.judged(ROW, {**good(), "perfect": perfect}).status == status


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda recipe: recipe.update(width_factor=1.0), "students 1 times as wide as their teachers, not 2"),
        (lambda recipe: recipe.update(dependent=[]), "0 dependent and 28 independent pairs"),
        (lambda recipe: recipe["independent"].__delitem__(slice(19, None)), "19 independent pairs; it takes 20"),
        (lambda recipe: recipe["dependent"].__setitem__(0, float("nan")), "a pair has no value"),
        (lambda recipe: recipe["independent"].__setitem__(0, float("nan")), "a pair has no value"),
    ],
)
def test_records_that_decide_nothing(plant, message):
    measurements = good()
    plant(measurements["distilled"][JUDGED])
    verdict = planted.judged(ROW, measurements)
    assert verdict.status == "not run"
    assert message in verdict.why


def test_four_of_28_are_not_significantly_too_many():
    measurements = good()
    measurements["distilled"][JUDGED]["independent"][:4] = [-2.0] * 4  # the interval is 0.04 to 0.33
    assert planted.judged(ROW, measurements).status == "holds"
