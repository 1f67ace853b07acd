"""Algorithm 2 of the paper (MATCH): which row of one matrix is which row of another.

Rows are hidden units: rows of a weight matrix, or activations over the same inputs. Two rows are
compared by cosine similarity, and the matching is the assignment of largest total similarity, one
partner for each row. Two doors lead in, `assign` for similarities and `match` for the matrices
themselves; whatever exact algorithm stands behind them, what they return stays the same.

Source: "Independence Tests for Language Models", Section 3.2, Algorithm 2 (MATCH). The algorithm
matches by cosine similarity; matching by Euclidean distance is another statistic.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from provlab.errors import InputError

# Rows converted to float64 at a time: large enough for the matrix product to run at full speed,
# small enough that the copy is nothing beside the (h1, h2) result at the widths of language models.
BLOCK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Assignment:
    """One partner for each row of the smaller side.

    Attributes
    ----------
    indices
        int64, shape (min(h1, h2),): ``indices[k]`` is the row of the larger side matched to row `k`
        of the smaller side. On equal sizes the first matrix counts as the smaller side.
    objective
        Sum of the chosen similarities, in float64; no other assignment has a larger one.
    """

    indices: NDArray[np.int64]
    objective: float


def match(W1: ArrayLike, W2: ArrayLike, *, unsigned: bool = False) -> Assignment:
    """Match the rows of two matrices by cosine similarity.

    Parameters
    ----------
    W1, W2
        Shapes (h1, d) and (h2, d): numpy arrays or torch tensors on the CPU.
    unsigned
        By the size of the cosine, whatever its sign: not the paper's MATCH, see `provlab.statistics.phi_match`.

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
    similarity = cosine_similarity(W1, W2)
    return assign(np.abs(similarity, out=similarity) if unsigned else similarity)


def match_shuffled(W1: ArrayLike, W2: ArrayLike, *, seed: int, unsigned: bool = False) -> Assignment:
    """MATCH with ties broken in a random order: what a test must use.

    Equal rows make many matchings equally good, and the solver settles among them by the order in which the rows
    stand, the same way on both sides. Two models with many equal rows, however unrelated, would then be matched in
    order, and MATCH would not be equivariant, on which the null distribution rests (Theorem 2). The second side is
    therefore put into a random order that knows nothing of the models. Without ties the result is that of `match`.

    Parameters
    ----------
    W1, W2, unsigned
        As for `match`.
    seed
        Of the order.

    Raises
    ------
    InputError
        As `match`.
    """
    second = _real_matrix(W2, "W2")
    order = np.random.default_rng(seed).permutation(len(second))
    found = match(W1, second[order], unsigned=unsigned)
    if len(np.shape(W1)) == 2 and np.shape(W1)[0] > len(second):  # row k of the smaller side is row order[k] of W2
        indices = np.empty_like(found.indices)
        indices[order] = found.indices
    else:
        indices = order[found.indices]
    return Assignment(indices, found.objective)


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
    matrix = _real_matrix(similarity, "similarity")
    _refuse_non_finite(matrix, "similarity", BLOCK_ROWS)
    smaller_first = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    # scipy solves the rectangular problem with rows in order, so `columns` is already by row.
    rows, columns = linear_sum_assignment(smaller_first, maximize=True)
    objective = smaller_first[rows, columns].sum(dtype=np.float64)
    return Assignment(indices=columns.astype(np.int64, copy=False), objective=float(objective))


def cosine_similarity(W1: ArrayLike, W2: ArrayLike, *, block_rows: int = BLOCK_ROWS) -> NDArray[np.float32]:
    """Cosine of the angle between each row of `W1` and each row of `W2`.

    Norms are taken in float64 and unit rows rounded to float32 once, then multiplied in float32.

    Parameters
    ----------
    W1, W2
        Shapes (h1, d) and (h2, d): numpy arrays or torch tensors on the CPU.
    block_rows
        Rows of either side that are converted at a time. Memory above the inputs is the result plus
        one such block of each side.

    Returns
    -------
    ndarray
        float32, shape (h1, h2).

    Raises
    ------
    InputError
        As in `match`.
    """
    if block_rows < 1:
        raise InputError(f"block_rows is {block_rows}; it must be at least 1")
    first, second = _real_matrix(W1, "W1"), _real_matrix(W2, "W2")
    if first.shape[1] != second.shape[1]:
        raise InputError(
            f"W1 has {first.shape[1]} columns and W2 has {second.shape[1]}; rows can be compared only "
            "over the same inputs, so give matrices with equal columns"
        )
    for matrix, name in ((first, "W1"), (second, "W2")):
        _refuse_non_finite(matrix, name, block_rows)
        _refuse_zero_rows(matrix, name, block_rows)

    similarity = np.empty((first.shape[0], second.shape[0]), dtype=np.float32)
    # Unit rows of the second matrix are made again for each block of the first: d operations where
    # the product that follows takes d times block_rows, and no second copy of the whole matrix.
    for rows in _blocks(first.shape[0], block_rows):
        unit_rows = _unit_rows(first[rows])
        for columns in _blocks(second.shape[0], block_rows):
            np.matmul(unit_rows, _unit_rows(second[columns]).T, out=similarity[rows, columns])
    return similarity


def _unit_rows(block: NDArray[np.generic]) -> NDArray[np.float32]:
    """Rows scaled to length one in float64, rounded to float32."""
    rows = block.astype(np.float64)
    # Dividing by the largest entry first keeps the squares of very large and very small rows in range.
    rows /= np.abs(rows).max(axis=1, keepdims=True)
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows.astype(np.float32)


def _blocks(n_rows: int, block_rows: int) -> Iterator[slice]:
    for start in range(0, n_rows, block_rows):
        yield slice(start, min(start + block_rows, n_rows))


def _real_matrix(values: ArrayLike, name: str) -> NDArray[np.generic]:
    try:
        matrix = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        # torch says here what is wrong: a tensor on a GPU, one that requires grad, bfloat16
        raise InputError(f"{name} is no numpy array ({error}); give float32 on the CPU") from None
    if matrix.ndim != 2:
        raise InputError(f"{name} has {matrix.ndim} dimensions (shape {matrix.shape}); it must be a matrix")
    if matrix.size == 0:
        raise InputError(f"{name} is empty (shape {matrix.shape}); it needs at least one row and one column")
    if matrix.dtype.kind not in "fiub":
        raise InputError(f"{name} has dtype {matrix.dtype}; it must hold real numbers")
    return matrix


def _refuse_non_finite(matrix: NDArray[np.generic], name: str, block_rows: int) -> None:
    if matrix.dtype.kind != "f":
        return
    nans = infinities = 0
    for rows in _blocks(matrix.shape[0], block_rows):
        nans += int(np.isnan(matrix[rows]).sum())
        infinities += int(np.isinf(matrix[rows]).sum())
    if nans or infinities:
        raise InputError(f"{name} holds {nans} NaN and {infinities} Inf; all entries must be finite")


def _refuse_zero_rows(matrix: NDArray[np.generic], name: str, block_rows: int) -> None:
    zero_rows = [
        rows.start + int(index)
        for rows in _blocks(matrix.shape[0], block_rows)
        for index in np.flatnonzero(~matrix[rows].any(axis=1))
    ]
    if zero_rows:
        raise InputError(
            f"{name} has {len(zero_rows)} zero rows (the first is row {zero_rows[0]}); a unit that is "
            "always zero has no direction and cannot be matched, so leave it out on both sides"
        )
