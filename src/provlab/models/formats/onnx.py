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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import CheckpointError, one_line
from provlab.models.formats.container import TensorInfo, damaged
from provlab.models.formats.dtypes import itemsize, values
from provlab.models.formats.onnx_graph import Initialiser, Node, graph, ints
from provlab.models.formats.source import Files

_KEPT = re.compile(r".+\.(weight|bias|gamma|beta)$")
_OF_CODES = re.compile(r"_(quantized|dequantized|q|DequantizeLinear_Output)$")
_UNREAD = {"MatMulNBits", "MatMulBnb4", "GatherBlockQuantized"}  # products with codes of 4 bits, in blocks
# what is made of a file that was never written by anybody
_DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, MemoryError)


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
# between a product and its bias, and what adds that
_PASSED, _ADDED = {"Cast", "Mul", "DequantizeLinear", "Identity"}, {"Add", "BiasGelu", "FastGelu"}
#: what transformers itself puts before the names of a model's body, where it has a head
_BASES = ("model", "transformer", "bert", "roberta", "distilbert", "electra", "mpnet", "gpt_neox", "decoder", "encoder")


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
        self._source, self._file, self._label = source, file, f"{source.label}: {file}"
        try:
            nodes, self._stored = graph(np.memmap(source.path(file), np.uint8, "r").data, file)
            self._matrices = _named(nodes, self._stored)
            self.header = {name: self._info(name, matrix) for name, matrix in self._matrices.items()}
        except _DAMAGE as error:
            raise damaged(source, file, error) from error
        if codes := next((node for node in nodes if node.kind in _UNREAD), None):
            raise CheckpointError(
                f"{self._label} stores weights as codes of 4 bits in blocks ({codes.kind}), which are not read from "
                "ONNX; give the checkpoint that it was made from"
            )
        parts = {part for matrix in self._matrices.values() for part in (matrix.stored, matrix.scale, matrix.zero)}
        self.beside = tuple(sorted({self._stored[part].file for part in parts - {""}} - {file}))

    def _info(self, name: str, matrix: _Matrix) -> TensorInfo:
        for part in filter(None, (matrix.stored, matrix.scale, matrix.zero)):
            self._check(part)
        shape, dtype = self._stored[matrix.stored].shape, self._stored[matrix.stored].dtype
        if not matrix.scale and "float" not in dtype:
            raise CheckpointError(
                f"{self._label}: {name} is stored as codes, and which scale is theirs is not known; give the "
                "checkpoint that it was made from"
            )
        for part in filter(None, (matrix.scale, matrix.zero)):
            if np.broadcast_shapes(shape, _along(self._stored[part].shape, matrix, len(shape))) != shape:
                raise ValueError(f"{one_line(name)[:100]} has a scale of another shape")
        shape = shape[::-1] if matrix.transposed else shape
        return TensorInfo(shape, "float32", stored=dtype) if matrix.scale else TensorInfo(shape, dtype)

    def _check(self, name: str) -> None:
        """Hold an initialiser against the file in which it stands."""
        one, label = self._stored[name], one_line(name)[:100]
        if not one.dtype or not one.file or min(one.shape, default=0) < 0:
            raise ValueError(f"{label} is stored in a way that is not known")
        if one.file not in self._source.names():
            raise ValueError(f"it needs {one_line(one.file)[:100]}, which is not in the folder")
        needed = one.nbytes if one.one_by_one else math.prod(one.shape) * itemsize(one.dtype)
        if one.nbytes not in (-1, needed) or not 0 <= one.start <= self._source.size(one.file) - needed:
            raise ValueError(f"{label} is not all there")

    def read(self, name: str, rows: range | None) -> NDArray[np.uint8]:
        """Bytes of one tensor, or of some rows of it, for which the whole is read."""
        matrix = self._matrices[name]
        try:
            if matrix.scale:
                found: NDArray[Any] = self._floats(matrix.stored, matrix)
                if matrix.zero:
                    found = found - self._floats(matrix.zero, matrix)
                found = found * self._floats(matrix.scale, matrix)
            else:
                one = self._stored[matrix.stored]
                found = self._bytes(one).view(f"V{itemsize(one.dtype)}").reshape(one.shape)
        except _DAMAGE as error:  # cut off since its header was read
            raise damaged(self._source, self._file, error) from error
        found = found.T if matrix.transposed else found
        return np.ascontiguousarray(found if rows is None else found[rows.start : rows.stop]).reshape(-1).view(np.uint8)

    def _floats(self, stored: str, matrix: _Matrix) -> NDArray[np.float32]:
        one = self._stored[stored]
        with np.errstate(all="ignore"):  # of NaN and Inf whoever asked will hear
            found = values(self._bytes(one), one.dtype).astype(np.float32)
        return found.reshape(_along(one.shape, matrix, len(self._stored[matrix.stored].shape)))

    def _bytes(self, one: Initialiser) -> NDArray[np.uint8]:
        size = itemsize(one.dtype)
        if not one.one_by_one:
            return self._source.read(one.file, one.start, math.prod(one.shape) * size)
        content = self._source.read(one.file, one.start, one.nbytes)
        return np.array(ints(content.data, [range(content.size)]), np.int64).astype(f"i{size}").view(np.uint8)


