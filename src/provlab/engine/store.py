"""Finished results on disk, written whole or not at all and found again by key.

A result is of one statistic on one pair at one place; its key is the hash of all that its numbers depend on, so a
finished result is never computed again.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.files import atomic_file, digest, reading, write_json

KEYS = ("value", "log10_p", "detail")


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
        """Hash of all that a result's numbers depend on."""
        return digest(parts)

    def _file(self, key: str) -> Path:
        return self.root / "units" / key[:2] / f"{key}.json"

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the finished result under `key`, or None."""
        path = self._file(key)
        return read_json(path, KEYS) if path.exists() else None

    def put(self, key: str, result: dict[str, Any], matching: NDArray[np.int64] | None = None) -> None:
        """Keep a finished result, and the matching behind it if there is one."""
        path = self._file(key)
        if matching is not None:  # first, so that a result that is there is whole
            with atomic_file(path.with_suffix(".npy")) as temporary:
                np.save(temporary, matching.astype(np.int32))
        write_json(path, result)

    def matching(self, key: str) -> NDArray[np.int64] | None:
        """Return the matching kept with a result, ``(h,)`` int64, or None."""
        path = self._file(key).with_suffix(".npy")
        if not path.exists():
            return None
        with reading(path):
            return np.load(path).astype(np.int64)
