"""A digest of the rule by which a claim is judged, so that a confirmation knows its rule.

The rule is what the claim says, its bars, the budgets that its page runs with, the recipes of the zoo models that the
page names, the cell that hands records to the predicate, and the code of the predicate with all functions, classes and
constants that this reaches in the project. Names are followed, and not modules: what else stands in the same file does
not count, nor do statistics, which have tests of their own, nor the cells and functions by which a page measures: there
a row's commit says what ran. Comments, docstrings, annotations and layout count as
nothing. A plain constant counts by its value; what may change while a program runs, or has no value that can be written
down (a table, an object, a lambda, what another function made), by the statement that binds it and all that this
reaches. A file counts where code that is reached names it and it lies beside that code.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import yaml

from provlab import provenance, zoo
from provlab.codehash import parsed, source_digest, tree_digest
from provlab.files import digest, sha256_file
from provlab.zoo.recipes import plain
from provlab_study.publishing import claims
from provlab_study.publishing.parameters import find_notebook, parameters_of
from provlab_study.publishing.source import judging, zoo_models

_PACKAGES = ("provlab", "provlab_study")
_CONSTANTS = (bool, int, float, str, tuple)
_TABLES = (".toml", ".yml", ".csv", ".json")


def rule_digest(claim: Mapping[str, Any], profile: str) -> str:
    """Hex digest of a claim's rule in a profile, from its row of ``claims.yml``."""
    says = [claim["statement"], claim["predicate"]["name"], claims.bars(claim, profile)]
    page = claim["experiment"]
    made = [_budgets(page, profile), _recipes(page, profile), _judging(page, claim["id"])]
    return digest([says, *made, code_of_rule(claims.predicate(claim))])


def rule_digests(profile: str) -> dict[str, str]:
    """Digest of each claim that is judged in a profile, by the claim's id."""
    return {claim["id"]: rule_digest(claim, profile) for claim in claims.load_claims() if profile in claim["profiles"]}


def settings(page: str, profile: str) -> dict[str, Any]:
    """What a page runs with in a profile: its parameters, and above them what the profile gives."""
    given = _given(page, profile)
    return {name: given.get(name, one.value) for name, one in parameters_of(find_notebook(page)).items()}


@cache
def _budgets(page: str, profile: str) -> str:
    """Digest of the parameters that a page runs with in a profile."""
    notebook = find_notebook(page)
    given = _given(page, profile)
    return digest({name: given.get(name, repr(one.value)) for name, one in parameters_of(notebook).items()})


@cache
def _recipes(page: str, profile: str) -> str:
    """Digest of how the zoo models that a page names, and their ancestors, are made; seeds are the draw's."""
    recipes = zoo.families(_plan(profile).get("zoo", {}).get("edition", "default"))
    named = zoo_models(find_notebook(page), _given(page, profile), recipes)
    made = {member for model in named for member in zoo.lineage(model, recipes)}
    return digest({name: plain(replace(recipes[name], seed=0, order_seed=None)) for name in made})


@cache
def _judging(page: str, claim: str) -> str:
    """Digest of the cells of a page that judge a claim: what they hand to its predicate."""
    return digest([source_digest(cell) for cell in judging(find_notebook(page), claim)])


def _given(page: str, profile: str) -> Mapping[str, Any]:
    experiments = _plan(profile)["experiments"]
    return next((run.get("parameters", {}) for run in experiments if run["notebook"] == page), {})


@cache
def _plan(profile: str) -> dict[str, Any]:
    path: Path = provenance.project_root() / "notebooks" / "profiles" / f"{profile}.yml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def code_of_rule(function: Callable[..., Any]) -> dict[str, str]:
    """Digest of each function and class of the project that a function reaches, and each constant, by its name."""
    found: dict[str, str] = {}
    waiting: list[Any] = [function]
    while waiting:
        thing = inspect.unwrap(waiting.pop())
        name = f"{thing.__module__}.{thing.__qualname__}"
        if name not in found:
            found[name], constants, reached = _read(thing)
            found |= constants
            waiting += reached
    return found


