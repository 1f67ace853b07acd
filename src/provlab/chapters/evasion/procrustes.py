"""Undoing a rotation by least squares: how much of it fits strangers as well (Appendix D), and where it does not.

An adversary who rotates a model may be suspected of having turned the matrix X into Y = X A. The best A is found by
least squares, freely or among the orthogonal matrices (the orthogonal Procrustes problem, Schoenemann 1966), and what
is left over says how well it fits. It says as well how many more equations there are than unknowns: with as many rows
as columns a free A fits anything.

So much for the rows as they stand, which the adversary has shuffled. Who first finds out which row is which undoes
more: a hidden unit answers a text alike whatever basis its weights are written in, so units can be matched by what
they do (`undo_matched`), and only then is the rotation solved for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from provlab.errors import InputError
from provlab.inference.matching import match_shuffled


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


def undo_matched(X: ArrayLike, Y: ArrayLike, x_views: ArrayLike, y_views: ArrayLike, *, seed: int) -> Undone:
    """Fit Y by X A after its rows were put in the order of those of X, by MATCH of what they answer to the same inputs.

    Parameters
    ----------
    X, Y
        ``(h, d)`` each: a projection of two models, its rows the hidden units, with the weights of the norm before it
        multiplied in, so that one A serves all rows whatever became of the norm.
    x_views, y_views
        ``(h, inputs)`` each: what the units of either model answer, such as gate activations on one text.
    seed
        Of the order in which ties are broken.

    Raises
    ------
    InputError
        As `undo` and `match_shuffled`.
    """
    order = match_shuffled(np.asarray(x_views), np.asarray(y_views), seed=seed).indices
    return undo(X, np.asarray(Y)[order])
