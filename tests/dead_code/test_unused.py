"""Unused names are listed, and those that are allowed to stay are no more than that."""

import json

import pytest
import unused


@pytest.fixture
def root(tmp_path):
    for name, text in {
        "src/provlab/a.py": "def called(): pass\ndef judged(): pass\ndef timed(): pass\ndef dead(): pass\n"
        "class Named: pass\nNAMES = {'x': 'Named'}\nprint(NAMES)\nclass Record:\n    field: int\nprint(Record)",
        "src/provlab_study/x/claims.yml": "- id: I1\n  predicate: {name: judged}\n- id: I2",
        "benchmarks/b.py": "timed()",
        "notebooks/x.ipynb": json.dumps(
            {"cells": [{"cell_type": "code", "source": ["from provlab import a\n", "a.called()"]}]}
        ),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_planted_dead_function_is_named(root):
    assert unused.unused(root) == {"dead": "src/provlab/a.py:4: unused function 'dead'"}


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ("# names\n", ["line"]),
        ("dead: for users", []),
        ("dead:", ["dead is listed without a reason"]),
        ("dead: x\ncalled: y", ["called is used, or gone: strike it out of the list"]),
    ],
)
def test_what_is_allowed_has_a_reason_and_is_unused(allowed, message):
    assert unused.faults({"dead": "line"}, allowed) == message
