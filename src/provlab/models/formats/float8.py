"""Numbers of eight bits, which numpy does not know."""

import numpy as np
from numpy.typing import NDArray


def values(content: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
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
