"""Cache of expensive arrays, under the digest of all that they depend on: read back whole, or refused in one line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.codehash import code_digest
from provlab.files import atomic_file, digest, reading

Arrays = dict[str, NDArray[Any]]


def read_arrays(path: Path) -> Arrays:
    """Return the arrays that `write_arrays` wrote, by name.

    Raises
    ------
    CheckpointError
        The file is damaged.
    """
    with reading(path), path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays under their names, whole or not at all."""
    with atomic_file(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ArrayCache:
    """A folder of arrays under the hash of all that they depend on, the code that makes them among it.

    Attributes
    ----------
    folder
        Made when the first arrays are written.
    """

    folder: Path

    def path(self, what: str, parts: Mapping[str, Any], make: Callable[..., Any]) -> Path:
        """Where the arrays of a key are, or will be, which a function makes (`provlab.codehash.code_digest`)."""
        return self.folder / f"{what}-{digest({'code': code_digest(make), **parts})[:24]}.npz"

    def get(self, what: str, parts: Mapping[str, Any], make: Callable[[], Arrays]) -> Arrays:
        """Return the arrays under a key, made and written first if they are not there."""
        path = self.path(what, parts, make)
        if not path.exists():
            write_arrays(path, make())
        return read_arrays(path)
