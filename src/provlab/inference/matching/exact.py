"""MATCH the fast way: candidates, compiled assignment, polish in float64, certificate.

The certificate holds for the similarities as given (`best`), and, for `best_by_cosine` the cosines in float64, although
only their product in float32 is computed for all pairs of rows.
"""

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching import assignment, certificate
from provlab.inference.matching.cosine import Assignment, UnitRows, cosines, cosines_float64, elsewhere, unit_rows
from provlab.inference.matching.dependent import distinct_best
from provlab.inference.matching.polish import polish

WORTH_TRYING = 2**32  # multiplications of the whole product, below which there is little to save


def best(similarity: NDArray[np.floating]) -> Assignment:
    """Best assignment for similarities, shape (n, m) with n <= m, float32 or float64, C-contiguous, finite."""
    solution = assignment.solve(similarity)
    values = similarity[np.arange(len(similarity)), solution.partners].astype(np.float64)
    gap = certificate.gap(similarity, solution.partners, solution.prices)
    return certificate.proved(solution.partners, values, solution.prices, gap)


def best_by_cosine(
    first: UnitRows, second: UnitRows, *, order: NDArray[np.integer] | None = None, unsigned: bool = False
) -> Assignment:
    """Best assignment for the float64 cosines of the rows of two matrices, of which the first has no more rows.

    Parameters
    ----------
    first, second
        The rows; n and m of them.
    order
        The columns are the rows of `second` in this order, and `indices` count in it.
    unsigned
        For the absolute values of the cosines.
    """
    large = len(first) * len(second) * first.shape[1] >= WORTH_TRYING
    if elsewhere() is None and large and (distinct := distinct_best(first, second, order=order, unsigned=unsigned)):
        indices, values = distinct
        return Assignment(indices, float(values.sum()), 0.0, True)
    similarity = cosines(first, second, order=order, unsigned=unsigned)
    solution = assignment.solve(similarity)
    polished = polish(similarity, solution, first, second, order=order, unsigned=unsigned)
    if polished is not None and polished.certified:
        return polished
    del similarity
    return best(cosines_float64(first, second, order=order, unsigned=unsigned))


def warm(dtype: str) -> None:
    """Have all kernels compiled for similarities of this type, or loaded from the cache."""
    rng = np.random.default_rng(0)
    column = rng.random((40, 1))
    similarity = np.ascontiguousarray((column * rng.random(40)).astype(dtype))  # rank one: no kernel is left out
    solution = assignment.solve(similarity)
    if dtype == "float32":
        rows = unit_rows(column.astype(np.float32))
        polish(similarity, solution, rows, rows)
