"""Names of a package that are loaded on first use, so that importing the package costs nothing."""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from provlab.extras import missing


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``: each name of `homes` is looked up in the module that it is mapped to."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with warnings.catch_warnings():  # of a progress bar that we do not use in notebooks
            warnings.filterwarnings("ignore", message="IProgress not found")
            try:
                return getattr(import_module(homes[name]), name)
            except ModuleNotFoundError as error:
                if told := missing(error):
                    raise told from error
                raise

    return find
