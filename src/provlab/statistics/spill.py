"""Features of many large models, kept in memory while they are small and on disk beyond that."""

import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from provlab.statistics.base import Array

IN_MEMORY = 2**30  # bytes of one model's features; 21 zoo models need a hundredth, a 7B model three times as much


def keep(arrays: Sequence[Array], limit: int = IN_MEMORY) -> list[Array]:
    """Return the arrays as they are, or as read-only maps of temporary files if together they pass `limit` bytes.

    The files vanish with the last of the arrays, at the latest when the process ends.
    """
    if sum(array.nbytes for array in arrays) <= limit:
        return list(arrays)
    folder = tempfile.TemporaryDirectory(prefix="provlab-features-")
    maps = []
    for i, array in enumerate(arrays):
        path = Path(folder.name) / f"{i}.npy"
        np.save(path, array)
        maps.append(np.load(path, mmap_mode="r"))
    alive = {id(one) for one in maps}

    def gone(which: int) -> None:
        alive.discard(which)
        if not alive:
            folder.cleanup()

    for one in maps:
        weakref.finalize(one, gone, id(one))
    return maps
