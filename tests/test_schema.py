"""Plain data is refused by name where it has not the keys and types that it must have."""

import re

import pytest

from provlab import schema
from provlab.errors import ParameterError, one_line


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, float),
        (1.5, float),
        (2**70, int),
        ([], list[str]),
        ([1], list[int]),
        ([1, 2.5], list[float]),
        ({}, dict),
        ({"a": 1}, dict[str, float]),
        (None, int | None),
        (True, bool),
    ],
)
def test_types_that_fit(value, kind):
    schema.check("x", value, kind)


@pytest.mark.parametrize(
    ("value", "kind", "word"),
    [
        ("3", int, "int"),
        (3.0, int, "int"),
        (True, int, "int"),
        (None, int, "int"),
        ("1", float, "float"),
        (False, float, "float"),
        (1, bool, "bool"),
        (5, str, "str"),
        ("a,b", list[str], "list[str]"),
        (("a", "b"), list[str], "list[str]"),
        (["a", 5], list[str], "list[str]"),
        ({"a": "b"}, dict[str, float], "dict[str, float]"),
        ("a", int | None, "int | None"),
        ([], dict, "dict"),
        ("a\nb" * 500, int, "int"),
    ],
)
def test_types_that_do_not(value, kind, word):
    with pytest.raises(ParameterError) as refused:
        schema.check("seed", value, kind)
    assert str(refused.value).startswith(f"seed must be {word}, not ")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (None, "plan must be a mapping with name, size, not None"),
        (["name"], "plan must be a mapping with name, size, not ['name']"),
        ({"name": "a", "colour": 1}, "plan has the unknown key 'colour'; known: name, size"),
        ({"size": 1}, "plan lacks name"),
        ({"name": "a", "size": "b"}, "plan: size must be int, not 'b'"),
    ],
)
def test_keys(arguments, message):
    with pytest.raises(ParameterError) as refused:
        schema.check_keys("plan", arguments, {"name": str, "size": int}, ["name"])
    assert str(refused.value) == message


def test_one_line():
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(KeyError()) == "KeyError"
    assert len(one_line("a" * 1000)) <= 240
    assert re.fullmatch("a{100,}[.]{3}b{100,}", one_line("a" * 500 + "b" * 500))
