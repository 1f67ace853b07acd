"""The list of phrases and names itself: each planted fault is seen, and plain sentences pass."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("plain", Path(__file__).with_name("plain.py"))
plain = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plain)


@pytest.mark.parametrize(
    "code",
    [
        '"""Who compares weights loads no torch."""',
        '"""Of the arithmetic behind them."""',
        '"""Draw.\n\n    seed\n        Of the draws.\n    """',
        "# what is read besides\nx = 1",
        "# the model is held against the other\nx = 1",
        "# a test that accuses for the opposite\nx = 1",
        '"""What is slow to import is imported later."""',
        'raise ValueError("it is told whoever asks")',
        "for one in range(3):\n    pass",
        "def found():\n    pass",
        "def f(said):\n    pass",
    ],
)
def test_a_planted_fault_is_seen(tmp_path, code):
    path = tmp_path / "x.py"
    path.write_text(code)
    assert plain.faults(path)


@pytest.mark.parametrize(
    "code",
    [
        '"""A reader who compares weights waits for no torch."""',
        "# of all blocks, in order\nx = 1",
        '"""What does the test say? Of course nothing."""',
        "class Record:\n    found: int",
        "for match in range(3):\n    pass",
        '"""It is told."""  # plain: quoted',
    ],
)
def test_plain_english_passes(tmp_path, code):
    path = tmp_path / "x.py"
    path.write_text(code)
    assert plain.faults(path) == []
