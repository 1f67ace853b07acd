"""Packages that one part of provlab needs and `compare` does not: each comes with an extra, which an error names."""

from importlib import import_module
from typing import Any

from provlab.errors import ProvlabError

__makes_no_numbers__ = True

#: package -> the extra of provlab that brings it; pyproject.toml has the same, by extra
EXTRAS = {
    "numba": "fast",
    "matplotlib": "pictures",
    "pandas": "pictures",
    "seaborn": "pictures",
    "peft": "zoo",
}


class MissingPackageError(ProvlabError, ImportError):
    """A package that comes with an extra is not installed; the message has the command."""


def missing(error: ImportError) -> MissingPackageError | None:
    """Return an error with the way out, for an import of one of `EXTRAS` that failed; None for any other import."""
    name = (error.name or "").partition(".")[0]
    if name not in EXTRAS:
        return None
    return MissingPackageError(f"this needs {name}, which is not installed; {command(name)}")


def command(name: str) -> str:
    """Return what installs a package of `EXTRAS`."""
    return f"pip install 'provlab[{EXTRAS[name]}]' brings it"


def need(name: str) -> Any:
    """Import a package of `EXTRAS`.

    Raises
    ------
    MissingPackageError
        It is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if told := missing(error):
            raise told from error
        raise
