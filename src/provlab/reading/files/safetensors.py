"""Weights in safetensors: a header, and each tensor in one piece behind it."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from provlab.errors import CheckpointError
from provlab.reading.files.container import TensorInfo, damaged
from provlab.reading.files.dtypes import BY_SAFETENSORS

if TYPE_CHECKING:
    from provlab.reading.files.source import Files


class SafetensorsFile:
    """One file, see `provlab.reading.files.container.Container`."""

    config = None

    def __init__(self, source: "Files", file: str) -> None:
        """Read the header with the format's own parser, which checks offsets against the file's length.

        It also refuses files with holes: tensors stand one behind the other, from the header to the end of the file.
        """
        self._source, self._file = source, file
        self.header: dict[str, TensorInfo] = {}
        self.written_by = ""  # the program that the file's header names: pt, mlx, ...
        try:
            with source.with_header(file) as path, safe_open(path, framework="numpy") as stream:
                self.written_by = (stream.metadata() or {}).get("format", "")
                with path.open("rb") as content:
                    start = 8 + int.from_bytes(content.read(8), "little")
                for name in stream.offset_keys():
                    view = stream.get_slice(name)
                    dtype = BY_SAFETENSORS.get(view.get_dtype())
                    if dtype is None:
                        raise CheckpointError(
                            f"{source.label}: {name} has the dtype {view.get_dtype()}, which is not read; give the "
                            "checkpoint that it was made from"
                        )
                    self.header[name] = TensorInfo(tuple(view.get_shape()), dtype, start)
                    start += self.header[name].nbytes
        except (SafetensorError, OSError) as error:
            raise damaged(source, file, error) from error

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it, and nothing else is read."""
        info = self.header[name] if rows is None else self.header[name].some(rows)
        try:
            content = self._source.read(self._file, info.start, info.nbytes)
        except OSError as error:
            raise damaged(self._source, self._file, error) from error
        if content.nbytes < info.nbytes:  # cut off since its header was read
            raise damaged(self._source, self._file, EOFError(f"{name} is not all there"))
        return content
