"""phi_UNSEEN: do two models know tokens that neither was trained on by the same draw? An extension.

A token that no training text has keeps the row that it was initialised with: weight decay shrinks all such rows by one
factor, and where the embedding is the head as well, training pushes all of them along a few common directions. So
training treats these tokens alike, as it treats hidden units alike (Theorem 1). Their rows were drawn one like the
other, hence to exchange the rows of two of them in one model changes no probability, whatever the other model is: the
matching of these rows between independent models is a uniformly random permutation, given all other rows.

The streams are aligned first: the orthogonal map that takes the rows of the *other* tokens of one model closest to
those of the other (Procrustes), which knows nothing of the unseen ones. Tokens are paired by their spellings, the
unseen rows are matched by their cosines, and the matching is compared with the pairing. No permutation or rotation of
the stream and nothing done to MLPs or attention touches this; it survives training on as long as that does not use
these tokens, and the stream may have become wider or narrower.

Which tokens are unseen is not known, so each model is asked alone (`untrained`): rows of least length behind their
common directions, so many as are spread as evenly in all directions as chance has it. A row that training moved is
longer and leans to directions that training prefers. The rule is the same for all rows, so rows that it takes are still
exchangeable; it is enough that it takes no trained token in *one* of the two models.

It is silenced by redrawing these rows, which changes no text that is ever read or written, and fooled by copying them.
"""

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
from provlab.inference.matching import tie_seed, unit_rows
from provlab.statistics.base import BY_THEOREM, BlockResult, Options
from provlab.statistics.phi_e import Matrix, PhiE, Table, paired
from provlab.statistics.phi_u import correlation_with_identity

LEAST = 24  # unseen tokens: a perfect match of these has 10^-23.8
SPREAD = 3.0  # standard deviations by which a row may be longer than the median of the shorter ones
EVEN = 3.0  # standard deviations by which the mean squared cosine of two rows may be above that of random directions
_EMPTY = 1e-6  # of the mean eigenvalue: directions of the stream that no token uses
PUSHED = 0.25  # share of it by which it may be above where all rows were pushed together further than they were long


class PhiUnseen(PhiE):
    """MATCH of the rows of unseen tokens against the pairing of the tokens."""

    name = "phi_unseen"
    version = 1
    warrant = BY_THEOREM
    reads_order = False  # tokens are numbered at random
    reads = "embeddings of untrained tokens"
    assumptions = (
        "at least one of the two models drew the rows of its embedding independently of each other and of the other "
        "model, and the tokens that are taken as unseen have all their meaning from that draw: no text that it was "
        "trained on has them, and they were neither copied nor put in order with knowledge of the other"
    )

    def compare_block(self, a: Table, b: Table, block: int | None, options: Options) -> BlockResult:
        """Align two tables by the tokens that both trained, and match those that neither did.

        Raises
        ------
        NotComparableError
            Fewer than `LEAST` tokens look untrained in both.
        """
        sides = paired(a, b)  # first, so that tokens that were added to one model hide nothing
        ids, means = zip(*(untrained(rows) for rows in sides), strict=True)
        # in an order of its own, so that nothing that follows the numbers of the tokens looks like agreement
        order = np.random.default_rng(tie_seed(options.seed, self.name, "tokens"))
        both = order.permutation(np.intersect1d(*ids))
        if len(both) < LEAST:
            raise NotComparableError(
                f"{self.name} needs {LEAST} tokens that look untrained in both models; it found {len(both)} "
                f"({len(ids[0])} in one and {len(ids[1])} in the other)"
            )
        trained = np.setdiff1d(np.arange(len(sides[0])), np.concatenate(ids))
        left, _, right = np.linalg.svd((sides[0][trained].T @ sides[1][trained]).astype(np.float64), False)
        fresh = [_without(rows[both].astype(np.float64), mean) for rows, mean in zip(sides, means, strict=True)]
        first, second = (rows - rows.mean(axis=0) for rows in fresh)
        first, second = (
            unit_rows(rows, name="the rows of untrained tokens") for rows in (first @ left @ right, second)
        )
        return correlation_with_identity(first, second, None, tie_seed(options.seed, self.name, None))


