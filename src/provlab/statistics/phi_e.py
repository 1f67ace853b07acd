"""phi_E, phi_AXES and the stream's score: have two models one residual stream? Read off their embeddings alone.

A lineage shares its residual stream, however its MLPs were split, retrained, put in or taken out. The embedding is a
table of that stream, one row a token, and tokens are paired by their strings. Three questions, none the paper's:

`PhiE`: do dimensions agree in the order in which they stand? Training treats them alike, as it does hidden units
(Pi_emb, Theorem 1), so MATCH of the columns of two independent tables is a uniformly random permutation: a p-value,
as phi_U's. Permuting the stream (T1) hides a model from it.

`PhiAxes`: is a dimension of one model a dimension of the other, in any order and up to signs? With the whitened tables
W = E (E^T E)^(-1/2) the entries of M = W_1^T W_2 are cosines, and the squares in a row or column add up to 1 at most. A
dimension is *found again* where a square is above 1/2, so at most once. If the axes of one of the streams mean nothing,
its W may be turned by any Q of the orthogonal group: Q^T M has a given entry with a square above 1/2 with a probability
of at most 2^(-(d-1)/2), whatever both models know of language, and n entries in n rows and columns with at most

    C(d_1, n) C(d_2, n) n! 2^(-((d-1) + (d-2) + ... + (d-n)) / 2),   d = min(d_1, d_2).

Adam treats axes alike, but not all directions: so `COMMON` of the dimensions may be found again without evidence, and d
is less by these. Rotating the stream (T3) hides a model from it.

`StreamScore`: how much of one stream is the other one, turned? The rotation that fits half of the tokens best is judged
by the others: the share of the squares that it explains there, of rows of length one and of the better half of them.
No rotation touches it, nor does a minority of rows that were made long or drawn again; but models that learned one
language alike have a share, too, so that it is a score without a p-value. A table may stand in a stretched basis, which
a block in front undoes (`provlab.attacks.coding`). So the table of either model is also compared with the
other's stream of single tokens behind each of its first `BLOCKS` blocks, and the score is taken where they are most
alike. Who undoes the basis behind more blocks, or hides two copies from each other, lowers it still: a low score says
nothing.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import ClassVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from provlab import machine
from provlab.arrays import There, Values, beside, crossed, here, of, on
from provlab.errors import NotComparableError, ProvlabError
from provlab.inference.matching import tie_seed
from provlab.statistics.alive import living_rows
from provlab.statistics.base import BY_THEOREM, CALIBRATED, UNCALIBRATED, Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.order import OrderedRows
from provlab.statistics.phi_u import correlation_with_identity
from provlab.statistics.results import BlockResult, Detail
from provlab.statistics.text import common, sampled, spellings

Matrix = NDArray[np.float64]
Pair = tuple[Values, Values]  # rows of some tokens in two models, (n, d_1) and (n, d_2)
Table = tuple[NDArray[np.float32], NDArray[np.int64]]  # (vocabulary, width), and what each token is

_SENT = 2**14  # tokens whose rows are on a device at a time
_ROUNDS = 8  # of choosing the tokens that fit a rotation, at most
_SETTLED = 0.01  # of the tokens that are chosen: where no more than these are others, they choose the same rotation
_FEWEST = 4096  # tokens of which the stream behind blocks is read, where there are so many
_RUN = 512  # of them that run through a model at a time
_LOOK = 512  # tokens whose products among themselves say where two streams are most alike
_MANY = 1 << 14  # tokens of which one half says enough of the other: its mean cosine is good to .003
_AT_ONCE = 256  # rows whose lengths are taken while they are in the processor's cache
_EMPTY = 1e-12  # of the largest eigenvalue: directions of the stream that no token uses


@dataclass(frozen=True)
class Embedding(Features):
    """The embedding, read when it is asked for, and what its tokens are."""

    model: Model

    def block(self, block: int | None) -> Table:
        """Read the table."""
        rows = self.model.anatomy.read(self.model.checkpoint, "embedding", None)
        return rows, spellings(self.model.checkpoint, len(rows))


def paired(a: Table, b: Table) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows of the tokens that both have, in one order.

    Raises
    ------
    NotComparableError
        They are fewer than the dimensions of a residual stream.
    """
    if (ids := common(a[1], b[1])) is None:
        return a[0], b[0]
    if len(ids[0]) <= max(a[0].shape[1], b[0].shape[1]):
        raise NotComparableError(
            f"the two tokenizers share {len(ids[0])} tokens, fewer than the residual stream has dimensions"
        )
    return a[0][ids[0]], b[0][ids[1]]


