"""Ways to store a matrix in ever fewer bits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from provlab.reading import anatomy
from provlab.reading.checkpoint import Checkpoint
from provlab.zoo.quantise import bits_per_weight, group_signs, quantised

Matrix = NDArray[np.float32]
SIGNS = "signs"  # scheme that keeps one sign for each group of neighbours


def up_projections(source: str, *, allow_pickle: bool = False) -> list[Matrix]:
    """Up projection of every block, ``(hidden units, width)`` each."""
    checkpoint = Checkpoint.open(source, allow_pickle=allow_pickle)
    parts = anatomy.of(checkpoint)
    return [parts.read(checkpoint, "up", block) for block in range(parts.n_blocks)]


@dataclass(frozen=True)
class Scheme:
    """One way to store a matrix.

    Attributes
    ----------
    name : str
        "blocks of 32", or `SIGNS`.
    stored : float
        Bits a weight, scales and minima included.
    bits : int
        The bits of one weight in its block, or signs of one row.
    store : callable
        Matrix to what is read back.
    """

    name: str
    stored: float
    bits: int
    store: Callable[[Matrix], Matrix]


def schemes(block_sizes: Sequence[int], width: int) -> Iterator[Scheme]:
    """Blocks of each size with 8 down to 1 bits, then one sign for each group, up to one for a whole row."""
    for size in block_sizes:
        for bits in range(8, 0, -1):
            store = partial(quantised, bits=bits, block=size)
            yield Scheme(f"blocks of {size}", bits_per_weight(bits, size), bits, store)
    for group in range(1, width + 1):
        if width % group == 0:
            yield Scheme(SIGNS, 1 / group, width // group, partial(group_signs, group=group))
