"""The core stands alone: what it can reach, and that it runs with every leaf's module blocked."""

import json
import subprocess
import sys

import doors
import grimp
import pytest

LEAVES = doors.leaves((doors.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: what a program runs before its first import of ours
BLOCKED = f"""
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == leaf or name.startswith(leaf + ".") for leaf in {LEAVES!r}):
            raise ImportError(f"{{name}} is blocked")

sys.meta_path.insert(0, Blocked())
"""


def program(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_core_reaches_no_leaf(capsys):
    assert doors.main() == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[1:]] == list(doors.DOORS)


def test_a_planted_import_of_a_leaf_is_named(monkeypatch, capsys):
    graph = grimp.build_graph("provlab", exclude_type_checking_imports=True)
    graph.add_import(importer="provlab.inference.pvalues", imported="provlab.zoo.kinds")
    monkeypatch.setattr(doors.grimp, "build_graph", lambda *_, **__: graph)
    assert doors.main() == 1
    assert "compare by phi_u reaches provlab.zoo.kinds, a leaf\n" in capsys.readouterr().out


def test_lines_of_code_are_code():
    docstring, call = '"""Docstring."""', "f(\n    1\n)"
    text = f"{docstring}\n\n# a comment\nx = 1  # one\n\n\ndef f(x):\n    {docstring}\n    return x\n\n\n{call}\n"
    assert doors.lines_of_code(text) == 6


def test_every_leaf_is_there_and_is_blocked():
    assert set(LEAVES) <= grimp.build_graph("provlab", exclude_type_checking_imports=True).modules
    code = """
from importlib import import_module
for leaf in sys.argv[1:]:
    try:
        import_module(leaf)
    except ImportError as error:
        print(error)
"""
    done = program(BLOCKED + code, *LEAVES)
    assert done.stdout.splitlines() == [f"{leaf} is blocked" for leaf in LEAVES]


# the call of both doors, and what of their results does not say when and where it was computed
DOORS = {
    "compare": "provlab.compare(*sources[:2], text=text, n_sequences=4, progress=False).to_json()['statistics']",
    "study": "provlab.study(sources, statistics=['phi_u', 'phi_l2'], progress=False).to_json()['records']",
}


@pytest.mark.parametrize("door", DOORS)
def test_folders_are_compared_without_any_leaf(models, text, door):
    """With the same results as with all of them."""
    sources = [models[name] for name in ("base", "tuned", "other")]
    code = f"import json, sys\nimport provlab\ntext, *sources = sys.argv[1:]\nprint(json.dumps({DOORS[door]}))"
    whole, alone = (program(before + code, text, *sources) for before in ("", BLOCKED))
    assert alone.returncode == 0, alone.stderr
    assert json.loads(alone.stdout) == json.loads(whole.stdout)


def test_without_a_text_the_statistics_that_read_one_say_so(models):
    code = "import provlab, sys\nprint(provlab.compare(*sys.argv[1:], statistics=['phi_u', 'phi_jsd'], progress=False))"
    done = program(BLOCKED + code, models["base"], models["tuned"])
    assert "this statistic reads held-out text, and none was given" in " ".join(done.stdout.split()), done.stderr
