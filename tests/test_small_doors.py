"""What a comparison of weights loads: nothing that it does not use."""

import subprocess
import sys

import doors
import pytest

#: libraries that take long to import
LARGE = ("huggingface_hub", "matplotlib", "numba", "pandas", "scipy", "seaborn", "torch", "transformers")
USED = {"numba", "scipy"}  # by MATCH and its p-value
LEAVES = doors.leaves((doors.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COMPARE = "import sys\nfrom provlab import cli\ncli.main(['compare', *sys.argv[1:], '--statistic', 'phi_u'])"


def loaded(code: str, *arguments: str) -> tuple[set[str], set[str]]:
    """Modules of ours that a program loads in a process of its own, and the large libraries."""
    code += "\nimport sys\nprint()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    names = set(done.stdout.splitlines()[-1].split())
    return {name for name in names if name.partition(".")[0] == "provlab"}, names & set(LARGE)


@pytest.fixture(scope="module")
def compare(models):
    return loaded(COMPARE, models["base"], models["other"])


def test_comparing_weights_imports_no_library_that_it_does_not_use(compare):
    assert compare[1] <= USED


def test_comparing_weights_loads_no_leaf(compare):
    modules, _ = compare
    assert "provlab.statistics.phi_u" in modules
    assert not [module for module in modules if doors.within(module, LEAVES)]


@pytest.mark.parametrize("words", [["run", "--list"], ["run", "llama_tree", "--list"]])
def test_a_list_of_notebooks_waits_for_no_library_that_makes_numbers(words):
    code = "import sys\nfrom provlab import cli\nsys.exit(cli.main(sys.argv[1:]))"
    names = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code, *words],
        capture_output=True, text=True, check=True, cwd=doors.ROOT,
    ).stderr  # fmt: skip
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in names.splitlines()}
    assert "yaml" in imported
    assert not imported & {*LARGE, "numpy", "nbformat", "regex"}


def test_planted_imports_are_seen():
    planted = {"torch", "transformers", "matplotlib", "seaborn", "pandas", "huggingface_hub"}
    modules, libraries = loaded(f"import {', '.join(planted)}")
    assert planted <= libraries
    assert modules == set()


def test_a_planted_module_is_seen():
    modules, libraries = loaded("import provlab.zoo.kinds")
    assert {"provlab", "provlab.zoo", "provlab.zoo.kinds"} <= modules
    assert not libraries & {"pandas", "matplotlib"}


def test_help_imports_no_large_library():
    modules, libraries = loaded("from provlab import cli\ntry:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass")
    assert libraries == set()
    assert "provlab.cli.study" not in modules  # only the command that is given is loaded
