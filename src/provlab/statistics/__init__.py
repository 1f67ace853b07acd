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

An installed package names its class in the entry points `provlab.statistics` (``phi_mine = "package.module:PhiMine"``),
so that commands and worker processes find it too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from provlab import plugins
from provlab.errors import ParameterError, nearest

if TYPE_CHECKING:
    from provlab.statistics.base import Statistic

    Kind = TypeVar("Kind", bound=type[Statistic])


@dataclass(frozen=True)
class Entry:
    """Where a statistic is, and how it is written.

    Attributes
    ----------
    module, kind : str
        A module, and the class in it.
    symbol : str
        In a picture, as TeX where it is mathematics.
    usual : bool
        Run if no statistic is named.
    """

    module: str
    kind: str
    symbol: str
    usual: bool = False

    @property
    def word(self) -> str:
        """The symbol as plain text: ``φ_U``."""
        plain = self.symbol.replace(r"\phi", "φ").replace(r"\ell_", "ℓ")
        return plain.translate(str.maketrans("", "", "${}"))


_HERE = "provlab.statistics"
REGISTRY = {
    "phi_u": Entry(f"{_HERE}.phi_u", "PhiU", r"$\phi_U$", usual=True),
    "phi_h": Entry(f"{_HERE}.phi_h", "PhiH", r"$\phi_H$", usual=True),
    "phi_l2": Entry(f"{_HERE}.phi_l2", "PhiL2", r"$\phi_{\ell_2}$", usual=True),
    "phi_l2_blocks": Entry(f"{_HERE}.phi_l2", "PhiL2Blocks", r"blocks' $\phi_{\ell_2}$"),
    "phi_jsd": Entry(f"{_HERE}.phi_jsd", "PhiJSD", r"$\phi_{JSD}$", usual=True),
    "phi_match": Entry(f"{_HERE}.phi_match", "PhiMatch", r"$\phi_{MATCH}$", usual=True),
    "phi_match_unsigned": Entry(f"{_HERE}.phi_match", "PhiMatchUnsigned", r"$\phi_{|MATCH|}$", usual=True),
    "phi_match_all": Entry(f"{_HERE}.phi_match_all", "PhiMatchAll", r"$\phi_{|MATCH|}$ of all blocks"),
    "phi_e": Entry(f"{_HERE}.phi_e", "PhiE", r"$\phi_E$"),
    "phi_axes": Entry(f"{_HERE}.phi_e", "PhiAxes", r"$\phi_{AXES}$"),
    "phi_unseen": Entry(f"{_HERE}.phi_unseen", "PhiUnseen", r"$\phi_{UNSEEN}$", usual=True),
    "stream_score": Entry(f"{_HERE}.phi_e", "StreamScore", "stream score"),
}


def _symbol(name: str) -> str:
    """How a name is written in a picture, unless its class says so: ``phi_views`` as an index in capitals."""
    stem, _, index = name.partition("_")
    return rf"$\phi_{{{index.upper()}}}$" if stem == "phi" and index.isalpha() else name


for _point in plugins.named(plugins.STATISTICS).values():
    REGISTRY.setdefault(_point.name, Entry(_point.module, _point.attr, _symbol(_point.name)))
#: what runs if no statistic is named
USUAL = tuple(name for name, entry in REGISTRY.items() if entry.usual)

_loaded: "dict[str, Statistic]" = {}


def register(kind: "Kind") -> "Kind":
    """Make a statistic of your own known by its name, in place of one of that name; usable as a decorator.

    Units in a store are found by name, code and options; raise `version` of a class that you typed into a notebook when
    you change what it computes.
    """
    REGISTRY[kind.name] = Entry(kind.__module__, kind.__qualname__, kind.symbol or _symbol(kind.name))
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
