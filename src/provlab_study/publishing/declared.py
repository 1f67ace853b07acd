"""What the values of parameters may be, as the parameters cell of a notebook says it, read without a kernel.

A rule stands in brackets at the end of a parameter's comment, in clauses between semicolons::

    models: list[str] = ["zoo:*"]  # sources; zoo:* is the zoo's Llama tree [2 models or more]
    outgroup: str = ""  # known to have parted first [a model; or empty]
    shares: list[float] = [0.1, 0.3]  # of the steps [above 0; at most 1; or empty]
    children: list[str] = ["zoo:spruce-slim"]  # cut out [1 model or more; needed with parents]
    hot: list[str] = ["zoo:spruce-hot"]  # the same cut, at a high rate [models; left out with parents]

===========================  ==================================================================================
``at least 1``, ``at most``  bounds of a number, or of each in a list; also ``above`` and ``below``
``or 0``                     this number, too
``a model``, ``models``      a name of a model, or several, each given once; a line may hold several between bars
``2 models or more``         so many; ``3 or more`` of other things than models, ``just 2`` or ``just 2 models``
``may repeat``               a model may be given more than once
``or empty``                 nothing may be given; without this clause something must be
``one of a, b``              these words
``a file``                   a file that is there
``a text``                   a file that is there, or an address on the hub (`provlab_study.publishing.texts`)
``needed with X``            must be given where X is given, since it goes with it
``left out with X``          is emptied where X is given and it is not, since its default goes with that of X
===========================  ==================================================================================

What is named like a setting of `provlab.compare` (``seed``, ``device``, ``n_permutations``) is checked as there,
without a rule. Brackets that hold no clause are words.
"""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from provlab.errors import ParameterError, one_line
from provlab_study.publishing import texts

_NUMBER = r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)"
_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "at least": lambda value, bound: value >= bound,
    "above": lambda value, bound: value > bound,
    "at most": lambda value, bound: value <= bound,
    "below": lambda value, bound: value < bound,
}
_BOUND = re.compile(rf"({'|'.join(_BOUNDS)}) {_NUMBER}")
_COUNT = re.compile(r"(just )?(\d+)( models?)?(?(1)| or more)")
_NO_SETTINGS = {"text", "blocks", "shared", "around", "elsewhere", "vocabulary"}  # of `provlab.compare`, though options
UNKNOWN = object()  # the default of a parameter that is no plain value


@dataclass(frozen=True)
class Rule:
    """What the value of one parameter may be; `clauses` is what stands in its brackets."""

    clauses: tuple[str, ...] = ()
    bounds: tuple[tuple[str, float], ...] = ()
    numbers: tuple[float, ...] = ()  # that may stand beside what is within the bounds
    least: int = 1
    most: int | None = None
    models: bool = False
    repeat: bool = False
    empty: bool = False
    file: bool = False
    text: bool = False
    words: tuple[str, ...] = ()
    needed_with: tuple[str, ...] = ()
    left_out_with: tuple[str, ...] = ()

    @classmethod
    def of(cls, comment: str) -> "Rule | None":
        """Read the rule at the end of a comment, None where there is none.

        Raises
        ------
        ParameterError
            Some clauses of the brackets can be read, and another cannot.
        """
        brackets = re.search(r"\[([^][]*)\]$", comment.strip())
        if brackets is None:
            return None
        clauses = tuple(clause.strip() for clause in brackets[1].split(";"))
        read = [_clause(clause) for clause in clauses]
        if not any(read):
            return None
        if wrong := [clause for clause, known in zip(clauses, read, strict=True) if not known]:
            raise ParameterError(f"[{brackets[1]}] says what a value may be, and {wrong[0]!r} is no clause of that")
        settings: dict[str, Any] = {}
        for name, value in (item for known in read for item in known.items()):
            settings[name] = settings.get(name, ()) + value if isinstance(value, tuple) else value
        return cls(clauses, **settings)

    def check(self, name: str, value: object) -> None:
        """Raise ParameterError unless the value is what this rule allows; its type is checked already."""
        items = value if isinstance(value, list) else [value]
        if value in ("", []):
            if not self.empty:
                raise ParameterError(f"parameter {name} is empty; give {self._wanted()}")
            return
        for item in items:
            self._check_item(name, item)
        names = model_names([value]) if self.models else [str(item) for item in items]
        if self.models and not self.repeat and (twice := sorted({one for one in names if names.count(one) > 1})):
            raise ParameterError(f"parameter {name} names {twice[0]} more than once; give each model once")
        if isinstance(value, list) and not any(sign in one for one in names for sign in "*{"):  # these stand for many
            n = len(value)
            if n < self.least or (self.most is not None and n > self.most):
                alone = f" ({one_line(items[0])})" if n == 1 else ""  # several may have been meant by it
                raise ParameterError(f"parameter {name} takes {self._wanted()}, not {n}{alone}")

    def _check_item(self, name: str, item: object) -> None:
        if isinstance(item, int | float) and item not in self.numbers:
            for word, bound in self.bounds:
                if not _BOUNDS[word](item, bound):
                    raise ParameterError(f"parameter {name} must be {self._range()}, not {item!r}")
        if self.words and item not in self.words:
            raise ParameterError(f"parameter {name} must be one of {', '.join(self.words)}, not {one_line(repr(item))}")
        if self.file and not Path(str(item)).expanduser().is_file():
            raise ParameterError(f"parameter {name}: there is no file {item}; give one that is there")
        if self.text:
            texts.check_source(name, str(item))
        if self.models and not str(item).strip():
            raise ParameterError(f"parameter {name} has an empty name of a model; leave it out")

    def _wanted(self) -> str:
        what = "model" if self.models else "file" if self.file or self.text else "item"
        number = self.least if self.most in (None, self.least) else f"{self.least} to {self.most}"
        more = "" if self.most is not None else " or more"
        return f"{number} {what}{'' if number == 1 else 's'}{more}"

    def _range(self) -> str:
        words = [f"{word} {bound:g}" for word, bound in self.bounds]
        return " and ".join(words) + "".join(f", or {number:g}" for number in self.numbers)


