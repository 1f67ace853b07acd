"""Rules of parameters: each clause is read, obeyed, and refused in words that say what is wanted."""

import re

import pytest

from provlab.errors import ParameterError
from provlab_study.publishing.declared import Parameter, Rule, left_out, of_ones_own

ALLOWED = [
    ("[at least 1]", [1, 2]),
    ("[above 0; at most 1]", [0.1, 1, [0.5, 1.0]]),
    ("[at least 40; or 0]", [0, 40, 41]),
    ("[below 0]", [-1.5]),
    ("[at least 1e-3]", [0.001]),
    ("[just 2]", [[1, 2]]),
    ("[2 or more]", [[1, 2], [1, 2, 3]]),
    ("[models]", [["a"], ["a", "b"]]),
    ("[2 models or more]", [["a", "b"], ["zoo:*"], ["zoo:null-{:02d}"]]),
    ("[1 model or more; may repeat]", [["a", "a"]]),
    ("[a model; or empty]", ["", "a"]),
    ("[models; or empty]", [[], ["a"]]),
    ("[one of a, b]", ["a", "b", ["b"]]),
]
REFUSED = [
    ("[at least 1]", 0, "parameter x must be at least 1, not 0"),
    ("[above 0; at most 1]", 0.0, "parameter x must be above 0 and at most 1, not 0.0"),
    ("[above 0; at most 1]", [0.5, 1.5], "parameter x must be above 0 and at most 1, not 1.5"),
    ("[at least 40; or 0]", 5, "parameter x must be at least 40, or 0, not 5"),
    ("[below 0]", 0, "parameter x must be below 0, not 0"),
    ("[just 2]", [1], "parameter x takes 2 items, not 1"),
    ("[just 2]", [1, 2, 3], "parameter x takes 2 items, not 3"),
    ("[2 or more]", [1], "parameter x takes 2 items or more, not 1"),
    ("[models]", [], "parameter x is empty; give 1 model or more"),
    ("[a model]", "", "parameter x is empty; give 1 model"),
    ("[2 models or more]", ["a"], "parameter x takes 2 models or more, not 1"),
    ("[models]", ["a", "b", "a"], "parameter x names a more than once; give each model once"),
    ("[models]", ["a | b | a |"], "parameter x names a more than once; give each model once"),
    ("[models]", ["a", " "], "parameter x has an empty name of a model; leave it out"),
    ("[one of a, b]", "c", "parameter x must be one of a, b, not 'c'"),
    ("[a file]", "/none", "parameter x: there is no file /none; give one that is there"),
]


@pytest.mark.parametrize(("rule", "values"), ALLOWED)
def test_what_a_rule_allows(rule, values):
    for value in values:
        Rule.of(f"words {rule}").check("x", value)


@pytest.mark.parametrize(("rule", "value", "message"), REFUSED)
def test_what_a_rule_refuses(rule, value, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        Rule.of(f"words {rule}").check("x", value)


@pytest.mark.parametrize("comment", ["", "words", "a list such as [1, 2]", "[at least 1] and more", "see [there]"])
def test_brackets_that_hold_no_clause_are_words(comment):
    assert Rule.of(comment) is None


def test_a_clause_that_cannot_be_read_beside_one_that_can_is_no_rule():
    with pytest.raises(ParameterError, match=r"\[at least 1; at mst 5\] says .*, and 'at mst 5' is no clause of that"):
        Rule.of("words [at least 1; at mst 5]")


def declared(**rules):
    return {name: Parameter(name, "str", '"zoo:a"', f"[{rule}]") for name, rule in rules.items()}


def test_what_goes_together_is_asked_for_together():
    page = declared(
        a="a model", b="a model; needed with a", c="a model; needed with a", d="a model; left out with a, b"
    )
    default = dict.fromkeys(page, "zoo:a")
    assert left_out("page", page, default) == {}
    with pytest.raises(ParameterError, match="page: with a give b and c too, which go with it"):
        left_out("page", page, default | {"a": "x"})
    with pytest.raises(ParameterError, match="page: with a give c too, which goes with it"):
        left_out("page", page, default | {"a": "x", "b": "y"})
    assert left_out("page", page, default | {"a": "x", "b": "y", "c": "z"}) == {"d": ""}
    assert left_out("page", page, default | {"a": "x", "b": "y", "c": "z", "d": "w"}) == {}
    assert left_out("page", page, default | {"b": "y"}) == {"d": ""}
    assert left_out("page", page, default | {"a": ""}) == {"d": ""}  # nothing is needed with nothing
    assert of_ones_own(page, default | {"a": "x", "d": "x"}) == ["x"]
