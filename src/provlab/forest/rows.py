"""Level 2: what embedding rows that no training touched say for certain, up to rounding; and pure merges.

Weight decay multiplies a row without a gradient by 1 - rate x decay at each step, and does the same to all such rows.
So along a path of models the kept rows only become fewer, and their factors multiply.

- *Between*: a path from a to b keeps the rows that all models on it keep. If a and b share rows that p lacks, p is not
  on it. `LEAST` rows are asked for: a single one may be a rounding. Nor is p on it if it is later than both.
- *Clock*: factors of training are below 1, so the model with the shorter rows is the later one. Without decay, with
  tied or frozen embeddings, and in most files of 16 bits, factors are 1 and the clock is silent.
- *Merges*: a weighted mean of models lies on the line, or in the simplex, between them, up to the rounding of its file.

All of it can be forged. Somebody who multiplies everything that writes to the residual stream by one number changes no
output and sets the clock at will; somebody who copies rows of another model back undoes the training of rare tokens.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

LEAST = 2  # rows that a and b share and p lacks
ROUNDING = 8.0  # roundings of its file by which a merge may miss the mean of its parents
APART = 100.0  # times as far as that the parents of a merge must be from it
LEAST_SHARE = 1e-4  # of a parent, where there are more than two
Bits = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Rows:
    """Kept rows of all pairs of one family of n models.

    Attributes
    ----------
    kept
        ``(n, n, bytes)``: one bit a token, set where both kept its row.
    readable
        ``(n, n)``: False where nothing is known of a pair, since rounding hides what training did.
    factor
        ``(n, n)``: ln of the length of the second model's kept rows over that of the first's.
    silence
        ``(n, n)``: up to which |ln| a factor is rounding.
    n_tokens
        Rows that were compared, at most.
    """

    kept: Bits
    readable: NDArray[np.bool_]
    factor: NDArray[np.float64]
    silence: NDArray[np.float64]
    n_tokens: int

    def count(self) -> NDArray[np.int64]:
        """How many rows each pair kept: ``(n, n)``."""
        return np.bitwise_count(self.kept).sum(axis=2, dtype=np.int64)

    def excluded(self, a: int, b: int) -> NDArray[np.bool_]:
        """Models that do not lie between a and b, ``(n,)``; a and b themselves do not count.

        A model that shares no rows with either is not excluded: two copies that were rounded alike share rows that
        their common parent lacks.
        """
        lacked = np.bitwise_count(self.kept[a, b] & ~self.kept[a] & ~self.kept[b]).sum(axis=1)
        speaks = np.bitwise_count(self.kept[a] | self.kept[b]).sum(axis=1) >= LEAST
        return (lacked >= LEAST) & speaks & self.readable[a] & self.readable[b]

    def later(self, a: int, b: int) -> int:
        """1 if b is later than a, -1 if earlier, 0 if the clock is silent."""
        if np.bitwise_count(self.kept[a, b]).sum() < LEAST or abs(self.factor[a, b]) <= self.silence[a, b]:
            return 0
        return -1 if self.factor[a, b] > 0 else 1


@dataclass(frozen=True)
class Merge:
    """A model that is a weighted mean of others: their numbers and shares, and its distance from that mean.

    `residual` is relative to the distance of its parents.
    """

    parents: tuple[int, ...]
    shares: tuple[float, ...]
    residual: float


def merges(squared: NDArray[np.float64], rounding: NDArray[np.float64]) -> dict[int, Merge]:
    """Find the models that are weighted means of others.

    If several pairs would do as parents, it is the pair farthest apart; else three or more, none a mean of two.

    Parameters
    ----------
    squared
        ``(n, n)``: squared distances of all weights.
    rounding
        ``(n,)``: length of the rounding errors of each model's file.
    """
    means = {}
    for x, error in enumerate(rounding):
        if merge := _of_two(x, squared, ROUNDING * error):
            means[x] = merge
    for x, error in enumerate(rounding):
        others = [i for i in _apart(x, squared, ROUNDING * error) if i not in means]
        if x not in means and (merge := _of_many(x, np.array(others), squared, ROUNDING * error)):
            means[x] = merge
    return means


def _apart(x: int, squared: NDArray[np.float64], error: float) -> NDArray[np.int64]:
    """Models far enough from x for its rounding to say something."""
    return np.flatnonzero(np.sqrt(squared[x]) > APART * error)


def _of_two(x: int, squared: NDArray[np.float64], error: float) -> Merge | None:
    """The point of the line through i and j next to x, for all pairs of others."""
    others = _apart(x, squared, error)
    i, j = others[np.array(np.triu_indices(len(others), 1))]
    between = squared[i, j]
    with np.errstate(divide="ignore", invalid="ignore"):  # two copies of one model have no line between them
        share = (squared[x, i] - squared[x, j] + between) / (2 * between)  # of j
    left = (1 - share) * squared[x, i] + share * squared[x, j] - share * (1 - share) * between
    between[(share <= 0) | (share >= 1) | (left > error**2)] = 0
    if not between.any():
        return None
    k = int(np.argmax(between))
    shares = (1 - float(share[k]), float(share[k]))
    return Merge((int(i[k]), int(j[k])), shares, float(np.sqrt(max(left[k], 0) / between[k])))


def _of_many(x: int, others: NDArray[np.int64], squared: NDArray[np.float64], error: float) -> Merge | None:
    """The same for three parents or more: non-negative least squares on the Gram matrix of differences from x."""
    if len(others) < 3:
        return None
    gram = (squared[x, others][:, None] + squared[x, others] - squared[np.ix_(others, others)]) / 2
    values, vectors = np.linalg.eigh(gram)
    scale = np.sqrt(values[-1])
    differences = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T / scale
    shares, _ = nnls(np.vstack([differences, np.ones(len(others))]), np.r_[np.zeros(len(others)), 1.0])
    shares[shares < LEAST_SHARE] = 0
    shares /= shares.sum() or 1.0
    left = float(np.sqrt(max(shares @ gram @ shares, 0)))
    used = np.flatnonzero(shares)
    if len(used) < 3 or left > error:
        return None
    return Merge(tuple(others[used].tolist()), tuple(shares[used].tolist()), left / float(scale))


def silent_because(rows: Rows, a: int, b: int, *, tied: bool) -> str:
    """Say why the clock of a pair is silent."""
    kept = int(np.bitwise_count(rows.kept[a, b]).sum())
    if not rows.readable[a, b]:
        return "rounding hides what training did to rows"
    if tied:
        return "the head is the embedding, so that training moves every row"
    if kept < LEAST:
        return f"{kept} rows were kept"
    if kept == rows.n_tokens:
        return "all rows were kept: the embedding was frozen"
    return "kept rows have one length: no weight decay, or less than rounding shows"
