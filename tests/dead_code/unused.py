"""Names that nothing uses: vulture over the library, seeing what notebooks, benchmarks and rows of claims use.

Run by ``make lint``. What looks unused and is not stands in allowed.txt, with the reason.
"""

import ast
import json
import re
import sys
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
    for table in sorted(root.glob("src/provlab/chapters/*/claims.yml")):
        rows = yaml.safe_load(table.read_text(encoding="utf-8"))
        predicates = (row["predicate"] for row in rows if "predicate" in row)
        calls = (
            f"_.{given['name']}(_, {', '.join(f'{key}=0' for key in given if key != 'name')})" for given in predicates
        )
        yield str(table.relative_to(root)), "\n".join(calls)
    if root == ROOT:
        yield "the registry of statistics", "\n".join(f"_.{entry.kind}" for entry in REGISTRY.values())
    for script in sorted([*root.glob("benchmarks/*.py"), *root.glob("book/*.py")]):
        yield str(script.relative_to(root)), script.read_text(encoding="utf-8")


def reasons(allowed: str) -> dict[str, str]:
    """What may stay, with the reason, from the text of a list of names."""
    lines = (line.partition(":") for line in allowed.splitlines() if line and not line.startswith("#"))
    return {name.strip(): reason.strip() for name, _, reason in lines}


def faults(found: Mapping[str, str], allowed: str) -> list[str]:
    """What was found beyond what is allowed, and what the list allows in vain or without a reason."""
    listed = reasons(allowed)
    vain = sorted(name for name in listed.keys() - found.keys())
    return [
        *(line for name, line in found.items() if name not in listed),
        *(f"{name} is used, or gone: strike it out of the list" for name in vain),
        *(f"{name} is listed without a reason" for name, reason in listed.items() if not reason),
    ]


def unused(root: Path) -> dict[str, str]:
    """Names of the library that nothing uses, each with a line that says where it stands.

    Imports are left to ruff. Fields of dataclasses are results and records, which are for who reads them. A string that
    is the name of a class counts as a use: a registry loads it by that.
    """
    seen = vulture.Vulture()
    modules = {path: path.read_text(encoding="utf-8") for path in sorted(root.glob("src/provlab/**/*.py"))}
    fields, classes = set(), set()
    for path, text in modules.items():
        seen.scan(text, filename=path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                fields |= {(path, one.lineno) for one in node.body if isinstance(one, ast.AnnAssign)}
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                classes |= set(re.findall(r"^(?!True$|False$|None$)[A-Z]\w+$", node.value))
    for where, code in [*callers(root), ("strings", "\n".join(f"_.{name}" for name in sorted(classes)))]:
        seen.scan(code, filename=Path(where))
    return {
        str(item.name): f"{item.filename.relative_to(root)}:{item.first_lineno}: {item.message}"
        for item in seen.get_unused_code(min_confidence=60)
        if item.filename in modules and item.typ != "import" and (item.filename, item.first_lineno) not in fields
    }


def main() -> int:
    """Print what is unused; 1 if anything is."""
    lines = faults(unused(ROOT), ALLOWED.read_text(encoding="utf-8"))
    print("\n".join(lines), end="\n" if lines else "")  # noqa: T201
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
