"""What a command can reach by imports, those inside functions too: modules, lines of code, classes.

Run by ``make lint``. The leaves are the folders of the uppermost layer in `pyproject.toml`. Exits with 1 where
`compare` or `study` reaches one of them. Entry points are how leaves are found, so what they load is not counted.
"""

import ast
import sys
import tokenize
import tomllib
from collections.abc import Collection
from io import StringIO
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PAPER = [f"provlab.statistics.{name}" for name in ("phi_u", "phi_h", "phi_l2", "phi_jsd", "phi_match", "phi_unseen")]
#: command -> modules that it enters by; a statistic is loaded by its name
DOORS = {
    "compare by phi_u": ["provlab.cli.compare", PAPER[0]],
    "compare, study": ["provlab.cli.compare", "provlab.cli.study", "provlab.statistics.order", *PAPER],
    "diff": ["provlab.modeldiff.command"],
    "tree": ["provlab.forest.command"],
}
OF_THE_CORE = ("compare by phi_u", "compare, study")
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def leaves(pyproject: str) -> list[str]:
    """Packages that the core must not reach, from the text of pyproject.toml."""
    contracts = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("type") == "layers")
    return [f"provlab.{name.strip()}" for name in layers[0].split("|")]


def reached(graph: grimp.ImportGraph, doors: Collection[str]) -> set[str]:
    """Modules that are imported when these are, at once or later, and the packages around them."""
    modules: set[str] = set()
    waiting = set(doors)
    while waiting:
        module = waiting.pop()
        modules.add(module)
        parts = module.split(".")
        around = {".".join(parts[: i + 1]) for i in range(len(parts))}
        waiting |= (around | graph.find_modules_directly_imported_by(module)) & graph.modules - modules
    return modules


def within(module: str, packages: Collection[str]) -> bool:
    """Whether a module is one of these, or lies in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def lines_of_code(source: str) -> int:
    """Lines with code on them: no comments, no blank lines, no docstrings or other strings that stand alone."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def source_of(module: str) -> str:
    """Text of a module."""
    path = SRC / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


def main() -> int:
    """Print what each command can reach; 1 if the core reaches a leaf."""
    graph = grimp.build_graph("provlab", exclude_type_checking_imports=True)
    forbidden = leaves((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    faults: list[str] = []
    print(f"{'reached by imports':<20}{'modules':>8}{'lines':>8}{'classes':>8}")
    for name, doors in DOORS.items():
        modules = reached(graph, doors)
        texts = [source_of(module) for module in modules]
        classes = sum(isinstance(node, ast.ClassDef) for text in texts for node in ast.walk(ast.parse(text)))
        print(f"{name:<20}{len(modules):>8,}{sum(map(lines_of_code, texts)):>8,}{classes:>8,}")
        if name in OF_THE_CORE:
            faults += [f"{name} reaches {module}, a leaf" for module in sorted(modules) if within(module, forbidden)]
    print(*faults, sep="\n", end="\n" if faults else "")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
