"""What a comparison fails on: gates read, refused before anything is drawn, corrected, and one decision of them all."""

import math

import pytest

from provlab.errors import InputError
from provlab.modeldiff.gates import Gate, Given, Measured, checked, decide, parsed

TEXT, ANSWERS, OUTPUTS = Gate("text", 0.1), Gate("answers"), Gate("outputs")
ENOUGH = Given(items=100, references=0, too_short="")


def test_gates_are_read_with_their_sizes():
    assert parsed("answers, text=0.1,outputs") == (ANSWERS, TEXT, OUTPUTS)
    assert parsed(["text=0"]) == (Gate("text", 0.0),)
    assert parsed("") == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("answer", "nothing to fail on that is called 'answer'; did you mean answers"),
        ("nothing", "there are answers, text, outputs, any"),
        ("text,text=1", "each gate once"),
        ("any,text", "any alone"),
        ("answers=0.1", "answers takes no size.*leave =0.1 out"),
        ("any=0.1", "any takes no size"),
        ("text=-1", "at least 0, not '-1'"),
        ("outputs=nan", "at least 0, not 'nan'"),
        ("text=inf", "at least 0, not 'inf'"),
        ("text=much", "at least 0, not 'much'"),
    ],
)
def test_what_is_no_gate_is_refused(words, message):
    with pytest.raises(InputError, match=message):
        parsed(words)


@pytest.mark.parametrize(
    ("gates", "level", "given", "message"),
    [
        ([TEXT], 0.0, ENOUGH, "above 0 and below 0.5, not 0"),
        ([TEXT], 5.0, ENOUGH, "above 0 and below 0.5, not 5"),
        ([Gate("text", 0.0)], 0.05, ENOUGH, "any two models are farther apart than 0"),
        (
            [Gate("text")],
            0.05,
            Given(0, 3, ""),
            "3 references cannot reach the level 0.05.*give 19 references, --level 0.25",
        ),
        ([Gate("text")], 0.05, Given(0, 18, ""), "18 references cannot reach"),
        ([Gate("text")], 0.333, Given(0, 1, ""), "1 reference cannot reach .* give 3 references, or no"),
        ([TEXT], 0.05, Given(0, 0, "it holds 3 pieces"), "too short for a test: it holds 3 pieces"),
        ([ANSWERS], 0.05, Given(5, 0, ""), "5 questions with answers cannot reach the level 0.05: give 6 or more"),
        ([ANSWERS, TEXT], 0.05, Given(6, 0, ""), "as one of several gates, of which each must reach 0.025: give 7"),
        ([ANSWERS], 0.05, Given(0, 0, ""), "0 questions"),
    ],
)
def test_a_gate_that_no_data_could_make_fail_is_refused(gates, level, given, message):
    with pytest.raises(InputError, match=message):
        checked(gates, level, given)


def test_what_is_told_to_give_is_enough():
    """The remedies of the messages above, tried."""
    checked([Gate("text")], 0.05, Given(0, 19, ""))
    checked([Gate("text")], 0.25, Given(0, 3, ""))
    checked([ANSWERS], 0.05, Given(6, 0, ""))
    checked([ANSWERS, TEXT], 0.05, Given(7, 0, ""))
    assert 2 * 0.5**6 <= 0.05 < 2 * 0.5**5  # all of so many answers turned wrong, by McNemar's exact test


def test_any_is_all_that_can_be_answered():
    assert checked([Gate("any")], 0.05, ENOUGH) == (ANSWERS, Gate("text"), OUTPUTS)
    assert checked([Gate("any")], 0.05, Given(0, 0, "short")) == (OUTPUTS,)


def measured(**p):
    """p-values by gate; None is not decided."""
    return lambda gate: Measured(
        f"the {gate.name}", gate.size or 0.0, p[gate.name], "" if p[gate.name] else "few draws"
    )


@pytest.mark.parametrize(
    ("p", "word", "status", "first"),
    [
        ({"answers": 6.1e-5, "text": 0.9}, "failed", 1, "answers"),
        ({"answers": 0.9, "text": 1e-4}, "failed", 1, "text"),
        ({"answers": 0.03, "text": 0.9}, "passed", 0, "answers"),  # 0.06 by Holm
        ({"answers": 0.03, "text": 0.02}, "failed", 1, "text"),  # 0.04 and 0.04
        ({"answers": 0.9, "text": None}, "not decided", 3, "text"),
        ({"answers": 1e-3, "text": None}, "failed", 1, "answers"),
    ],
)
def test_one_decision_of_all_gates_and_the_one_that_decided_first(p, word, status, first):
    """Holm by hand: the smaller p twice, the larger once and no less."""
    decision = decide([Gate(name) for name in p], 0.05, measured(**p))
    assert (decision.word, decision.status, decision.tested[0].name) == (word, status, first)
    assert decision.to_json()["estimand"] == f"the {first}"


def test_equal_models_fail_no_gate_and_no_gate_decides_nothing():
    assert decide([ANSWERS], 0.05, measured(answers=1e-9), equal=True).word == "equal"
    assert decide([], 0.05, measured()).word == "not asked"
    assert decide([], 0.05, measured()).status == 0


def test_a_p_value_that_underflows_fails():
    assert decide([TEXT], 0.05, measured(text=0.0)).word == "failed"
    assert math.isfinite(decide([TEXT], 0.05, measured(text=0.0)).tested[0].holm)
