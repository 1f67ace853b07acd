"""The floors of the house: imports run down only, in no circle, and the library knows no notebook by name.

The plan is DESIGN.md. The checks read the source with `ast`, so that an import inside a function counts as well; an
import for the type checker alone does not, since nothing runs it.
"""

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import provlab

SRC = Path(provlab.__file__).parent
PROJECT = SRC.parent.parent

GROUND = {"errors", "files", "kept", "lazy", "machine", "schema"}
LIBRARY = GROUND | {"inference", "models", "zoo", "statistics", "modeldiff", "engine", "plots"}
DOORS = {"provenance", "report", "api", "diffing"}
# what each floor may stand on, besides itself
MAY_IMPORT = {
    "errors": set(),
    "lazy": set(),
    "files": {"errors"},
    "schema": {"errors"},
    "machine": {"errors"},
    "kept": {"errors", "files"},
    "provenance": GROUND,
    "inference": GROUND,
    "models": GROUND | {"inference.matching"},  # with which an adversary aligns units
    "zoo": GROUND | {"models"},
    "statistics": GROUND | {"models", "inference"},
    "modeldiff": GROUND | {"models", "inference"},
    "plots": GROUND | {"statistics"},  # the names and symbols of statistics
    "engine": GROUND | {"inference", "models", "zoo", "statistics"},
    "report": LIBRARY | {"provenance"},
    "api": LIBRARY | {"report"},
    "diffing": LIBRARY | {"report"},
    "fullsize": LIBRARY,
    "publishing": LIBRARY | DOORS,
    "chapters": LIBRARY | DOORS | {"fullsize", "publishing"},
    "cli": LIBRARY | DOORS | {"fullsize", "publishing"},
    "__init__": {"lazy"},
}
# libraries that a floor must do without, and the modules that may use them all the same
WITHOUT = {
    "inference": (
        {"torch", "transformers", "safetensors", "huggingface_hub", "pandas", "matplotlib"},
        {"on_device"},
    ),
    "models": ({"pandas", "matplotlib", "scipy", "papermill"}, set()),
    "statistics": ({"transformers", "huggingface_hub", "matplotlib", "pandas", "papermill"}, set()),
    "modeldiff": ({"matplotlib", "papermill"}, set()),
    "engine": ({"torch", "transformers", "matplotlib", "papermill"}, set()),
    "plots": ({"torch", "transformers", "papermill"}, set()),
}
# what costs seconds to import, and the modules that may do so when they are imported themselves; all others import it
# in the function that needs it, so that who compares weights waits for none of them
SLOW = {"torch", "transformers", "matplotlib", "seaborn", "pandas", "huggingface_hub"}
WAIT = {
    "models",
    "statistics",
    "engine",
    "report",
    "plots",
    "cli",
    "api",
    "provenance",
    "errors",
    "files",
    "lazy",
    "__init__",
}
MAY_WAIT = {
    "models": {
        "activations",
        "attacks.exact",
        "attacks.lossy",
        "attacks.state",
        "disguise",
        "evasion",
        "examples",
        "hub",
        "asking",
        "loading",
        "precision",
        "ranges",
    },
    "report": {"shown", "study_report"},
    "plots": {"blocks", "figure", "modeldiff", "pairs", "style", "tables"},
}


