"""The layers of DESIGN.md. The contracts stand in pyproject.toml and are import-linter's; here are what it cannot see:
circles, libraries that are slow to import, and names of notebooks and profiles in the library's code and data.
"""

import ast
import csv
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
import yaml

import provlab
import provlab_study

SRC = Path(provlab.__file__).parents[1]
PACKAGES = [Path(str(package.__file__)).parent for package in (provlab, provlab_study)]
PROJECT = SRC.parent
NOTEBOOKS = [path.stem for path in (PROJECT / "notebooks").glob("*.ipynb")]
PROFILES = [path.stem for path in (PROJECT / "notebooks" / "profiles").glob("*.yml")]
# what costs seconds to import, and the modules that may do so when they are imported themselves; all others import it
# in the function that needs it, so that a comparison of weights waits for none of them
SLOW = "torch|transformers|matplotlib|seaborn|pandas|huggingface_hub"
OURS = "reading|running|statistics|engine|report|plots|cli|commands|api|studying|provenance|errors|files|lazy"
LEAVES = r"formats\.\w+|further\.\w+|\w+\.command|\w+\.door"
QUICK = rf"provlab(_study)?(\.({OURS})\b.*|\.({LEAVES}))?"
WAITING = ["running.activations", "running.forward", "running.predictions", "reading.files.pickled"]
WAITING += ["reading.by_blocks", "reading.examples", "reading.hub", "reading.asking", "reading.loading"]
WAITING += ["reading.tokenizing"]
WAITING += ["report.study_report", r"plots\..*"]
MAY_WAIT = rf"provlab\.({'|'.join(WAITING)})"


def lint_imports(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo", "--config", config]
    return subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True)


def slow(root: Path) -> list[str]:
    """Slow libraries that are imported together with a module that should be quick."""
    bad = []
    for path in sorted(root.rglob("*.py")):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        name = ".".join(parts).removesuffix(".__init__")
        if not re.fullmatch(QUICK, name) or re.fullmatch(MAY_WAIT, name):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                node.body = []
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                node.body = []
        imports = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        bad += [f"{name}: {line}" for line in imports if re.match(rf"(?:import|from) (?:{SLOW})\b", line)]
    return bad


def names_of_pages(root: Path, notebooks: list[str], profiles: list[str]) -> list[str]:
    """Strings in code (docstrings aside) and in the library's data that name a notebook, its page, or a profile."""
    # also the names of a column, of a picture, and of a block's detail
    common = {"status", "scoreboard", "power"}
    files = [re.escape(stem) + r"\.(?:ipynb|html)" for stem in notebooks] + [rf"{re.escape(p)}\.yml" for p in profiles]
    named = re.compile(rf"\b(?:{'|'.join(files)})\b").search
    bad = []
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documentation)
        values = [node.value for node in texts if isinstance(node.value, str)]
        bad += [f"{path}: {text!r}" for text in values if text in set(notebooks) - common or named(text)]
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".yml", ".toml", ".csv")):
        if not {"provlab_study", "planning"} & set(path.relative_to(root).parts):
            text = path.read_text(encoding="utf-8")
            values = _scalars(yaml.safe_load(text) if path.suffix == ".yml" else list(csv.reader(text.splitlines())))
            bad += [f"{path} names {value!r}" for value in sorted(set(values) & set(notebooks))]
            bad += [f"{path} names {match.group()!r}" for match in [named(text)] if match]
    return bad


def _scalars(value: object) -> Iterator[str]:
    """Text in a nest of mappings and lists, keys included."""
    if isinstance(value, dict | list):
        for item in [*value, *(value.values() if isinstance(value, dict) else [])]:
            yield from _scalars(item)
    elif isinstance(value, str):
        yield value


def test_the_contracts_of_the_project_are_kept():
    result = lint_imports(PROJECT / "pyproject.toml", SRC)
    assert result.returncode == 0, result.stdout + result.stderr


