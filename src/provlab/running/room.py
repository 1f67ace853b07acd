"""Room for large arrays: memory while they are small, files beyond that, and one way back from files.

A file is a ``.npy`` named after its array, and a folder holds the arrays of one thing. Files are mapped, not read: an
array costs what is looked at, and any process may have it. `Room` and `stacked` take arrays that are made piece by
piece, by columns or by rows, in temporary files; `save` writes a folder that stays.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from provlab.files import atomic_folder

Array = NDArray[np.float32]

#: bytes of one model's features that stay in memory; a zoo model needs a hundredth, a 7B model six times as much
IN_MEMORY = 2**30


class Room:
    """Float32 matrices of known shapes, filled by columns and then read.

    Where all of them together pass `in_memory` bytes they are files without a name, which vanish with their last map. A
    file is mapped only while columns are written to it: what is resident is one batch, whatever the number of columns.
    The files' space is claimed at once, so that a full disk is an error here and not a crash in the middle of writing.

    Parameters
    ----------
    shapes
        Rows and columns of each matrix.
    in_memory
        Bytes up to which nothing goes to disk; `IN_MEMORY` if not given.

    Raises
    ------
    OSError
        The disk has no room for the files.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], *, in_memory: int | None = None) -> None:
        limit = IN_MEMORY if in_memory is None else in_memory
        self._shapes = shapes
        self._arrays: list[Array] = []
        self._files: list[IO[bytes]] = []
        if sum(4 * rows * columns for rows, columns in shapes) <= limit:
            self._arrays = [np.empty(shape, dtype=np.float32) for shape in shapes]
            return
        for rows, columns in shapes:
            file = tempfile.TemporaryFile(prefix="provlab-features-")  # noqa: SIM115 - closed with the room
            self._files.append(file)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, 4 * rows * columns)
            else:
                file.truncate(4 * rows * columns)

    def __del__(self) -> None:  # what is mapped stays until its map goes
        for file in self._files:
            file.close()

    def _mapped(self, which: int, mode: Literal["r", "r+"]) -> Array:
        return np.memmap(self._files[which], np.float32, mode, shape=self._shapes[which])

    def write(self, which: int, start: int, columns: Array) -> None:
        """Put ``(rows, n)`` values into the columns from `start` on of one matrix."""
        target = self._mapped(which, "r+") if self._files else self._arrays[which]
        target[:, start : start + columns.shape[1]] = columns

    def write_rows(self, which: int, start: int, rows: Array) -> None:
        """Put ``(n, columns)`` values into the rows from `start` on of one matrix."""
        target = self._mapped(which, "r+") if self._files else self._arrays[which]
        target[start : start + len(rows)] = rows

    def arrays(self) -> list[Array]:
        """Return the matrices: plain arrays, or read-only maps."""
        return [self._mapped(which, "r") for which in range(len(self._files))] or self._arrays


class Stack:
    """Parts ``(n, columns)`` as one matrix, with no more than one part beside it.

    Where it passes `IN_MEMORY` bytes it is a read-only map of a temporary file, which vanishes with the array, at the
    latest when the process ends.

    Parameters
    ----------
    rows
        Those of all parts together.
    """

    def __init__(self, rows: int) -> None:
        self._rows, self._done = rows, 0
        self._room: Room | None = None

    def add(self, part: Array) -> None:
        """Put a part below the others."""
        self._room = self._room or Room([(self._rows, part.shape[1])])
        self._room.write_rows(0, self._done, part)
        self._done += len(part)

    @property
    def whole(self) -> bool:
        """Whether all rows are there."""
        return self._done == self._rows

    def array(self) -> Array:
        """Return the matrix, which is whole."""
        assert self._room is not None
        assert self.whole
        return self._room.arrays()[0]


def stacked(parts: Iterable[Array], rows: int) -> Array:
    """Return parts as one matrix of `rows` rows, see `Stack`."""
    stack = Stack(rows)
    for part in parts:
        stack.add(part)
    return stack.array()


def save(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name into a folder of their own, all or none."""
    with atomic_folder(folder) as temporary:
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array)


def load(folder: Path) -> dict[str, NDArray[Any]]:
    """Map the arrays of a folder, read-only, by name."""
    return {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
