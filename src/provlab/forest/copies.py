"""Models that are one: the same numbers in all tensors, in those of one shape, or up to the rounding of one file.

A copy says nothing of descent, and beside it every relation of the one is one of the other. So such models are one node
of a tree, and what was read of them is said.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from provlab.forest.merges import Distances

ROUNDED = 1.5  # expected roundings, squared, by which a rounded copy may miss
COARSER = 16.0  # how many times the other's roundings, squared, one file's are from which it may be the rounded one
IDENTICAL, SHAPES, UP_TO_ROUNDING = "identical", "equal where shapes agree", "equal up to the rounding of one file"


@dataclass(frozen=True)
class Same:
    """A model and another one that is the same: which way, and how many tensors of both were compared, of how many."""

    model: int
    other: int
    words: str
    compared: int
    tensors: tuple[int, int]


def between(distances: Distances, i: int, j: int) -> Same | None:
    """Whether two models are one, by the tensors that were read of both."""
    own = np.isfinite(distances.squared)
    shared = own[:, i, j]
    blocks = np.array([block is not None for block, _ in distances.keys], bool)
    if not shared[blocks].any() and (blocks.any() or not shared.any()):
        return None
    total, noise = distances.squared[shared, i, j].sum(), distances.rounding[shared][:, [i, j]].sum(axis=0)
    sizes = (int(own[:, i, i].sum()), int(own[:, j, j].sum()))
    if total == 0:
        words = IDENTICAL if int(shared.sum()) == max(sizes) else SHAPES
    elif noise.max() > COARSER * noise.min() and total <= ROUNDED * noise.max():
        words = UP_TO_ROUNDING
    else:
        return None
    return Same(i, j, words, int(shared.sum()), sizes)


def find(distances: Distances, order: Sequence[int]) -> list[Same]:
    """Each model that is the same as an earlier one of `order`, with the first such model."""
    first: list[int] = []
    same: list[Same] = []
    for j in order:
        found = [known for i in first if (known := between(distances, i, j))]
        if found:
            same.append(found[0])
        else:
            first.append(j)
    return same
