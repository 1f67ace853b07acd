"""Parameters of a notebook: what its cell declares, and values given as text.

The cell is read as Python, not line by line: a default or a comment may hold any sign, "=" too. A value is read by the
type that its parameter declares, so that ``no`` is a word for a ``str`` and ``1e-3`` a number for a ``float``. In YAML
1.1 ``no`` would be false, ``010`` eight, and ``1e-3`` text.
"""

import ast
import io
import json
import math
import re
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from provlab import provenance, schema
from provlab.errors import ParameterError, one_line
from provlab.reading.diagnose import content

# what an annotation in a parameters cell may be; no expression is ever evaluated
TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "dict": dict,
    "list": list,
    "list[str]": list[str],
    "list[int]": list[int],
    "list[float]": list[float],
}
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell.

    Attributes
    ----------
    name, kind
        Its name, and its annotation as it is written: a key of `TYPES`, or another text, or "" for none.
    default
        As it is written, in Python.
    help
        The comment behind it.
    """

    name: str
    kind: str
    default: str
    help: str


def find_notebook(name: str) -> Path:
    """Path of a notebook given by path or by name; names are looked up in the project's ``notebooks`` folder.

    Raises
    ------
    ParameterError
        If there is none; the message lists those that there are.
    """
    folder = provenance.project_root() / "notebooks"
    known = sorted(path.stem for path in folder.glob("*.ipynb"))
    path = Path(name)
    if path.suffix == ".ipynb":
        if path.is_file():
            return path
        hint = meant(path.stem, known) or "; give a path that exists, or a name in notebooks/"
        raise ParameterError(f"there is no notebook {name}{hint}")
    if name not in known:
        listed = ", ".join(known) or "none"
        raise ParameterError(f"there is no notebook {name!r}{meant(name, known)} in {folder}; there are: {listed}")
    return folder / f"{name}.ipynb"


def parameters_of(path: Path) -> dict[str, Parameter]:
    """Parameters that a notebook declares, by name, in their order.

    Raises
    ------
    ParameterError
        If the file is no notebook, or its parameters cell is no Python.
    """
    source = _source(path)
    try:
        tree = ast.parse(source)
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        raise ParameterError(f"the parameters cell of {path} is no Python ({one_line(error)}); restore it") from error
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    declared = {}
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign | ast.Assign) or node.value is None:
            continue
        target: ast.expr = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        kind = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
        if isinstance(target, ast.Name):
            comment = comments.get(node.end_lineno or node.lineno, "")
            declared[target.id] = Parameter(target.id, kind, ast.unparse(node.value), comment)
    return declared


def _source(path: Path) -> str:
    """Return what the parameters cell holds, "" where a notebook has none."""
    sources = [source for source, tags in cells_of(path) if "parameters" in tags]
    return sources[0] if sources else ""


def cells_of(path: Path) -> list[tuple[str, list[str]]]:
    """Return the text of each cell of a notebook, with its tags.

    Read as JSON: each kernel asks for its notebook's parameters, and `nbformat` takes a second to import.

    Raises
    ------
    ParameterError
        If the file is no notebook.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells, *_ = (notebook[key] for key in ("cells", "metadata", "nbformat", "nbformat_minor"))  # each has all four
        # the text of a cell is one text, or its lines
        return [("".join(cell["source"]), [*cell["metadata"].get("tags", [])]) for cell in cells]
    except KeyError as error:
        raise ParameterError(f"{path} is no notebook that can be read (it lacks {error}); restore it") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        if what := content(path):
            raise ParameterError(f"{path} is no notebook that can be read: {what}") from error
        raise ParameterError(f"{path} is no notebook that can be read ({one_line(error)}); restore it") from error


def checked(path: Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters, each known to the notebook and of the declared type.

    Raises
    ------
    ParameterError
        Naming the parameter, and what the notebook has or expects.
    """
    declared = parameters_of(path)
    for name, value in parameters.items():
        if name not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise ParameterError(f"{path.stem} has no parameter {name!r}{meant(name, declared)}; it has {known}")
        annotation = TYPES.get(declared[name].kind)
        if annotation is not None:
            schema.check(f"parameter {name}", value, annotation)
    return dict(parameters)


def meant(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """Ask whether a known word was meant that is near this one; "" where none is."""
    near = get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def assigned(path: Path, assignments: Sequence[str]) -> dict[str, Any]:
    """Values of a notebook's parameters from ``name=value`` strings; a list may be ``a,b`` or ``[a, b]``.

    Raises
    ------
    ParameterError
        If a string is no assignment, or a value is not what its parameter declares.
    """
    declared, values = parameters_of(path), {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not separator or not name.isidentifier():
            raise ParameterError(f"a parameter is given as name=value, not {assignment!r}")
        values[name] = _read(name, text, declared[name].kind) if name in declared else text  # `checked` refuses it
    return values


def _read(name: str, text: str, kind: str) -> Any:
    if kind in _READERS:
        return _item(name, text, kind)
    if kind.startswith("list["):
        inner = kind.removeprefix("list[").removesuffix("]")
        items = _yaml(name, text, yaml.BaseLoader) if text.lstrip().startswith("[") else text.split(",")
        return [_item(name, str(item).strip(), inner) for item in items if str(item).strip()]
    return _yaml(name, text, _Plain) if text else ""


def _item(name: str, text: str, kind: str) -> Any:
    if kind not in _READERS:
        return text
    try:
        return _READERS[kind](text)
    except (ValueError, KeyError, OverflowError):
        raise ParameterError(f"parameter {name} must be {kind}, not {one_line(repr(text))}") from None


def _whole(text: str) -> int:
    number = float(text) if re.search("[.eE]", text) else int(text)
    if number != int(number):
        raise ValueError(text)
    return int(number)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


_READERS: dict[str, Callable[[str], Any]] = {
    "int": _whole,
    "float": _finite,
    "str": str,
    "bool": lambda text: _TRUTHS[text.strip().lower()],
}


class _Plain(yaml.SafeLoader):
    """YAML whose plain words are text but for true, false, null and decimal numbers, as in YAML 1.2's JSON schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012


_Plain.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))
_Plain.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^(null|~|)$"), ["n", "~", ""])
_NUMBER = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_Plain.add_implicit_resolver("tag:provlab,number", _NUMBER, list("-+.0123456789"))
_Plain.add_constructor(
    "tag:provlab,number",
    lambda _, node: float(node.value) if re.search("[.eE]", node.value) else int(node.value),
)


def _yaml(name: str, text: str, loader: type[Any]) -> Any:
    try:
        return yaml.load(text, loader)  # both loaders make plain data alone
    except yaml.YAMLError as error:
        raise ParameterError(f"the value of parameter {name} is not readable as YAML: {text!r}") from error
