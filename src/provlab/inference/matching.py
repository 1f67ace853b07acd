"""Algorithm 2 of the paper (MATCH): which row of one matrix is which row of another.

Rows are hidden units: rows of a weight matrix, or activations over the same inputs. Two rows are
compared by cosine similarity, and the matching is the assignment of largest total similarity, one
partner for each row. Two doors lead in, `assign` for similarities and `match` for the matrices
themselves; whatever exact algorithm stands behind them, what they return stays the same.

Source: "Independence Tests for Language Models", Section 3.2, Algorithm 2 (MATCH). The algorithm
matches by cosine similarity; matching by Euclidean distance is another statistic.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from provlab.inference.cosine import Rows, UnitRows, cosine_similarity, real_matrix, refuse_non_finite, unit_rows

__all__ = ["Assignment", "UnitRows", "assign", "cosine_similarity", "match", "match_shuffled", "unit_rows"]


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


def match(W1: Rows, W2: Rows, *, unsigned: bool = False) -> Assignment:
    """Match the rows of two matrices by cosine similarity.

    Parameters
    ----------
    W1, W2
        Shapes (h1, d) and (h2, d): numpy arrays or torch tensors on the CPU, or the `unit_rows` of either, which spare
        the work of normalising a matrix again for each pair in which it stands.
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


def match_shuffled(W1: Rows, W2: Rows, *, seed: int, unsigned: bool = False) -> Assignment:
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
    first, second = (W if isinstance(W, UnitRows) else real_matrix(W, name) for W, name in ((W1, "W1"), (W2, "W2")))
    order = np.random.default_rng(seed).permutation(len(second))
    found = match(first, _reordered(second, order), unsigned=unsigned)
    if len(first) > len(second):  # row k of the smaller side is row order[k] of W2
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
    matrix = real_matrix(similarity, "similarity")
    refuse_non_finite(matrix, "similarity")
    smaller_first = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    # scipy solves the rectangular problem with rows in order, so `columns` is already by row.
    rows, columns = linear_sum_assignment(smaller_first, maximize=True)
    objective = smaller_first[rows, columns].sum(dtype=np.float64)
    return Assignment(indices=columns.astype(np.int64, copy=False), objective=float(objective))


def _reordered(side: NDArray[np.generic] | UnitRows, order: NDArray[np.int64]) -> NDArray[np.generic] | UnitRows:
    if isinstance(side, UnitRows):
        return UnitRows(side.unit[order], side.rows[order], side.scales[order], side.lengths[order])
    return side[order]
