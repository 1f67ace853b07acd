"""Weights that are pickles: read by torch, tensors and nothing else."""

import pickle
import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError
from provlab.models.formats.container import TensorInfo, damaged
from provlab.models.formats.dtypes import DTYPES

if TYPE_CHECKING:
    import torch

    from provlab.models.formats.source import Files


class PickledFile:
    """One file, see `provlab.models.formats.container.Container`; its tensors are mapped where the format allows it."""

    config = None

    def __init__(self, source: "Files", file: str) -> None:
        """Unpickle tensors and nothing else."""
        try:
            self._tensors = _unpickled(source, file)
        except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
            raise damaged(source, file, error) from error
        self.header: dict[str, TensorInfo] = {}
        for name, tensor in self._tensors.items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            if dtype not in DTYPES:
                raise CheckpointError(f"{source.label}: {name} has the unsupported dtype {dtype}")
            self.header[name] = TensorInfo(tuple(tensor.shape), dtype)

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it."""
        import torch

        tensor = self._tensors[name] if rows is None else self._tensors[name][rows.start : rows.stop]
        content: NDArray[np.uint8] = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        return content


def _unpickled(source: "Files", file: str) -> "dict[str, torch.Tensor]":
    import torch

    path, label = source.path(file), f"{source.label}: {file}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what cannot be read is refused below
            try:
                content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except RuntimeError:  # the old format without a zip archive cannot be mapped
                content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{label} holds more than weights and is not loaded; convert it to safetensors"
        ) from error
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in content.items()
    ):
        raise CheckpointError(f"{label} is no table of tensors by name")
    return content