def modules(root: Path) -> dict[str, Path]:
    """Dotted name below the package, ``engine.pairs``, of every module; a package stands for its ``__init__``."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


def _import_statements(tree: ast.AST, for_types: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements that are ever run, or, with `for_types`, those for the type checker alone too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not for_types:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from _import_statements(node, for_types)


def imports(path: Path, known: set[str], for_types: bool = False) -> tuple[set[str], set[str]]:
    """Modules of the package that a file imports, and the outside libraries."""
    inside: set[str] = set()
    outside: set[str] = set()
    for node in _import_statements(ast.parse(path.read_text(encoding="utf-8")), for_types):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{path}: relative imports are not read here; write them out"
            module = str(node.module)
            # ``from provlab.publishing import claims`` imports a module, ``from provlab.files import digest`` a name
            names = [f"{module}.{alias.name}" for alias in node.names]
            names = [name if name.removeprefix("provlab.") in known else module for name in names]
        for name in names:
            (inside if name.partition(".")[0] == "provlab" else outside).add(name)
    return {name.removeprefix("provlab.") for name in inside} - {"provlab"}, {n.partition(".")[0] for n in outside}


def chapter(name: str) -> str:
    """Which chapter a module below ``chapters`` belongs to; what several need is ``shared``."""
    return name.split(".")[1]


def upward(root: Path) -> list[str]:
    """Imports that no arrow of the plan allows."""
    found = modules(root)
    bad = []
    for name, path in found.items():
        floor = name.partition(".")[0]
        inside, outside = imports(path, set(found))
        for target in sorted(inside):
            below = target.partition(".")[0]
            if below != floor and not {below, target} & MAY_IMPORT.get(floor, set()):
                bad.append(f"{name} imports {target}")
            if floor == below == "chapters" and chapter(target) not in (chapter(name), "shared"):
                bad.append(f"{name} imports {target}")
        banned, excused = WITHOUT.get(floor, (set(), set()))
        if name.rpartition(".")[2] not in excused:
            bad += [f"{name} imports {library}" for library in sorted(outside & banned)]
        if floor not in MAY_IMPORT:
            bad.append(f"{name} stands on no floor of the plan")
    return bad


def slow(root: Path) -> list[str]:
    """Slow libraries that are imported together with a module that should be quick."""
    bad = []
    for name, path in modules(root).items():
        floor, _, rest = name.partition(".")
        if floor in WAIT and rest not in MAY_WAIT.get(floor, set()):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    node.body = []
            for node in _import_statements(tree, for_types=False):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                bad += [f"{name} imports {one}" for one in names if one.partition(".")[0] in SLOW]
    return bad


def circles(root: Path) -> list[str]:
    """Circles of imports, each by one path round it; those that only the type checker goes round count as well."""
    found = modules(root)
    below = {name: sorted(imports(path, set(found), for_types=True)[0] & set(found)) for name, path in found.items()}
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> Iterator[str]:
        if name in path:
            yield " -> ".join([*path[path.index(name) :], name])
        elif name not in done:
            for target in below[name]:
                yield from walk(target, [*path, name])
            done.add(name)

    return [circle for name in below for circle in walk(name, [])]


def names_of_pages(root: Path, notebooks: list[str], profiles: list[str]) -> list[str]:
    """Strings in the code, docstrings aside, that name a notebook, its page, or a profile's file."""
    common = {"status", "scoreboard"}  # also the names of a column and of a picture
    files = [re.escape(stem) + r"\.(?:ipynb|html)" for stem in notebooks] + [rf"{re.escape(p)}\.yml" for p in profiles]
    bad = []
    for name, path in modules(root).items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
                named = node.value in set(notebooks) - common or re.search(rf"\b(?:{'|'.join(files)})\b", node.value)
                if named:
                    bad.append(f"{name}, line {node.lineno}: {node.value!r}")
    return bad


def names_in_data(root: Path, notebooks: list[str], profiles: list[str]) -> list[str]:
    """Values and keys of the library's data files that name a notebook, and in their text files of pages and plans."""
    files = [re.escape(stem) + r"\.(?:ipynb|html)" for stem in notebooks] + [rf"{re.escape(p)}\.yml" for p in profiles]
    bad = []
    for path in sorted([*root.rglob("*.yml"), *root.rglob("*.csv")]):
        name = str(path.relative_to(root))
        if name.startswith(("chapters/", "publishing/", "fullsize/")):
            continue
        text = path.read_text(encoding="utf-8")
        values = yaml.safe_load(text) if path.suffix == ".yml" else list(csv.reader(text.splitlines()))
        bad += [f"{name} names {value!r}" for value in sorted(set(_scalars(values)) & set(notebooks))]
        bad += [f"{name} names {value!r}" for value in re.findall(rf"\b(?:{'|'.join(files)})\b", text)]
    return bad


def _scalars(value: object) -> Iterator[str]:
    """Text in a nest of mappings and lists, keys included."""
    if isinstance(value, dict | list):
        for one in [*value, *(value.values() if isinstance(value, dict) else [])]:
            yield from _scalars(one)
    elif isinstance(value, str):
        yield value