class PhiE(Statistic):
    """MATCH of the columns of two embeddings against the identity."""

    name = "phi_e"
    version = 2  # 1 took any order
    reads = "embeddings"
    roles: ClassVar[tuple[str, ...] | None] = ("embedding",)
    settings: ClassVar[tuple[str, ...]] = ("seed",)
    spells = True
    warrant = BY_THEOREM
    assumptions = (
        "the residual stream of one of the two models stands in the order that training left: it was trained by an "
        "algorithm that treats its dimensions alike (SGD, Adam, ...) from an initialisation that does, and they were "
        "neither sorted nor put into the order of the other's"
    )

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """One unit, whatever the depth and width."""
        for model in (a, b):
            if not model.anatomy.has("embedding"):
                raise NotComparableError(f"{self.name} needs an embedding, which {model.name} has not")
        return [None]

    def prepare(self, model: Model, options: Options) -> Features:
        """Arrange to read the embedding."""
        return Embedding(model)

    def compare_block(self, a: Table, b: Table, block: int | None, options: Options) -> BlockResult:
        """Match the dimensions of two streams."""
        living = (living_rows(np.ascontiguousarray(rows.T), name="the embedding")[0] for rows in paired(a, b))
        first, second = (OrderedRows.of(rows, called="columns of the embedding") for rows in living)
        return correlation_with_identity(first, second, None, tie_seed(options.seed, self.name, None))


class PhiAxes(PhiE):
    """The share of dimensions that are found again in the other model, in any order."""

    name = "phi_axes"
    warrant = CALIBRATED
    evidence = "rows"
    assumptions = (
        "an empirical finding, not a theorem: training gives at most 5% of the dimensions of the residual stream a "
        "meaning of their own, and the basis of the others is arbitrary, in at least one of the two models"
    )
    #: share of the dimensions that independent models may have in common. In the zoo's, no dimension is found again
    COMMON: ClassVar[float] = 0.05

    def compare_block(self, a: Table, b: Table, block: int | None, options: Options) -> BlockResult:
        """Count the dimensions that are found again."""
        first, second = paired(a, b)
        roots = [_whitener(crossed(table, table)) for table in (first, second)]
        cosines = roots[0] @ crossed(first, second) @ roots[1]  # (d_1, d_1) @ (d_1, d_2) @ (d_2, d_2)
        again, width = int((cosines**2 > 0.5).sum()), min(cosines.shape)
        allowed = int(self.COMMON * width)
        log10_p, reach = (_log10_p(n, cosines.shape, allowed) for n in (again, width))
        detail = Detail(n=width, agree=again, common=allowed)
        return BlockResult(block, again / width, log10_p, reach, detail=detail)


def _whitener(products: Matrix) -> Matrix:
    """(E^T E)^(-1/2) of E^T E, ``(d, d)``, 0 along directions that are empty."""
    values, vectors = np.linalg.eigh(products)
    inverse = np.where(values > _EMPTY * values[-1], np.abs(values), np.inf) ** -0.5
    return np.asarray((vectors * inverse) @ vectors.T)  # (d, d) @ (d, d)


def _log10_p(again: int, shape: tuple[int, ...], allowed: int) -> float:
    """Bound on the probability of so many dimensions found again, the least over all n <= found."""
    width = min(shape) - allowed
    smallest = log10_p = 0.0
    for n in range(1, min(again - allowed, width) + 1):
        log10_p += math.log10((shape[0] - n + 1) * (shape[1] - n + 1) / n) - (width - n) / 2 * math.log10(2)
        smallest = min(smallest, log10_p)
    return smallest


@dataclass(frozen=True)
class Streams(Features):
    """The residual stream of single tokens: the embedding, and what leaves the first blocks.

    Attributes
    ----------
    behind : list of array
        ``(width, tokens)`` float32 behind block 0, 1, ...: of `ids`; none of a model that cannot be run.
    ids : array
        Which tokens these are, as the model numbers them, ascending.
    """

    behind: list[NDArray[np.float32]]
    ids: NDArray[np.int64]
    model: Model

    def block(self, block: int | None) -> "Stream":
        """The table, the streams behind the first blocks, and of which tokens these are."""
        return Embedding(self.model).block(None), self.behind, self.ids


Stream = tuple[Table, list[NDArray[np.float32]], NDArray[np.int64]]  # what `Streams.block` gives


