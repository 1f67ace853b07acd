"""Ways of quantising: by which tensors each is known, and how its codes become weights again.

A weight is ``(output units, input units)`` as in transformers. Two things return below: codes of few bits are packed
into words, and a scale (and a zero, the code of 0) belongs to a *group* of neighbouring inputs, to a row, or to all.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.reading.files.container import TensorInfo
from provlab.reading.files.dtypes import eight_bits

Floats = NDArray[np.float32]
Codes = NDArray[Any]
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which of eight columns each four bits of a word hold, from the lowest on
# the numbers of a sign, two bits of exponent and one of fraction
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


class Parts(NamedTuple):
    """The stored tensors of one weight.

    Attributes
    ----------
    names
        Ending -> name in the file.
    settings
        ``quantization_config`` of the config.
    info, read
        Shape and dtype of a stored tensor by name, and its numbers.
    """

    names: Mapping[str, str]
    settings: Mapping[str, Any]
    info: Callable[[str], TensorInfo]
    read: Callable[[str], Codes]

    def shape(self, ending: str) -> tuple[int, ...]:
        """Shape of one of them."""
        return self.info(self.names[ending]).shape

    def floats(self, ending: str) -> Floats:
        """Numbers of one of them as float32."""
        return self.read(self.names[ending]).astype(np.float32)

    def codes(self, ending: str) -> Codes:
        """Numbers of one of them as they are stored."""
        return self.read(self.names[ending])


class Method(NamedTuple):
    """A way of quantising.

    Attributes
    ----------
    name
        For reports.
    needs, takes
        Endings of the names by which it is known, and of those of optional ones.
    shape, weight
        Shape of the weight, and the weight, from its parts.
    fits
        Whether tensors of such names are codes of this method.
    suffix
        What the weight's name has in place of the endings.
    """

    name: str
    needs: tuple[str, ...]
    takes: tuple[str, ...]
    shape: Callable[[Parts], tuple[int, ...]]
    weight: Callable[[Parts], Floats]
    fits: Callable[[Parts], bool] = lambda parts: True
    suffix: str = ".weight"


def unpacked(words: Codes, bits: int) -> NDArray[np.uint8]:
    """Codes of `bits` bits along the last axis of words, from the lowest bit on: ``(..., words x 32 / bits)``."""
    if not 1 <= bits <= 8:
        raise ValueError(f"codes of {bits} bits")
    content = np.ascontiguousarray(words).view(np.uint8)  # least significant byte first
    if 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        pieces: NDArray[np.uint8] = content[..., None] >> shifts & np.uint8(2**bits - 1)
        return pieces.reshape(*content.shape[:-1], -1)
    stream = np.unpackbits(content, axis=-1, bitorder="little")
    stream = stream[..., : stream.shape[-1] // bits * bits].reshape(*content.shape[:-1], -1, bits)
    codes: NDArray[np.uint8] = np.packbits(stream, axis=-1, bitorder="little")[..., 0]
    return codes


def spread(scale: Floats, shape: tuple[int, ...], block: Any = None) -> Floats:
    """Lay scales of blocks over a matrix: ``(1, 1)``, ``(rows, 1)``, ``(rows, groups)`` or one for each rectangle."""
    if scale.ndim < len(shape) and scale.size in (1, shape[0]):
        scale = scale.reshape(-1, *[1] * (len(shape) - 1))
    if scale.ndim != len(shape):
        raise ValueError(f"scales of shape {scale.shape} for {shape}")
    for axis, (n, length) in enumerate(zip(scale.shape, shape, strict=True)):
        if n in (1, length):
            continue
        size = block[axis] if block else -(-length // n)
        if -(-length // size) != n:
            raise ValueError(f"{n} scales for {length} numbers")
        scale = np.repeat(scale, size, axis=axis).take(np.arange(length), axis=axis)
    return scale


def _int8_by_row(parts: Parts) -> Floats:
    """Rows of int8, each with its largest absolute value: 127 stands for it."""
    return parts.floats(".weight") * (parts.floats(".SCB") / np.float32(127))[:, None]


def _state(parts: Parts) -> dict[str, Any]:
    ending = next(ending for ending in parts.names if "quant_state" in ending)
    state: dict[str, Any] = json.loads(parts.codes(ending).astype(np.uint8).tobytes())
    return state


def _shape_of_4bit(parts: Parts) -> tuple[int, ...]:
    shape = tuple(int(n) for n in _state(parts)["shape"])
    if min(shape) < 0 or math.prod(shape) != 2 * math.prod(parts.shape(".weight")):
        raise ValueError(f"{parts.shape('.weight')} bytes for {shape}")
    return shape


def _bnb_4bit(parts: Parts) -> Floats:
    """Two codes a byte, the upper first, of a table of 16; each block times its largest, which may be coded itself."""
    state = _state(parts)
    largest = parts.codes(".weight.absmax")
    if ".weight.nested_absmax" in parts.names:
        outer = np.repeat(parts.floats(".weight.nested_absmax"), state["nested_blocksize"])[: largest.size]
        inner = parts.floats(".weight.nested_quant_map")[largest.reshape(-1)]
        largest = inner * outer + np.float32(state["nested_offset"])
    packed = parts.codes(".weight").reshape(-1)
    codes = np.stack([packed >> 4, packed & 15], axis=1).reshape(-1)
    weight = parts.floats(".weight.quant_map")[codes]
    blocks = np.repeat(largest.astype(np.float32).reshape(-1), state["blocksize"])
    return weight * blocks[: weight.size]


def _is_awq(parts: Parts) -> bool:
    """Whether words run along the outputs, as AWQ's do, and not along the inputs, as GPTQ's."""
    return parts.shape(".qweight")[1] != parts.shape(".scales")[1]


def _gptq_bits(parts: Parts) -> int:
    if "bits" in parts.settings or ".g_idx" not in parts.names:
        return int(parts.settings.get("bits", 4))
    return 32 * parts.shape(".qweight")[0] // parts.shape(".g_idx")[0]


def _gptq_shape(parts: Parts) -> tuple[int, ...]:
    words, outputs = parts.shape(".qweight")
    return outputs, words * 32 // _gptq_bits(parts)


def _gptq(parts: Parts) -> Floats:
    """Codes of a column of words are inputs; each input has its group, in order or by ``g_idx``."""
    bits, (outputs, inputs) = _gptq_bits(parts), _gptq_shape(parts)
    codes = unpacked(parts.codes(".qweight").T, bits)
    scales = parts.floats(".scales")  # (groups, outputs)
    zeros = unpacked(parts.codes(".qzeros"), bits)[:, :outputs].astype(np.float32)
    if parts.settings.get("checkpoint_format") != "gptq_v2":  # the first format stores a zero less one
        zeros = (zeros + 1) % 2**bits
    group = np.arange(inputs) // -(-inputs // len(scales))
    if ".g_idx" in parts.names:
        group = parts.codes(".g_idx").astype(np.int64)
    return (codes.astype(np.float32) - zeros[group].T) * scales[group].T


def _awq_shape(parts: Parts) -> tuple[int, ...]:
    inputs, words = parts.shape(".qweight")
    return words * 8, inputs


def _awq(parts: Parts) -> Floats:
    """Words of eight outputs, which stand in them in an order of their own."""

    def in_order(words: Codes) -> Floats:
        nibbles = unpacked(words, 4).reshape(*words.shape, 8)
        return nibbles[..., np.argsort(_AWQ_ORDER)].reshape(len(words), -1).astype(np.float32)

    codes, zeros, scales = in_order(parts.codes(".qweight")), in_order(parts.codes(".qzeros")), parts.floats(".scales")
    size = -(-len(codes) // len(scales))  # inputs of a group
    group = np.arange(len(codes)) // size
    return ((codes - zeros[group]) * scales[group]).T


def _packed_shape(parts: Parts) -> tuple[int, ...]:
    shape = tuple(int(n) for n in parts.codes(".weight_shape").reshape(-1))
    rows, words = parts.shape(".weight_packed")
    if len(shape) != 2 or shape[0] != rows or not words <= shape[1] <= 32 * words:
        raise ValueError(f"{rows} x {words} words for {shape}")
    return shape


def _compressed(parts: Parts) -> Floats:
    """Words of neighbouring inputs, their codes shifted so that none is negative."""
    rows, inputs = _packed_shape(parts)
    words = parts.codes(".weight_packed")
    bits = 32 * words.shape[1] // inputs  # one code behind the other, over the ends of words
    if words.shape[1] != -(-inputs * bits // 32):
        raise ValueError(f"{words.shape[1]} words for {inputs} codes of {bits} bits")
    codes = unpacked(words, bits)[:, :inputs].astype(np.float32) - 2 ** (bits - 1)
    scales = parts.floats(".weight_scale").reshape(rows, -1)
    if ".weight_zero_point" in parts.names:
        zeros = unpacked(parts.codes(".weight_zero_point").T, bits).T[:rows].astype(np.float32) - 2 ** (bits - 1)
        codes = codes - _grouped(parts, zeros, inputs)
    return codes * _grouped(parts, scales, inputs)


def _grouped(parts: Parts, scales: Floats, inputs: int) -> Floats:
    """Lay ``(rows, groups)`` over the inputs, which have their groups in order or by ``weight_g_idx``."""
    if ".weight_g_idx" in parts.names:
        return scales[:, parts.codes(".weight_g_idx").astype(np.int64)]
    return spread(scales, (len(scales), inputs))


def _scaled(parts: Parts) -> Floats:
    """Numbers of 8 bits, each times the scale of its tensor, row, group or rectangle (that of ``scale_inv`` too).

    Scales of MXFP8 are exponents of two, in bytes (OCP Microscaling Formats 1.0, 5.2 and 5.4.1).
    """
    weight = parts.floats(".weight")
    block = parts.settings.get("weight_block_size")
    if ".weight_zero_point" in parts.names:
        weight = weight - spread(parts.floats(".weight_zero_point"), weight.shape, block)
    ending = next(ending for ending in _SCALES if ending in parts.names)
    scale, kind = parts.floats(ending), parts.info(parts.names[ending]).dtype
    if kind == "uint8":
        scale = eight_bits(parts.codes(ending), "float8_e8m0fnu")
    if kind in ("uint8", "float8_e8m0fnu"):
        block = block or (*[1] * (weight.ndim - 1), 32)
    return weight * spread(scale, weight.shape, block)


_SCALES = (".weight_scale_inv", ".weight_scale", ".scale_weight")


def _in_8_bits(parts: Parts) -> bool:
    return parts.info(parts.names[".weight"]).dtype.startswith(("int8", "float8"))


def _mlx_shape(parts: Parts) -> tuple[int, ...]:
    *rows, groups = parts.shape(".scales")
    return (*rows, groups * int(parts.settings.get("group_size", 64)))


def _mlx(parts: Parts) -> Floats:
    """Words of neighbouring inputs, each group with a scale and what is added."""
    shape, words = _mlx_shape(parts), parts.codes(".weight")
    codes = unpacked(words, 32 * words.shape[-1] // shape[-1]).astype(np.float32)
    return codes * spread(parts.floats(".scales"), shape) + spread(parts.floats(".biases"), shape)


def _mxfp4_shape(parts: Parts) -> tuple[int, ...]:
    experts, outputs, groups, half = parts.shape("_blocks")
    return experts, 2 * groups * half, outputs


def _mxfp4(parts: Parts) -> Floats:
    """Two numbers of 4 bits a byte, the lower first; 32 share a power of two. Inputs first, as in transformers."""
    packed = parts.codes("_blocks")  # (experts, outputs, groups, 16)
    numbers = _E2M1[np.stack([packed & 15, packed >> 4], axis=-1)].reshape(*packed.shape[:-1], -1)
    numbers = numbers * eight_bits(parts.codes("_scales"), "float8_e8m0fnu")[..., None]
    return numbers.reshape(*packed.shape[:2], -1).transpose(0, 2, 1)


def _of_weight(parts: Parts) -> tuple[int, ...]:
    return parts.shape(".weight")


def _bnb_4bit_of(kind: str) -> Method:
    takes = (".weight.nested_absmax", ".weight.nested_quant_map")
    state = f".weight.quant_state.bitsandbytes__{kind}"
    needs = (".weight", ".weight.absmax", ".weight.quant_map", state)
    return Method(f"bitsandbytes {kind}", needs, takes, _shape_of_4bit, _bnb_4bit)


_WORDS = (".qweight", ".qzeros", ".scales")
_TAKES = (".weight_zero_point", ".input_scale", ".input_zero_point")
#: the first whose needs are there and that fits is taken
METHODS = (
    Method("bitsandbytes int8", (".weight", ".SCB"), (".weight_format",), _of_weight, _int8_by_row),
    _bnb_4bit_of("nf4"),
    _bnb_4bit_of("fp4"),
    Method("AWQ", _WORDS, (), _awq_shape, _awq, _is_awq),
    Method("GPTQ", _WORDS, (".g_idx",), _gptq_shape, _gptq),
    Method(
        "compressed-tensors",
        (".weight_packed", ".weight_scale", ".weight_shape"),
        (".weight_zero_point", ".weight_g_idx"),
        _packed_shape,
        _compressed,
    ),
    *(Method("8 bits with scales", (".weight", scale), _TAKES, _of_weight, _scaled, _in_8_bits) for scale in _SCALES),
    Method("MLX", (".weight", ".scales", ".biases"), (), _mlx_shape, _mlx),
    Method("MXFP4", ("_blocks", "_scales"), (), _mxfp4_shape, _mxfp4, suffix=""),
)
