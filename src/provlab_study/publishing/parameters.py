"""Parameters of a notebook: what its cell declares, and values given as text.

The cell is read as Python, not line by line: a default or a comment may hold any sign, "=" too. A value is read by the
type that its parameter declares, so that ``no`` is a word for a ``str`` and ``1e-3`` a number for a ``float``. In YAML
1.1 ``no`` would be false, ``010`` eight, and ``1e-3`` text.
"""

import ast
import builtins
import io
import json
import math
import re
import sys
import tokenize
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from provlab import provenance, schema
from provlab.errors import ParameterError, one_line
from provlab_study.publishing.declared import UNKNOWN, Parameter, left_out

# what an annotation in a parameters cell may be, alone or joined by "|"; no expression is ever evaluated
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
    "None": None,
}
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_NOTHING = ("", "none", "null")


def kinds_of(annotation: str) -> list[str] | None:
    """Keys of `TYPES` that an annotation joins, as in ``int | None`` and ``Optional[int]``; None where it is none."""
    node = ast.parse(annotation or "None", mode="eval").body
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == "Optional":
        members: list[ast.expr] = [node.slice, ast.Constant(None)]
    else:
        members = [node]
    kinds: list[str] = []
    while members:
        member = members.pop(0)
        if isinstance(member, ast.BinOp) and isinstance(member.op, ast.BitOr):
            members = [member.left, member.right, *members]
        elif (kind := ast.unparse(member)) in TYPES:
            kinds.append(kind)
        else:
            return None
    return kinds


def _refuse_kind(parameter: Parameter) -> ParameterError:
    """Say of a type which no value can be checked against what to declare."""
    known = ", ".join(name for name in TYPES if name != "None")
    return ParameterError(
        f"parameter {parameter.name} is declared as {parameter.kind}, of which no value can be given; declare it as "
        f"one of {known}, or as several joined by |"
    )


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
    return declared_in(_source(path), path)


def declared_in(source: str, where: object) -> dict[str, Parameter]:
    """Return what the text of a parameters cell declares.

    Raises
    ------
    ParameterError
        If it is no Python, or a rule of it cannot be read.
    """
    try:
        tree = ast.parse(source)
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        raise ParameterError(f"the parameters cell of {where} is no Python ({one_line(error)}); restore it") from error
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    alone = {
        token.start[0]
        for token in tokens
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip()
    }
    declared = {}
    for node in tree.body:
        if not isinstance(node, ast.AnnAssign | ast.Assign) or node.value is None:
            continue
        target: ast.expr = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        kind = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
        if isinstance(target, ast.Name):
            line = node.end_lineno or node.lineno
            comment = comments.get(line, "")
            while (line := line + 1) in alone:  # a comment goes on in lines of its own
                comment = f"{comment} {comments[line]}".strip()
            declared[target.id] = Parameter(target.id, kind, ast.unparse(node.value), comment)
    return declared


def _source(path: Path) -> str:
    """Return what the parameters cell holds, "" where a notebook has none."""
    sources = [source for source, tags in cells_of(path) if "parameters" in tags]
    if len(sources) > 1:
        raise ParameterError(
            f"{len(sources)} cells of {path} are tagged parameters, and a later one would undo what is given; tag one"
        )
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
        from provlab.reading.diagnose import content  # with `regex`, for which no list of notebooks need wait

        if what := content(path):
            raise ParameterError(f"{path} is no notebook that can be read: {what}") from error
        raise ParameterError(f"{path} is no notebook that can be read ({one_line(error)}); restore it") from error


def checked(path: Path, parameters: Mapping[str, Any], *, here: bool = True) -> dict[str, Any]:
    """Return the parameters, each known to the notebook, of the declared type, and what its rule allows.

    Without `here` another machine may run it, on devices of its own.

    Raises
    ------
    ParameterError
        Naming the parameter, and what the notebook has or expects.
    """
    declared = parameters_of(path)
    for name, value in parameters.items():
        if name not in declared:
            known = ", ".join(sorted(declared)) or "none"
            hint = meant(name, declared) or ("model" in name and _takes_models(declared)) or ""
            raise ParameterError(f"{path.stem} has no parameter {name!r}{hint}; it has {known}")
        check_value(declared[name], value, here=here)
    left_out(path.stem, declared, {one.name: one.value for one in declared.values()} | dict(parameters))
    return dict(parameters)


