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

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab import machine
from provlab.arrays import There, here, of, on
from provlab.errors import NotComparableError
from provlab.inference.matching import tie_seed, unit_rows
from provlab.statistics.base import BY_THEOREM
from provlab.statistics.options import Options
from provlab.statistics.phi_e import Matrix, PhiE, Table, paired
from provlab.statistics.phi_u import correlation_with_identity
from provlab.statistics.results import BlockResult

LEAST = 24  # unseen tokens: a perfect match of these has 10^-23.8
MOST = 4096  # that are matched: of more, so many are drawn
SPREAD = 3.0  # standard deviations by which a row may be longer than the median of the shorter ones
EVEN = 3.0  # standard deviations by which the mean squared cosine of two rows may be above that of random directions
PUSHED = 0.25  # share of it by which it may be above where all rows were pushed together further than they were long
SET = 0.005  # of their length, behind their mean: rows that are nearer to each other were set to one value, not drawn
PARALLEL = 0.8  # cosine from which two rows of one token are one row, as they stand
TURNED = 0.25  # mean cosine of rows up to which their streams are turned against each other
FEW = 4  # tokens with parallel rows that chance may give in a narrow stream
_EMPTY = 1e-6  # of the mean eigenvalue: directions of the stream that no token uses
_SAMPLE = 2048  # rows whose directions are looked at
_CHUNK = 4096  # rows of a table that are taken to double precision, or copied, at a time
Rows = NDArray[np.float32]
Ids = NDArray[np.int64]


class PhiUnseen(PhiE):
    """MATCH of the rows of unseen tokens against the pairing of the tokens."""

    name = "phi_unseen"
    version = 2  # 1 matched all of them, and counted rows that were drawn from one seed after training
    warrant = BY_THEOREM
    evidence = "rows"  # tokens are numbered at random
    reads = "embeddings of untrained tokens"
    assumptions = (
        "at least one of the two models drew the rows of its embedding independently of each other and of the other "
        "model, and the tokens that are taken as unseen have all their meaning from that draw: no text that it was "
        "trained on has them, nor any answer of another model that it was trained on gave them probabilities of their "
        "own where the embedding is the head as well, and they were neither copied nor put in order with knowledge of "
        "the other"
    )

    def compare_block(self, a: Table, b: Table, block: int | None, options: Options) -> BlockResult:
        """Align two tables by the tokens that both trained, and match those that neither did.

        If they are more than `MOST`, so many are drawn, by a seed alone. Tokens whose rows are parallel as they stand,
        in streams that are turned against each other, are left out (`drawn_alike`).

        Raises
        ------
        NotComparableError
            Fewer than `LEAST` tokens look untrained in both.
        """
        sides = paired(a, b)  # first, so that tokens that were added to one model hide nothing
        ids, means = zip(*machine.side_by_side(*(partial(untrained, rows) for rows in sides)), strict=True)
        # in an order of its own, so that nothing that follows the numbers of the tokens looks like agreement
        order = np.random.default_rng(tie_seed(options.seed, self.name, "tokens"))
        shared = np.intersect1d(*ids)
        both = order.permutation(shared)[:MOST]
        if len(both) < LEAST:
            raise NotComparableError(
                f"{self.name} needs {LEAST} tokens that look untrained in both models; it found {len(both)} "
                f"({len(ids[0])} in one and {len(ids[1])} in the other)"
            )
        trained = np.setdiff1d(np.arange(len(sides[0])), np.concatenate(ids))
        turn = aligned(*sides, trained, on(options.device))
        first, second = (
            centred(without(rows[both].astype(np.float64), mean)) for rows, mean in zip(sides, means, strict=True)
        )
        notes = [f"{self.name} drew {MOST:,} of {len(shared):,} untrained tokens."] if len(shared) > MOST else []
        if first.shape == second.shape:
            alike = drawn_alike(cosines(first, second), cosines(first @ turn, second))  # (n, d_1) @ (d_1, d_2)
            if alike.any():
                notes.append(one_seed(self.name, int(alike.sum()), len(both)))
                first, second = centred(first[~alike]), centred(second[~alike])
            if len(first) < LEAST:
                raise NotComparableError(f"{self.name} has no evidence: {notes[-1]}")
        own, others = (unit_rows(rows, name="the rows of untrained tokens") for rows in (first @ turn, second))
        result = correlation_with_identity(own, others, None, tie_seed(options.seed, self.name, None))
        return result.about(said=" ".join(notes)) if notes else result


