"""What a page can reach: the modules that its notebook imports, theirs in turn, and the data files that these name.

A page is stale when one of them changed. All is read from source and nothing is imported, so imports inside functions
count, and so do modules that are loaded by name: a string that spells a module counts as an import of it, and an
f-string such as ``f"provlab.zoo.{maker}"`` as one of every module that it can spell. Of the names that the package
loads lazily, those count that are asked of it, as in ``provlab.compare``. Doubt counts as reached: a page that is run
once too often costs minutes, one that is not run shows what is no longer true.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from provlab.files import sha256_file
from provlab.zoo.codehash import parsed, tree_digest

PACKAGE = "provlab"
_ANYTHING = f"{PACKAGE}.*"
_SPELT = re.compile(rf"\b{PACKAGE}(?:\.\w+)+")


@dataclass(frozen=True)
class Source:
    """One piece of code: what it does, and what it names.

    Attributes
    ----------
    digest : str
        Of its syntax tree without comments and docstrings.
    names : frozenset of str
        Dotted names that it imports or spells in a string; a module, or something in one.
    patterns : frozenset of str
        Regular expressions of the module names that its f-strings can spell.
    words : frozenset of str
        All words in its strings, docstrings left out.
    lazy : frozenset of (str, str)
        Names that the package itself loads when they are asked for, and the modules that hold them.
    """

    digest: str
    names: frozenset[str]
    patterns: frozenset[str]
    words: frozenset[str]
    lazy: frozenset[tuple[str, str]] = frozenset()


@cache  # the pages of a study share most of what they reach
def read(code: str, module: str = "") -> Source:
    """Read one piece of code; `module` is its own dotted name."""
    tree = parsed(code)
    lazy = _lazy(tree) if module == PACKAGE else {}
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in lazy.values()
    ]
    text = "\n".join(strings)
    spelt = {name for found in _SPELT.findall(text) for name in (found, *_entry_points(found))}
    formatted = (_pattern(node, module) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr))
    return Source(
        tree_digest(tree),
        frozenset(spelt | set(imported(tree)) | _asked(tree)),
        frozenset(pattern for pattern in formatted if pattern.startswith(rf"{PACKAGE}\.")),
        _words(text),
        frozenset(lazy.items()),
    )


def _lazy(tree: ast.AST) -> dict[str, str]:
    """Dotted name -> module of what a call of `lazily` loads when it is asked for."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazily")
    tables = (ast.literal_eval(call.args[1]) for call in calls)
    return {f"{PACKAGE}.{name}": module for table in tables for name, module in table.items()}


def _asked(tree: ast.AST) -> set[str]:
    """What is asked of the package by its name, ``provlab.compare``; under another name it may be anything."""
    asked = {
        f"{PACKAGE}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == PACKAGE
    }
    renamed = any(isinstance(node, ast.alias) and node.name == PACKAGE and node.asname for node in ast.walk(tree))
    return asked | {_ANYTHING} if renamed else asked


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


def imported(node: ast.AST) -> Iterator[str]:
    """Dotted names in the import statements that are ever run: those for the type checker alone are left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imported(child)


def _pattern(text: ast.JoinedStr, module: str) -> str:
    """Regular expression of what an f-string can spell, each of its holes being part of a dotted name."""
    parts = []
    for part in text.values:
        if isinstance(part, ast.Constant):
            parts.append(re.escape(str(part.value)))
        else:
            parts.append(re.escape(module) if "__name__" in ast.unparse(part) else r"[\w.]+")
    return "".join(parts)


@cache
def _entry_points(group: str) -> tuple[str, ...]:
    """Modules that installed packages offer under the name of an entry point."""
    return tuple(found.value.partition(":")[0] for found in metadata.entry_points(group=group))


def modules(root: Path) -> dict[str, Path]:
    """Dotted name of every module in a package's folder; a package stands for its ``__init__``."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (PACKAGE, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def reached(code: str, chapters: Collection[str] | None, root: Path) -> dict[str, str]:
    """Hashes of all that a notebook's code can reach.

    Parameters
    ----------
    code
        Of the notebook's cells.
    chapters
        Chapters whose files count though they are looked up by name only, at run time: the notebook's own. None: all,
        for a page that shows what others found.
    root
        The package's folder.

    Returns
    -------
    dict
        Dotted name of a module, or path of a data file in the package, to its hash.
    """
    known = modules(root)

    def counts(name: str) -> bool:
        """Whether what is looked up by this dotted name lies outside the chapters, or in one of those that count."""
        floor, chapter = [*name.split("."), "", ""][1:3]
        return floor != "chapters" or chapters is None or chapter in (*chapters, "shared")

    try:
        own = read(code)
    except SyntaxError:  # a magic of IPython, say
        own = Source("", frozenset(known), frozenset(), _words(code))
    sources = {"": own}
    waiting = list(sources.values())
    lazy = dict(read(known[PACKAGE].read_text(encoding="utf-8"), PACKAGE).lazy) if PACKAGE in known else {}
    while waiting:
        source = waiting.pop()
        looked_up = {name for p in source.patterns for name in known if re.fullmatch(p, name) and counts(name)}
        # with a.b.c the packages a and a.b are imported too
        asked = {lazy.get(name, name) for name in source.names} | (
            set(lazy.values()) if _ANYTHING in source.names else set()
        )
        with_packages = {name[: dot.start()] for name in asked | looked_up for dot in re.finditer(r"\.|$", name)}
        for name in (with_packages & known.keys()) - sources.keys():
            sources[name] = read(known[name].read_text(encoding="utf-8"), name)
            waiting.append(sources[name])
    files = {name: root / name for name in data_files(root) if counts(".".join((PACKAGE, *Path(name).parts)))}
    named = _named(files, frozenset().union(*(source.words for source in sources.values())))
    return {name: source.digest for name, source in sources.items() if name} | {
        name: sha256_file(files[name]) for name in named
    }


def data_files(root: Path) -> list[str]:
    """Paths of a package's data files in its folder."""
    files = (path for path in root.rglob("*") if path.suffix in (".yml", ".csv"))
    return sorted(str(path.relative_to(root)) for path in files)


def _named(files: Mapping[str, Path], words: frozenset[str]) -> set[str]:
    """Files whose name, without its ending, is among these words or those of another file that is."""
    found: set[str] = set()
    while fresh := {name for name, path in files.items() if path.stem in words} - found:
        found |= fresh
        words = words.union(*(_words(files[name].read_text(encoding="utf-8")) for name in fresh))
    return found
