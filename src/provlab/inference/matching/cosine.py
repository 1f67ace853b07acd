"""Rows of unit length and the cosines between them: the first half of MATCH.

Norms are taken in float64 and unit rows rounded to float32 once, then multiplied in float32. What a study compares many
times is normalised once, by `unit_rows`; every function that takes a matrix takes the prepared rows too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError

# Rows converted to float64 at a time: large enough for the matrix product to run at full speed,
# small enough that the copy is nothing beside the (h1, h2) result at the widths of language models.
BLOCK_ROWS = 1024
# Columns in one block of the product: what is put in order for it is a copy. (An eighth fewer multiplications by
# Winograd's form of Strassen's algorithm saved nothing in the end: a twentieth of the product, for more memory and a
# sevenfold error bound, which makes the polish look at more edges.)
WIDE = 4096
# Entries of a row whose products are summed in one go. A float32 sum is as wrong as it is long: for columns of an
# embedding of 32,000 tokens the bound would be a third of the spread of their cosines, and all had to be computed in
# float64.
SUMMED = 4096
#: multiplies unit rows (h1, d) with (h2, d) to (h1, h2), float32: within `error_bound`, as `multiplied` is
Product = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]
_elsewhere: ContextVar[Product | None] = ContextVar("provlab_product", default=None)
NORMALISED = 2**17  # entries normalised at a time: a megabyte in float64 stays in the processor's cache


def error_bound(columns: int) -> float:
    """Largest error of a float32 cosine of rows of so many entries, in whatever order each part was summed."""
    return (min(columns, SUMMED) + columns // SUMMED + 16) * 2.0**-24


@contextmanager
def multiplied_by(product: Product | None) -> Iterator[None]:
    """Within, cosines of all rows come of this product, on a GPU say; of numpy's if None.

    The matching is the same: float32 cosines only say which edges are looked at again in float64, and the certificate
    holds for any order in which float32 sums are taken.
    """
    token = _elsewhere.set(product)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def elsewhere() -> Product | None:
    """Return the product that is in force, or None for numpy's."""
    return _elsewhere.get()


@dataclass(frozen=True, eq=False)
class UnitRows:
    """One matrix, checked and normalised, ready to be matched with many others.

    Attributes
    ----------
    unit
        float32, shape (h, d): the rows scaled to length one in float64 and rounded once.
    rows
        The matrix as it was given, not a copy: cosines that are equal in float32 are computed from it in float64.
    scales
        float64, shape (h,): a power of two for each row that brings its largest entry to between 1/2 and 1, so that no
        square over- or underflows.
    lengths
        float64, shape (h,): Euclidean length of each row times its scale.
    left_out
        int64: rows of the matrix as it was first given, before those that cannot be matched were left out.
    """

    unit: NDArray[np.float32]
    rows: NDArray[np.generic]
    scales: NDArray[np.float64]
    lengths: NDArray[np.float64]
    left_out: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def places(self) -> NDArray[np.int64]:
        """Number of each row in the matrix as it was first given, int64, shape (h,)."""
        return np.delete(np.arange(len(self) + len(self.left_out)), self.left_out)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows.shape[0], self.rows.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes held beside the given matrix."""
        return self.unit.nbytes + self.scales.nbytes + self.lengths.nbytes


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
    gap
        How much larger another sum could be, at most: what a certificate found that looks at the whole matrix and
        knows nothing of how the assignment was made. Infinite where no certificate was asked for, which is so for
        scipy's solver.
    certified
        Whether that gap is zero up to the rounding of float64.
    """

    indices: NDArray[np.int64]
    objective: float
    gap: float = float("inf")
    certified: bool = False


Rows = ArrayLike | UnitRows  # what the doors accept


