"""Weights in ONNX graphs: the initialisers, under the names that they had in the model; the graph is never run.

An export keeps the names of biases, norms and embeddings. A matrix that multiplies from the right stands in the graph
transposed, under a number (``onnx::MatMul_470``), and as codes with scales if the graph was quantised: which weight it
is says the bias that is added to the product, or else the path of the node.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import one_line
from provlab.models.formats.container import TensorInfo, damaged
from provlab.models.formats.dtypes import itemsize, values
from provlab.models.formats.source import Files

# the format's number of a dtype -> torch's name
_DTYPES = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 10: "float16", 11: "float64", 16: "bfloat16"}
_KEPT = re.compile(r".+\.(weight|bias|gamma|beta)$")
_OF_CODES = re.compile(r"_(quantized|dequantized|q|DequantizeLinear_Output)$")


class _Product(NamedTuple):
    """Which inputs of a node are the matrix, its scale, its zero and a bias; None for those that it has not."""

    weight: int
    scale: int | None = None
    zero: int | None = None
    bias: int | None = None


_PRODUCTS = {
    "MatMul": _Product(1),
    "Gemm": _Product(1, bias=2),
    "MatMulInteger": _Product(1, zero=3),
    "QLinearMatMul": _Product(3, 4, 5),
    "QGemm": _Product(3, 4, 5, 6),
    "DynamicQuantizeMatMul": _Product(1, 2, 3, 4),
    "MatMulIntegerToFloat": _Product(1, 3, 5, 6),
}
# between a product and its bias
_PASSED = {"Cast", "Mul", "DequantizeLinear", "Identity"}


@dataclass(frozen=True)
class _Matrix:
    """What a value of the graph is made of, if of initialisers alone: scale * (codes - zero), perhaps transposed.

    Attributes
    ----------
    stored, scale, zero : str
        Names of initialisers; the latter two empty where there is none.
    axis
        Of `stored`, along which a scale of one axis runs; None where numpy's rules hold.
    """

    stored: str
    scale: str = ""
    zero: str = ""
    axis: int | None = None
    transposed: bool = False


class OnnxFile:
    """One graph, see `provlab.models.formats.container.Container`."""

    config = None

    def __init__(self, source: Files, file: str) -> None:
        """Read the graph, and find out which weight each initialiser is."""
        self._source, self._file = source, file
        try:
            (content,) = _message(memoryview(source.read(file, 0, source.size(file))), {7: "graph"})["graph"]
            graph = _graph(content)
            self._stored = {one.name: _Initialiser(one, source) for one in graph.initializer}
            self._matrices = _named(graph.node, self._stored)
            self.header = {name: self._info(name, matrix) for name, matrix in self._matrices.items()}
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise damaged(source, file, error) from error

    def _info(self, name: str, matrix: _Matrix) -> TensorInfo:
        stored = self._stored[matrix.stored]
        shape, dtype = stored.shape, stored.dtype
        if not matrix.scale and "float" not in dtype:
            raise ValueError(f"{one_line(name)[:100]} is stored as codes without a scale")
        for part in filter(None, (matrix.scale, matrix.zero)):
            if np.broadcast_shapes(shape, _along(self._stored[part].shape, matrix, len(shape))) != shape:
                raise ValueError(f"{one_line(name)[:100]} has a scale of another shape")
        shape = shape[::-1] if matrix.transposed else shape
        return TensorInfo(shape, "float32", stored=dtype) if matrix.scale else TensorInfo(shape, dtype)

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it, for which the whole is read."""
        matrix = self._matrices[name]
        if matrix.scale:
            found = self._array(matrix.stored, matrix)
            if matrix.zero:
                found = found - self._array(matrix.zero, matrix)
            found = found * self._array(matrix.scale, matrix)
        else:
            stored = self._stored[matrix.stored]
            found = stored.read().view(f"V{itemsize(stored.dtype)}").reshape(stored.shape)
        found = found.T if matrix.transposed else found
        return np.ascontiguousarray(found if rows is None else found[rows.start : rows.stop]).reshape(-1).view(np.uint8)

    def _array(self, stored: str, matrix: _Matrix) -> NDArray[np.float32]:
        one = self._stored[stored]
        found = values(one.read(), one.dtype).astype(np.float32)
        return found.reshape(_along(one.shape, matrix, len(self._stored[matrix.stored].shape)))


def _along(shape: tuple[int, ...], matrix: _Matrix, n_axes: int) -> tuple[int, ...]:
    """Shape with which a scale is laid beside its codes."""
    if len(shape) != 1 or matrix.axis is None:
        return shape
    return tuple(shape[0] if axis == matrix.axis % n_axes else 1 for axis in range(n_axes))


