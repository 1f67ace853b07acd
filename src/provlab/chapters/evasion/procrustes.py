"""Undoing a rotation by least squares, which fits strangers as well: a measure that is no evidence (Appendix D).

An adversary who rotates a model may be suspected of having turned the matrix X into Y = X A. The best A is found by
least squares, freely or among the orthogonal matrices (the orthogonal Procrustes problem, Schoenemann 1966), and what
is left over says how well it fits. It says as well how many more equations there are than unknowns: with as many rows
as columns a free A fits anything.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from provlab.errors import InputError


@dataclass(frozen=True)
class Undone:
    """What is left after the best map, as a share of Y: ||X A - Y|| / ||Y||, between 0 (undone) and 1 (nothing fits).

    Attributes
    ----------
    free, orthogonal : float
        Over all matrices A, and over the orthogonal ones times one scale.
    """

    free: float
    orthogonal: float


def undo(X: ArrayLike, Y: ArrayLike) -> Undone:
    """Fit Y by X A.

    Parameters
    ----------
    X, Y
        ``(n, d)`` each, such as the same projection of two models, or activations over the same inputs.

    Raises
    ------
    InputError
        The shapes differ, or a value is not finite, or Y is zero.
    """
    first, second = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    if first.ndim != 2 or first.shape != second.shape:
        raise InputError(f"X and Y must be matrices of one shape, not {first.shape} and {second.shape}")
    if not (np.isfinite(first).all() and np.isfinite(second).all() and second.any() and first.any()):
        raise InputError("X and Y must be finite and not zero")
    size = float(np.linalg.norm(second))
    free, *_ = linalg.lstsq(first, second)
    rotation, singular_sum = linalg.orthogonal_procrustes(first, second)
    scale = singular_sum / float(np.linalg.norm(first)) ** 2
    return Undone(
        float(np.linalg.norm(first @ free - second)) / size,
        float(np.linalg.norm(scale * (first @ rotation) - second)) / size,
    )
