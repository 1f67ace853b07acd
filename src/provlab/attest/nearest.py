"""Which kin of a shelf may be the nearest ancestor of a model: those from which no other kin parts it.

Trainings that go different ways change weights about at right angles. So if t lies on the path of the weights from x to
s, the changes x - t and s - t have a cosine near 0. Then s is not the nearest ancestor of x: t is, or t is nearer. But
if s is the nearest ancestor and t a child of x, then x - t is part of s - t, and their cosine is |x - t| / |s - t|; and
if t is another child of s, it is the inverse of that. So t rules s out if the cosine is well below the smaller of the
two, and that is not too small itself.

A model from which two others lie in opposite directions is on no path: it is a mean of them, and rules nothing out.

All of this is read from the first hidden units of block 0, as a shelf keeps them. Nothing is ruled out by distances
that the rounding of fingerprints could make, nor where training left these rows alone: then the set is larger.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from provlab.measured import quoted

#: t rules s out at a cosine of at most this share of what it would be if s were the nearest ancestor, where that is at
#: least `LEAST`. Settled on 1,717 questions to families grown from seeds 100 to 121: 97% kept the nearest ancestor
SHARE, LEAST = 0.3, 0.2
#: cosine of two other models as seen from a mean of both, or from one near it. Settled after a look at merges
OPPOSITE = -0.3
GAIN = 2.0  # distances count from so many times their rounding
COVERAGE = 0.9
#: in words. Families are given whole and without parents, so that questions are not independent
COUNTED = quoted("nearest").says()
_CHUNK = 16  # units at a time, so that no second copy of a shelf is held
Matrix = NDArray[np.float64]


def distances(rows: Sequence[Sequence[NDArray[np.float16]]]) -> tuple[Matrix, Matrix]:
    """Squared distances of models by some kinds of rows, each kind scaled to length 1, less those of rounding.

    Parameters
    ----------
    rows
        For each of n models its arrays ``(units, width)``, one for each kind, in one order for all models. Units beyond
        those that all models have are left out.

    Returns
    -------
    tuple of array
        Squared distances, and what rounding to half precision is expected to add to each, ``(n, n)`` both.
    """
    n = len(rows)
    squared, noise = np.zeros((n, n)), np.zeros((n, n))
    for kind in zip(*rows, strict=True):
        units = min(len(array) for array in kind)
        lengths = np.sqrt([np.square(array[:units], dtype=np.float64).sum() for array in kind])
        for start in range(0, units, _CHUNK):
            flat = [array[start : min(start + _CHUNK, units)].ravel() for array in kind]
            some = np.stack([part / length for part, length in zip(flat, lengths, strict=True)])  # (n, numbers)
            norms = np.square(some).sum(axis=1)
            squared += np.maximum(norms[:, None] + norms - 2 * some @ some.T, 0)  # (n, numbers) @ (numbers, n)
            errors = [np.square(np.spacing(np.abs(part)).astype(np.float64)).sum() / 12 for part in flat]
            own = np.array(errors) / np.square(lengths)
            noise += own[:, None] + own
    np.fill_diagonal(squared, 0)
    return np.maximum(squared - noise, 0), noise


def candidates(squared: Matrix, noise: Matrix) -> list[int]:
    """Numbers of the models that may be the nearest ancestor of the first: ``(n, n)`` each, see `distances`."""
    others = range(1, len(squared))
    paths = [t for t in others if not _is_mean(squared, t)]

    def ruled_out(s: int) -> bool:
        return any(t != s and _parts(squared, noise, t, s) for t in paths)

    return [s for s in others if not ruled_out(s)]


def _is_mean(squared: Matrix, t: int) -> bool:
    """Whether two other models lie in opposite directions from t."""
    some = np.flatnonzero(squared[t] > 0)
    own = squared[t, some]
    products = (own[:, None] + own - squared[np.ix_(some, some)]) / 2
    return bool(len(some) > 1 and (products / np.sqrt(np.outer(own, own))).min() <= OPPOSITE)


def _parts(squared: Matrix, noise: Matrix, t: int, s: int) -> bool:
    """Whether t lies between the first model and s."""
    to_t, t_to_s = squared[0, t], squared[t, s]
    if to_t < GAIN**2 * noise[0, t] or t_to_s < GAIN**2 * noise[t, s] or not min(to_t, t_to_s):
        return False
    cosine = (to_t + t_to_s - squared[0, s]) / 2 / np.sqrt(to_t * t_to_s)
    otherwise = np.sqrt(min(to_t / t_to_s, t_to_s / to_t))
    return bool(otherwise >= LEAST and cosine <= SHARE * otherwise)