class StreamScore(PhiE):
    """The share of one stream that the other, rotated, explains on tokens that did not choose the rotation.

    Each row counts by its direction alone, and the half of the tokens that agree best decides: rows of tokens that no
    text has can be made long, or drawn again, at no cost. Either half is judged by the rotation of the other; of
    `_MANY` tokens and more one is.
    """

    name = "stream_score"
    symbol = "stream score"
    reads = "embeddings, and the stream of single tokens behind the first blocks"
    # 1 was one of all rows by their squares, which a few long ones decide; 2 turned empty directions too; 3 took four
    # rounds, whether tokens were settled or not; 4 read the embedding alone
    version = 5
    settings = ("seed", "device", "dtype")
    recorded = Streams
    warrant = UNCALIBRATED
    assumptions = ""
    #: blocks behind which the stream is read
    BLOCKS: ClassVar[int] = 4
    #: tokens of which it is read there, for each dimension of the stream
    TOKENS: ClassVar[int] = 4

    def prepare(self, model: Model, options: Options) -> Streams:
        """Run the first blocks over single tokens, each written twice: what stands first may be read otherwise."""
        size = model.anatomy.vocab_size
        most = max(self.TOKENS * model.anatomy.width, _FEWEST)
        ids = sampled(np.arange(size), spellings(model.checkpoint, size), most)
        try:
            behind = behind_blocks(model, ids, options, self.BLOCKS)
        except ProvlabError:  # a part of a model, or one that transformers cannot run: its table is read
            behind = []
        return Streams(behind, ids, model)

    def compare_block(self, a: Stream, b: Stream, block: int | None, options: Options) -> BlockResult:  # type: ignore[override]
        """Find where the streams are most alike; there fit on either half of the tokens, judge on the other."""
        where, sides = _most_alike(a, b, tie_seed(options.seed, self.name, "where"))
        first, second = machine.side_by_side(*(partial(_about_their_mean, rows) for rows in sides))
        order = np.random.default_rng(tie_seed(options.seed, self.name, None)).permutation(len(first))
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        there = on(options.device)
        shares = [_explained(first, second, *way, there) for way in (halves, halves[::-1])[: ways(len(order))]]
        behind = f"{self.name} was read behind {where[0]} blocks of one and {where[1]} of the other."
        said = behind if any(where) else None
        return BlockResult(block, float(np.mean(shares)), detail=Detail(n=len(order), said=said))


def behind_blocks(model: Model, ids: NDArray[np.int64], options: Options, blocks: int) -> list[NDArray[np.float32]]:
    """Run a model over tokens, each on its own, and return the stream behind its first blocks.

    A token is written twice and read at its second place: large models keep what they need for every text at the first
    place of it, whichever token stands there. Heads that attend to the token itself find it at either.

    Returns
    -------
    list of array
        ``(width, tokens)`` float32 behind each of so many blocks, or of all that there are.

    Raises
    ------
    ProvlabError
        It is a part of a model, reads no tokens, or its modules are not known.
    """
    from provlab.running.activations import mlp_activations  # torch is not needed to compare weights

    if model.anatomy.part_name:
        raise NotComparableError(f"{model.name} is a part of a model, which is not run")
    model.anatomy.require_tokens()
    tokens = np.repeat(ids[:, None], 2, axis=1)
    recorded = mlp_activations(
        model.checkpoint,
        tokens,
        kinds=("stream",),
        device=options.device,
        dtype=options.torch_dtype,
        batch_size=_RUN,
        positions=np.arange(1, tokens.size, 2),
        blocks=range(min(blocks, model.anatomy.n_blocks)),
    )
    return recorded["stream"][:blocks]


