"""The table that says in which of several files each tensor stands."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from provlab.errors import CheckpointError
from provlab.models.formats.container import TensorInfo

if TYPE_CHECKING:
    from provlab.models.formats.source import Files


def checked(source: "Files", index: str, table: object) -> dict[str, str]:
    """Check the table tensor -> shard.

    Raises
    ------
    CheckpointError
        It is none, or points outside the folder.
    """
    label = source.label
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{label}: {index} has no weight_map; copy it again")
    for tensor, shard in table.items():
        if not isinstance(shard, str) or not shard:
            raise CheckpointError(f"{label}: {index} gives no file name for {tensor}; copy it again")
        if shard != PurePosixPath(shard).name or "\\" in shard or shard == "..":
            raise CheckpointError(
                f"{label}: {index} points outside the folder, to {shard!r}; do not trust this checkpoint"
            )
    return table


def check(source: "Files", file: str, header: Mapping[str, TensorInfo], table: Mapping[str, str]) -> None:
    """Hold a file's tensors against the table.

    Raises
    ------
    CheckpointError
        One is missing, or more than the table knows.
    """
    promised = {tensor for tensor, shard in table.items() if shard == file}
    if absent := promised - set(header):
        raise CheckpointError(
            f"{source.label}: {file} lacks {min(absent)}, which the index places there; copy both again"
        )
    if extra := set(header) - promised:
        raise CheckpointError(
            f"{source.label}: {file} holds {min(extra)}, which the index does not place there; copy both again"
        )