def unit_rows(W: Rows, *, name: str = "W", keep: NDArray[np.bool_] | None = None) -> UnitRows:
    """Check and normalise the rows of a matrix, once for all the pairs in which it stands.

    Parameters
    ----------
    W
        Shape (h, d): a numpy array or a torch tensor on the CPU. It is kept by reference: do not change it afterwards.
        Prepared rows come back as they are.
    name
        What error messages call it.
    keep
        Shape (h,): which rows; all if None. The others are left out, and none of them is looked at.

    Raises
    ------
    InputError
        If `W` is not a non-empty real matrix, or holds a NaN, an Inf or a row of zeros, which has no direction.
    """
    if isinstance(W, UnitRows):
        return W
    matrix = real_matrix(W, name)
    left_out = np.empty(0, np.int64) if keep is None else np.flatnonzero(~keep)
    if left_out.size:
        matrix = matrix[keep]
    refuse_non_finite(matrix, name)
    largest = np.maximum(matrix.max(axis=1).astype(np.float64), -matrix.min(axis=1).astype(np.float64))
    if (zero_rows := np.flatnonzero(largest == 0)).size:
        raise InputError(
            f"{name} has {zero_rows.size} zero rows (the first is row {zero_rows[0]}); a unit that is "
            "always zero has no direction and cannot be matched, so leave it out on both sides"
        )
    # A power of two changes no digit; below 2^-1022 the exponent of the scale itself would overflow.
    scales = np.ldexp(1.0, np.minimum(-np.frexp(largest)[1], 1023))
    height, columns = matrix.shape
    prepared = UnitRows(np.empty(matrix.shape, np.float32), matrix, scales, np.empty(height), left_out)
    for rows in blocks(height, min(BLOCK_ROWS, 1 + NORMALISED // columns)):
        exact = _scaled(prepared, rows)
        prepared.lengths[rows] = np.sqrt(np.einsum("ij,ij->i", exact, exact))  # (rows, columns) -> (rows,)
        prepared.unit[rows] = np.divide(exact, prepared.lengths[rows][:, None], out=exact)
    return prepared


def _scaled(prepared: UnitRows, rows: slice | NDArray[np.integer]) -> NDArray[np.float64]:
    exact = prepared.rows[rows].astype(np.float64)
    exact *= prepared.scales[rows][:, None]
    return exact


def _unit_float64(prepared: UnitRows, rows: slice | NDArray[np.integer]) -> NDArray[np.float64]:
    unit = _scaled(prepared, rows)
    unit /= prepared.lengths[rows][:, None]
    return unit


def cosine_similarity(W1: Rows, W2: Rows) -> NDArray[np.float32]:
    """Cosine of the angle between each row of `W1` and each row of `W2`.

    Parameters
    ----------
    W1, W2
        Shapes (h1, d) and (h2, d): numpy arrays or torch tensors on the CPU, or the `unit_rows` of either.

    Returns
    -------
    ndarray
        float32, shape (h1, h2); each entry is within `error_bound` of the cosine.

    Raises
    ------
    InputError
        As `unit_rows`, and if the columns differ in number.
    """
    return cosines(*prepared_pair(W1, W2))


def prepared_pair(W1: Rows, W2: Rows) -> tuple[UnitRows, UnitRows]:
    """Both sides, checked."""
    first, second = (W if isinstance(W, UnitRows) else real_matrix(W, name) for W, name in ((W1, "W1"), (W2, "W2")))
    if first.shape[1] != second.shape[1]:
        raise InputError(
            f"W1 has {first.shape[1]} columns and W2 has {second.shape[1]}; rows can be compared only "
            "over the same inputs, so give matrices with equal columns"
        )
    return unit_rows(first, name="W1"), unit_rows(second, name="W2")


def blocks(n_rows: int, block_rows: int) -> Iterator[slice]:
    """Slices that cut `n_rows` rows into blocks."""
    for start in range(0, n_rows, block_rows):
        yield slice(start, min(start + block_rows, n_rows))


def real_matrix(values: ArrayLike, name: str) -> NDArray[np.generic]:
    """A non-empty real matrix as a numpy array, without a copy; InputError for anything else."""
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


def refuse_non_finite(matrix: NDArray[np.generic], name: str) -> None:
    """Raise InputError if there is a NaN or an Inf."""
    if matrix.dtype.kind != "f":
        return
    nans = infinities = 0
    for rows in blocks(matrix.shape[0], BLOCK_ROWS):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(matrix[rows].sum()):  # what is not finite shows in the sum; count only then
                continue
        nans += int(np.isnan(matrix[rows]).sum())
        infinities += int(np.isinf(matrix[rows]).sum())
    if nans or infinities:
        raise InputError(f"{name} holds {nans} NaN and {infinities} Inf; all entries must be finite")


def cosines(
    first: UnitRows, second: UnitRows, *, order: NDArray[np.integer] | None = None, unsigned: bool = False
) -> NDArray[np.float32]:
    """Cosines of prepared rows, shape (h1, h2).

    Parameters
    ----------
    first, second
        The rows.
    order
        Column j is row ``order[j]`` of `second`; row j if None.
    unsigned
        Absolute values.
    """
    if (product := elsewhere()) is not None:
        similarity = product(first.unit, second.unit if order is None else second.unit[order])
        return np.abs(similarity, out=similarity) if unsigned else similarity
    similarity = np.empty((len(first), len(second)), np.float32)
    for columns in blocks(len(second), WIDE):
        right = second.unit[columns if order is None else order[columns]]
        multiplied(first.unit, right, similarity[:, columns])
    return np.abs(similarity, out=similarity) if unsigned else similarity


def multiplied(
    left: NDArray[np.float32], right: NDArray[np.float32], out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Multiply ``(n, d)`` with ``(m, d)`` to ``(n, m)``, into `out` if it is given, some columns after the other."""
    first, *others = blocks(left.shape[1], SUMMED)
    product = np.matmul(left[:, first], right[:, first].T, out=out)  # (n, columns) @ (columns, m)
    for columns in others:
        product += left[:, columns] @ right[:, columns].T
    return product


def cosines_float64(
    first: UnitRows, second: UnitRows, *, order: NDArray[np.integer] | None = None, unsigned: bool = False
) -> NDArray[np.float64]:
    """As `cosines`, in float64 throughout: for rows so alike that float32 tells too few apart."""
    similarity = np.empty((len(first), len(second)))
    for columns in blocks(len(second), BLOCK_ROWS):
        right = _unit_float64(second, columns if order is None else order[columns]).T
        for rows in blocks(len(first), BLOCK_ROWS):
            np.matmul(_unit_float64(first, rows), right, out=similarity[rows, columns])
    return np.abs(similarity, out=similarity) if unsigned else similarity
