"""What only one part needs comes with an extra: without it the rest runs, and one line says the command."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from provlab import extras

ROOT = Path(__file__).resolve().parents[1]
BLOCKED = f"""
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(extras.EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def program(code, *arguments):
    command = [sys.executable, "-c", BLOCKED + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_table_is_that_of_the_project():
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    listed = {re.split("[><=]", line)[0]: extra for extra in set(extras.EXTRAS.values()) for line in optional[extra]}
    assert listed == extras.EXTRAS


def test_two_folders_are_compared_without_any_extra(models):
    code = "from provlab.cli import main; raise SystemExit(main(sys.argv[1:]))"
    done = program(code, "compare", models["base"], models["tuned"], "--statistic", "phi_u")
    assert done.returncode == 0, done.stderr
    assert "not independent" in " ".join(done.stdout.split()) or "alike by order" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import provlab.plots; provlab.plots.table", "pandas"),
        ("from provlab.report.family import need; need('pandas')", "pandas"),
        ("from provlab.plots import style", "matplotlib"),
    ],
)
def test_what_is_missing_is_said_with_the_command(code, name):
    caught = f"try:\n    {code}\nexcept ImportError as error:\n    failures.status(error)"
    done = program(f"from provlab.cli import failures\n{caught}")
    assert f"pip install 'provlab[{extras.EXTRAS[name]}]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_another_import_that_fails_is_left_as_it_is():
    assert extras.missing(ModuleNotFoundError("No module named 'weather'", name="weather")) is None
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        extras.need("no_such_package")