def _along(shape: tuple[int, ...], matrix: _Matrix, n_axes: int) -> tuple[int, ...]:
    """Shape with which a scale is laid beside its codes."""
    if len(shape) != 1 or matrix.axis is None:
        return shape
    return tuple(shape[0] if axis == matrix.axis % n_axes else 1 for axis in range(n_axes))


def _named(nodes: list[Node], stored: Mapping[str, Initialiser]) -> dict[str, _Matrix]:
    """Find the weights in a graph, by the names that they had in the model."""
    known = {name: _Matrix(name, *_beside(name, stored)) for name in stored}  # what is made of initialisers alone
    used: dict[str, list[Node]] = defaultdict(list)  # value -> nodes that take it
    found: dict[str, _Matrix] = {}
    for node in nodes:
        for given in node.inputs:
            used[given].append(node)
        if (made := _folded(node, known)) and node.outputs:
            known[node.outputs[0]] = made
    for value, matrix in known.items():
        name = _OF_CODES.sub("", value)
        if _KEPT.fullmatch(name) and (matrix.scale or "float" in stored[matrix.stored].dtype):
            found[name] = matrix  # of a chain the last, which is the whole of it
    for node in nodes:
        if (product := _product(node, known, stored)) and (name := _name(node, used, stored)):
            found.setdefault(name, product)
    within = _wrapper(found)
    return {name.removeprefix(within): matrix for name, matrix in found.items()}


def _beside(name: str, stored: Mapping[str, Initialiser]) -> tuple[str, str]:
    """Scale and zero of codes by their names: ``W_quantized`` goes with ``W_scale`` and ``W_zero_point``."""
    module = name.removesuffix("_quantized")
    if module == name or f"{module}_scale" not in stored:
        return "", ""
    return f"{module}_scale", f"{module}_zero_point" if f"{module}_zero_point" in stored else ""


def _folded(node: Node, known: Mapping[str, _Matrix]) -> _Matrix | None:
    """Return what a node makes of initialisers: numbers from codes, or a transposed matrix; None if anything else."""
    first, *others = (known.get(name) for name in node.inputs or [""])
    if first is None:
        return None
    second = others[0] if others else None
    match node.kind:
        case "Cast" | "Identity":
            return first
        case "Transpose" if node.attributes.get("perm", [1, 0]) == [1, 0]:
            return replace(first, transposed=not first.transposed)
        case "DequantizeLinear" if second and not first.transposed and not any(node.attributes.get("block_size", [])):
            zero = others[1].stored if len(others) > 1 and others[1] else ""
            return _Matrix(first.stored, second.stored, zero, sum(node.attributes.get("axis", [1])))
        case "Sub" if second and not first.zero and not first.scale:
            return replace(first, zero=second.stored)
        case "Mul" if second and not first.scale and not first.transposed:
            return replace(first, scale=second.stored)
    return None


def _product(node: Node, known: Mapping[str, _Matrix], stored: Mapping[str, Initialiser]) -> _Matrix | None:
    """Return the weight that a node multiplies by, as its layer has it, rows being outputs; None if there is none."""
    if node.kind not in _PRODUCTS:
        return None
    places, given = _PRODUCTS[node.kind], dict(enumerate(node.inputs))
    matrix = known.get(given.get(places.weight, ""))
    if matrix is None or len(stored[matrix.stored].shape) != 2:
        return None
    matrix = replace(matrix, transposed=matrix.transposed == any(node.attributes.get("transB", [])))
    told = (given.get(place or -1, "") for place in (places.scale, places.zero))
    scale, zero = (name if name in stored else "" for name in told)
    if not scale and not zero:
        return matrix
    axis = int(matrix.transposed)  # one for all, or one for each output
    return replace(matrix, scale=scale or matrix.scale, zero=zero or matrix.zero, axis=axis)


def _name(node: Node, used: Mapping[str, list[Node]], stored: Mapping[str, Initialiser]) -> str:
    """Name the weight of a product: after the bias that is added to it, or else after the node's path."""
    place = _PRODUCTS[node.kind].bias
    biases = node.inputs[place : place + 1] if place else []
    at = node
    for _ in range(4):
        after = used.get(at.outputs[0], []) if at.outputs else []
        if not after or after[0].kind not in _PASSED:
            biases += [name for one in after[:1] if one.kind in _ADDED for name in one.inputs]
            break
        at = after[0]
    if bias := next((bias for bias in biases if bias in stored and bias.endswith(".bias")), ""):
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
