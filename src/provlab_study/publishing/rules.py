"""A digest of the rule by which a claim is judged, so that a confirmation knows its rule.

The rule is what the claim says, its bars, the budgets that its page runs with, and the code of its predicate with all
functions, classes and constants that this reaches in the project. Names are followed, and not modules: what else stands
in the same file does not count. Comments, docstrings, annotations and layout count as nothing.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import yaml

from provlab import provenance
from provlab.codehash import parsed, tree_digest
from provlab.files import digest
from provlab_study.publishing import claims
from provlab_study.publishing.parameters import find_notebook, parameters_of

_PACKAGES = ("provlab", "provlab_study")
_CONSTANTS = (bool, int, float, str, tuple, frozenset, set, list, dict)


def rule_digest(claim: Mapping[str, Any], profile: str) -> str:
    """Hex digest of a claim's rule in a profile, from its row of ``claims.yml``."""
    says = [claim["statement"], claim["predicate"]["name"], claims.bars(claim, profile)]
    return digest([says, _budgets(claim["experiment"], profile), code_of_rule(claims.predicate(claim))])


def rule_digests(profile: str) -> dict[str, str]:
    """Digest of each claim that is judged in a profile, by the claim's id."""
    return {claim["id"]: rule_digest(claim, profile) for claim in claims.load_claims() if profile in claim["profiles"]}


@cache
def _budgets(page: str, profile: str) -> str:
    """Digest of the parameters that a page runs with in a profile."""
    notebook = find_notebook(page)
    given: dict[str, Any] = next((run.get("parameters", {}) for run in _plan(profile) if run["notebook"] == page), {})
    return digest({name: given.get(name, repr(one.value)) for name, one in parameters_of(notebook).items()})


@cache
def _plan(profile: str) -> list[dict[str, Any]]:
    path: Path = provenance.project_root() / "notebooks" / "profiles" / f"{profile}.yml"
    return list(yaml.safe_load(path.read_text(encoding="utf-8"))["experiments"])


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
    _without_annotations(tree)
    constants, reached = {}, []
    for used, value in _used(tree, vars(import_module(thing.__module__))):
        if isinstance(value, _CONSTANTS):
            constants[f"{thing.__module__}.{used}"] = digest(repr(value))
        elif _is_code(value) and str(value.__module__).partition(".")[0] in _PACKAGES:
            reached.append(value)
    return tree_digest(tree), constants, reached


def _is_code(value: Any) -> bool:
    return isinstance(value, type | FunctionType) or hasattr(value, "__wrapped__")


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