class _Initialiser:
    """A stored tensor, in the graph or in a file beside it."""

    def __init__(self, proto: Any, source: Files) -> None:
        self.shape = tuple(int(n) for n in proto.dims)
        self.dtype = _DTYPES.get(proto.data_type, "")
        self._proto, self._source = proto, source
        self._outside = {entry.key: entry.value for entry in proto.external_data} if proto.data_location == 1 else {}
        if not self.dtype or min(self.shape, default=0) < 0:
            return  # text, complex numbers, codes of four bits: an error only if a weight is among them
        nbytes = math.prod(self.shape) * itemsize(self.dtype)
        if self._outside:
            location, start = self._outside["location"], int(self._outside.get("offset", 0))
            if location not in source.names():
                raise ValueError(f"it needs {one_line(location)[:100]}, which is not in the folder")
            if start < 0 or start + nbytes > source.size(location):
                raise ValueError(f"{one_line(location)[:100]} is not all there")
            self._place = location, start, nbytes
        elif len(proto.raw_data) != nbytes:
            raise ValueError(f"{one_line(proto.name)[:100]} is not all there")

    def read(self) -> NDArray[np.uint8]:
        """Bytes."""
        if not self.dtype:
            raise ValueError(f"{one_line(self._proto.name)[:100]} has an unsupported dtype")
        if self._outside:
            return self._source.read(*self._place)
        return np.frombuffer(self._proto.raw_data, np.uint8)


def _named(nodes: Iterable[Any], stored: Mapping[str, _Initialiser]) -> dict[str, _Matrix]:
    """Find the weights in a graph, by the names that they had in the model."""
    nodes = list(nodes)
    known = {name: _Matrix(name) for name in stored}  # values that are made of initialisers alone
    used: dict[str, list[Any]] = defaultdict(list)  # value -> nodes that take it
    found: dict[str, _Matrix] = {}
    for node in nodes:
        for given in node.input:
            used[given].append(node)
        if (made := _folded(node, known)) and node.output:
            known[node.output[0]] = made
    for value, matrix in known.items():
        name = _OF_CODES.sub("", value)
        if _KEPT.fullmatch(name) and (matrix.scale or "float" in stored[matrix.stored].dtype):
            found[name] = matrix  # of a chain the last, which is the whole of it
    for node in nodes:
        if (product := _product(node, known, stored)) and (name := _name(node, used, stored)):
            found.setdefault(name, product)
    within = _wrapper(found)
    return {name.removeprefix(within): matrix for name, matrix in found.items()}


def _folded(node: Any, known: Mapping[str, _Matrix]) -> _Matrix | None:
    """Return what a node makes of initialisers: numbers from codes, or a transposed matrix; None if anything else."""
    given = [known.get(name) for name in node.input]
    if not given or given[0] is None:
        return None
    first, *others = given
    second = others[0] if others else None
    attributes = {one.name: one for one in node.attribute}
    match node.op_type:
        case "Cast" | "Identity":
            return first
        case "Transpose" if list(attributes["perm"].ints if "perm" in attributes else [1, 0]) == [1, 0]:
            return replace(first, transposed=not first.transposed)
        case "DequantizeLinear" if second and not first.scale and "block_size" not in attributes:
            axis = attributes["axis"].i if "axis" in attributes else 1
            zero = others[1].stored if len(others) > 1 and others[1] else ""
            return replace(first, scale=second.stored, zero=zero, axis=axis)
        case "Sub" if second and not first.zero and not first.scale:
            return replace(first, zero=second.stored)
        case "Mul" if second and not first.scale and not first.transposed:
            return replace(first, scale=second.stored)
    return None


def _product(node: Any, known: Mapping[str, _Matrix], stored: Mapping[str, _Initialiser]) -> _Matrix | None:
    """Return the weight that a node multiplies by, as its layer has it, rows being outputs; None if there is none."""
    if node.op_type not in _PRODUCTS:
        return None
    places = _PRODUCTS[node.op_type]
    given = dict(enumerate(node.input))
    matrix = known.get(given.get(places.weight, ""))
    if matrix is None or len(stored[matrix.stored].shape) != 2:
        return None
    if node.op_type not in ("MatMul", "Gemm"):  # codes
        scale = given.get(places.scale, "") if places.scale else f"{_OF_CODES.sub('', matrix.stored)}_scale"
        zero = given.get(places.zero, "") if places.zero else ""
        if scale not in stored:
            return None
        matrix = replace(matrix, scale=scale, zero=zero if zero in stored else "", axis=1)
    on_the_right = not any(one.name == "transB" and one.i for one in node.attribute)
    return replace(matrix, transposed=matrix.transposed != on_the_right)


