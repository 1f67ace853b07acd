"""Room for arrays that are filled piece by piece: memory while they are small, temporary files beyond that."""

import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

#: bytes of one model's features that stay in memory; a zoo model needs a hundredth, a 7B model six times as much
IN_MEMORY = 2**30


class Room:
    """Float32 matrices of known shapes, filled by columns and then read.

    Where all of them together pass `in_memory` bytes they are files from the start, and a file is mapped only while
    columns are written to it: what is resident is one batch, whatever the number of columns. The files' space is
    claimed at once, so that a full disk is an error here and not a crash in the middle of writing.

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
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._arrays: list[Array] = []
        self._paths: list[Path] = []
        if sum(4 * rows * columns for rows, columns in shapes) <= limit:
            self._arrays = [np.empty(shape, dtype=np.float32) for shape in shapes]
            return
        self._folder = tempfile.TemporaryDirectory(prefix="provlab-features-")
        try:
            for i, shape in enumerate(shapes):
                path = Path(self._folder.name) / f"{i}.npy"
                np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
                if hasattr(os, "posix_fallocate"):
                    with path.open("r+b") as file:
                        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
                self._paths.append(path)
        except OSError:
            self.discard()
            raise

    def write(self, which: int, start: int, columns: Array) -> None:
        """Put ``(rows, n)`` values into the columns from `start` on of one matrix."""
        target = np.load(self._paths[which], mmap_mode="r+") if self._paths else self._arrays[which]
        target[:, start : start + columns.shape[1]] = columns

    def arrays(self) -> list[Array]:
        """Return the matrices: plain arrays, or read-only maps whose files vanish with the last of them."""
        if self._folder is None:
            return self._arrays
        folder = self._folder
        maps: list[Array] = [np.load(path, mmap_mode="r") for path in self._paths]
        alive = {id(one) for one in maps}

        def gone(which: int) -> None:
            alive.discard(which)
            if not alive:
                folder.cleanup()

        for one in maps:
            weakref.finalize(one, gone, id(one))
        return maps

    def discard(self) -> None:
        """Give the room back before it is filled."""
        self._arrays, self._paths = [], []
        if self._folder is not None:
            self._folder.cleanup()
