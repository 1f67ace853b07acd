"""Optional parameters that no code passes: neither the library, nor a notebook, a benchmark or a row of claims.

Calls are matched by the function's name alone, so that a parameter that is passed to another function of the name
counts as passed: what is found is dead, though not all that is dead is found.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unused import callers

EVERYTHING = 10**6  # what ``*values`` may pass


@dataclass(frozen=True)
class Optional:
    """A parameter with a default: of which function, in which place (None: by name only)."""

    function: str
    name: str
    place: int | None
    where: str


def optionals(tree: ast.Module, module: str) -> Iterator[Optional]:
    """Parameters with defaults of a module's functions, and fields with defaults of its dataclasses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
                fields = [
                    item
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.unparse(item)
                ]
                for place, item in enumerate(fields):
                    # what is made by field() the object mostly fills itself
                    if item.value is not None and "field(" not in ast.unparse(item.value):
                        yield Optional(node.name, ast.unparse(item.target), place, f"{module}.{node.name}")
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    static = any("staticmethod" in ast.unparse(decorator) for decorator in method.decorator_list)
                    called = node.name if method.name == "__init__" else method.name
                    yield from _of(method, called, f"{module}.{node.name}.{method.name}", skip=not static)
        elif isinstance(node, ast.Module | ast.FunctionDef):
            for function in node.body:
                if isinstance(function, ast.FunctionDef):
                    yield from _of(function, function.name, f"{module}.{function.name}", skip=False)


def _of(function: ast.FunctionDef, called: str, where: str, *, skip: bool) -> Iterator[Optional]:
    signature = function.args
    by_place = [*signature.posonlyargs, *signature.args]
    first = len(by_place) - len(signature.defaults)
    for place, argument in enumerate(by_place):
        if place >= first:
            yield Optional(called, argument.arg, place - skip, where)
    for argument, default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True):
        if default is not None:
            yield Optional(called, argument.arg, None, where)


def _name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def passed(tree: ast.Module) -> Iterator[tuple[str, int, set[str | None]]]:
    """Calls in a piece of code: name, number of values by place, names of values (None: ``**values``).

    In ``submit(f, 1)`` and ``partial(f, a=1)`` the function f counts as called with what follows it.
    """
    renamed = {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
        if alias.asname
    }
    within = {
        id(node): class_.name
        for class_ in ast.walk(tree)
        if isinstance(class_, ast.ClassDef)
        for node in ast.walk(class_)
        if isinstance(node, ast.Name) and node.id == "cls"
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        names = {keyword.arg for keyword in node.keywords}
        for place, value in enumerate([node.func, *node.args]):
            if called := within.get(id(value)) or _name(value):
                rest = node.args[place:]
                count = EVERYTHING if any(isinstance(item, ast.Starred) for item in rest) else len(rest)
                yield renamed.get(called, called), count, names


def dead(root: Path) -> dict[str, str]:
    """Parameters that nothing passes, as ``module.function(parameter)``, each with a line that says so."""
    modules = {
        ".".join(path.relative_to(package).with_suffix("").parts): ast.parse(path.read_text("utf-8"))
        for package in (root / "src" / "provlab", root / "src" / "provlab_study")
        for path in sorted(package.rglob("*.py"))
    }
    calls: dict[str, tuple[int, set[str | None]]] = {}
    replaced: set[str | None] = set()  # fields in ``replace(value, field=...)``
    for tree in [*modules.values(), *(ast.parse(code) for _, code in callers(root))]:
        for called, count, names in passed(tree):
            most, known = calls.get(called, (0, set()))
            calls[called] = (max(most, count), known | names)
            if called == "replace":
                replaced |= names
    result = {}
    for module, tree in modules.items():
        for item in optionals(tree, module):
            most, names = calls.get(item.function, (0, set()))
            by_place = item.place is not None and item.place < most
            if not by_place and not names & {item.name, None} and item.name not in replaced:
                name = f"{item.where}({item.name})"
                result[name] = f"{name}: nothing passes this parameter"
    return result
