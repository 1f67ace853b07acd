"""Level 2: what embedding rows that no training touched say for certain, up to rounding.

Weight decay multiplies a row without a gradient by 1 - rate x decay at each step, and does the same to all such rows.
So along a path of models the kept rows only become fewer, and their factors multiply.

- *Between*: a path from a to b keeps the rows that all models on it keep. If a and b share rows that p lacks, p is not
  on it. `LEAST` rows are asked for: a single one may be a rounding. Nor is p on it if it is later than both.
- *Clock*: factors of training are below 1, so the model with the shorter rows is the later one. Without decay, with
  tied or frozen embeddings, and in most files of 16 bits, factors are 1 and the clock is silent.
- *Roundings*: each step also rounds these rows. The errors count the steps between two models along their path, up to
  where they parted and down again; the clock has only the difference. `provlab.forest.descent` rests on that.

All of it can be forged. Somebody who multiplies everything that writes to the residual stream by one number changes no
output and sets the clock at will; somebody who copies rows of another model back undoes the training of rare tokens.
Whoever has a model can take its rows some steps back, change a few of them, add a little noise elsewhere, and do it
again: of the two models that this makes the earlier one shows that the later one is an ancestor of the model itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST = 2  # rows that a and b share and p lacks
SHARE = 0.1  # least share of the rows in which two models differ that says something of what a third one shares
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

    def beyond(self, a: int, y: int, b: int) -> int:
        """How many rows a shares with y and b does not share with it; 0 if those are few, or if nobody can read them.

        Few are fewer than `LEAST`, or than `SHARE` of the rows in which a and b differ: number by number, a merge may
        put some rows back.
        """
        if not (self.readable[a, y] and self.readable[b, y]):
            return 0
        count = int(np.bitwise_count(self.kept[a, y] & ~self.kept[b, y]).sum())
        differ = self.n_tokens - int(np.bitwise_count(self.kept[a, b]).sum())
        return count if count >= max(LEAST, SHARE * differ) else 0

    def later(self, a: int, b: int) -> int:
        """1 if b is later than a, -1 if earlier, 0 if the clock is silent."""
        if np.bitwise_count(self.kept[a, b]).sum() < LEAST or abs(self.factor[a, b]) <= self.silence[a, b]:
            return 0
        return -1 if self.factor[a, b] > 0 else 1


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