def other_places(root: Path, notebooks: list[str]) -> list[str]:
    """Notebooks named in the files that make, test and package the project: a new one would have to be added there."""
    files = [root / name for name in ("Makefile", "pyproject.toml", "_config.yml", ".ci/run")]
    files += [*root.glob(".github/workflows/*.yml"), *root.glob("tests/conftest.py"), *root.glob("tests/helpers/*.py")]
    return [
        f"{file.relative_to(root)} names {name}"
        for file in files
        if file.is_file()
        for name in notebooks
        if "_" in name and re.search(rf"\b{name}\b", file.read_text(encoding="utf-8"))  # one word may be a common one
    ]


def out_of_step(root: Path, without_claims: set[str]) -> list[str]:
    """Chapters without a notebook of their name, and notebooks without a chapter that are none of `without_claims`."""
    notebooks = {path.stem for path in root.glob("notebooks/*.ipynb")}
    folders = [path for path in root.glob("src/provlab/chapters/*") if any(path.glob("*.py"))]
    chapters = {path.name for path in folders} - {"shared"}
    bad = [f"chapters/{name} has no notebook" for name in sorted(chapters - notebooks)]
    return bad + [f"{name}.ipynb has no chapter" for name in sorted(notebooks - chapters - without_claims)]


NOTEBOOKS = [path.stem for path in (PROJECT / "notebooks").glob("*.ipynb")]
PROFILES = [path.stem for path in (PROJECT / "notebooks" / "profiles").glob("*.yml")]


def test_arrows_run_down_only():
    assert upward(SRC) == []


def test_what_is_slow_to_import_is_imported_where_it_is_needed():
    assert slow(SRC) == []


def test_there_are_no_circles():
    assert circles(SRC) == []


def test_the_library_knows_no_notebook_and_no_profile():
    assert NOTEBOOKS
    assert PROFILES
    assert names_of_pages(SRC, NOTEBOOKS, PROFILES) == []
    assert names_in_data(SRC, NOTEBOOKS, PROFILES) == []


def test_an_experiment_is_a_notebook_and_a_folder():
    """And its lines in the profiles and the contents, which tests/book asks for."""
    assert out_of_step(PROJECT, without_claims={"audit", "scoreboard", "status", "two_models"}) == []
    assert other_places(PROJECT, NOTEBOOKS) == []


def test_the_plan_names_every_floor():
    floors = {name.partition(".")[0] for name in modules(SRC)}
    assert floors == set(MAY_IMPORT)
    plan = (PROJECT / "DESIGN.md").read_text(encoding="utf-8")
    for floor in floors - {"__init__"}:
        assert re.search(rf"\b{floor}\b", plan), floor


# The checks themselves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("models/x", "from provlab.statistics import get", "models.x imports statistics"),
        ("models/x", "from provlab import zoo", "models.x imports zoo"),
        ("models/x", "def f():\n    import provlab.inference.pvalues", "models.x imports inference.pvalues"),
        ("inference/x", "import torch.nn as nn", "inference.x imports torch"),
        ("inference/x", "from transformers import AutoModel", "inference.x imports transformers"),
        ("statistics/x", "from provlab.engine.store import Store", "statistics.x imports engine.store"),
        ("zoo/x", "from provlab.inference import pvalues", "zoo.x imports inference.pvalues"),
        ("plots/x", "from provlab.inference import pvalues", "plots.x imports inference.pvalues"),
        ("plots/x", "from provlab.report import Comparison", "plots.x imports report"),
        ("engine/x", "try:\n    from provlab import api\nexcept ImportError:\n    pass", "engine.x imports api"),
        ("engine/x", "from provlab.chapters.a import predicates", "engine.x imports chapters.a.predicates"),
        ("publishing/x", "from provlab.chapters.a import predicates", "publishing.x imports chapters.a.predicates"),
        ("chapters/b/x", "from provlab.chapters.a import predicates", "chapters.b.x imports chapters.a.predicates"),
        (
            "chapters/shared/x",
            "from provlab.chapters.a import predicates",
            "chapters.shared.x imports chapters.a.predicates",
        ),
        ("files", "import provlab.provenance", "files imports provenance"),
        ("models/x", "from provlab.fullsize import rates", "models.x imports fullsize"),
        ("attic/x", "x = 1", "attic.x stands on no floor of the plan"),
    ],
)
def test_a_planted_arrow_is_seen(tmp_path, module, code, said):
    for name in (
        "engine/store",
        "inference/pvalues",
        "inference/matching",
        "statistics/__init__",
        "chapters/a/predicates",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / f"{name}.py").touch()
    for name in ("zoo", "api", "report", "provenance"):
        (tmp_path / f"{name}.py").touch()
    path = tmp_path / f"{module}.py"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(code)
    assert said in upward(tmp_path)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("inference/on_device", "import torch"),
        ("models/x", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from provlab import statistics"),
        ("chapters/a/x", "from provlab.chapters.shared import nulls\nfrom provlab.publishing import claims"),
        ("statistics/x", "import torch\nfrom provlab.models import anatomy"),
    ],
)
def test_what_the_plan_allows_is_no_fault(tmp_path, module, code):
    for name in ("chapters/shared/nulls", "publishing/claims"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / f"{name}.py").touch()
    path = tmp_path / f"{module}.py"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(code)
    assert upward(tmp_path) == []