def _name(node: Any, used: Mapping[str, list[Any]], stored: Mapping[str, _Initialiser]) -> str:
    """Name the weight of a product: after the bias that is added to it, or else after the node's path."""
    places = _PRODUCTS[node.op_type]
    biases = list(node.input)[places.bias : places.bias + 1] if places.bias else []
    at = node
    for _ in range(4):
        after = used.get(at.output[0], []) if at.output else []
        if not after or after[0].op_type not in _PASSED:
            biases += [name for one in after[:1] if one.op_type == "Add" for name in one.input if name in stored]
            break
        at = after[0]
    for bias in biases:
        if bias.endswith(".bias"):
            return bias.removesuffix(".bias") + ".weight"
    *path, last = node.name.split("/")
    parts: list[str] = []
    for part in path[1:]:
        # a module in a list goes by the list's name and its place, behind the list itself
        parts[-1:] = [part] if parts and part.startswith(f"{parts[-1]}.") else [*parts[-1:], part]
    return f"{'.'.join(parts)}.weight" if parts and last.startswith(("MatMul", "Gemm")) else ""


def _wrapper(names: Iterable[str]) -> str:
    """Return what stands before all names and is none of transformers': ``model.0.auto_model.``."""
    names = list(names)
    shared: list[str] = []
    for parts in zip(*(name.split(".")[:-2] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    rest = [name.split(".")[len(shared) :] for name in names]
    of_bert = any(parts[0] in ("embeddings", "encoder") for parts in rest)
    kept = shared[-1:] if shared and shared[-1] in _BASES and not (shared[-1] == "model" and of_bert) else []
    return "".join(f"{part}." for part in shared[: len(shared) - len(kept)])


#: what transformers itself puts before the names of a model's body, where it has a head
_BASES = ("model", "transformer", "bert", "roberta", "distilbert", "electra", "mpnet", "gpt_neox", "decoder", "encoder")


def _message(content: memoryview, names: Mapping[int, str]) -> dict[str, list[Any]]:
    """Read the fields of a protobuf message that have a name here: ints, or bytes."""
    found: dict[str, list[Any]] = {name: [] for name in names.values()}
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = _varint(content, place)
        else:
            nbytes, place = _varint(content, place) if kind == 2 else ({1: 8, 5: 4}[kind], place)
            if place + nbytes > len(content):
                raise ValueError("it ends before its last field")
            value, place = content[place : place + nbytes], place + nbytes
        if number in names:
            found[names[number]].append(value)
    return found


def _varint(content: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = content[place + shift // 7]
        value |= (byte & 127) << shift
        if byte < 128:
            return value - (value >> 63 << 64), place + shift // 7 + 1  # negative ones take 64 bits
    raise ValueError("no number is as long")


def _ints(values: Iterable[Any]) -> list[int]:
    """Repeated integers, packed or one by one."""
    found = []
    for value in values:
        if isinstance(value, int):
            found.append(value)
            continue
        place = 0
        while place < len(value):
            one, place = _varint(value, place)
            found.append(one)
    return found


def _text(values: Iterable[Any]) -> list[str]:
    return [bytes(value).decode() for value in values]


def _graph(content: memoryview) -> SimpleNamespace:
    """Read of GraphProto, NodeProto, AttributeProto and TensorProto (onnx.proto) what says which weight is which."""
    graph = _message(content, {1: "node", 5: "initializer"})
    return SimpleNamespace(
        node=[_node(one) for one in graph["node"]], initializer=[_tensor(one) for one in graph["initializer"]]
    )


def _node(content: memoryview) -> SimpleNamespace:
    told = _message(content, {1: "input", 2: "output", 3: "name", 4: "op_type", 5: "attribute"})
    attributes = []
    for one in told["attribute"]:
        said = _message(one, {1: "name", 3: "i", 8: "ints"})
        attributes.append(
            SimpleNamespace(name="".join(_text(said["name"])), i=sum(said["i"]), ints=_ints(said["ints"]))
        )
    name, kind = ("".join(_text(told[key])) for key in ("name", "op_type"))
    inputs, outputs = _text(told["input"]), _text(told["output"])
    return SimpleNamespace(name=name, op_type=kind, input=inputs, output=outputs, attribute=attributes)


def _tensor(content: memoryview) -> SimpleNamespace:
    told = _message(content, {1: "dims", 2: "type", 8: "name", 9: "raw", 13: "outside", 14: "location"})
    outside = [_message(one, {1: "key", 2: "value"}) for one in told["outside"]]
    return SimpleNamespace(
        dims=_ints(told["dims"]),
        data_type=sum(told["type"]),
        name="".join(_text(told["name"])),
        raw_data=b"".join(told["raw"]) if len(told["raw"]) != 1 else told["raw"][0],
        external_data=[
            SimpleNamespace(key="".join(_text(one["key"])), value="".join(_text(one["value"]))) for one in outside
        ],
        data_location=sum(told["location"]),
    )
