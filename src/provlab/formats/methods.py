"""Ways of coding weights: by which tensors each is known, and how its codes become weights again.

A weight is ``(output units, input units)`` as in transformers, with an axis of experts before them or not. Two things
return below: codes of few bits are packed into words, and a scale (and a zero, the code of 0) belongs to a *group* of
neighbouring inputs, to a rectangle, to a row, or to all. What a layout means is declared (`provlab.reading.declared`);
shapes confirm it. The next way is a row of `WAYS`.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.reading.declared import Declaration, DeclarationError
from provlab.reading.files.container import TensorInfo
from provlab.reading.files.dtypes import eight_bits, values

Floats = NDArray[np.float32]
Codes = NDArray[Any]
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which of eight columns each four bits of a word hold, from the lowest on
# the numbers of a sign, two bits of exponent and one of fraction
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
_EXPONENTS = ("uint8", "float8_e8m0fnu")  # dtypes of scales that are exponents of two, in bytes
_WORDS = ("int32", "uint32")
#: inputs whose scale is one in the formats of OCP Microscaling 1.0 (5.2, 5.3), and in NVIDIA's
_MX, _NV = 32, 16


class Parts(NamedTuple):
    """The stored tensors of one weight.

    Attributes
    ----------
    names
        Ending -> name in the file.
    said
        What the folder says of these codes.
    info, read
        Shape and dtype of a stored tensor by name, and its bytes, of some rows or all.
    rows
        The rows of the weight that are read; None for all.
    by_rows
        Endings of the tensors whose rows are those of the weight.
    """

    names: Mapping[str, str]
    said: Declaration
    info: Callable[[str], TensorInfo]
    read: Callable[[str, range | None], NDArray[np.uint8]]
    rows: range | None = None
    by_rows: tuple[str, ...] = ()

    def has(self, ending: str) -> bool:
        """Whether one of them is there."""
        return ending in self.names

    def first(self, *endings: str) -> str:
        """Return the first ending that is there."""
        return next(ending for ending in endings if ending in self.names)

    def aligned(self, ending: str) -> bool:
        """Whether the rows of one of them are those of the weight."""
        lengths = [self.info(self.names[of]).shape[:1] for of in (self.by_rows[0], ending)]
        return ending in self.by_rows and lengths[0] == lengths[1]

    def _some(self, ending: str) -> range | None:
        return self.rows if self.rows is not None and self.aligned(ending) else None

    def shape(self, ending: str) -> tuple[int, ...]:
        """Shape of one of them, of the rows that are read."""
        shape, rows = self.info(self.names[ending]).shape, self._some(ending)
        return shape if rows is None else (len(rows), *shape[1:])

    def dtype(self, ending: str) -> str:
        """Return the dtype of one of them."""
        return self.info(self.names[ending]).dtype

    def bytes(self, ending: str) -> NDArray[np.uint8]:
        """Bytes of one of them, whatever dtype they are kept in."""
        return self.read(self.names[ending], self._some(ending))

    def codes(self, ending: str) -> Codes:
        """Numbers of one of them as they are stored."""
        return values(self.bytes(ending), self.dtype(ending)).reshape(self.shape(ending))

    def floats(self, ending: str) -> Floats:
        """Numbers of one of them as float32."""
        return self.codes(ending).astype(np.float32)


class Way(NamedTuple):
    """A way of coding.

    Attributes
    ----------
    name
        For reports.
    needs, takes
        Endings of the names by which it is known, and of those of optional ones.
    shape, weight
        Shape of the weight, and the weight, from its parts.
    declared
        The ``quant_method`` that may be declared for it: one must be, unless the first is empty, as such tensors say
        themselves all that decides their numbers.
    fits
        Whether tensors of such names are codes of this way.
    suffix
        What the weight's name has in place of the endings.
    by_rows
        Endings of the tensors of which some rows alone make those rows of the weight.
    """

    name: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    shape: Callable[[Parts], tuple[int, ...]]
    weight: Callable[[Parts], Floats]
    declared: tuple[str, ...]
    fits: Callable[[Parts], bool] = lambda parts: True
    suffix: str = ".weight"
    by_rows: tuple[str, ...] = ()


# Codes and scales ----------------------------------------------------------------------------------------------------


def unpacked(words: Codes, bits: int) -> NDArray[np.uint8]:
    """Codes of `bits` bits along the last axis of words, from the lowest bit on: ``(..., words x 32 / bits)``."""
    if not 1 <= bits <= 8:
        raise DeclarationError(f"codes of {bits} bits are not read")
    content = np.ascontiguousarray(words).view(np.uint8)  # least significant byte first
    if 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        pieces: NDArray[np.uint8] = content[..., None] >> shifts & np.uint8(2**bits - 1)
        return pieces.reshape(*content.shape[:-1], -1)
    stream = np.unpackbits(content, axis=-1, bitorder="little")
    stream = stream[..., : stream.shape[-1] // bits * bits].reshape(*content.shape[:-1], -1, bits)
    codes: NDArray[np.uint8] = np.packbits(stream, axis=-1, bitorder="little")[..., 0]
    return codes


def _within_words(words: Codes, bits: int) -> NDArray[np.uint8]:
    """Codes along the last axis of words that hold as many as are whole in them; the upper bits are empty."""
    shifts = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
    codes = np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts & np.uint32(2**bits - 1)
    return codes.astype(np.uint8).reshape(*words.shape[:-1], -1)


def _planes(words: Codes, bits: int) -> NDArray[np.uint8]:
    """Codes of 32 along the last axis in `bits` words: first the lowest four (or two) bits of all, then the others."""
    blocks = np.ascontiguousarray(words).reshape(*words.shape[:-1], -1, bits)  # raises where none is whole
    codes, at, lowest = np.zeros((*blocks.shape[:-1], 32), np.uint8), 0, 0
    for width in {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 7: (4, 2, 1), 8: (8,)}[bits]:
        codes |= unpacked(blocks[..., at : at + width], width) << np.uint8(lowest)
        at, lowest = at + width, lowest + width
    return codes.reshape(*words.shape[:-1], -1)


def _nibbles(content: Codes) -> Floats:
    """Return numbers of 4 bits, of which a byte holds two along the last axis, the lower first."""
    numbers: Floats = _E2M1[unpacked(content, 4)]
    return numbers


def _scales(parts: Parts, ending: str) -> Floats:
    """Scales as float32, of exponents too."""
    if parts.dtype(ending) in _EXPONENTS:
        return eight_bits(parts.bytes(ending), "float8_e8m0fnu").reshape(parts.shape(ending))
    return parts.floats(ending)


def scaled(weight: Floats, scale: Floats, block: tuple[int, int], what: str) -> Floats:
    """Multiply each rectangle ``(rows, inputs)`` of a weight by its scale; the weight may be changed in place.

    Parameters
    ----------
    weight
        ``(..., outputs, inputs)``.
    scale
        ``(..., outputs / rows, inputs / columns)``, where the last rectangles may be cut off.
    block
        Rows and columns of a rectangle, 0 for all of them.
    what
        The declaration by which the rectangles are of this size, for the error.

    Raises
    ------
    DeclarationError
        The scales are not those of such rectangles.
    """
    sizes = tuple(size or length for size, length in zip(block, weight.shape[-2:], strict=True))
    grid = tuple(-(-length // max(size, 1)) for length, size in zip(weight.shape[-2:], sizes, strict=True))
    before = weight.shape[:-2]
    if [n for n in scale.shape if n != 1] != [n for n in (*before, *grid) if n != 1]:
        raise DeclarationError(f"{what}, and its scales are {_of(scale.shape)} for {_of(weight.shape)} numbers")
    scale, weight = scale.reshape(*before, *grid), np.ascontiguousarray(weight)
    if grid[1] > 1 and weight.shape[-1] % sizes[1]:
        scale = np.repeat(scale, sizes[1], axis=-1)[..., : weight.shape[-1]]
        grouped = weight[..., None]  # (..., outputs, inputs, 1)
    else:
        grouped = weight.reshape(*weight.shape[:-1], grid[1], -1)  # (..., outputs, groups, inputs)
    for i in range(grid[0]):
        if sizes[0] == 1:
            grouped *= scale[..., None]
            break
        grouped[..., i * sizes[0] : (i + 1) * sizes[0], :, :] *= scale[..., i : i + 1, :, None]
    return weight


def _of(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one"


def _group(said: Declaration, inputs: int) -> int:
    """Return how many inputs share a scale; -1 in a declaration is all of them."""
    size = int(said.need("group"))
    if size < -1 or size == 0:
        raise DeclarationError(f"{said.where('group')}, which is no size of a group")
    return inputs if size == -1 else size


def _in_groups(parts: Parts, inputs: int, n_groups: int, ending: str) -> Codes:
    """Return the group of each input: those of a tensor, or neighbours, ``(inputs,)``."""
    said = parts.said
    if said.get("group") is None and parts.has(ending):
        size = 0
    else:
        size = _group(said, inputs)
        if -(-inputs // size) != n_groups:
            raise DeclarationError(f"{said.where('group')}, and there are {n_groups} groups for {inputs} inputs")
    if not parts.has(ending):
        if said.get("ordered"):
            raise DeclarationError(f"{said.where('ordered')}, and there is no {ending[1:]}, which holds the order")
        return np.arange(inputs) // size
    group = parts.codes(ending).astype(np.int64)
    if group.shape != (inputs,) or (inputs and not 0 <= group.min() <= group.max() < n_groups):
        raise ValueError(f"{ending[1:]} of {_of(group.shape)} for {inputs} inputs in {n_groups} groups")
    return group


# bitsandbytes --------------------------------------------------------------------------------------------------------


def _int8_by_row(parts: Parts) -> Floats:
    """Rows of int8, each with its largest absolute value: 127 stands for it."""
    if parts.has(".weight_format") and parts.codes(".weight_format").any():
        raise DeclarationError("its weight_format is not that of rows, as save_pretrained writes it")
    return scaled(parts.floats(".weight"), parts.floats(".SCB") / np.float32(127), (1, 0), "it has one scale a row")


def _state(parts: Parts) -> dict[str, Any]:
    ending = next(ending for ending in parts.names if "quant_state" in ending)
    state: dict[str, Any] = json.loads(parts.bytes(ending).tobytes())
    kind = parts.said.get("kind")
    if kind not in (None, state["quant_type"]):
        raise DeclarationError(f"{parts.said.where('kind')}, and its quant_state {state['quant_type']}")
    return state


def _shape_of_4bit(parts: Parts) -> tuple[int, ...]:
    shape = tuple(int(n) for n in _state(parts)["shape"])
    kept = parts.info(parts.names[".weight"])  # bytes that may be kept as numbers of another dtype
    if min(shape) < 0 or -(-math.prod(shape) // 2) > kept.nbytes >= -(-math.prod(shape) // 2) + 4:
        raise ValueError(f"{kept.nbytes} bytes for {_of(shape)} numbers")
    return shape


def _bnb_4bit(parts: Parts) -> Floats:
    """Two codes a byte, the upper first, of a table of 16; each block times its largest, which may be coded itself."""
    state, n = _state(parts), math.prod(_shape_of_4bit(parts))
    largest = parts.codes(".weight.absmax")
    if parts.has(".weight.nested_absmax"):
        outer = np.repeat(parts.floats(".weight.nested_absmax"), state["nested_blocksize"])[: largest.size]
        inner = parts.floats(".weight.nested_quant_map")[largest.reshape(-1)]
        largest = inner * outer + np.float32(state["nested_offset"])
    packed = parts.bytes(".weight")
    codes = np.stack([packed >> 4, packed & 15], axis=1).reshape(-1)[:n]
    weight: Floats = parts.floats(".weight.quant_map")[codes]
    return scaled(
        weight[None], largest.astype(np.float32), (0, int(state["blocksize"])), "its quant_state has a blocksize"
    )


# GPTQ and AWQ --------------------------------------------------------------------------------------------------------


def _gptq_bits(parts: Parts) -> int:
    bits = int(parts.said.need("bits"))
    if not 2 <= bits <= 8:
        raise DeclarationError(f"{parts.said.where('bits')}, which GPTQ does not write")
    return bits


def _gptq_shape(parts: Parts) -> tuple[int, ...]:
    (words, outputs), bits = parts.shape(".qweight"), _gptq_bits(parts)
    inputs = parts.shape(".g_idx")[0] if parts.has(".g_idx") else words * 32 // bits
    if words != -(-inputs * bits // 32):
        raise DeclarationError(f"{parts.said.where('bits')}, and there are {words} words for {inputs} codes")
    return outputs, inputs


def _gptq_packing(parts: Parts) -> tuple[Callable[[Codes, int], NDArray[np.uint8]], bool]:
    """Return how codes lie in words, and whether a stored zero is one less; auto-round writes as GPTQ does."""
    label = parts.said.get("label") or "gptq"
    if label not in ("gptq", "gptq_v2", "gptq_p"):
        raise DeclarationError(f"{parts.said.where('label')}, a layout of GPTQ that is not read")
    planes = label == "gptq_p" or _gptq_bits(parts) in (5, 6, 7)
    return (_planes if planes else unpacked), label == "gptq"


def _gptq(parts: Parts) -> Floats:
    """Codes of a column of words are inputs; each input has its group, in order or by ``g_idx``."""
    bits, (outputs, inputs) = _gptq_bits(parts), _gptq_shape(parts)
    packing, less = _gptq_packing(parts)
    scales = parts.floats(".scales")  # (groups, outputs)
    if parts.shape(".qzeros") != (len(scales), -(-outputs * bits // 32)) or scales.shape[1] != outputs:
        raise DeclarationError(
            f"{parts.said.where('bits')}, and its zeros are {_of(parts.shape('.qzeros'))} words for {_of(scales.shape)}"
        )
    group = _in_groups(parts, inputs, len(scales), ".g_idx")
    codes = packing(parts.codes(".qweight").T, bits)[:, :inputs].astype(np.float32)
    stored = packing(parts.codes(".qzeros"), bits)[:, :outputs]
    zeros = _gptq_zeros(parts, stored, bits, less).astype(np.float32)
    if np.array_equal(group, np.sort(group)) and parts.said.get("group") is not None:
        size = _group(parts.said, inputs)
        if np.array_equal(group, np.arange(inputs) // size):
            codes -= np.repeat(zeros.T, size, axis=1)[:, :inputs]
            return scaled(codes, np.ascontiguousarray(scales.T), (1, size), parts.said.where("group"))
    codes -= zeros[group].T
    codes *= scales[group].T
    return codes


def _gptq_zeros(parts: Parts, stored: NDArray[np.uint8], bits: int, less: bool) -> NDArray[np.uint8]:
    """Return the codes of zero: as stored or one more, by the label, and the middle one where the codes are symmetric.

    Some tools store the middle one itself under the label of the layout that stores one less. That is seen, as no other
    codes of zero are all alike, and nothing but ``sym`` says which of the two holds.
    """
    middle, symmetric = 2 ** (bits - 1), parts.said.get("symmetric")
    by_label: NDArray[np.uint8] = (stored + np.uint8(less)) % 2**bits if bits < 8 else stored + np.uint8(less)
    all_alike = bool(stored.size) and bool((stored == stored.flat[0]).all())
    if symmetric or (all_alike and by_label.flat[0] != middle and stored.flat[0] in (middle - 1, middle)):
        if symmetric and not (all_alike and stored.flat[0] in (middle - 1, middle)):
            raise DeclarationError(f"{parts.said.where('symmetric')}, and its codes of zero are not all {middle}")
        if symmetric is None:
            parts.said.need("symmetric")
        if not symmetric:
            raise DeclarationError(
                f"{parts.said.where('symmetric')}, and all its codes of zero are stored as {stored.flat[0]}, as only "
                "symmetric codes have them"
            )
        return np.full_like(stored, middle)
    return by_label


def _by_method(word: str) -> Callable[[Parts], bool]:
    """Whether a declaration is of this method: auto-round names the layout it writes in its ``packing_format``."""
    return lambda parts: word in (parts.said.get("method") or "") or word in (parts.said.get("packing") or "")


def _awq_shape(parts: Parts) -> tuple[int, ...]:
    inputs, words = parts.shape(".qweight")
    if parts.shape(".scales")[1:] != (words * 8,):
        raise DeclarationError(
            f"{parts.said.where('method')}, and there are {words} words of eight outputs for "
            f"{_of(parts.shape('.scales'))} scales"
        )
    return words * 8, inputs


def _awq(parts: Parts) -> Floats:
    """Words of eight outputs, which stand in them in an order of their own."""
    said = parts.said
    for field, usual in (("bits", 4), ("version", "gemm"), ("label", "gemm")):
        if said.get(field) not in (None, usual, *(["awq", "auto"] if field == "label" else [])):
            raise DeclarationError(f"{said.where(field)}, a layout of AWQ that is not read")

    def in_order(words: Codes) -> Codes:
        nibbles = unpacked(words, 4).reshape(*words.shape, 8)
        return nibbles[..., np.argsort(_AWQ_ORDER)].reshape(len(words), -1)

    (outputs, inputs), scales = _awq_shape(parts), parts.floats(".scales")
    size = _group(said, inputs)
    weight = in_order(parts.codes(".qweight")).T.astype(np.float32)  # (outputs, inputs)
    zeros = in_order(parts.codes(".qzeros")).T.astype(np.float32)
    if inputs % size or zeros.shape != (outputs, inputs // size):
        raise DeclarationError(f"{said.where('group')}, and there are {len(scales)} groups for {inputs} inputs")
    weight -= np.repeat(zeros, size, axis=1)
    return scaled(weight, np.ascontiguousarray(scales.T), (1, size), said.where("group"))


# compressed-tensors and ModelOpt -------------------------------------------------------------------------------------

#: label -> type and bits of its numbers; None for any
_LABELS: dict[str, tuple[str | None, int | None]] = {
    "pack-quantized": ("int", None), "int-quantized": ("int", 8), "float-quantized": ("float", 8),
    "naive-quantized": (None, None), "mixed-precision": (None, None), "nvfp4-pack-quantized": ("float", 4),
    "mxfp4-pack-quantized": ("float", 4), "mxfp8-quantized": ("float", 8),
}  # fmt: skip
#: ModelOpt's algorithm -> type, bits, and what shares a scale
_ALGORITHMS: dict[str, tuple[str, int, tuple[int, int]]] = {
    "fp8": ("float", 8, (0, 0)), "fp8_per_channel_per_token": ("float", 8, (1, 0)), "nvfp4": ("float", 4, (1, _NV)),
    "w4a16_nvfp4": ("float", 4, (1, _NV)), "mxfp8": ("float", 8, (1, _MX)),
}  # fmt: skip


def _numbers(parts: Parts, kind: str, bits: int) -> None:
    """Raise DeclarationError where numbers of another kind are declared than those of this layout."""
    said = parts.said
    stated: dict[str, tuple[str | None, int | None]] = {
        "number": (said.get("number"), None),
        "bits": (None, said.get("bits")),
    }
    tables: dict[str, Mapping[str, tuple[Any, ...]]] = {"algorithm": _ALGORITHMS}
    tables |= {"label": _LABELS} if said.get("method") == "compressed-tensors" else {}
    for field, table in tables.items():
        if (value := said.get(field)) and value not in table:
            raise DeclarationError(f"{said.where(field)}, a way of coding that is not read")
        if value:
            stated[field] = table[value][0], table[value][1]
    for field, (is_kind, is_bits) in stated.items():
        if is_kind not in (None, kind) or is_bits not in (None, bits):
            raise DeclarationError(f"{said.where(field)}, and its tensors hold numbers of {bits} bits ({kind})")


def _shared(parts: Parts) -> tuple[tuple[int, int], str]:
    """Return rows and inputs that share a scale, 0 for all, and the declaration that says so."""
    said, method = parts.said, parts.said.get("method")
    if (strategy := said.get("strategy")) is None and (block := said.get("block")):
        return block, said.where("block")
    if method in ("fp8", "mxfp8", "fbgemm_fp8", "quanto", None):
        fixed = {"mxfp8": (1, _MX), "fbgemm_fp8": (1, 0), "quanto": (1, 0)}
        return fixed.get(method or "", (0, 0)), said.where("method")
    if strategy is None:
        if algorithm := said.get("algorithm"):
            return _ALGORITHMS.get(algorithm, ("", 0, (0, 0)))[2], said.where("algorithm")
        size = said.get("group")  # as the package compressed-tensors takes it where there is no strategy
        strategy = "tensor" if size is None else "channel" if size == -1 else "group"
    if strategy not in ("tensor", "channel", "group", "tensor_group", "block"):
        raise DeclarationError(f"{said.where('strategy')}, which is not read")
    if strategy == "block":
        return said.need("block"), said.where("block")
    if "group" in strategy:
        return (1, int(said.need("group"))), said.where("group")
    return (1 if strategy == "channel" else 0, 0), said.where("strategy")


def _packed_shape(parts: Parts) -> tuple[int, ...]:
    shape = tuple(int(n) for n in parts.codes(".weight_shape").reshape(-1))
    stored = parts.info(parts.names[".weight_packed"]).shape
    if len(shape) != len(stored) or shape[:-1] != stored[:-1] or shape[-1] < stored[-1]:
        raise ValueError(f"{_of(stored)} words for {_of(shape)} codes")
    return shape


def _packing(parts: Parts, n: int, words: int, bits: int) -> Callable[[Codes, int], NDArray[np.uint8]]:
    """Return how codes lie in words: one behind the other, or as many as are whole in a word.

    The package compressed-tensors wrote the second before its version 0.18, which it states beside the settings.
    """
    dense, whole = -(-n * bits // 32), -(-n // (32 // bits))
    fits = [way for way, needed in ((unpacked, dense), (_within_words, whole)) if needed == words]
    if not fits:
        raise DeclarationError(f"{parts.said.where('bits')}, and there are {words} words for {n} codes")
    if 32 % bits == 0:
        return unpacked
    if parts.said.get("version") is None and len(fits) == 1:
        return fits[0]
    written = tuple(int(part) for part in str(parts.said.need("version")).split(".")[:2])
    declared = unpacked if written >= (0, 18) else _within_words
    if declared not in fits:
        raise DeclarationError(
            f"{parts.said.where('version')}, and there are {words} words for {n} codes of {bits} bits"
        )
    return declared


def _compressed(parts: Parts) -> Floats:
    """Words of neighbouring inputs, their codes shifted so that none is negative."""
    bits, words = int(parts.said.need("bits")), parts.codes(".weight_packed")
    if not 1 <= bits <= 8:
        raise DeclarationError(f"{parts.said.where('bits')}, and its tensors hold packed numbers")
    _numbers(parts, "int", bits)
    rows, inputs = words.shape[-2], _packed_shape(parts)[-1]
    middle = np.float32(2 ** (bits - 1))
    weight = _packing(parts, inputs, words.shape[-1], bits)(words, bits)[..., :inputs].astype(np.float32)
    weight -= middle
    scales = parts.floats(".weight_scale")
    block, what = _shared(parts)
    ordered = parts.has(".weight_g_idx") and not (parts.codes(".weight_g_idx") < 0).any()
    group = _in_groups(parts, inputs, scales.shape[-1], ".weight_g_idx") if ordered else None
    if parts.has(".weight_zero_point"):
        if parts.said.get("symmetric"):
            raise DeclarationError(f"{parts.said.where('symmetric')}, and there is a weight_zero_point")
        zeros = parts.codes(".weight_zero_point")
        if parts.dtype(".weight_zero_point") in _WORDS:  # along the rows
            zeros = np.swapaxes(zeros, -1, -2)
            zeros = _packing(parts, rows, zeros.shape[-1], bits)(zeros, bits)[..., :rows]
            zeros = np.swapaxes(zeros, -1, -2).astype(np.float32) - middle
        zeros = zeros.astype(np.float32).reshape(scales.shape)
        weight -= zeros[..., group] if group is not None else _spread(zeros, weight.shape, block, what)
    elif parts.said.get("symmetric") is False:
        raise DeclarationError(f"{parts.said.where('symmetric')}, and there is no weight_zero_point")
    if group is not None:
        weight *= scales[..., group]
        return weight
    return scaled(weight, scales, block, what)


def _spread(scale: Floats, shape: tuple[int, ...], block: tuple[int, int], what: str) -> Floats:
    """Lay what belongs to rectangles over a weight."""
    return scaled(np.ones(shape, np.float32), scale, block, what)


_SCALES = (".weight_scale_inv", ".weight_scale", ".scale_weight", ".scale")


def _in_8_bits(parts: Parts) -> bool:
    return parts.dtype(".weight").startswith(("int8", "float8"))


def _scaled(parts: Parts) -> Floats:
    """Numbers of 8 bits, each times the scale of its tensor, row, group or rectangle (that of ``scale_inv`` too)."""
    ending = parts.first(*_SCALES)
    kind = "int" if parts.dtype(".weight") == "int8" else "float"
    method = parts.said.get("method")
    if kind == "int" and method in ("fp8", "mxfp8", "fbgemm_fp8", None):
        raise DeclarationError(f"{parts.said.where('method')}, and its weights are integers (dtype int8)")
    _numbers(parts, kind, 8)
    weight, scale = parts.floats(".weight"), _scales(parts, ending)
    block, what = _shared(parts)
    if method == "fp8" and parts.said.get("block") is None and scale.size > 1:
        block, what = _usual_block(parts, weight.shape, scale.shape)
    if parts.has(".weight_zero_point"):
        weight -= _spread(parts.floats(".weight_zero_point"), weight.shape, block, what)
    elif parts.said.get("symmetric") is False:
        raise DeclarationError(f"{parts.said.where('symmetric')}, and there is no weight_zero_point")
    return scaled(weight, scale, block, what)


def _usual_block(parts: Parts, shape: tuple[int, ...], scale: tuple[int, ...]) -> tuple[tuple[int, int], str]:
    """Return 128 x 128, which transformers takes where no size is stated, if the scales are those of whole ones."""
    usual = (128, 128)
    if scale[-2:] != tuple(length // size for length, size in zip(shape[-2:], usual, strict=True)):
        parts.said.need("block")
    if any(length % size for length, size in zip(shape[-2:], usual, strict=True)):
        parts.said.need("block")
    return usual, "the usual blocks are 128 x 128"


def _of_weight(parts: Parts) -> tuple[int, ...]:
    return parts.info(parts.names[".weight"]).shape


def _twice(ending: str) -> Callable[[Parts], tuple[int, ...]]:
    """Shape of a weight of which a byte holds two numbers."""

    def shape(parts: Parts) -> tuple[int, ...]:
        *before, half = parts.info(parts.names[ending]).shape
        return (*before, 2 * half)

    return shape


def _fp4(parts: Parts) -> Floats:
    """Two numbers of 4 bits a byte; a group has a scale, and NVFP4 a second one for all."""
    _numbers(parts, "float", 4)
    weight = _nibbles(parts.bytes(packed := parts.first(".weight_packed", ".weight")).reshape(parts.shape(packed)))
    second = next((e for e in (".weight_global_scale", ".weight_scale_2") if parts.has(e)), "")
    size = int(parts.said.get("group") or (_NV if parts.said.get("algorithm") else 0)) or int(parts.said.need("group"))
    if size != (_NV if second else _MX):
        raise DeclarationError(
            f"{parts.said.where('group')}, and its tensors are those of groups of {_NV if second else _MX}"
        )
    if (parts.dtype(".weight_scale") in _EXPONENTS) == bool(second):
        raise ValueError(f"scales of {parts.dtype('.weight_scale')}")
    scale = _scales(parts, ".weight_scale")
    if second:
        whole = parts.floats(second)
        whole = whole.reshape(-1, *[1] * (scale.ndim - 1)) if whole.size > 1 else whole.reshape(())
        scale = scale / whole if second == ".weight_global_scale" else scale * whole
    return scaled(weight, scale, (1, size), parts.said.where("group"))


def _fp4_experts(parts: Parts) -> Floats:
    """Two numbers of 4 bits a byte, of which 32 share a power of two (DeepSeek-V4)."""
    weight = _nibbles(parts.bytes(".weight").reshape(parts.shape(".weight")))
    return scaled(weight, _scales(parts, ".scale"), (1, _MX), parts.said.where("experts"))


# MLX, MXFP4, quanto --------------------------------------------------------------------------------------------------

#: mode -> bits, inputs of a group, and dtype of the scales; affine has those that are declared
_MODES = {"mxfp4": (4, 32, "float8_e8m0fnu"), "mxfp8": (8, 32, "float8_e8m0fnu"), "nvfp4": (4, 16, "float8_e4m3fn")}


def _mlx_sizes(parts: Parts) -> tuple[str, int, int]:
    """Return the mode, bits, and inputs of a group, as they are declared; the words must be as many."""
    said = parts.said
    mode = said.get("mode") or "affine"
    usual = _MODES.get(mode)
    if mode != "affine" and usual is None:
        raise DeclarationError(f"{said.where('mode')}, which is not read")
    bits, size = (
        (said.get("bits") or usual[0], said.get("group") or usual[1])
        if usual
        else (said.need("bits"), said.need("group"))
    )
    if usual and (bits, size) != usual[:2]:
        raise DeclarationError(f"{said.where('mode')}, and {said.where('bits' if bits != usual[0] else 'group')}")
    words, groups = parts.shape(".weight")[-1], parts.shape(".scales")[-1]
    if 32 * words != groups * size * bits:
        raise DeclarationError(
            f"{said.where('bits')} and {said.where('group')}, and there are {words} words for {groups} groups"
        )
    return mode, int(bits), int(size)


def _mlx_shape(parts: Parts) -> tuple[int, ...]:
    whole = parts._replace(rows=None)
    *rows, groups = whole.shape(".scales")
    return (*rows, groups * _mlx_sizes(whole)[2])


def _mlx(parts: Parts) -> Floats:
    """Words of neighbouring inputs, each group with a scale and, where codes are whole numbers, what is added."""
    mode, bits, size = _mlx_sizes(parts)
    added = next((ending for ending in (".biases", ".qbiases") if parts.has(ending)), "")
    if bool(added) != (mode == "affine"):
        raise DeclarationError(f"{parts.said.where('mode')}, and there {'are' if added else 'are no'} biases of groups")
    codes = unpacked(parts.codes(".weight"), bits)
    what = parts.said.where("group")
    if mode == "affine":
        weight = scaled(codes.astype(np.float32), parts.floats(".scales"), (1, size), what)
        grouped = weight.reshape(*weight.shape[:-1], -1, size)
        grouped += parts.floats(added).reshape(*grouped.shape[:-1], 1)
        return weight
    if parts.dtype(".scales") != "uint8":
        raise DeclarationError(f"{parts.said.where('mode')}, and its scales are {parts.dtype('.scales')}")
    scales = eight_bits(parts.bytes(".scales"), _MODES[mode][2]).reshape(parts.shape(".scales"))
    numbers: Floats = _E2M1[codes] if bits == 4 else eight_bits(codes, "float8_e4m3fn")
    return scaled(numbers, scales, (1, size), what)


def _mxfp4_shape(parts: Parts) -> tuple[int, ...]:
    experts, outputs, groups, half = parts.info(parts.names["_blocks"]).shape
    return experts, 2 * groups * half, outputs


def _mxfp4(parts: Parts) -> Floats:
    """Two numbers of 4 bits a byte; 32 share a power of two. Inputs first, as in transformers."""
    numbers = _nibbles(parts.codes("_blocks"))  # (experts, outputs, groups, 32)
    scales = eight_bits(parts.codes("_scales"), "float8_e8m0fnu")
    if numbers.shape != (*scales.shape, _MX):
        raise ValueError(f"{_of(scales.shape)} scales for {_of(numbers.shape)} numbers")
    numbers *= scales[..., None]
    return numbers.reshape(*numbers.shape[:2], -1).transpose(0, 2, 1)


def _quanto(parts: Parts) -> Floats:
    """Numbers of 8 bits, each times the scale of its tensor or row."""
    weight, scale = parts.floats(".weight._data"), parts.floats(".weight._scale")
    return scaled(weight, scale, (1 if scale.size > 1 else 0, 0), "quanto has one scale a row")


def _bnb_4bit_of(kind: str) -> Way:
    takes = (".weight.nested_absmax", ".weight.nested_quant_map")
    state = f".weight.quant_state.bitsandbytes__{kind}"
    needs = (".weight", ".weight.absmax", ".weight.quant_map", state)
    return Way(f"bitsandbytes {kind}", needs, takes, _shape_of_4bit, _bnb_4bit, ("", "bitsandbytes"))


def _in_bytes(ending: str) -> Callable[[Parts], bool]:
    return lambda parts: parts.dtype(ending) in ("uint8", "int8")


_QWEIGHT = (".qweight", ".qzeros", ".scales")
_TENSORS = ("compressed-tensors", "modelopt")
#: the first whose needs are there, that fits and that is declared is taken
WAYS = (
    Way(
        "bitsandbytes int8", (".weight", ".SCB"), (".weight_format",), _of_weight, _int8_by_row, ("", "bitsandbytes"),
        _in_8_bits, by_rows=(".weight", ".SCB"),
    ),
    _bnb_4bit_of("nf4"),
    _bnb_4bit_of("fp4"),
    Way("AWQ", _QWEIGHT, (), _awq_shape, _awq, ("awq", "auto-round"), _by_method("awq")),
    Way("GPTQ", _QWEIGHT, (".g_idx",), _gptq_shape, _gptq, ("gptq", "auto-round"), _by_method("gptq")),
    Way(
        "compressed-tensors", (".weight_packed", ".weight_scale", ".weight_shape"),
        (".weight_zero_point", ".weight_g_idx"), _packed_shape, _compressed, ("compressed-tensors",),
    ),
    *(
        Way(
            "NVFP4", (packed, ".weight_scale", second), (), _twice(packed), _fp4, _TENSORS, _in_bytes(packed),
            by_rows=(packed, ".weight_scale", second),
        )
        for packed, second in ((".weight_packed", ".weight_global_scale"), (".weight", ".weight_scale_2"))
    ),
    Way(
        "MXFP4", (".weight_packed", ".weight_scale"), (), _twice(".weight_packed"), _fp4, _TENSORS,
        _in_bytes(".weight_packed"), by_rows=(".weight_packed", ".weight_scale"),
    ),
    Way(
        "MXFP4", (".weight", ".scale"), (), _twice(".weight"), _fp4_experts, ("fp8",),
        lambda parts: parts.dtype(".weight") == "int8" and parts.said.get("experts") == "fp4",
        by_rows=(".weight", ".scale"),
    ),
    *(
        Way(
            "8 bits with scales", (".weight", scale), (".weight_zero_point",), _of_weight, _scaled,
            ("fp8", "mxfp8", "fbgemm_fp8", *_TENSORS), _in_8_bits, by_rows=(".weight", scale, ".weight_zero_point"),
        )
        for scale in _SCALES
    ),
    Way(
        "MLX", (".weight", ".scales"), (".biases", ".qbiases"), _mlx_shape, _mlx, ("mlx", "metal"),
        lambda parts: parts.dtype(".weight") in _WORDS, by_rows=(".weight", ".scales", ".biases", ".qbiases"),
    ),
    Way(
        "MXFP4", ("_blocks", "_scales"), (), _mxfp4_shape, _mxfp4, ("", "mxfp4"), suffix="",
        by_rows=("_blocks", "_scales"),
    ),
    Way("quanto", (".weight._data", ".weight._scale"), (), lambda parts: parts.shape(".weight._data"), _quanto,
        ("", "quanto"), lambda parts: parts.dtype(".weight._data").startswith(("int8", "float8"))),
)  # fmt: skip
