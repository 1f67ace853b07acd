"""Weights of an ONNX graph by the names that they had before the export; the graph is read and never run.

An exporter renames a projection, transposes it, and keeps the name of its bias: the product with it is what the bias is
added to. Where weights are int8 the graph makes floats of them first, by a cast and a product with scales. Of protobuf
this takes the few fields that say so (onnx.proto: ModelProto, GraphProto, NodeProto, TensorProto).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError

Tensors = dict[str, NDArray[np.float32]]

_DTYPES = {1: "<f4", 2: "u1", 3: "i1", 10: "<f2", 11: "<f8"}  # TensorProto.DataType of weights
_GRAPH, _NODE, _INITIALISER = 7, 1, 5  # fields of ModelProto and GraphProto


def tensors(path: Path) -> Tensors:
    """Read the named weights of a graph.

    Returns
    -------
    dict
        Name -> float32, projections as ``(output units, input units)``.

    Raises
    ------
    CheckpointError
        The file is no such graph, or ends too soon.
    """
    try:
        return _named(memoryview(path.read_bytes()))
    except (ValueError, IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path.parent.name}: {path.name} is no ONNX graph that can be read; fetch it again"
        ) from error


def _named(content: memoryview) -> Tensors:
    constants: dict[str, NDArray[Any]] = {}
    nodes: list[tuple[str, list[str], str]] = []  # operation, inputs, first output
    for number, graph in _fields(content):
        if number != _GRAPH:
            continue
        for part, value in _fields(graph):
            if part == _INITIALISER:
                name, array = _tensor(value)
                if array is not None:
                    constants[name] = array
            elif part == _NODE:
                fields = [(field, bytes(x).decode()) for field, x in _fields(value) if field in (1, 2, 4)]
                inputs, outputs, (operation,) = ([x for field, x in fields if field == n] for n in (1, 2, 4))
                nodes.append((operation, inputs, outputs[0]))
    produced: dict[str, NDArray[Any]] = {}  # by a product with a constant, which it stands for
    for operation, inputs, output in nodes:
        if all(name in constants for name in inputs) and operation == "Cast":
            constants[output] = constants[inputs[0]]
        elif all(name in constants for name in inputs) and operation == "Mul":
            constants[output] = constants[inputs[0]].astype(np.float32) * constants[inputs[1]].astype(np.float32)
        elif operation == "MatMul" and inputs[1] in constants:
            produced[output] = constants[inputs[1]]
        elif operation == "Add":
            bias = next((name for name in inputs if name.endswith(".bias") and name in constants), "")
            made = next((name for name in inputs if name in produced), "")
            if bias and made:
                constants[f"{bias.removesuffix('.bias')}.weight"] = produced[made].T
    found = {name: array for name, array in constants.items() if name.endswith((".weight", ".bias"))}
    if not found:
        raise ValueError("no weights")
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in found.items()}


def _tensor(content: memoryview) -> tuple[str, NDArray[Any] | None]:
    """Name and values of a TensorProto; None for one of another dtype, as of the graph's own indices."""
    shape: list[int] = []
    name, dtype, raw = "", 0, memoryview(b"")
    for number, value in _fields(content):
        if number == 1:
            shape += [value] if isinstance(value, int) else list(_packed(value))
        elif number == 2:
            dtype = value
        elif number == 8:
            name = bytes(value).decode()
        elif number == 9:
            raw = value
    if dtype not in _DTYPES or not raw.nbytes:
        return name, None
    return name, np.frombuffer(raw, _DTYPES[dtype]).reshape(shape)


def _fields(content: Any) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message: number, and an int or the bytes."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(content, place)
            yield key >> 3, value
            continue
        nbytes = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            nbytes, place = _varint(content, place)
        if nbytes is None or place + nbytes > len(content):
            raise ValueError(kind)
        yield key >> 3, content[place : place + nbytes]
        place += nbytes


def _packed(content: memoryview) -> Iterator[int]:
    place = 0
    while place < len(content):
        value, place = _varint(content, place)
        yield value


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = content[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise ValueError("no number is as long")
