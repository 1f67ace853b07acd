"""Weights that torch pickled, read by ``torch.load(weights_only=True)``: tensors and plain values, and no code is run.

Files in torch's zip layout are mapped into memory; older ones are read whole. A crafted file runs no code, but one with
tuples within tuples as keys keeps torch busy without end: pickles are read from sources that are trusted alone.
"""

import argparse
import math
import re
import warnings
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.reading.files.container import TensorInfo, damaged
from provlab.reading.files.dtypes import DTYPES

if TYPE_CHECKING:
    from pathlib import Path

    from provlab.reading.files.source import Files

#: under which of its keys a training checkpoint has the weights: fairseq, Lightning, DeepSpeed and others
_INNER = ("model", "state_dict", "model_state_dict", "module")
_PICKLES = (b"PK", b"\x80")  # how a file of either layout begins
_REFUSED = re.compile(r"(?:GLOBAL|class|function|instantiate) ([A-Za-z_][\w.]*)")  # in torch's words
_CAUSE = re.compile(r"WeightsUnpickler error:\s+(.+)")  # the rest of the message is advice


class PickledFile:
    """One file, see `provlab.reading.files.container.Container`."""

    config = None

    def __init__(self, source: "Files", file: str) -> None:
        """Load the table of tensors; a file on the hub is fetched whole."""
        self._source, self._file = source, file
        label, path = f"{source.label}: {file}", source.path(file)
        self._size = source.size(file)
        try:
            content = _load(path)
        except Exception as error:  # torch raises errors of many kinds for a damaged file
            with path.open("rb") as stream:
                begins = stream.read(2)
            if not begins.startswith(_PICKLES):
                raise damaged(source, file, error) from error
            if refused := _REFUSED.search(str(error)):
                raise CheckpointError(
                    f"{label} holds more than weights ({refused[1][:100]}) and is not loaded; convert it to safetensors"
                ) from error
            cause = advice[1] if (advice := _CAUSE.search(str(error))) else one_line(error)
            raise CheckpointError(f"{label} is truncated or corrupt ({cause[:120]}); copy it again") from error
        self._tensors = _table(content)
        if not self._tensors:
            raise CheckpointError(f"{label} is no table of tensors by name; save the model's state_dict() alone")
        self.header = {name: _info(label, name, tensor) for name, tensor in self._tensors.items()}

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it."""
        if self._source.size(self._file) != self._size:  # memory that is mapped to no file any more ends the process
            raise CheckpointError(f"{self._source.label}: {self._file} was changed since it was opened; open it again")
        tensor = self._tensors[name]
        some = tensor if rows is None else tensor[rows.start : rows.stop]
        content: NDArray[np.uint8] = some.contiguous().reshape(-1).view(torch.uint8).numpy()
        return content.copy()


def _load(path: "Path") -> Any:
    """Load a file's plain content; ``argparse.Namespace`` is plain too, in which fairseq keeps its settings."""
    zipped = zipfile.is_zipfile(path)
    if zipped:
        with zipfile.ZipFile(path) as archive:
            # torch would map the compressed bytes
            if any(entry.compress_type for entry in archive.infolist() if "/data/" in entry.filename):
                raise ValueError("its tensors are compressed")
    with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)


def _table(content: Any) -> dict[str, torch.Tensor]:
    """Return the tensors by name, from as far within as training checkpoints have them; a number is no weight."""
    for _ in range(len(_INNER) + 1):
        if not isinstance(content, Mapping):
            break
        tensors = {name: value.detach() for name, value in content.items() if isinstance(value, torch.Tensor)}
        inner = [content[key] for key in _INNER if isinstance(content.get(key), Mapping)]
        if tensors or not inner:
            return tensors
        content = inner[0]
    return {}


def _info(label: str, name: Any, tensor: torch.Tensor) -> TensorInfo:
    """Return the shape and dtype of a tensor whose numbers all stand in the file."""
    shown = one_line(str(name))[:100]
    if not isinstance(name, str) or not name.isprintable():
        raise CheckpointError(f"{label}: {shown} is no name of a tensor; copy it again")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        kind = dtype if dtype not in DTYPES else tensor.layout if tensor.layout is not torch.strided else tensor.device
        raise CheckpointError(f"{label}: {shown} is a tensor of the unsupported kind {kind}; save it as float32")
    info = TensorInfo(tuple(tensor.shape), dtype)
    if math.prod(info.shape) and info.nbytes > tensor.untyped_storage().nbytes():  # repeated, so of any size in memory
        raise CheckpointError(f"{label}: {shown} is larger than its storage; save it with .contiguous()")
    return info
