"""Weights written as safetensors, one tensor at a time."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.reading.files.container import TensorInfo
from provlab.reading.files.dtypes import BY_SAFETENSORS


def write_safetensors(
    path: Path, tensors: Mapping[str, TensorInfo], content: Callable[[str], Iterable[NDArray[Any]]]
) -> None:
    """Write a file as its tensors come, piece by piece: the header is known beforehand.

    The format: eight bytes with the header's length, the header as JSON, and the tensors' bytes without a gap.
    """
    names = {dtype: name for name, dtype in BY_SAFETENSORS.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, info in tensors.items():
        start, end = end, end + info.nbytes
        header[name] = {"dtype": names[info.dtype], "shape": list(info.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for name in tensors:
            for piece in content(name):
                stream.write(np.ascontiguousarray(piece).data)
        if stream.tell() != 8 + len(text) + end:
            raise AssertionError(f"{path.name}: the tensors do not fill what the header promises")
