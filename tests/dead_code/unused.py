"""Names that nothing uses: vulture over library and study, seeing what notebooks, benchmarks and rows of claims use.

Run by ``make lint``. Names that only look unused stand in allowed.txt, with the reason.
"""

import ast
import json
import keyword
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import vulture
import yaml

from provlab.statistics import REGISTRY

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_name("allowed.txt")


def callers(root: Path) -> Iterator[tuple[str, str]]:
    """Code outside the library that uses it, each piece with where it stands."""
    for notebook in sorted(root.glob("notebooks/*.ipynb")):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        for i, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                yield f"{notebook.name}, cell {i}", "".join(cell["source"])
    for table in sorted(root.glob("src/provlab_study/*/claims.yml")):
        rows = yaml.safe_load(table.read_text(encoding="utf-8"))
        predicates = (row["predicate"] for row in rows if "predicate" in row)
        calls = (
            f"_.{inputs['name']}(_, {', '.join(f'{key}=0' for key in inputs if key != 'name')})"
            for inputs in predicates
        )
        yield str(table.relative_to(root)), "\n".join(calls)
    for table in sorted(root.glob("src/provlab/**/*.toml")):  # functions are looked up by the names in it
        yield str(table.relative_to(root)), _names(table.read_text(encoding="utf-8"))
    if root == ROOT:
        yield "the registry of statistics", "\n".join(f"_.{entry.kind}" for entry in REGISTRY.values())
        for project in (root / "pyproject.toml", root / "src" / "provlab_study" / "pyproject.toml"):
            points = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"]
            yield f"entry points of {project.relative_to(root)}", _names(str(points))
    for script in sorted([*root.glob("benchmarks/*.py"), *root.glob("book/*.py")]):
        yield str(script.relative_to(root)), script.read_text(encoding="utf-8")


def _names(text: str) -> str:
    """Code that uses every word of a text."""
    return "\n".join(f"_.{word}" for word in re.findall(r"[A-Za-z_]\w*", text) if not keyword.iskeyword(word))


def reasons(allowed: str) -> dict[str, str]:
    """Names that may stay, with the reason, from the text of a list."""
    lines = (line.partition(":") for line in allowed.splitlines() if line and not line.startswith("#"))
    return {name.strip(): reason.strip() for name, _, reason in lines}


def faults(names: Mapping[str, str], allowed: str) -> list[str]:
    """Unused names that are not allowed, and names that the list need not allow, or allows without a reason."""
    listed = reasons(allowed)
    idle = sorted(name for name in listed.keys() - names.keys())
    return [
        *(line for name, line in names.items() if name not in listed),
        *(f"{name} is used, or gone: strike it out of the list" for name in idle),
        *(f"{name} is listed without a reason" for name, reason in listed.items() if not reason),
    ]


def unused(root: Path) -> dict[str, str]:
    """Names of the library that nothing uses, each with a line that says where it stands.

    Imports are left to ruff. Fields of dataclasses are results and records, which readers use. A string that
    is the name of a class counts as a use: a registry loads it by that.
    """
    reader = vulture.Vulture()
    modules = {path: path.read_text(encoding="utf-8") for path in sorted(root.glob("src/*/**/*.py"))}
    fields, classes = set(), set()
    for path, text in modules.items():
        reader.scan(text, filename=path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                fields |= {(path, line.lineno) for line in node.body if isinstance(line, ast.AnnAssign)}
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                classes |= set(re.findall(r"^(?!True$|False$|None$)[A-Z]\w+$", node.value))
    for where, code in [*callers(root), ("strings", "\n".join(f"_.{name}" for name in sorted(classes)))]:
        reader.scan(code, filename=Path(where))
    return {
        str(item.name): f"{item.filename.relative_to(root)}:{item.first_lineno}: {item.message}"
        for item in reader.get_unused_code(min_confidence=60)
        if item.filename in modules and item.typ != "import" and (item.filename, item.first_lineno) not in fields
    }


def main() -> int:
    """Print what is unused; 1 if anything is."""
    lines = faults(unused(ROOT), ALLOWED.read_text(encoding="utf-8"))
    print("\n".join(lines), end="\n" if lines else "")  # noqa: T201
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
