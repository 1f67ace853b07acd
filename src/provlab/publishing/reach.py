"""What a page can reach: the modules that its notebook imports, theirs in turn, and the data files that these name.

A page is stale when one of them changed. grimp reads the imports from the source, those inside functions too; modules
that are loaded by name are added: a string that spells a module counts as an import of it, and an f-string such as
``f"provlab.zoo.{maker}"`` as one of every module that it can spell. Doubt counts as reached: a page that runs once too
often costs minutes, a page that does not run shows what is no longer true.
"""

import ast
import re
from collections.abc import Collection
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import NamedTuple

import grimp

from provlab.files import sha256_file
from provlab.zoo.codehash import parsed, tree_digest

PACKAGE = "provlab"
DATA = (".yml", ".toml", ".csv")
_DOTS = re.compile(r"\.|$").finditer


class Source(NamedTuple):
    """One piece of code: its digest, the modules that it spells in strings, and the words in its strings."""

    digest: str
    modules: frozenset[str]
    words: frozenset[str]


class Package(NamedTuple):
    """All modules of a package: their files, what each imports or loads by name, and its data files."""

    files: dict[str, Path]
    imports: dict[str, set[str]]
    sources: dict[str, Source]
    lazy: dict[str, str]
    data: dict[str, Path]


def read(code: str, known: Collection[str]) -> Source:
    """Digest and strings of one piece of code; `known` are the modules that a string can spell."""
    tree = parsed(code)
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    words = frozenset(re.findall(r"\w+", "\n".join(texts)))
    spelt = {
        name[: dot.start()] for text in texts for name in re.findall(r"\b\w+(?:\.\w+)+", text) for dot in _DOTS(name)
    }
    patterns = [_pattern(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    patterns = [pattern for pattern in patterns if re.match(r"\w+\\\.", pattern)]  # those that begin as a module
    spelt |= {name for name in known for pattern in patterns if re.fullmatch(pattern, name)}
    spelt |= {entry.module for entry in _entry_points() if entry.group in spelt}
    return Source(tree_digest(tree), frozenset(spelt & set(known)), words)


@cache
def _entry_points() -> tuple[metadata.EntryPoint, ...]:
    return tuple(entry for installed in metadata.distributions() for entry in installed.entry_points)


def _pattern(text: ast.JoinedStr) -> str:
    """Regular expression of what an f-string can spell, each of its holes being part of a dotted name."""
    return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"[\w.]+" for part in text.values)


@cache
def package(name: str) -> Package:
    """Read a package that can be imported; the graph is grimp's, with imports for the type checker alone left out."""
    module = import_module(name)
    root = Path(str(module.__file__)).parent
    graph = grimp.build_graph(name, exclude_type_checking_imports=True, cache_dir=None)
    files = {}
    for path in sorted(root.rglob("*.py")):
        parts = (name, *path.relative_to(root).with_suffix("").parts)
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    sources = {module: read(path.read_text(encoding="utf-8"), files) for module, path in files.items()}
    imports = {m: graph.find_modules_directly_imported_by(m) | sources[m].modules for m in files if m in graph.modules}
    # names that the package loads when they are first used count where they are used
    lazy = {f"{name}.{key}": home for key, home in getattr(module, "HOMES", {}).items()}
    imports[name] = imports[name] - set(lazy.values())
    data = {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.suffix in DATA}
    return Package(files, imports, sources, lazy, data)


def _imported(tree: ast.AST, whole: Package, name: str) -> set[str]:
    """Modules that a notebook's code imports, or reaches through a name that the package loads on first use."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names = {ast.unparse(attribute) for attribute in attributes}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
            if any(alias.name == name and alias.asname for alias in node.names):  # under another name: anything
                names |= set(whole.lazy)
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return {whole.lazy.get(name, name) for name in names} & set(whole.files)


def reached(code: str, chapters: Collection[str] | None, name: str = PACKAGE) -> dict[str, str]:
    """Hashes of all that a notebook's code can reach.

    Parameters
    ----------
    code
        The code of the notebook's cells.
    chapters
        Chapters whose files count though they are looked up by name only, at run time: the notebook's own. None: all,
        for a page that shows the results of others.
    name
        The package.

    Returns
    -------
    dict
        Dotted name of a module, or path of a data file in the package, to its hash.
    """
    whole = package(name)

    def counts(module: str) -> bool:
        """Whether a module lies outside the chapters, or in a chapter that counts."""
        layer, chapter = [*module.split("."), "", ""][1:3]
        return layer != "chapters" or chapters is None or chapter in ("", "shared", *chapters)

    try:
        own = read(code, whole.files)
        waiting = _imported(ast.parse(code), whole, name) | {module for module in own.modules if counts(module)}
    except SyntaxError:  # a magic of IPython, say
        own = Source("", frozenset(), frozenset(re.findall(r"\w+", code)))
        waiting = set(whole.files)
    modules: set[str] = set()
    while waiting:
        module = waiting.pop()
        modules.add(module)
        packages = {module[: dot.start()] for dot in _DOTS(module)}  # a and a.b are imported with a.b.c
        reachable = {other for other in whole.imports.get(module, set()) | packages if counts(other)}
        waiting |= (reachable & set(whole.files)) - modules
    words = own.words.union(*(whole.sources[module].words for module in modules))
    data: set[str] = set()
    while (
        new := {path for path in whole.data if Path(path).stem in words and counts(f"{name}.{path.replace('/', '.')}")}
        - data
    ):
        data |= new
        words = words.union(*(re.findall(r"\w+", whole.data[path].read_text(encoding="utf-8")) for path in new))
    return {module: whole.sources[module].digest for module in modules} | {
        path: sha256_file(whole.data[path]) for path in data
    }