def _most_alike(a: Stream, b: Stream, seed: int) -> tuple[tuple[int, int], tuple[Values, Values]]:
    """Find behind how many blocks of each two streams are most alike, and the rows of their tokens there.

    That is by the correlation of the products of some rows among themselves, which no rotation changes. One of the two
    is its table, whole where both are: a thief's blocks bring back the table that he took. Behind blocks of both,
    independent models are more alike, as there they know more of the language than the tokens.
    """
    tables = paired(a[0], b[0])
    ids = common(a[0][1], b[0][1])
    ids = (np.arange(len(tables[0])),) * 2 if ids is None else ids
    kept = np.isin(ids[0], a[2]) & np.isin(ids[1], b[2])  # tokens that were run in both
    tokens = np.flatnonzero(kept)
    if len(tokens) <= 2 * max(table.shape[1] for table in tables):
        return (0, 0), tables
    some = np.random.default_rng(seed).permutation(tokens)[:_LOOK]

    def rows(side: int, blocks: int, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
        if not blocks:
            return tables[side][chosen]
        _, behind, run = (a, b)[side]
        return np.ascontiguousarray(behind[blocks - 1][:, np.searchsorted(run, ids[side][chosen])].T)

    def products(side: int, blocks: int) -> NDArray[np.float32]:
        return _products(rows(side, blocks, some))

    tops = [products(side, 0) for side in (0, 1)]
    alike = {(0, 0): float(np.vdot(*tops))}
    alike |= {(0, k): float(np.vdot(tops[0], products(1, k))) for k in range(1, 1 + len(b[1]))}
    alike |= {(k, 0): float(np.vdot(products(0, k), tops[1])) for k in range(1, 1 + len(a[1]))}
    # of those that are as alike, behind fewest blocks; and whichever model is named first
    i, j = max(alike, key=lambda where: (round(alike[where], 3), -sum(where), alike[where]))
    return (i, j), tables if i == j == 0 else (rows(0, i, tokens), rows(1, j, tokens))


def _products(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Products of rows among themselves, ``(n, n)``: without the mean of each row and column, of length one in all."""
    rows = _about_their_mean(rows)
    products = rows @ rows.T  # (n, d) @ (d, n)
    np.fill_diagonal(products, 0)
    means = products.mean(axis=0)
    products += means.mean() - means - means[:, None]
    return np.asarray(products / max(float(np.linalg.norm(products)), float(np.finfo(np.float32).tiny)))


def _about_their_mean(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Directions of rows from the mean of all: blocks add much to every token that is the same for all of them."""
    made = _directions(rows)
    there = np.asarray(made.any(axis=1))
    mean = (made.sum(axis=0, dtype=np.float64) / max(int(there.sum()), 1)).astype(np.float32)
    for start in range(0, len(made), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        made[some] -= there[some, None] * mean  # rows of nothing stay so
    return _directions(made, made)


def ways(tokens: int) -> int:
    """How many halves of so many tokens are judged by a rotation of the other."""
    return 1 if tokens >= _MANY else 2


def _directions(rows: NDArray[np.float32], into: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Rows of length one, in a new array or `into` one; those of nothing stay so."""
    made = np.zeros_like(rows) if into is None else into
    for start in range(0, len(rows), _AT_ONCE):
        some, target = rows[start : start + _AT_ONCE], made[start : start + _AT_ONCE]
        largest = np.abs(some).max(axis=1, keepdims=True, initial=0.0)  # a square of it may be no number of 32 bits
        np.divide(some, largest, out=target, where=largest > 0)
        lengths = np.linalg.norm(target, axis=1, keepdims=True)
        np.divide(target, lengths, out=target, where=lengths > 0)
    return made


def _cosines(first: Values, second: Values) -> NDArray[np.float32]:
    """Products of each row with the row beside it, ``(n,)``."""
    return here(array_api_compat.array_namespace(first).einsum("ij,ij->i", first, second))  # (n, d) with (n, d)


def _explained(
    first: NDArray[np.float32],
    second: NDArray[np.float32],
    fit: NDArray[np.int64],
    judge: NDArray[np.int64],
    there: There,
) -> float:
    """1 - |s E_1 R - E_2|^2 / |E_2|^2 over the better half of the judging tokens, with the best s; 0 if that is < 0.

    R is that of orthogonal Procrustes on the other tokens, and again on the better half of these until they are
    settled, so that rows which were turned apart from the rest do not choose it. For rows of length one the share is
    the mean cosine, squared. On a device (`provlab.arrays.on`) some tokens at a time are multiplied.
    """

    def sent(tokens: NDArray[np.int64]) -> Iterator[Pair]:
        for some in [tokens] if there is of else np.array_split(tokens, 1 + len(tokens) // _SENT):
            yield there(first[some]), there(second[some])

    chosen = fit
    for done in range(_ROUNDS):
        rotation = _rotation(sent(chosen))
        before, chosen = chosen, fit[_better(sent(fit), rotation)[0]]
        if done and np.isin(chosen, before, invert=True).sum() <= _SETTLED * len(chosen):
            break
    cosine = _better(sent(judge), rotation)[1]
    return float(np.clip(cosine, 0.0, 1.0) ** 2)


def _rotation(rows: Iterable[Pair]) -> NDArray[np.float32]:
    """M (M^T M)^(-1/2) with M = E_1^T E_2, ``(d_1, d_2)``: what orthogonal Procrustes gives."""
    shared = here(reduce(add, (x.T @ y for x, y in rows))).astype(np.float64)  # (d_1, n) @ (n, d_2)
    return (shared @ _whitener(shared.T @ shared)).astype(np.float32)  # (d_1, d_2) @ (d_2, d_1) @ (d_1, d_2)


def _better(rows: Iterable[Pair], rotation: NDArray[np.float32]) -> tuple[NDArray[np.bool_], float]:
    """Which half of the tokens agree best, turned, ``(n,)``, and the mean of their cosines."""
    cosines = np.concatenate([_cosines(x @ beside(x, rotation), y) for x, y in rows])  # (n, d_1) @ (d_1, d_2)
    better = cosines >= np.median(cosines)
    return better, float(cosines[better].mean(dtype=np.float64))
