"""What the library's core reaches by entry points alone: the parts that one may live without, and other packages.

- `SCHEMES`: what stands before the colon of a source such as ``zoo:oak``. The entry point names a module, or an object,
  with ``locate(name) -> Path``. It may have ``expand(name) -> list of names``, which says what a name such as ``*``
  stands for; ``names()``, which lists those that a shell completes; ``check(name)``, which refuses a name that it does
  not have before any work is done for others; ``prepare(names)``, which makes what is missing together;
  ``parent(name) -> (source or None, label)``, or None where that is unknown; ``untrained(name) -> str or None``, how a
  model that is not there yet comes to be; and ``text() -> str``, prose that none of its models was trained on. A
  function alone locates.
- `CONTAINERS`: kinds of files of weights, each a `provlab.reading.files.container.Format`, named by the files' ending.
- `FORMATS`: modules that read weights which are not plain, ``codes``, ``adapter`` and ``part`` of a model; `CODES` of
  each are the names of the codes that it reads.
- `COMMANDS`: modules with ``command``, a command of click.
- `DOORS`: questions beyond those of the core. A module with the function of this name; `SCHEMA`, the form of its JSON;
  and ``ask_again(sources, kept, **arguments)``, which asks without a store, what it must keep in the folder `kept`.
  That of ``diff`` has ``trial``, which plans try.
- `STATISTICS`: subclasses of `provlab.statistics.base.Statistic`: tests and scores, which help and reports list.
- `MEASUREMENTS`: the same, of what is no test: found by name alone.
"""

__makes_no_numbers__ = True

from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from types import MappingProxyType
from typing import Any

from provlab.errors import CheckpointError

SCHEMES = "provlab.schemes"
CONTAINERS = "provlab.containers"
FORMATS = "provlab.formats"
COMMANDS = "provlab.commands"
DOORS = "provlab.doors"
STATISTICS = "provlab.statistics"
MEASUREMENTS = "provlab.measurements"


@cache
def _installed() -> Any:
    """Look once through what is installed: that takes 0.03 s, and each command asks for several groups."""
    return metadata.entry_points()


@cache
def named(group: str) -> Mapping[str, metadata.EntryPoint]:
    """Entry points of a group, by name; what is installed later is seen by the next process."""
    return MappingProxyType({point.name: point for point in _installed().select(group=group)})


def hook(scheme: str, what: str) -> Callable[..., Any] | None:
    """Return what a scheme can do, such as ``locate`` or ``expand``; None if it cannot, or is not there."""
    point = named(SCHEMES).get(scheme)
    loaded = point.load() if point else None
    function: Callable[..., Any] | None = getattr(loaded, what, loaded if what == "locate" else None)
    return function


def door(name: str) -> Any:
    """Return the module that answers a question which is none of the core's; None if no door has that name."""
    point = named(DOORS).get(name)
    return point.load() if point else None


def reader(name: str, source: str) -> Any:
    """Return the module that reads a format of weights, for a source that needs it.

    Raises
    ------
    CheckpointError
        If it is not installed.
    """
    if (point := named(FORMATS).get(name)) is None:
        raise CheckpointError(f"{source} needs what reads {name}, which is not installed; install provlab again")
    return point.load()


def default_text() -> str | None:
    """Prose that a scheme offers, which none of its models was trained on; None if none does."""
    for _, point in sorted(named(SCHEMES).items()):
        try:
            text = getattr(point.load(), "text", None)
        except ImportError:  # what is not there offers nothing
            continue
        if text is not None:
            return str(text())
    return None
