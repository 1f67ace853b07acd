"""What a comparison of weights loads: little of ours, and nothing that it does not use."""

import nbformat
import pytest
import size

# anatomy, the matching and the law of p-values are half of these
LINES, MODULES = (size.BOUNDS[f"compare by phi_u, {what}"] for what in ("lines", "modules"))
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


def test_calls_are_counted_by_where_names_come_from(tmp_path):
    code = (
        "import provlab\nimport provlab_study\nfrom provlab_study.x import measure\n"
        "from provlab_study.x.y import f as g\nfrom provlab.plots import table\nimport numpy as np\n"
        "run = provlab_study.begin()\nmeasure.a(table(np.ones(3)))\ng(measure.b)\nrun.finish()"
    )
    path = tmp_path / "x.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]), path)
    assert size.calls(path) == (2, 2)  # begin and table; measure.a and g


def test_a_bound_that_is_passed_is_named(monkeypatch, capsys):
    monkeypatch.setattr(size, "sizes", lambda: dict.fromkeys(size.BOUNDS, 60))
    monkeypatch.setattr(size, "PROJECT", size.PROJECT / "nowhere")  # no notebooks
    assert size.main() == 1
    above = [line for line in capsys.readouterr().out.splitlines() if line.endswith("above")]
    assert len(above) == 1
    assert above[0].startswith("compare by phi_u, modules")
