"""Statistics on pairs of models, by name; the module of one is imported when its name is used.

A statistic of your own is a subclass of `provlab.statistics.base.Statistic`; `register` makes its name known in a
script or a notebook::

    @register
    class PhiMine(Statistic):
        name = "phi_mine"
        ...

    provlab.compare(a, b, statistics=["phi_mine"])

Its p-values decide nothing before its `warrant` says what makes them p-values: a theorem, or independent models on
which they were calibrated. Two models that were sorted by one rule agree in the order of their units. So a statistic
that reads this order compares `provlab.statistics.order.OrderedRows` by
`provlab.statistics.phi_u.correlation_with_identity`, which checks it; without a check its p-values are refused. One
that finds units in any order says ``evidence = "units"``, one of the embedding alone ``evidence = "rows"``.

A package names its class in the entry points `provlab.statistics` (``phi_mine = "package.module:PhiMine"``), so that
commands and worker processes find it too. This package names its own there, and in no other list.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from provlab import plugins
from provlab.errors import ParameterError, nearest

if TYPE_CHECKING:
    from provlab.statistics.base import Statistic

    Kind = TypeVar("Kind", bound=type[Statistic])


#: what runs if no statistic is named
USUAL = ("phi_u", "phi_h", "phi_l2", "phi_jsd", "phi_match", "phi_match_unsigned", "phi_unseen")


class Entry(NamedTuple):
    """Where a statistic is: a module, and the class in it."""

    module: str
    kind: str


_points = plugins.named(plugins.STATISTICS)
#: name -> where it is: the usual ones, then all others, those of other packages among them
REGISTRY = {
    name: Entry(_points[name].module, _points[name].attr) for name in (*USUAL, *sorted(_points.keys() - set(USUAL)))
}

_loaded: "dict[str, Statistic]" = {}


def register(kind: "Kind") -> "Kind":
    """Make a statistic of your own known by its name, in place of one of that name; usable as a decorator.

    Units in a store are found by name, code and options; raise `version` of a class that you typed into a notebook when
    you change what it computes.
    """
    REGISTRY[kind.name] = Entry(kind.__module__, kind.__qualname__)
    _loaded[kind.name] = kind()
    return kind


def get(name: str) -> "Statistic":
    """Return a statistic by name: of this package, registered, or named by an entry point; or what is no test.

    Raises
    ------
    ParameterError
        If no statistic has that name.
    """
    if name not in _loaded:
        if name in REGISTRY:
            entry = REGISTRY[name]
            _loaded[name] = getattr(import_module(entry.module), entry.kind)()
        elif name in (measurements := plugins.named(plugins.MEASUREMENTS)):
            _loaded[name] = measurements[name].load()()
        else:
            known = ", ".join(REGISTRY)
            meant = nearest(name, list(REGISTRY))
            raise ParameterError(f"no statistic is called {name!r}; there are {known}{meant}")
    return _loaded[name]


def symbol(name: str) -> str:
    """How a name is written in a picture, as TeX: as its own class says, or ``phi_views`` as an index in capitals."""
    if said := vars(type(get(name))).get("symbol"):
        return str(said)
    stem, _, index = name.partition("_")
    if stem != "phi" or not index.isalpha():
        return name
    return rf"$\phi_{index.upper()}$" if len(index) == 1 else rf"$\phi_{{{index.upper()}}}$"


def word(name: str) -> str:
    """How a name is written in a caption, as plain text: ``φ_U``."""
    plain = symbol(name).replace(r"\phi", "φ").replace(r"\ell_", "ℓ")
    return plain.translate(str.maketrans("", "", "${}"))


def checked_names(names: Sequence[str] | None) -> list[str]:
    """Return the names given, each known and once, or `USUAL` for None.

    Raises
    ------
    ParameterError
        If a name is unknown, or the names are none at all.
    """
    if names is None:
        return list(USUAL)
    if isinstance(names, str) or not names:
        raise ParameterError(f"statistics must be a list of one or more of {', '.join(REGISTRY)}, not {names!r}")
    return list(dict.fromkeys(get(name).name for name in names))
