"""Numbers from their bytes, whatever the dtype; a dtype goes by torch's name, ``bfloat16``.

numpy knows neither bfloat16, which is the upper half of a float32, nor the float8 types.
"""

import re
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: a safetensors file's name of a dtype -> torch's, which is numpy's too where numpy has it
BY_SAFETENSORS = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64",
    "I32": "int32",
    "U32": "uint32",
    "I16": "int16",
    "U16": "uint16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
DTYPES = tuple(BY_SAFETENSORS.values())
#: the largest relative error of one number; what is stored in fewer bits or as codes was made from bfloat16
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def itemsize(dtype: str) -> int:
    """Bytes of one number: 2 for ``bfloat16``."""
    return int((re.search(r"[0-9]+", dtype) or "8")[0]) // 8  # the first is of float8_e4m3fn, none of bool


def exact_from(dtypes: Collection[str], wider: str) -> str | None:
    """Return the one dtype that tensors have, where `wider` holds each of their numbers; None else."""
    (stored,) = dtypes if len(dtypes) == 1 else ("",)
    narrower = {"float32": ("bfloat16", "float16"), "float64": ("bfloat16", "float16", "float32")}
    return stored if stored == wider or stored in narrower.get(wider, ()) else None


def values(content: NDArray[np.uint8], dtype: str) -> NDArray[Any]:
    """Numbers from their bytes, exact: in their dtype where numpy has it, in float32 where it has not."""
    if dtype == "bfloat16":  # the upper half of a float32
        wide = content.view(np.uint16).astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    if dtype.startswith("float8"):
        return eight_bits(content, dtype)
    return content.view(dtype)


def eight_bits(content: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """Numbers from their bytes, exact, of ``float8_e5m2``, ``float8_e4m3fn`` or ``float8_e8m0fnu``."""
    if dtype == "float8_e5m2":  # the upper half of a float16
        return (content.astype(np.uint16) << 8).view(np.float16).astype(np.float32)
    return (_E8M0 if dtype == "float8_e8m0fnu" else _E4M3)[content]


def _all_e4m3() -> NDArray[np.float32]:
    """What the 256 bytes of float8_e4m3fn stand for: a sign, four bits of exponent, three of fraction; no Inf."""
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    size = np.ldexp(np.where(exponent > 0, 8 + fraction, fraction), np.maximum(exponent, 1) - 10)
    size[code & 127 == 127] = np.nan
    return np.where(code < 128, size, -size).astype(np.float32)


_E4M3 = _all_e4m3()
# eight bits of exponent alone: the powers of two by which blocks of the MX formats are scaled
_E8M0 = np.append(np.ldexp(np.float32(1), np.arange(-127, 128)), np.float32(np.nan))
