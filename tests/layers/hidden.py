"""Imports of ours inside functions: each must spare a slow library, or it belongs to the top of its module.

Run by ``make lint``, which prints how many there are. An import spares a slow library where the modules that it loads,
by their own imports at the top, reach one that the module around it does not reach.
"""

import ast
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"
#: libraries that take a tenth of a second or more
SLOW = {
    "gguf",
    "huggingface_hub",
    "matplotlib",
    "nbclient",
    "nbformat",
    "numba",
    "numpy",
    "pandas",
    "papermill",
    "peft",
    "scipy",
    "seaborn",
    "torch",
    "transformers",
}


def trees(root: Path) -> dict[str, ast.Module]:
    """Syntax tree of each module below a folder, by its dotted name."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        modules[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return modules


def imports(node: ast.AST, *, inside: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Imports, and whether each stands in a function; those for the type checker alone are left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside
        elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield from imports(child, inside=inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def loaded(node: ast.Import | ast.ImportFrom, modules: Collection[str]) -> set[str]:
    """Modules that an import loads at once, the packages around them too, and slow libraries."""
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{name}" for name in names]
    parts = [name.split(".") for name in names]
    around = {".".join(words[: i + 1]) for words in parts for i in range(len(words))}
    return around & {*modules, *SLOW}


def reached(start: Collection[str], top: Mapping[str, Collection[str]]) -> set[str]:
    """Modules and slow libraries that are loaded with these."""
    modules: set[str] = set()
    waiting = set(start)
    while waiting:
        modules.add(module := waiting.pop())
        waiting |= set(top.get(module, ())) - modules
    return modules


def hidden(root: Path) -> tuple[list[str], int]:
    """Imports of ours in functions that spare no slow library, and the number of those that do."""
    modules = trees(root)
    top = {
        name: {around for around in modules if name.startswith(f"{around}.")}.union(
            *(loaded(node, modules) for node, inside in imports(tree) if not inside)
        )
        for name, tree in modules.items()
    }
    faults, kept = [], 0
    for name, tree in modules.items():
        around = reached([name], top) & SLOW
        for node, inside in imports(tree):
            ours = loaded(node, modules) - SLOW
            if inside and ours and not reached(ours, top) & SLOW - around:
                faults.append(f"{name}:{node.lineno}: {ast.unparse(node)} spares no slow library; move it to the top")
            kept += bool(inside and ours)
    return faults, kept - len(faults)


def main() -> int:
    """Print the faults and the number of the others; 1 if there is a fault."""
    faults, kept = hidden(SRC)
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{kept} imports of ours in functions, each of which spares a slow library")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
