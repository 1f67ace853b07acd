"""A stand-in for a model: one block of the same shapes in the same dtypes, and random numbers in them.

It costs what the model costs, block by block, and needs no weight of it: a config and the headers will do.
"""

import math
import shutil
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from provlab.engine.memory import gigabytes
from provlab.errors import InputError
from provlab.files import write_json
from provlab.reading.architectures import KEYS, described
from provlab.reading.files.container import TensorInfo
from provlab.reading.files.writing import write_safetensors
from provlab.reading.roles import TensorPart
from provlab.reading.weights import CONFIG
from provlab.statistics.model import Model

_DEVIATION = 0.02  # of the numbers, as initialisations have it
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_AT_ONCE = 2**22  # numbers
_ONE = {"bfloat16": np.uint16(0x3F80)}


def write_stand_in(model: Model, folder: Path, *, vocabulary: int | None = None, seed: int) -> Path:
    """Write the stand-in of a model as a checkpoint without a tokenizer.

    Parameters
    ----------
    model
        Known by its shapes.
    folder
        A new one.
    vocabulary
        How many tokens it has, at most; as many as the model by default.
    seed
        Another seed gives a stranger of the same shapes.

    Raises
    ------
    InputError
        A part of a model has no stand-in; or the disk is too small for one block.
    """
    anatomy, name = model.anatomy, model.checkpoint.name
    if anatomy.part_name or anatomy.within:
        raise InputError(f"{name} is a part of a model, of which no block can be tried on its own")
    tokens = min(vocabulary or anatomy.vocab_size, anatomy.vocab_size)
    tensors = {
        part.name: TensorInfo(_shape(part, tokens), _dtype(model, part.name))
        for part in anatomy.parts
        if part.block in (None, 0)
    }
    matrices = {part.name for part in anatomy.parts if len(part.shape) > 1}
    biases = {part.name for part in anatomy.parts if part.segments[0].role.endswith("_bias")}
    folder.mkdir(parents=True)
    needed, free = sum(tensor.nbytes for tensor in tensors.values()), shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"a block of {name} takes {gigabytes(needed)}, and {folder} has {gigabytes(free)} free; set TMPDIR to a "
            "folder on a larger disk"
        )
    rng = np.random.default_rng(seed)

    def content(name: str) -> Iterator[NDArray[Any]]:
        info = tensors[name]
        if name in matrices:
            yield from _normal(math.prod(info.shape), info.dtype, rng)
        elif name in biases:
            yield np.zeros(info.nbytes, np.uint8)
        else:  # of a norm
            yield np.full(info.shape, _ONE.get(info.dtype, 1), "uint16" if info.dtype in _ONE else info.dtype)

    write_safetensors(folder / "model.safetensors", tensors, content)
    write_json(folder / CONFIG, one_block(model, tokens))
    return folder


def one_block(model: Model, tokens: int) -> dict[str, Any]:
    """Return the config of a model with one block and so many tokens."""
    config, blocks = deepcopy(dict(model.checkpoint.config)), model.anatomy.n_blocks
    own = described(model.anatomy.architecture).keys
    depths = {*KEYS["blocks"], own.get("blocks"), own.get("decoders")}
    for key, value in config.items():
        if isinstance(value, list) and len(value) == blocks:  # an entry for each block
            config[key] = value[:1]
        elif key in depths and isinstance(value, int):
            config[key] = 1
    return config | {"vocab_size": tokens, "architectures": [model.anatomy.architecture]}


def _shape(part: TensorPart, tokens: int) -> tuple[int, ...]:
    axes = part.segments[0].axes[:: -1 if part.transposed else 1]
    if "vocab" not in axes:
        return part.shape
    at = axes.index("vocab")
    return (*part.shape[:at], tokens, *part.shape[at + 1 :])


def _dtype(model: Model, name: str) -> str:
    """The dtype of a tensor; codes of few bits stand for numbers of 16."""
    stored = model.checkpoint.dtype(name)
    return stored if stored in _FLOATS else "bfloat16"


@cache
def _quantiles(dtype: str) -> NDArray[Any]:
    """Equally likely values of a normal law in a dtype, as its bytes: a lookup is quicker than a draw."""
    values = (_DEVIATION * ndtri((np.arange(2**16) + 0.5) / 2**16)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else values.astype(dtype)


def _normal(n: int, dtype: str, rng: np.random.Generator) -> Iterator[NDArray[Any]]:
    table = _quantiles(dtype)
    for begin in range(0, n, _AT_ONCE):
        yield table[rng.integers(0, 2**16, min(_AT_ONCE, n - begin), dtype=np.uint16)]