def one_seed(name: str, alike: int, of: int) -> str:
    """Say that some of the tokens do not count."""
    return (
        f"{alike} of {of} untrained tokens are not counted by {name}: their rows are parallel as they stand, and no "
        "others are. One seed drew them after training, as where tokens are added, or they were copied."
    )


def drawn_alike(as_they_stand: NDArray[np.float64], in_one_stream: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which tokens have parallel rows that the streams of the two models do not explain.

    A framework that adds tokens draws their rows, and where both models were given the same seed it is one draw.
    Related streams explain parallel rows: turned into one stream, the rows are parallel still. Unrelated streams are
    turned against each other at random, so that the mean cosine of these rows, turned, is about 0, give or take 1 / d.
    By chance no rows are parallel: so what is left out here costs independent draws nothing.

    Parameters
    ----------
    as_they_stand, in_one_stream
        Cosines of the two rows of each token, ``(n,)``: without the rotation of the stream, and with it.
    """
    alike = as_they_stand > PARALLEL
    unexplained = alike.sum() >= FEW and in_one_stream[alike].mean() < TURNED
    return alike if unexplained else np.zeros_like(alike)


def cosines(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cosine of each row with the row beside it, ``(n,)``; 0 of rows without a direction."""
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    # (n, d) with (n, d) -> (n,)
    return np.asarray(np.einsum("ij,ij->i", first, second) / np.where(lengths > 0, lengths, 1), np.float64)


def aligned(first: Rows, second: Rows, trained: Ids, there: There = of) -> Matrix:
    """Rotation ``(d_1, d_2)`` that takes trained rows of one model closest to those of the other (Procrustes).

    Where some rows are parallel as they stand and the others are not, they were drawn from one seed or copied, and say
    nothing of the streams. Where no token is trained, the rows are left as they stand. By `there` some rows at a time
    go to where they are multiplied (`provlab.arrays.on`).
    """
    if not len(trained):
        return np.eye(first.shape[1], second.shape[1])
    if first.shape == second.shape:
        means = first[trained].mean(axis=0, dtype=np.float64), second[trained].mean(axis=0, dtype=np.float64)
        raw = np.concatenate([cosines(first[some] - means[0], second[some] - means[1]) for some in _chunks(trained)])
        trained = trained[of_the_streams(raw)]
    product = np.zeros((first.shape[1], second.shape[1]))
    for some in _chunks(trained):
        product += here(there(first[some]).T @ there(second[some]))  # (d_1, n) @ (n, d_2)
    left, _, right = np.linalg.svd(product, full_matrices=False)
    return np.asarray(left @ right)  # (d_1, r) @ (r, d_2)


def of_the_streams(as_they_stand: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which trained tokens say how two streams lie: not those that alone have parallel rows as they stand.

    Takes cosines ``(n,)`` as `drawn_alike` does, and gives a mask ``(n,)``.
    """
    parallel = as_they_stand > PARALLEL
    alone = parallel.sum() >= FEW and (~parallel).sum() >= LEAST and as_they_stand[~parallel].mean() < TURNED
    return np.asarray(~parallel | (not alone))


class _Selected(NamedTuple):
    ids: Ids
    mean: Matrix


def untrained(rows: Rows) -> tuple[Ids, Matrix]:
    """Rows that look as they were drawn, and the direction of their mean.

    Where entries are drawn independently, the length of a row has a relative standard deviation of 1 / sqrt(2 d), and
    the squared cosine of two rows has a mean of 1 / d. So rows are taken from the shortest on, behind the direction of
    their mean, as long as the next one is within `SPREAD` standard deviations of the median so far. From the longest on
    they are given up again until their squared cosines are as small as those of random directions, within `EVEN`
    standard deviations of the mean over all pairs. Rows that were pushed together, as where the embedding is the head
    as well, are pushed a little to other sides, too: there the mean may be above by a share of `PUSHED`. These numbers
    were settled on models of the zoo: they decide how many tokens are taken, and not what the matching is.

    Rows of zeros, rows that are equal and rows that are nearly so were set, not drawn, and are never taken.

    Parameters
    ----------
    rows
        ``(n, d)``: an embedding.

    Returns
    -------
    tuple of two arrays
        Ascending numbers of the rows, none if fewer than `LEAST` are left, and ``(d,)`` float64, of length 1.
    """
    selected = _drawn(rows, rows.shape[1])
    if not len(selected.ids) and (used := _dimensions(rows)) < rows.shape[1]:  # the stream was widened
        selected = _drawn(rows, used)
    return selected


def _drawn(rows: Rows, dimensions: int) -> _Selected:
    """`untrained` in a stream of so many dimensions."""
    some = _single(rows)
    width = dimensions - 1  # behind the direction of the mean
    squares = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)  # (V, d) -> (V,)
    while True:
        ids, behind = some, squares
        for _ in range(3):  # the mean of all rows shows which are the shortest, and their mean is the one to take out
            mean = _mean(rows, ids)
            along = (rows @ mean.astype(np.float32)).astype(np.float64)  # (V, d) @ (d,)
            behind = np.maximum(squares - along**2, squares * SET**2 / 4)  # below it there is rounding alone
            ids = _shortest(some, behind[some], width)
        if len(ids) < LEAST or np.median(behind[ids] / squares[ids]) > SET**2:
            break
        some = np.setdiff1d(some, ids)  # they were set to one value
    while len(ids) >= LEAST:
        mean = _mean(rows, ids)
        # evenly over their lengths: which rows are looked at must not depend on the numbers of the tokens
        drawn = rows[ids[np.linspace(0, len(ids) - 1, min(len(ids), _SAMPLE)).astype(np.int64)]].astype(np.float64)
        n = len(drawn)
        pushed = 2 * np.square(drawn @ mean).sum() > np.square(drawn).sum()  # (n, d) @ (d,)
        unit = without(drawn, mean)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        small = unit @ unit.T if n < width else unit.T @ unit  # (n, n) or (d, d), the smaller
        squared = (np.square(small).sum() - n) / (n * (n - 1))
        if width * squared - 1 < (PUSHED if pushed else 2 * EVEN / n):
            return _Selected(np.sort(ids), mean)
        ids = ids[: len(ids) * 9 // 10]
    return _Selected(some[:0], np.zeros(rows.shape[1]))


def _single(rows: Rows) -> Ids:
    """Numbers of the rows that are neither zero nor equal to another one, by a hash of each."""
    factors = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64) * 2 + 1
    hashes = np.empty(len(rows), np.uint64)
    for some in _chunks(np.arange(len(rows))):
        bits = np.ascontiguousarray(rows[some] + np.float32(0)).view(np.uint32)  # + 0, as -0 is 0
        hashes[some] = (bits * factors).sum(axis=1, dtype=np.uint64)
    values, first, times = np.unique(hashes, return_index=True, return_counts=True)
    return np.sort(first[(times == 1) & (values > 0)])  # a row of zeros has 0


def _chunks(ids: Ids) -> list[Ids]:
    """Split numbers of rows, so that no copy of a whole table is made."""
    return [ids[begin : begin + _CHUNK] for begin in range(0, len(ids), _CHUNK)]


def _dimensions(rows: Rows) -> int:
    """Dimensions of the stream that some token uses: others may have been added."""
    some = rows[:: max(1, len(rows) // (4 * rows.shape[1]))].astype(np.float64)
    values = np.linalg.eigvalsh(some.T @ some)  # (d, tokens) @ (tokens, d)
    return int((values > _EMPTY * values.mean()).sum())


def _mean(rows: Rows, ids: Ids) -> Matrix:
    """Direction of the mean of some rows, ``(d,)`` float64."""
    mean = np.zeros(rows.shape[1])
    for some in _chunks(ids):
        mean += rows[some].sum(axis=0, dtype=np.float64)
    return np.asarray(mean / max(np.linalg.norm(mean), np.finfo(float).tiny))


def _shortest(ids: Ids, squares: NDArray[np.float64], width: int) -> Ids:
    """Ids of the shortest rows, in ascending order of length, up to the first gap."""
    order = np.argsort(squares, kind="stable")
    lengths = np.sqrt(np.maximum(squares[order], 0))
    medians = lengths[np.arange(len(ids)) // 2]
    gaps = np.flatnonzero(lengths[LEAST:] > medians[LEAST - 1 : -1] * (1 + SPREAD / np.sqrt(2 * width)))
    return ids[order[: LEAST + gaps[0] if gaps.size else None]]


def without(rows: Matrix, direction: Matrix) -> Matrix:
    """Rows without what lies along a direction of length one, ``(n, d)``."""
    return np.asarray(rows - np.outer(rows @ direction, direction))  # (n, d) @ (d,)


def centred(rows: Matrix) -> Matrix:
    """Rows without their mean, ``(n, d)``."""
    return np.asarray(rows - rows.mean(axis=0))