def _clause(clause: str) -> dict[str, Any]:
    """What one clause sets of a rule; nothing where it is none."""
    if bound := _BOUND.fullmatch(clause):
        return {"bounds": ((bound[1], float(bound[2])),)}
    if number := re.fullmatch(rf"or {_NUMBER}", clause):
        return {"numbers": (float(number[1]),)}
    if count := _COUNT.fullmatch(clause):
        most = {"most": int(count[2])} if count[1] else {}
        return {"least": int(count[2])} | most | ({"models": True} if count[3] else {})
    if clause.startswith("one of "):
        return {"words": tuple(word.strip() for word in clause.removeprefix("one of ").split(","))}
    for begins in ("needed with", "left out with"):
        if names := re.fullmatch(rf"{begins} (\w+(?:, \w+)*)", clause):
            return {begins.replace(" ", "_"): tuple(names[1].split(", "))}
    plain: dict[str, dict[str, Any]] = {
        "a model": {"models": True},
        "models": {"models": True},
        "may repeat": {"repeat": True},
        "or empty": {"empty": True},
        "a file": {"file": True},
        "a text": {"text": True},
    }
    return plain.get(clause, {})


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell.

    Attributes
    ----------
    name, kind
        Its name, and its annotation as it is written, or "" for none.
    default
        As it is written, in Python.
    help
        The comment behind it.
    """

    name: str
    kind: str
    default: str
    help: str = field(default="")

    @cached_property
    def rule(self) -> Rule | None:
        """What its value may be; None where the comment does not say it."""
        return Rule.of(self.help)

    @cached_property
    def value(self) -> Any:
        """Its default; `UNKNOWN` where that is no plain value."""
        try:
            return ast.literal_eval(self.default)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return UNKNOWN

    @property
    def takes_models(self) -> bool:
        """Whether it names models."""
        return self.rule is not None and self.rule.models

    def check(self, value: object, *, here: bool) -> None:
        """Raise ParameterError unless a value, whose type is checked already, is one that it may have on this machine.

        Without `here` another machine may have the device.
        """
        if self.kind in ("int", "str") and is_setting(self.name):
            from provlab.statistics.options import Options

            Options(**{self.name: value}, elsewhere=not here)  # type: ignore[arg-type]
        if self.rule is not None:
            self.rule.check(self.name, value)


def is_setting(name: str) -> bool:
    """Whether a parameter is named like a setting of `provlab.compare`."""
    from provlab.statistics.options import Options  # with numpy, for which no list of parameters need wait

    return name in {setting.name for setting in fields(Options)} - _NO_SETTINGS


def model_names(values: Iterable[object]) -> list[str]:
    """Names of models among values, and in lists of theirs, where a line may hold several between bars."""
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    lines = [name.strip() for text in texts if isinstance(text, str) for name in text.split("|")]
    return [name for name in lines if name]


def given(declared: Mapping[str, Parameter], values: Mapping[str, Any]) -> list[str]:
    """Names of the parameters whose values are not the defaults of their notebook."""
    return [name for name, value in values.items() if name in declared and value != declared[name].value]


def of_ones_own(declared: Mapping[str, Parameter], values: Mapping[str, Any]) -> list[str]:
    """Names of the models that were given in place of those of the study, each once, in order."""
    names = [name for name in given(declared, values) if declared[name].takes_models]
    return list(dict.fromkeys(model_names(values[name] for name in names)))


def left_out(page: str, declared: Mapping[str, Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """What is emptied since it goes with models of the study, and others were given.

    Raises
    ------
    ParameterError
        If something must be given, too, and is not.
    """
    changed = given(declared, values)
    emptied: dict[str, Any] = {}
    for name, parameter in declared.items():
        rule = parameter.rule
        if rule is None or name in changed:
            continue
        if missing := [one for one in rule.needed_with if one in changed and values[one]]:
            raise ParameterError(f"{page}: with {missing[0]} give {_together(missing[0], declared, changed)}")
        if any(one in changed for one in rule.left_out_with) and parameter.value:
            emptied[name] = type(parameter.value)()
    return emptied


def _together(first: str, declared: Mapping[str, Parameter], changed: Iterable[str]) -> str:
    """Name all that goes with a parameter and is not there."""
    names = [
        name
        for name, parameter in declared.items()
        if parameter.rule and first in parameter.rule.needed_with and name not in changed
    ]
    return " and ".join(names) + (" too, which goes with it" if len(names) == 1 else " too, which go with it")
