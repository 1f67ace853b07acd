"""A hash of what code does, so that what is kept knows the code that made it.

Comments, docstrings and layout do not count. Zoo models are addressed by the code that trains them, pages by the code
that they call, and finished results stand under the code that made them: nobody raises a number.

What a function does follows from its module and all that this reaches: modules of provlab, and of the package that it
belongs to, which are imported anywhere in it or named in a string. A table beside a module, of the same name, belongs
to it; where files of weights can be read, all installed readers of formats count. Doubt counts as reached: a result
made once too often costs minutes, a stale one is no longer true. A module that sets `MARK` counts as nothing: it
fetches bytes that hashes prove, waits, or words errors.
"""

import ast
import hashlib
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from provlab import plugins
from provlab.files import digest, sha256_file

MARK = "__makes_no_numbers__"
_TABLES = (".toml", ".yml", ".csv")
_BY_NAME = (plugins.CONTAINERS, plugins.FORMATS)  # what a module that reaches `plugins` may load
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){2,}")
_PARSER = threading.Lock()  # two threads in it at once end in a SystemError in Python 3.11


def parsed(source: str) -> ast.Module:
    """Return the syntax tree of a Python source, without its docstrings."""
    with _PARSER:
        tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                    node.body = rest
    return tree


def tree_digest(tree: ast.Module) -> str:
    """Hex SHA-256 of a syntax tree."""
    with _PARSER:
        dumped = ast.dump(tree)
    return hashlib.sha256(dumped.encode()).hexdigest()


def source_digest(source: str) -> str:
    """Hex SHA-256 of a Python source's syntax tree without comments and docstrings."""
    return tree_digest(parsed(source))


def code_digest(*made_by: Callable[..., Any]) -> str:
    """Hash of the code behind some functions: their modules, those of what is bound to them, and what these reach.

    Parameters
    ----------
    made_by
        Functions, methods or classes, with their bases; of a `functools.partial` its arguments, too. What no file
        holds, such as a class of a notebook, adds nothing: who keeps its results puts a number beside the hash.
    """
    return _digest_of(frozenset(home for each in made_by for home in _homes(each)))


@cache
def _digest_of(homes: frozenset[str]) -> str:
    return digest(reached(homes))


def reached(homes: Collection[str]) -> dict[str, str]:
    """Hash of each module that some modules reach, with theirs, by its dotted name."""
    packages = {"provlab", *map(_package, homes)}
    waiting, known, hashes = set(homes), set[str](), dict[str, str]()
    while waiting:
        known.add(name := waiting.pop())
        if (module := _module(name)) is None:
            continue
        hashes[name] = module.hash
        waiting |= {other for other in module.names if _package(other) in packages}
        if plugins.__name__ in module.names:
            readers = {point.module for group in _BY_NAME for point in plugins.named(group).values()}
            packages |= set(map(_package, readers))
            waiting |= readers
        waiting -= known
    return hashes


def _package(name: str) -> str:
    return name.partition(".")[0]


def _homes(thing: Any) -> set[str]:
    """Modules of a function and of what is bound to it, of a class and its bases: of its package and of provlab."""
    parts = [thing]
    while isinstance(parts[0], partial):
        parts = [parts[0].func, *parts[0].args, *parts[0].keywords.values(), *parts[1:]]
    parts += [parts[0].__self__] if hasattr(parts[0], "__self__") else []
    classes = [part if isinstance(part, type) else type(part) for part in parts]
    homes = [parts[0].__module__, *(base.__module__ for each in classes for base in each.__mro__)]
    return {home for home in homes if _package(home) in (_package(homes[0]), "provlab")}


class _Module(NamedTuple):
    """What a module does, and the dotted names in it that may be modules; None where it sets `MARK`."""

    hash: str
    names: frozenset[str]


@cache
def _module(name: str) -> _Module | None:
    """Read a module's source; None where no file has it, or where it makes no numbers."""
    if (path := _file(name)) is None:
        return None
    tree = parsed(path.read_text(encoding="utf-8"))
    if any(isinstance(node, ast.Assign) and MARK in map(ast.unparse, node.targets) for node in tree.body):
        return None
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tables = [sha256_file(table) for ending in _TABLES if (table := path.with_suffix(ending)).is_file()]
    return _Module(digest([tree_digest(tree), *tables]), frozenset(_names(tree, package)))


@cache
def _file(name: str) -> Path | None:
    """Return the file of a module, which is not imported for that; None for what is none, or was typed in."""
    if name in sys.modules:
        files = [Path(getattr(sys.modules[name], "__file__", None) or "")]
    else:
        top, *below = name.split(".")
        loaded = sys.modules.get(top)
        spec = getattr(loaded, "__spec__", None) if loaded else find_spec(top)
        places = [Path(folder, *below) for folder in (spec and spec.submodule_search_locations) or ()]
        files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
        files += [Path(spec.origin)] if spec and spec.origin and not below else []
    return next((file for file in files if file.suffix == ".py" and file.is_file()), None)


def _names(tree: ast.Module, package: str) -> Iterator[str]:
    """Dotted names that code imports, in functions too, or that stand in a string; not those for the type checker."""
    for statement in tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING"):
            continue
        for node in ast.walk(statement):
            match node:
                case ast.Import():
                    yield from (alias.name for alias in node.names)
                case ast.ImportFrom():
                    parents = package.split(".")[: 1 - node.level or None] if node.level else []
                    base = ".".join([*parents, *([node.module] if node.module else [])])
                    for alias in node.names:
                        inside = f"{base}.{alias.name}"
                        yield inside if _file(inside) else base
                case ast.Constant(value=str(text)) if _DOTTED.fullmatch(text):
                    yield text if _file(text) else text.rpartition(".")[0]
