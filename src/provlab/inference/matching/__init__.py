"""Algorithm 2 of the paper (MATCH): which row of one matrix is which row of another.

Rows are hidden units: rows of a weight matrix, or activations over the same inputs. Two rows are
compared by cosine similarity, and the matching is the assignment of largest total similarity, one
partner for each row. Two doors lead in, `assign` for similarities and `match` for the matrices
themselves. Behind them stands `provlab.inference.matching.exact`, compiled on first use; where nothing can be
compiled, scipy's solver on similarities in float64, which finds the same and takes longer.

Source: "Independence Tests for Language Models", Section 3.2, Algorithm 2 (MATCH). The algorithm
matches by cosine similarity; matching by Euclidean distance is another statistic.
"""

import functools
import hashlib
import os
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import ModuleType

import numpy as np
from filelock import FileLock
from numpy.typing import ArrayLike, NDArray

from provlab.errors import one_line
from provlab.extras import command
from provlab.files import cache_dir
from provlab.inference.matching.cosine import (
    Assignment,
    Rows,
    UnitRows,
    cosine_similarity,
    cosines_float64,
    multiplied_by,
    prepared_pair,
    real_matrix,
    refuse_non_finite,
    unit_rows,
)

__all__ = [
    "Assignment",
    "UnitRows",
    "assign",
    "cosine_similarity",
    "match",
    "match_shuffled",
    "multiplied_by",
    "tie_seed",
    "unit_rows",
]


def match(W1: Rows, W2: Rows) -> Assignment:
    """Match the rows of two matrices by cosine similarity.

    Parameters
    ----------
    W1, W2
        Shapes (h1, d) and (h2, d): numpy arrays or torch tensors on the CPU, or the `unit_rows` of either, which spare
        the work of normalising a matrix again for each pair in which it stands.

    Returns
    -------
    Assignment
        A partner in the larger matrix for each row of the smaller one. Without ties, MATCH is
        equivariant: ``match(W1[p], W2).indices == match(W1, W2).indices[p]`` for equal sizes.

    Raises
    ------
    InputError
        If an argument is not a non-empty real matrix, if the columns differ in number, or if there
        is a NaN, an Inf or a row of zeros, which has no direction and so no cosine.

    Notes
    -----
    Where several assignments have the same largest objective, the one returned is the choice of the
    algorithm: compare objectives, not indices, between algorithms.
    """
    return _match(prepared_pair(W1, W2), False, None)


def match_shuffled(W1: Rows, W2: Rows, *, seed: int, unsigned: bool = False) -> Assignment:
    """MATCH with ties broken in a random order: what a test must use.

    Equal rows make many matchings equally good, and the solver settles among them by the order in which the rows
    stand, the same way on both sides. Two models with many equal rows, however unrelated, would then be matched in
    order, and MATCH would not be equivariant, on which the null distribution rests (Theorem 2). The second side is
    therefore put into a random order that knows nothing of the models (on unequal sizes, the larger side). Without ties
    the result is that of `match`.

    Parameters
    ----------
    W1, W2
        As for `match`.
    seed
        The seed of the order; `tie_seed` makes one.
    unsigned
        By the size of the cosine, whatever its sign: not the paper's MATCH, see `provlab.statistics.phi_match`.

    Raises
    ------
    InputError
        As `match`.
    """
    sides = prepared_pair(W1, W2)
    order = np.random.default_rng(seed).permutation(max(len(side) for side in sides))
    best = _match(sides, unsigned, order)
    return replace(best, indices=order[best.indices])


def tie_seed(seed: int, *where: str | int | None) -> int:
    """Seed of one order in which ties are broken: another one wherever matchings must not depend on each other.

    With one order for all blocks, equal rows are matched alike in each of them, and Fisher's method adds up what is one
    p-value. The same holds for the two matchings of one block that phi_MATCH correlates.

    Parameters
    ----------
    seed
        From which all random draws derive.
    where
        Statistic, block and side, or what else names the matching.
    """
    return int.from_bytes(hashlib.sha256(repr((seed, *where)).encode()).digest()[:8], "little")


def assign(similarity: ArrayLike) -> Assignment:
    """Find the assignment of largest total similarity, exactly; square or rectangular.

    Parameters
    ----------
    similarity
        Shape (h1, h2), finite. Rows are side 1, columns side 2; the smaller side is assigned.

    Raises
    ------
    InputError
        If `similarity` is not a non-empty real matrix, or holds a NaN or an Inf.
    """
    matrix = real_matrix(similarity, "similarity")
    refuse_non_finite(matrix, "similarity")
    # float32 where it holds every value, float64 otherwise, as scipy takes them
    dtype: type[np.floating] = np.float32 if np.can_cast(matrix.dtype, np.float32) else np.float64
    values: NDArray[np.floating] = np.ascontiguousarray(
        matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T, dtype
    )
    if (exact := _exact(dtype.__name__)) is None:
        return _by_scipy(values)
    best: Assignment = exact.best(values)
    return best


def _match(sides: tuple[UnitRows, UnitRows], unsigned: bool, order: NDArray[np.int64] | None) -> Assignment:
    """MATCH with the rows of the larger side in some order, in which the indices count."""
    first, second = sides if len(sides[0]) <= len(sides[1]) else sides[::-1]
    if (exact := _exact("float32")) is None:
        return _by_scipy(cosines_float64(first, second, order=order, unsigned=unsigned))
    best: Assignment = exact.best_by_cosine(first, second, order=order, unsigned=unsigned)
    return best


def _by_scipy(similarity: NDArray[np.floating]) -> Assignment:
    """The library way, on shape (n, m) with n <= m: scipy solves it with rows in order, so `columns` is by row."""
    from scipy.optimize import linear_sum_assignment  # as slow to import as numba, whose place it takes

    rows, columns = linear_sum_assignment(similarity, maximize=True)
    indices = columns.astype(np.int64, copy=False)
    return Assignment(indices, float(similarity[rows, columns].sum(dtype=np.float64)))


def _exact(dtype: str) -> ModuleType | None:
    """The module of the fast way, compiled for similarities of this type, or None after one line of notice."""
    return _notice("PROVLAB_NO_COMPILE is set") if os.environ.get("PROVLAB_NO_COMPILE") else _compiled(dtype)


@functools.cache
def _compiled(dtype: str) -> ModuleType | None:
    """Processes that begin together wait for the first one to compile, and then load what it made."""
    try:
        from provlab.inference.matching import exact
    except ImportError as error:
        return _notice(f"numba cannot be imported ({one_line(error)}); {command('numba')}")
    with _one_at_a_time():
        exact.warm(dtype)
    return exact


@functools.cache
def _notice(reason: str) -> None:
    warnings.warn(
        f"matching by scipy's solver, many times slower at the widths of language models: {reason}",
        RuntimeWarning,
        stacklevel=2,
    )


def _one_at_a_time() -> AbstractContextManager[object]:
    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "compile.lock")
        lock.acquire()
    except OSError:  # nowhere to lock: then each compiles for itself
        return nullcontext()
    lock.release()
    return lock
