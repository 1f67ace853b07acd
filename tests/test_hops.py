"""The way of the data is as short as the plan says: hops of a tensor from the command line to its record, counted."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
MOST = 35

PLANTED = {
    "a.py": """
import numpy as np
from b import read
from c import add, look

def run():
    matrix = read()
    look(matrix)
    total = []
    add(total, half(matrix))
    return None

def half(matrix):
    return matrix / 2
""",
    "b.py": """
import numpy as np

def read():
    return np.ones((2, 2))
""",
    "c.py": """
def add(total, matrix):
    total.append(matrix)

def look(matrix):
    if matrix.shape != (2, 2):
        raise ValueError
""",
}


@pytest.mark.slow
def test_the_tensor_makes_few_hops():
    done = subprocess.run(
        [sys.executable, str(PROJECT / "benchmarks" / "hops.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) hops; (\d+) functions in (\d+) files", done.stdout)
    assert found, done.stdout
    assert 20 < int(found[1]) <= MOST, done.stdout  # fewer than the plan's list has would be a blind counter
    plan = (PROJECT / "DESIGN.md").read_text(encoding="utf-8")
    for path, function in re.findall(r"^ *\d+ +(\S+)\.py +(\S+)$", done.stdout, re.MULTILINE):
        module = path.removesuffix("/__init__").rpartition("/")[2]
        assert f"`{module}.{function}`" in plan, function


def test_who_hands_on_is_a_hop_and_who_looks_is_none(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PROJECT / "benchmarks"))
    monkeypatch.syspath_prepend(str(tmp_path))
    import hops

    for name, code in PLANTED.items():
        (tmp_path / name).write_text(code)
    monkeypatch.setattr(hops, "SOURCE", ("b.py", "read"))
    monkeypatch.setattr(hops, "END", ("a.py", "run"))
    import a

    watch = hops.Watch(tmp_path)
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        a.run()
    finally:
        sys.setprofile(before)
    for name in ("a", "b", "c"):
        sys.modules.pop(name, None)
    assert watch.on_the_way == {("a.py", "run"), ("b.py", "read"), ("c.py", "add"), ("a.py", "half")}
    assert [name for (_, name), hop in watch.called.items() if hop] == ["run", "read", "look", "add"]