def _takes_models(declared: Mapping[str, Parameter]) -> str:
    """Say which parameters name models; "" where none does."""
    names = [name for name, parameter in declared.items() if parameter.takes_models]
    return f" (models are given as {', '.join(names)})" if names else ""


def check_needs(path: Path, values: Mapping[str, Any]) -> None:
    """Ask of given values what a page requires (`Run.require`), as far as its words there read parameters alone.

    Statements of the cell that begins the page are followed while all names in them are known: parameters, Python's
    own, and those of modules that are loaded here; one to which any other statement gives a value is not. What asks for
    more is left to the kernel.

    Raises
    ------
    ParameterError
        Naming what the page needs.
    """
    declared = parameters_of(path)
    known = {one.name: one.value for one in declared.values() if one.value is not UNKNOWN} | dict(values)
    known |= left_out(path.stem, declared, known)
    begins = next((source for source, _ in cells_of(path) if "provlab_study.begin(" in source), "")
    for node in _statements(begins):
        before, bound = known, _bound(node)
        known = {name: value for name, value in before.items() if name not in bound}
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module in sys.modules:
                known |= {one.asname or one.name: getattr(sys.modules[module], one.name, None) for one in names}
            case ast.Assign(targets=[ast.Name(name)], value=value):
                if (made := _value(value, before)) is not UNKNOWN:
                    known[name] = made
            case ast.Expr(ast.Call(ast.Attribute(ast.Name("run"), "require"), [condition, ast.Constant(str(needs))])):
                if (met := _value(condition, known)) is not UNKNOWN and not met:
                    raise ParameterError(f"{path.stem} needs {needs!s}")


def _bound(node: ast.AST) -> set[str]:
    """Names to which a statement or an expression gives a value."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _statements(source: str) -> list[ast.stmt]:
    """Statements of a cell; none where it is no plain Python, as with a magic."""
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError):
        return []


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Value of an expression of known names; `UNKNOWN` where one is not known, or it fails."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    if not names <= _bound(node) | known.keys() | set(dir(builtins)):
        return UNKNOWN
    try:  # the reader's own page, whose kernel would run it next
        return eval(compile(ast.Expression(node), "<parameters>", "eval"), dict(known))  # noqa: S307
    except Exception:  # noqa: BLE001 (the kernel meets it again, and shows where)
        return UNKNOWN


def check_value(parameter: Parameter, value: object, *, here: bool = True) -> None:
    """Raise ParameterError unless a value is of the type that its parameter declares, and what its rule allows."""
    if parameter.kind:
        kinds = kinds_of(parameter.kind)
        if kinds is None:
            raise _refuse_kind(parameter)
        if not any(schema.fits(value, type(None) if kind == "None" else TYPES[kind]) for kind in kinds):
            what = f"parameter {parameter.name} must be {parameter.kind}, not {one_line(repr(value))}"
            raise ParameterError(
                what
                + (
                    _AS_A_LIST.replace("name", parameter.name)
                    if isinstance(value, str) and "list" in parameter.kind
                    else ""
                )
            )
    parameter.check(value, here=here)


#: said of text where a list is declared: ``papermill -p`` passes text alone
_AS_A_LIST = "; papermill passes a list by -y '{name: [a, b]}', and provlab run by -p name=a,b"


def checked_profile(profile: str) -> str:
    """Return the profile; raise ParameterError unless it is the plain name of a folder below the results."""
    if profile in ("", ".", "..") or Path(profile).name != profile:
        raise ParameterError(f"profile must be a plain name, which becomes a folder of results, not {profile!r}")
    return profile


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
        if name in values:
            raise ParameterError(f"parameter {name} is given twice; give it once, a list as {name}=a,b")
        values[name] = _read(declared[name], text) if name in declared else text  # `checked` refuses it
    return values


def _read(parameter: Parameter, text: str) -> Any:
    """Read a value by the first type that can, of those that are declared, text last."""
    name, kinds = parameter.name, kinds_of(parameter.kind) if parameter.kind else [""]
    if kinds is None:
        raise _refuse_kind(parameter)
    if "None" in kinds and text.strip().lower() in _NOTHING:
        return None
    members = sorted((kind for kind in kinds if kind != "None"), key="str".__eq__)
    for kind in members[:-1]:
        try:
            return _of_kind(name, text, kind)
        except ParameterError:
            continue
    return _of_kind(name, text, members[-1]) if members else text


def _of_kind(name: str, text: str, kind: str) -> Any:
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
        raise ParameterError(
            f"the value of parameter {name} is not readable as YAML: {text!r}; a list is given as {name}=a,b"
        ) from error
