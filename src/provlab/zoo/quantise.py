"""Weights stored in few bits and read back: what a quantised leak of a model holds.

The layout is that of GGUF's k-quants: blocks of weights, each with a scale and a minimum, and super-blocks of eight
blocks, over which the scales and minima are themselves stored in six bits under one half-precision factor each. A
block's scale is its range over the number of steps; the search for a slightly better one, which GGUF's tools do, is
left out.
"""

import numpy as np
from numpy.typing import NDArray

from provlab.errors import ParameterError

BLOCKS_IN_SUPER_BLOCK = 8
_SCALE_STEPS = 2**6 - 1
_MAX_BITS = 8

Weights = NDArray[np.float32]


def bits_per_weight(bits: int, block: int) -> float:
    """Bits stored for each weight, scales and minima included: 4.5 for 4 bits in blocks of 32."""
    return bits + (2 * 6 + 2 * 16 / BLOCKS_IN_SUPER_BLOCK) / block


def quantised(weights: Weights, bits: int, block: int = 32) -> Weights:
    """Quantise weights block by block and read them back: ``w = scale q - minimum``, q in 0 to 2^bits - 1.

    Blocks run over the array as it lies in memory, row after row. (GGUF asks for rows that hold whole
    super-blocks; the zoo's rows are shorter.) The last super-block is filled up with zeros.

    Parameters
    ----------
    weights
        Any shape, finite.
    bits
        The bits of each weight, 1 to 8.
    block
        Weights that share one scale and one minimum.

    Returns
    -------
    array
        Float32, of the same shape, with at most 2^bits values in a block.

    Raises
    ------
    ParameterError
        If `bits` or `block` is out of range.
    """
    if not 1 <= bits <= _MAX_BITS:
        raise ParameterError(f"bits must be from 1 to {_MAX_BITS}, not {bits}")
    if block < 1:
        raise ParameterError(f"block must be at least 1 weight, not {block}")
    steps = 2**bits - 1
    flat = np.asarray(weights, dtype=np.float64).ravel()
    padded = np.pad(flat, (0, -flat.size % (block * BLOCKS_IN_SUPER_BLOCK)))
    blocks = padded.reshape(-1, BLOCKS_IN_SUPER_BLOCK, block)
    depth = np.maximum(-blocks.min(axis=2), 0.0)  # zero lies in every block's range
    minimum, scale = _in_six_bits(depth), _in_six_bits((np.maximum(blocks.max(axis=2), 0.0) + depth) / steps)
    divisor = np.where(scale > 0, scale, 1.0)[:, :, None]
    q = np.clip(np.rint((blocks + minimum[:, :, None]) / divisor), 0, steps)
    restored = scale[:, :, None] * q - minimum[:, :, None]
    return restored.ravel()[: flat.size].reshape(np.shape(weights)).astype(np.float32)


def _in_six_bits(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Store ``(super-blocks, blocks)`` numbers from zero up in six bits under one half-precision factor a row."""
    factor = (values.max(axis=1, keepdims=True) / _SCALE_STEPS).astype(np.float16).astype(np.float64)
    divisor = np.where(factor > 0, factor, 1.0)
    return np.where(factor > 0, factor * np.clip(np.rint(values / divisor), 0, _SCALE_STEPS), 0.0)


def group_signs(weights: Weights, group: int) -> Weights:
    """Keep one sign for each `group` neighbours of a row, that of their sum: 1 / `group` bits a weight.

    No format stores this; it goes on where blocks of numbers of one bit end.

    Parameters
    ----------
    weights
        ``(rows, columns)``.
    group
        A divisor of the columns.

    Returns
    -------
    array
        ``(rows, columns)`` of 1 and -1, float32.

    Raises
    ------
    ParameterError
        If the groups do not fill a row.
    """
    rows, columns = weights.shape
    if group < 1 or columns % group:
        raise ParameterError(f"group must divide the {columns} columns, not be {group}")
    sums = np.asarray(weights, dtype=np.float64).reshape(rows, columns // group, group).sum(axis=2)
    return np.repeat(np.where(sums >= 0, 1.0, -1.0), group, axis=1).astype(np.float32)