@cache
def _read(thing: Any) -> tuple[str, dict[str, str], list[Any]]:
    """Digest of a function or class, those of the constants that it uses, and what of the project it uses besides."""
    tree = parsed(textwrap.dedent(inspect.getsource(thing)))
    constants, reached = _named(tree, thing.__module__, frozenset())
    return tree_digest(tree), constants, reached


def _named(tree: ast.Module, module: str, within: frozenset[tuple[str, str]]) -> tuple[dict[str, str], list[Any]]:
    """Digests of the constants and files that code of a module names, and the code that it names besides."""
    _without_annotations(tree)
    constants, reached = _files(tree, module), []
    for used, value in _used(tree, vars(import_module(module))):
        if _is_plain(value):
            constants[f"{module}.{used}"] = digest(repr(value))
        elif _is_code(value):
            if str(value.__module__).partition(".")[0] in _PACKAGES:
                reached.append(value)
        elif (bound := _bound(module, used)) and bound[:2] not in within:
            home, name, statements = bound
            constants[f"{home}.{name}"] = tree_digest(statements)
            more = _named(statements, home, within | {(home, name)})
            constants, reached = constants | more[0], reached + more[1]
    return constants, reached


def _is_code(value: Any) -> bool:
    if not isinstance(value, type | FunctionType) and not hasattr(value, "__wrapped__"):
        return False
    return "<" not in getattr(inspect.unwrap(value), "__qualname__", "<")  # a lambda, or what another function made


def _is_plain(value: Any) -> bool:
    return isinstance(value, _CONSTANTS) and (type(value) is not tuple or all(map(_is_plain, value)))


def _files(tree: ast.Module, module: str) -> dict[str, str]:
    """Digests of tables beside a module that its code names."""
    texts = {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    folder = Path(str(import_module(module).__file__)).parent
    named = {text: folder / text for text in texts if text.endswith(_TABLES) and (folder / text).is_file()}
    return {f"{module}:{text}": sha256_file(path) for text, path in named.items()}


def _bound(module: str, used: str) -> tuple[str, str, ast.Module] | None:
    """The module of the project that binds a name, the name in it, and the statements; None if there are none."""
    holder, _, name = used.rpartition(".")
    if holder:
        value: Any = vars(import_module(module)).get(holder.partition(".")[0])
        for inner in holder.split(".")[1:]:
            value = getattr(value, inner, None)
        module = value.__name__ if isinstance(value, ModuleType) else ""
    if module.partition(".")[0] not in _PACKAGES:
        return None
    statements = []
    for statement in parsed(inspect.getsource(import_module(module))).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == name:
                    return _bound(str(statement.module), alias.name)
        elif not isinstance(statement, ast.FunctionDef | ast.ClassDef) and name in _targets(statement):
            statements.append(statement)
    return (module, name, ast.Module(statements, [])) if statements else None


def _targets(statement: ast.stmt) -> set[str]:
    """Names that a statement binds, or whose items or attributes it does."""
    found: set[str] = set()
    for node in ast.walk(statement):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in filter(None, targets):
            found |= {inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name)}
    return found


def _without_annotations(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        for part in ("annotation", "returns"):
            if hasattr(node, part):
                setattr(node, part, None)


def _used(tree: ast.Module, module: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names of a module that code uses, with what they stand for; of what another module holds, the last name."""
    names = dict(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in _PACKAGES:
            home = import_module(str(node.module))
            names |= {alias.asname or alias.name: getattr(home, alias.name) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(names.get(node.id), ModuleType | None):
            yield node.id, names[node.id]
        elif isinstance(node, ast.Attribute):
            holder, *inner = ast.unparse(node).split(".")
            value = names.get(holder)
            while inner and isinstance(value, ModuleType):
                value = getattr(value, inner.pop(0), None)
                if not isinstance(value, ModuleType) and value is not None:
                    yield ast.unparse(node), value
