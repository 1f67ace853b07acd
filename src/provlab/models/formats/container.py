"""A file of weights, whatever its format: which tensors stand in it, and the bytes of each.

A further format is one module here with one class, a `Container`, and its line in `FORMATS`.
"""

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.models.formats.dtypes import itemsize

if TYPE_CHECKING:
    from provlab.models.formats.source import Files


class TensorInfo(NamedTuple):
    """Shape and dtype (by torch's name) of a tensor as it is read, as the file's header gives them.

    Where it stands in the file is its container's own affair: `start` is where its bytes begin, if it stands there
    byte for byte; `stored` names the codes that it is made from, such as ``Q4_K``, and is empty where there are none.
    """

    shape: tuple[int, ...]
    dtype: str
    start: int = 0
    stored: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor as it is read."""
        return math.prod(self.shape) * itemsize(self.dtype)

    def some(self, rows: range) -> "TensorInfo":
        """Return the same of some of its rows, which lie together in the file."""
        before = self._replace(shape=(rows.start, *self.shape[1:])).nbytes
        return self._replace(shape=(len(rows), *self.shape[1:]), start=self.start + before)


class Container(Protocol):
    """One file of weights whose header has been read and checked; made from where the file is, and its name.

    Attributes
    ----------
    header
        Every tensor by the name that transformers gives it.
    config
        What the file itself says of the model, in the words of ``config.json``; None if it says nothing.
    beside
        Further files, in which some of its tensors lie.
    """

    header: Mapping[str, TensorInfo]
    config: dict[str, Any] | None
    beside: tuple[str, ...]

    def __init__(self, source: "Files", file: str) -> None:
        """Read the header; raise CheckpointError, as by `damaged`, for a file that has none."""

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it alone, in the dtype of its header."""


class Format(NamedTuple):
    """A kind of file: who reads it, what the one file of a checkpoint is called, and the table of several.

    Attributes
    ----------
    reader
        The class of its `Container`, with its module.
    single
        Pattern of the one file's name.
    table
        Name of the table of shards; empty where there is none.
    pickled
        It must be trusted, as it can hold code.
    """

    reader: str
    single: str
    table: str = ""
    pickled: bool = False

    def opened(self, source: "Files", file: str) -> Container:
        """Open one file."""
        module, _, reader = self.reader.rpartition(".")
        container: Container = getattr(import_module(module), reader)(source, file)
        return container

    def alone(self, names: Iterable[str]) -> list[str]:
        """Those among the files that can be the one file of a checkpoint, sorted."""
        return sorted(name for name in names if fnmatchcase(name, self.single))


_SAFETENSORS, _PICKLED = "provlab.models.formats.safetensors", "provlab.models.formats.pickled"
#: in the order in which they are looked for
FORMATS = (
    Format(f"{_SAFETENSORS}.SafetensorsFile", "model.safetensors", "model.safetensors.index.json"),
    Format(f"{_PICKLED}.PickledFile", "pytorch_model.bin", "pytorch_model.bin.index.json", pickled=True),
    Format("provlab.models.formats.gguf.GgufFile", "*.gguf"),
    Format("provlab.models.formats.onnx.OnnxFile", "*.onnx"),
)


def format_of(names: frozenset[str]) -> Format | None:
    """Return the format in which the weights among these files are read; None where there are none."""
    if found := next((one for one in FORMATS if one.table in names or one.alone(names)), None):
        return found
    from provlab.models.formats import others  # rarely needed

    pickles = others.pickles(names)
    return Format(f"{_PICKLED}.PickledFile", pickles[0], pickled=True) if len(pickles) == 1 else None


def damaged(source: "Files", file: str, error: Exception) -> CheckpointError:
    """Put into words that a file is not what its name says."""
    from provlab.models import diagnose  # only then

    label = f"{source.label}: {file}"
    if not source.in_part(file) and (told := diagnose.content(source.path(file))):
        return CheckpointError(f"{label} holds no weights; {told}")
    return CheckpointError(f"{label} is truncated or corrupt ({one_line(error)}); copy it again")
