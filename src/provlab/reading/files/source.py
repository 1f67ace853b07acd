"""The interface of a place of files, local or on the hub; for type checkers alone."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Files(Protocol):
    """Where a checkpoint's files come from: a local folder or the hub."""

    label: str
    chosen: str
    commit: str | None

    def names(self) -> frozenset[str]:
        """Names of all files."""

    def path(self, name: str) -> Path:
        """Path of a file here, fetched first if need be."""

    def read(self, name: str, start: int, nbytes: int) -> NDArray[np.uint8]:
        """Some bytes of a file, fetched first if need be: fewer if it ends before."""

    def with_header(self, name: str) -> AbstractContextManager[Path]:
        """Yield the path of a safetensors file whose header, at least, is here."""

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def here(self, name: str) -> bool:
        """Whether a file is on this machine already."""

    def in_part(self, name: str) -> bool:
        """Whether `read` takes no more of a file than it is asked for, which cannot be verified."""

    def sha256(self, name: str) -> str:
        """Hex SHA-256 of a file."""

    def tensor_hashes(self, name: str) -> dict[str, str] | None:
        """Hex SHA-256 of the bytes of each tensor in a file on this machine; None where that is not known."""

    def hash_known(self, name: str) -> bool:
        """Whether `sha256` reads no file."""

    def whole(self, weight_files: Iterable[str]) -> Path:
        """Folder with all files that loading the model needs, these weight files among them."""
