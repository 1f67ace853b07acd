"""Finished results on disk, written whole or not at all and found again by key.

A *unit* is one statistic on one block of one pair; its key is the hash of all that its numbers depend on, so a finished
unit is never computed again.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.files import atomic_file, digest, reading, write_json

UNIT = ("value", "log10_p", "detail")


def read_json(path: Path, keys: tuple[str, ...] = ()) -> Any:
    """Read a stored result, a mapping with `keys` if there are any; a damaged file is named with the way out."""
    with reading(path):
        content = json.loads(path.read_text(encoding="utf-8"))
        if keys and not (isinstance(content, dict) and set(keys) <= content.keys()):
            raise ValueError(f"it must hold {', '.join(keys)}")
    return content


@dataclass(frozen=True)
class Store:
    """Finished results below one folder.

    Attributes
    ----------
    root : Path
        Made when the first result is written.
    """

    root: Path

    @staticmethod
    def key(**parts: Any) -> str:
        """Hash of all that a unit's numbers depend on."""
        return digest(parts)

    def _unit(self, key: str) -> Path:
        return self.root / "units" / key[:2] / f"{key}.json"

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the finished unit under `key`, or None."""
        path = self._unit(key)
        return read_json(path, UNIT) if path.exists() else None

    def put(self, key: str, unit: dict[str, Any], matching: NDArray[np.int64] | None = None) -> None:
        """Keep a finished unit, and the matching behind it if there is one."""
        path = self._unit(key)
        if matching is not None:  # first, so that a unit that is there is whole
            with atomic_file(path.with_suffix(".npy")) as temporary:
                np.save(temporary, matching.astype(np.int32))
        write_json(path, unit)

    def matching(self, key: str) -> NDArray[np.int64] | None:
        """Return the matching kept with a unit, ``(h,)`` int64, or None."""
        path = self._unit(key).with_suffix(".npy")
        if not path.exists():
            return None
        with reading(path):
            return np.load(path).astype(np.int64)
