"""What an ONNX file says of its nodes and initialisers: the few fields of protobuf that say so, read without a library.

The fields' numbers are those of onnx.proto: ModelProto, GraphProto, NodeProto, TensorProto.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

# the format's number of a dtype -> torch's name
_DTYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 10: "float16", 11: "float64", 16: "bfloat16"}


class Node(NamedTuple):
    """An operation of the graph; of its attributes those that are integers."""

    name: str
    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, list[int]]


class Initialiser(NamedTuple):
    """A stored tensor: where its bytes are, in the graph or in a file beside it.

    Attributes
    ----------
    file
        Empty where its numbers are stored in no way that is read here.
    one_by_one
        Its numbers stand there as protobuf's, which take as many bytes as they need.
    """

    shape: tuple[int, ...]
    dtype: str
    file: str
    start: int
    nbytes: int
    one_by_one: bool = False


def graph(content: memoryview, file: str) -> tuple[list[Node], dict[str, Initialiser]]:
    """Read what says which weight is which: the nodes, and the initialisers by name."""
    ((body,),) = _fields(content, range(len(content)), 7)
    nodes, stored = _fields(content, body, 1, 5)
    return [_node(content, one) for one in nodes], dict(_tensor(content, one, file) for one in stored)


def _node(content: memoryview, within: range) -> Node:
    inputs, outputs, name, kind, told = _fields(content, within, 1, 2, 3, 4, 5)
    attributes = {}
    for one in told:
        key, number, numbers = _fields(content, one, 1, 3, 8)
        attributes[_text(content, key)] = ints(content, [*number, *numbers])
    return Node(
        _text(content, name), _text(content, kind), _texts(content, inputs), _texts(content, outputs), attributes
    )


def _tensor(content: memoryview, within: range, file: str) -> tuple[str, Initialiser]:
    dims, kind, floats, integers, names, raw, doubles, outside, location = _fields(
        content, within, 1, 2, 4, 5, 8, 9, 10, 13, 14
    )
    shape, dtype = tuple(ints(content, dims)), _DTYPES.get(_scalar(kind), "")
    name = _text(content, names)
    if _scalar(location) == 1:  # outside the graph
        entries = [_fields(content, one, 1, 2) for one in outside]
        told = {_text(content, key): _text(content, value) for key, value in entries}
        return name, Initialiser(shape, dtype, told["location"], int(told.get("offset", 0)), -1)
    plain = raw or {"float32": floats, "float64": doubles}.get(dtype, [])
    for places, one_by_one in ((plain, False), (integers, True)):
        if len(places) == 1:
            return name, Initialiser(shape, dtype, file, places[0].start, len(places[0]), one_by_one)
    return name, Initialiser(shape, dtype, "" if math.prod(shape) else file, 0, 0)


def _fields(content: memoryview, within: range, *numbers: int) -> list[list[Any]]:
    """Read those fields of a protobuf message that have these numbers: ints, or where in the file their bytes are."""
    found: dict[int, list[Any]] = {number: [] for number in numbers}
    place = within.start
    while place < within.stop:
        key, place = _varint(content, place)
        value: Any
        if key & 7 == 0:
            value, place = _varint(content, place)
        else:
            nbytes, place = _varint(content, place) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], place)
            if not 0 <= nbytes <= within.stop - place:
                raise ValueError("it ends before its last field")
            value = range(place, place := place + nbytes)
        if key >> 3 in found:
            found[key >> 3].append(value)
    return list(found.values())


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[place + shift // 7]
        value |= (byte & 127) << shift
        if byte < 128:
            return value - (value >> 63 << 64), place + shift // 7 + 1  # negative ones take 64 bits
    raise ValueError("no number is as long")


def ints(content: memoryview, values: Iterable[Any]) -> list[int]:
    """Repeated integers of a message, packed or one by one."""
    found = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        place = value.start
        while place < value.stop:
            one, place = _varint(content, place)
            found.append(one)
    return found


def _scalar(values: list[int]) -> int:
    """One number, which a message leaves out where it is 0."""
    return values[-1] if values else 0


def _texts(content: memoryview, values: Iterable[range]) -> list[str]:
    return [bytes(content[value.start : value.stop]).decode() for value in values]


def _text(content: memoryview, values: Iterable[range]) -> str:
    return "".join(_texts(content, values))
