"""Weights that are pickles: read by torch, tensors and nothing else."""

import pickle
import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.errors import CheckpointError


def load(path: Path, label: str) -> dict[str, tuple[NDArray[np.uint8], str, tuple[int, ...]]]:
    """Unpickle tensors and nothing else, mapped instead of read where the format allows it.

    Returns
    -------
    dict
        Name -> bytes, dtype by torch's name, and shape.

    Raises
    ------
    CheckpointError
        The file holds something else; what torch raises for a damaged one is left to the caller.
    """
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
    return {
        name: (
            value.contiguous().reshape(-1).view(torch.uint8).numpy(),
            str(value.dtype).removeprefix("torch."),
            tuple(value.shape),
        )
        for name, value in content.items()
    }
