"""Whether plain data has the keys and types that it must have: parameters of notebooks, plans, recipes of the zoo."""

from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, get_args, get_origin

from provlab.errors import ParameterError, one_line


def fits(value: object, kind: Any) -> bool:
    """Whether a value is what an annotation such as ``float``, ``list[str]`` or ``int | None`` says.

    A whole number passes for a float, and a bool for no number.
    """
    if isinstance(kind, UnionType):
        return any(fits(value, member) for member in get_args(kind))
    if isinstance(value, bool) and kind in (int, float):
        return False
    if kind is float:
        return isinstance(value, int | float)
    if isinstance(value, list | dict) and get_args(kind):
        members = value.values() if isinstance(value, dict) else value
        return isinstance(value, get_origin(kind)) and all(fits(member, get_args(kind)[-1]) for member in members)
    return isinstance(value, get_origin(kind) or kind)


def check(what: str, value: object, kind: Any) -> None:
    """Raise ParameterError, which begins with `what`, unless the value fits."""
    if not fits(value, kind):
        word = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
        raise ParameterError(f"{what} must be {word}, not {one_line(repr(value))}")


def check_keys(what: str, content: object, kinds: Mapping[str, Any], required: Iterable[str]) -> None:
    """Raise ParameterError unless this is a mapping with these keys and no others, each value of its kind."""
    if not isinstance(content, Mapping):
        raise ParameterError(f"{what} must be a mapping with {', '.join(kinds)}, not {one_line(repr(content))}")
    if unknown := [key for key in content if key not in kinds]:
        raise ParameterError(f"{what} has the unknown key {unknown[0]!r}; known: {', '.join(kinds)}")
    if missing := [key for key in required if key not in content]:
        raise ParameterError(f"{what} lacks {', '.join(missing)}")
    for key, value in content.items():
        check(f"{what}: {key}", value, kinds[key])