def untrained(rows: NDArray[np.float32]) -> tuple[NDArray[np.int64], Matrix]:
    """Rows that look as they were drawn, and the direction of their mean.

    Where entries are drawn independently, the length of a row has a relative standard deviation of 1 / sqrt(2 d), and
    the squared cosine of two rows has a mean of 1 / d. So rows are taken from the shortest on, behind the direction of
    their mean, as long as the next one is within `SPREAD` standard deviations of the median so far. From the longest on
    they are given up again until their squared cosines are as small as those of random directions, within `EVEN`
    standard deviations of the mean over all pairs. Rows that were pushed together, as where the embedding is the head
    as well, are pushed a little to other sides, too: there the mean may be above by a share of `PUSHED`. These numbers
    were settled on models of the zoo: they decide how many tokens are taken, and not what the matching is.

    Parameters
    ----------
    rows
        ``(n, d)``: an embedding.

    Returns
    -------
    tuple of two arrays
        Ascending numbers of the rows, none if fewer than `LEAST` are left, and ``(d,)`` float64, of length 1.
    """
    ids, mean = _drawn(rows, rows.shape[1])
    if not len(ids) and (used := _dimensions(rows)) < rows.shape[1]:  # the stream was widened
        ids, mean = _drawn(rows, used)
    return ids, mean


def _drawn(rows: NDArray[np.float32], dimensions: int) -> tuple[NDArray[np.int64], Matrix]:
    """`untrained` in a stream of so many dimensions."""
    ids = some = np.flatnonzero(rows.any(axis=1))
    width = dimensions - 1  # behind the direction of the mean
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    for _ in range(3):  # the mean of all rows shows which are the shortest, and their mean is the one to take out
        mean = _mean(rows[ids])
        along = (rows @ mean.astype(np.float32)).astype(np.float64)
        ids = _shortest(some, squares[some] - along[some] ** 2, width)
    _, first, times = np.unique(rows[ids], axis=0, return_index=True, return_counts=True)
    ids = ids[np.sort(first[times == 1])]  # rows that are equal were set, not drawn
    while len(ids) >= LEAST:
        drawn = rows[ids].astype(np.float64)
        mean = _mean(drawn)
        pushed = 2 * np.square(drawn @ mean).sum() > np.square(drawn).sum()
        unit = _without(drawn, mean)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        small = unit @ unit.T if len(ids) < width else unit.T @ unit
        squared = (np.square(small).sum() - len(ids)) / (len(ids) * (len(ids) - 1))
        if width * squared - 1 < (PUSHED if pushed else 2 * EVEN / len(ids)):
            return np.sort(ids), mean
        ids = ids[: len(ids) * 9 // 10]
    return ids[:0], np.zeros(rows.shape[1])


def _dimensions(rows: NDArray[np.float32]) -> int:
    """Dimensions of the stream that some token uses: others may have been added."""
    some = rows[:: max(1, len(rows) // (4 * rows.shape[1]))].astype(np.float64)
    values = np.linalg.eigvalsh(some.T @ some)
    return int((values > _EMPTY * values.mean()).sum())


def _mean(rows: NDArray[np.floating]) -> Matrix:
    """Direction of the mean of rows, ``(d,)`` float64."""
    mean = rows.mean(axis=0, dtype=np.float64)
    return np.asarray(mean / max(np.linalg.norm(mean), np.finfo(float).tiny))


def _shortest(ids: NDArray[np.int64], squares: NDArray[np.float64], width: int) -> NDArray[np.int64]:
    """Ids of the shortest rows, in ascending order of length, up to the first gap."""
    order = np.argsort(squares, kind="stable")
    lengths = np.sqrt(np.maximum(squares[order], 0))
    medians = lengths[np.arange(len(ids)) // 2]
    gaps = np.flatnonzero(lengths[LEAST:] > medians[LEAST - 1 : -1] * (1 + SPREAD / np.sqrt(2 * width)))
    return ids[order[: LEAST + gaps[0] if gaps.size else None]]


def _without(rows: Matrix, direction: Matrix) -> Matrix:
    return np.asarray(rows - np.outer(rows @ direction, direction))
