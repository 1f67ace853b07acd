"""What a comparison of weights loads: little of ours, and nothing that it does not use."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("size", Path(__file__).parents[1] / "benchmarks" / "size.py")
size = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(size)

# at most; 4,500 lines before the p-value was the law of the correlation itself (tail.py) and dead units were left out,
# 4,750 before files of weights were containers, of which each format is one, 4,780 before blocks had several MLPs,
# 4,830 before an adapter could stand over a base
LINES, MODULES = 4850, 55
USED = {"numba", "scipy"}  # by MATCH and its p-value


@pytest.fixture(scope="module")
def compare():
    return size.loaded_by_compare()


def test_comparing_weights_imports_no_library_that_it_does_not_use(compare):
    assert set(compare[1]) <= USED


def test_comparing_weights_loads_little_of_ours(compare):
    files, _ = compare
    assert size.SRC / "statistics" / "phi_u.py" in files
    assert len(files) <= MODULES
    assert sum(map(size.of_file, files)) <= LINES


def test_planted_imports_are_seen():
    planted = ["torch", "transformers", "matplotlib", "seaborn", "pandas", "huggingface_hub"]
    files, libraries = size.loaded(f"import {', '.join(planted)}")
    assert set(planted) <= set(libraries)
    assert files == []


def test_a_planted_module_is_counted():
    files, libraries = size.loaded("import provlab.zoo.kinds")
    assert {size.SRC / "zoo" / "kinds.py", size.SRC / "zoo" / "__init__.py", size.SRC / "__init__.py"} <= set(files)
    assert not set(libraries) & {"pandas", "matplotlib"}


def test_help_imports_no_large_library():
    code = "from provlab import cli\ntry:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass"
    files, libraries = size.loaded(code)
    assert libraries == []
    assert size.SRC / "cli" / "study.py" not in files  # only the command that is given is loaded


def test_lines_of_code_are_code():
    docstring, call = '"""Docstring."""', "f(\n    1\n)"
    text = f"{docstring}\n\n# a comment\nx = 1  # one\n\n\ndef f(x):\n    {docstring}\n    return x\n\n\n{call}\n"
    assert size.lines_of_code(text) == 6