def test_a_planted_circle_of_types_is_seen(tmp_path):
    (tmp_path / "a.py").write_text("from provlab.b import x")
    (tmp_path / "b.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from provlab.a import Y")
    assert circles(tmp_path) == ["a -> b -> a"]


@pytest.mark.parametrize(
    ("module", "code", "found"),
    [
        ("models/weights", "import torch", True),
        ("statistics/phi_u", "try:\n    from torch.nn import Linear\nexcept ImportError:\n    pass", True),
        ("report/views", "import pandas as pd", True),
        ("cli/x", "class X:\n    import matplotlib.pyplot", True),
        ("models/weights", "def f():\n    import torch", False),
        ("models/weights", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", False),
        ("models/activations", "import torch", False),
    ],
)
def test_a_planted_slow_import_is_seen(tmp_path, module, code, found):
    path = tmp_path / f"{module}.py"
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert bool(slow(tmp_path)) is found


def test_a_planted_circle_is_seen(tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "a.py").write_text("from provlab.zoo import b")
    (tmp_path / "zoo" / "b.py").write_text("from provlab.zoo.c import x")
    (tmp_path / "zoo" / "c.py").write_text("x = 1\ndef f():\n    from provlab.zoo.a import y")
    assert circles(tmp_path) == ["zoo.a -> zoo.b -> zoo.c -> zoo.a"]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('run("llama_tree")', True),
        ('help = "see notebooks/profiles/smoke.yml"', True),
        ('link = f"status.html#{x}"', True),
        ('"""Started by llama_tree.ipynb."""', False),
        ('row["status"]', False),
        ('profile = "smoke"', False),
    ],
)
def test_a_planted_name_is_seen(tmp_path, code, found):
    (tmp_path / "x.py").write_text(code)
    assert bool(names_of_pages(tmp_path, ["llama_tree", "status"], ["smoke"])) is found


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("zoo/x.yml", "models: {oak: {experiment: llama_tree}}", ["zoo/x.yml names 'llama_tree'"]),
        ("zoo/x.yml", "llama_tree: [oak]", ["zoo/x.yml names 'llama_tree'"]),
        ("zoo/x.yml", "models: [oak]  # as smoke.yml wants them", ["zoo/x.yml names 'smoke.yml'"]),
        ("engine/x.csv", "page,model\nllama_tree,oak", ["engine/x.csv names 'llama_tree'"]),
        ("zoo/x.yml", "models: {oak: {mirrors: a/llama_tree-1}}", []),
        ("chapters/x/claims.yml", "- {experiment: llama_tree}", []),
    ],
)
def test_a_planted_name_in_data_is_seen(tmp_path, file, text, found):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert names_in_data(tmp_path, ["llama_tree", "status"], ["smoke"]) == found


def test_a_planted_chapter_without_a_notebook_is_seen(tmp_path):
    for name in (
        "notebooks/a.ipynb",
        "notebooks/b.ipynb",
        "src/provlab/chapters/a/x.py",
        "src/provlab/chapters/c/x.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert out_of_step(tmp_path, set()) == ["chapters/c has no notebook", "b.ipynb has no chapter"]
    (tmp_path / "Makefile").write_text("all: llama_tree")
    assert other_places(tmp_path, ["llama_tree", "power"]) == ["Makefile names llama_tree"]
