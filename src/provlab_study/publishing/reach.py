"""What a page can reach: modules of library and study that its notebook imports, theirs in turn, and data beside them.

A page is stale when one of them changed. grimp reads the imports from the source, those inside functions too. Modules
that are loaded by name count for every page: those of the packages in `BY_NAME`, those that installed entry points
name, and the predicates of the notebook's own chapter. Doubt counts as reached: a page that runs once too often costs
minutes, a page that does not run shows what is no longer true.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import grimp

import provlab
import provlab_study
from provlab import plugins
from provlab.codehash import source_digest
from provlab.files import sha256_file

#: folder of each package
ROOTS = {package.__name__: Path(str(package.__file__)).parent for package in (provlab, provlab_study)}
COMMON = ("shared", "publishing", "commands")  # what of the study is no chapter
BY_NAME = ("reading", "running", "formats", "further", "plots", "statistics", "zoo")
DATA = (".yml", ".toml", ".csv")


@cache
def files() -> dict[str, Path]:
    """File of each module of the library and the study."""
    modules = {path: (*parts[:-1], path.stem) for path, parts in _found(".py")}
    return {".".join(parts[: -1 if parts[-1] == "__init__" else None]): path for path, parts in modules.items()}


def _found(*suffixes: str) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Files of both packages, each with the parts of its path from its package on."""
    for package, root in ROOTS.items():
        for path in sorted(root.rglob("*")):
            if path.suffix in suffixes:
                yield path, (package, *path.relative_to(root).parts)


@cache
def graph() -> grimp.ImportGraph:
    """Imports of the library and the study, those for the type checker alone left out."""
    return grimp.build_graph(*ROOTS, exclude_type_checking_imports=True, cache_dir=None)


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
        Dotted name of a module, or path of a data file from its package on, to its hash.
    """

    def counts(parts: Sequence[str]) -> bool:
        """Whether something lies outside the chapters, or in a chapter that counts."""
        package, part = [*parts, ""][:2]
        return package == "provlab" or chapters is None or part in ("", *COMMON, *chapters)

    known = {name for name in files() if counts(name.split("."))}
    own = {name for name in known if name.startswith("provlab_study.") and name.endswith(".predicates")}
    by_name = {name for name in known if name.split(".")[1:2] and name.split(".")[1] in BY_NAME}
    groups = (plugins.SCHEMES, plugins.CONTAINERS, plugins.FORMATS, plugins.STATISTICS, plugins.MEASUREMENTS)
    entry_points = [point for group in groups for point in plugins.named(group).values()]
    try:
        packages = {"provlab": provlab.HOMES, "provlab_study": provlab_study.HOMES}
        homes = {f"{package}.{name}": home for package, names in packages.items() for name, home in names.items()}
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
    data = {"/".join(parts): path for path, parts in _found(*DATA) if counts(parts) and ".".join(parts[:2]) in modules}
    return {name: digest_of(path) for name, path in ({name: files()[name] for name in modules} | data).items()}
