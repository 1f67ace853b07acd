"""What a page can reach: the modules that its notebook imports, theirs in turn, and the data files beside them.

A page is stale when one of them changed. grimp reads the imports from the source, those inside functions too. Modules
that are loaded by name count for every page: those of the packages in `BY_NAME`, those that installed entry points
name, and the predicates of the notebook's own chapter. Doubt counts as reached: a page that runs once too often costs
minutes, a page that does not run shows what is no longer true.
"""

import ast
from collections.abc import Collection, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import grimp

import provlab
from provlab.files import sha256_file
from provlab.models.checkpoint import SCHEMES
from provlab.statistics import ENTRY_POINTS
from provlab.zoo.codehash import source_digest

ROOT = Path(provlab.__file__).parent
BY_NAME = ("models", "plots", "statistics", "zoo")
DATA = (".yml", ".toml", ".csv")


@cache
def files() -> dict[str, Path]:
    """File of each module of the library."""
    paths = {path: path.relative_to(ROOT.parent).with_suffix("").parts for path in sorted(ROOT.rglob("*.py"))}
    return {".".join(parts[: -1 if parts[-1] == "__init__" else None]): path for path, parts in paths.items()}


@cache
def graph() -> grimp.ImportGraph:
    """Imports of the library, those for the type checker alone left out."""
    return grimp.build_graph("provlab", exclude_type_checking_imports=True, cache_dir=None)


@cache
def digest_of(path: Path) -> str:
    """Hash of what a file does: of a module without comments and docstrings."""
    return source_digest(path.read_text(encoding="utf-8")) if path.suffix == ".py" else sha256_file(path)


def _imported(code: str) -> Iterator[str]:
    """Names that a notebook's code imports, or reaches as attributes of the package."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def _with_packages(module: str) -> Iterator[str]:
    """A module, and the packages that are imported with it."""
    parts = module.split(".")
    return (".".join(parts[: i + 1]) for i in range(len(parts)))


def reached(code: str, chapters: Collection[str] | None) -> dict[str, str]:
    """Hashes of all that a notebook's code can reach.

    Parameters
    ----------
    code
        The code of the notebook's cells.
    chapters
        Chapters that are loaded by name at run time: the notebook's own. None: all, for a page that shows the results
        of others.

    Returns
    -------
    dict
        Dotted name of a module, or path of a data file in the package, to its hash.
    """

    def counts(parts: Collection[str]) -> bool:
        """Whether something lies outside the chapters, or in a chapter that counts."""
        layer, chapter = [*parts, "", ""][:2]
        return layer != "chapters" or chapters is None or chapter in ("", "shared", *chapters)

    known = {name for name in files() if counts(name.split(".")[1:])}
    own = {name for name in known if name.startswith("provlab.chapters.") and name.endswith(".predicates")}
    by_name = {name for name in known if name.split(".")[1:2] and name.split(".")[1] in BY_NAME}
    entry_points = [entry for group in (ENTRY_POINTS, SCHEMES) for entry in metadata.entry_points(group=group)]
    try:
        homes = {f"provlab.{name}": home for name, home in provlab.HOMES.items()}
        waiting = {homes.get(name, name) for name in _imported(code)} & known
    except SyntaxError:  # a magic of IPython, say
        waiting = known
    waiting |= own | by_name | {entry.module for entry in entry_points} & known
    modules: set[str] = set()
    while waiting:
        module = waiting.pop()
        modules.add(module)
        near = {*_with_packages(module), *graph().find_modules_directly_imported_by(module)}
        waiting |= (near & known) - modules
    # data belong to the package in whose folder they lie
    places = {path: path.relative_to(ROOT).parts for path in ROOT.rglob("*") if path.suffix in DATA}
    data = {path for path, parts in places.items() if counts(parts) and f"provlab.{parts[0]}" in modules}
    return {name: digest_of(files()[name]) for name in modules} | {
        str(path.relative_to(ROOT)): digest_of(path) for path in data
    }