def test_there_are_no_circles():
    """Not even of imports for the type checker alone."""
    graph = grimp.build_graph("provlab", "provlab_study", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_slow_libraries_are_imported_where_they_are_needed():
    assert [fault for package in PACKAGES for fault in slow(package)] == []


def test_modules_that_are_excused_are_there():
    modules = grimp.build_graph("provlab", cache_dir=None).modules
    assert [name for name in WAITING if not any(re.fullmatch(rf"provlab\.{name}", module) for module in modules)] == []


def test_the_library_knows_no_notebook_and_no_profile():
    assert NOTEBOOKS
    assert PROFILES
    assert names_of_pages(SRC, NOTEBOOKS, PROFILES) == []


def test_an_experiment_is_a_notebook_and_a_folder():
    """Its lines in the profiles and the contents are asked for by tests/book; no other place names a notebook."""
    folders = {path.parent.name for path in SRC.glob("provlab_study/*/*.py")} - {"shared", "publishing", "commands"}
    assert folders <= set(NOTEBOOKS)
    assert set(NOTEBOOKS) - folders <= {"audit", "scoreboard", "status", "two_models", "what_failed"}
    files = [PROJECT / name for name in ("Makefile", "pyproject.toml", "_config.yml", ".ci/run")]
    files += [*PROJECT.glob(".github/workflows/*.yml"), *PROJECT.glob("tests/conftest.py")]
    files += [*PROJECT.glob("tests/helpers/*.py")]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    names = [name for name in NOTEBOOKS if "_" in name]  # one word may be a common one
    assert [(file.name, name) for file in files for name in names if re.search(rf"\b{name}\b", texts[file])] == []


# The checks themselves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("provlab/reading/x", "from provlab.statistics import get"),
        ("provlab/reading/x", "from provlab import zoo"),
        ("provlab/reading/x", "def f():\n    import provlab.inference.pvalues"),
        ("provlab/inference/x", "from transformers import AutoModel"),
        ("provlab/statistics/x", "from provlab.engine.store import Store"),
        ("provlab/zoo/x", "from provlab.inference import pvalues"),
        ("provlab/plots/x", "from provlab.report import Comparison"),
        ("provlab/report/x", "from provlab.modeldiff import sampler"),
        ("provlab/cli/x", "from provlab import zoo"),
        ("provlab/forest/x", "from provlab.modeldiff import sampler"),
        ("provlab/further/x", "def f():\n    from provlab import planning"),
        ("provlab/engine/x", "try:\n    from provlab import api\nexcept ImportError:\n    pass"),
        ("provlab_study/publishing/x", "from provlab_study.power import measure"),
        ("provlab_study/miqu/x", "from provlab_study.power import measure"),
        ("provlab_study/shared/x", "from provlab_study.power import measure"),
        ("provlab/api", "from provlab_study import begin"),
        ("provlab_study/publishing/x", "from provlab_study.shared import curves"),
        ("provlab/files", "import provlab.provenance"),
        ("provlab/attic", "x = 1"),
    ],
)
def test_a_planted_arrow_is_seen(tmp_path, module, code):
    for path in SRC.rglob("*.py"):  # the packages' modules without their code
        copy = tmp_path / path.relative_to(SRC)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.touch()
    config = tmp_path / "pyproject.toml"
    text = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    config.write_text(re.sub(r"(?ms)^ignore_imports = \[.*?^\]$", "", text))
    assert lint_imports(config, tmp_path).returncode == 0
    planted = tmp_path / f"{module}.py"
    planted.write_text(code)
    assert lint_imports(config, tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("module", "code", "planted"),
    [
        ("reading/weights", "import torch", True),
        ("statistics/phi_u", "try:\n    from torch.nn import Linear\nexcept ImportError:\n    pass", True),
        ("report/views", "import pandas as pd", True),
        ("cli/x", "class X:\n    import matplotlib.pyplot", True),
        ("reading/weights", "def f():\n    import torch", False),
        ("reading/weights", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", False),
        ("running/activations", "import torch", False),
        ("zoo/command", "import torch", True),
    ],
)
def test_a_planted_slow_import_is_seen(tmp_path, module, code, planted):
    path = tmp_path / "provlab" / f"{module}.py"
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert bool(slow(tmp_path / "provlab")) is planted


@pytest.mark.parametrize(
    ("file", "text", "planted"),
    [
        ("x.py", 'run("llama_tree")', True),
        ("x.py", 'help = "see notebooks/profiles/smoke.yml"', True),
        ("x.py", 'link = f"status.html#{x}"', True),
        ("x.py", '"""Started by llama_tree.ipynb."""', False),
        ("x.py", 'row["status"]', False),
        ("x.py", 'profile = "smoke"', False),
        ("zoo/x.yml", "models: {oak: {experiment: llama_tree}}", True),
        ("zoo/x.yml", "llama_tree: [oak]", True),
        ("zoo/x.yml", "models: [oak]  # as smoke.yml has them", True),
        ("engine/x.csv", "page,model\nllama_tree,oak", True),
        ("zoo/x.yml", "models: {oak: {mirrors: a/llama_tree-1}}", False),
        ("provlab_study/x/claims.yml", "- {experiment: llama_tree}", False),
    ],
)
def test_a_planted_name_is_seen(tmp_path, file, text, planted):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert bool(names_of_pages(tmp_path, ["llama_tree", "status"], ["smoke"])) is planted
