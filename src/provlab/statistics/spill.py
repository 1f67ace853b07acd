"""Features of many large models, kept in memory while they are small and on disk beyond that."""

from collections.abc import Sequence

from provlab.inference.matching import UnitRows
from provlab.models.room import IN_MEMORY, Room
from provlab.statistics.base import Array


def keep(arrays: Sequence[Array], limit: int = IN_MEMORY) -> list[Array]:
    """Return the arrays as they are, or as read-only maps of temporary files if together they pass `limit` bytes.

    The files vanish with the last of the arrays, at the latest when the process ends. What is made piece by piece
    should be written into a `provlab.models.room.Room` from the start, as activations are.
    """
    if sum(array.nbytes for array in arrays) <= limit:
        return list(arrays)
    room = Room([(array.shape[0], array.shape[1]) for array in arrays], in_memory=0)
    for i, array in enumerate(arrays):
        room.write(i, 0, array)
    return room.arrays()


def keep_units(rows: UnitRows, limit: int = IN_MEMORY) -> UnitRows:
    """Return unit rows as they are, or with a read-only map of a temporary file in the place of a large matrix."""
    return UnitRows(keep([rows.unit], limit)[0], rows.rows, rows.scales, rows.lengths)
