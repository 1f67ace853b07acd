"""What libraries wrote as codes, and what they read from it: see ``benchmarks/coded_references.py``, which made the file."""

import json
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.formats.codes import coded_weights
from provlab.reading.declared import Declared
from provlab.reading.files.container import TensorInfo
from provlab.reading.files.dtypes import itemsize

MODULE = "model.layers.0.mlp.up_proj"


class Reference(NamedTuple):
    """The tensors of one weight by what stands behind its module's name, the config, and the numbers."""

    config: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...], bytes]]
    numbers: NDArray[np.float32]

    def named(self, module: str = MODULE) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
        """Return dtype, shape and bytes of each tensor, by its whole name."""
        return {f"{module}.{ending}": tensor for ending, tensor in self.tensors.items()}


@cache
def references() -> dict[str, Reference]:
    """All of them, by their labels."""
    with np.load(Path(__file__).parents[1] / "formats" / "references.npz") as file:
        index, data, at = json.loads(str(file["index"])), file["data"].tobytes(), 0
    made = {}
    for label, case in index.items():
        tensors = {}
        for ending, (dtype, shape) in case["tensors"].items():
            size = prod(shape) * itemsize(dtype)
            tensors[ending] = dtype, tuple(shape), data[at : at + size]
            at += size
        _, shape, numbers = tensors.pop("")
        made[label] = Reference(case["config"], tensors, np.frombuffer(numbers, np.float32).reshape(shape))
    return made


def read(
    reference: Reference, config: dict[str, Any], beside: dict[str, Any] | None = None, rows: range | None = None
) -> NDArray[np.float32]:
    """Read its tensors under a config, and files beside it, as `CodedWeights` does."""
    tensors = reference.named()

    def info(name: str) -> TensorInfo:
        return TensorInfo(tensors[name][1], tensors[name][0])

    def content(name: str, rows: range | None) -> NDArray[np.uint8]:
        whole = np.frombuffer(tensors[name][2], np.uint8)
        if rows is None:
            return whole
        width = len(whole) // tensors[name][1][0]
        return whole[rows.start * width : rows.stop * width]

    coded = coded_weights(tensors, Declared(config, beside), info, content)[f"{MODULE}.weight"]
    result = coded.read(rows)
    assert result.shape == (coded.info.shape if rows is None else (len(rows), *coded.info.shape[1:]))
    return result
