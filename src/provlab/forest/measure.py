"""Measurements of each pair of a family: the embedding rows that both kept, and how far their weights are apart.

Both are measurements and no tests (`provlab.plugins.MEASUREMENTS`), with the methods of a statistic, so that the engine
of a study keeps them, resumes them and bounds their memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
from provlab.statistics.base import Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.results import BlockResult, Detail, Outcome
from provlab.statistics.text import common, spellings

#: how far two rows may be from parallel: in float32 the roundings of training add up, in fewer bits one of them rules
FINEST = 1e-5
#: distance of two neighbouring numbers between 1 and 2
SPACINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
COARSEST = max(SPACINGS.values())  # also that of codes that were read back
GAP = 2.0  # least ratio of the nearest row that moved to the farthest one that is taken as kept
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class EmbeddingRows(Features):
    """The embedding, what its tokens are, and how far rounding may turn its rows."""

    model: Model

    def block(self, block: int | None) -> tuple[NDArray[np.float32], Model, float]:
        """Read the table."""
        rows = self.model.anatomy.read(self.model.checkpoint, "embedding", None)
        return rows, self.model, max(FINEST, spacing(rows, self.model, "embedding", None))


def spacing(values: NDArray[np.floating], model: Model, role: str, block: int | None) -> float:
    """Distance of two neighbouring numbers between 1 and 2, as the values of a tensor tell: a file may be finer.

    A checkpoint of 16 bits that was saved in 32 holds no more than its 16 bits. Codes that were read back have numbers
    of many bits, and errors of the coarsest kind.
    """
    label = SPACINGS.get(model.checkpoint.dtype(model.anatomy.tensor_name(role, block)), COARSEST)
    fractions = int(np.bitwise_or.reduce((values.astype(np.float32).view(np.uint32) & 0x7FFFFF), axis=None))
    used = 2.0 ** ((fractions & -fractions).bit_length() - 24) if fractions else 0.0
    return min(max(label, used), COARSEST)


def one_numbering(models: Iterable[Model]) -> bool:
    """Whether equal ids are equal tokens, as far as tokenizers say: then none of them is made, which is slow."""
    return len({model.checkpoint.tokenizer_digest for model in models} - {None}) < 2


def kept_rows(a: Matrix, b: Matrix, bound: float) -> tuple[NDArray[np.int64], float, bool]:
    """Rows of two tables that are parallel, all with one factor, and the logarithm of that factor.

    A row that no gradient reached is multiplied by 1 - rate x decay at each step, like all such rows. So rows count as
    kept where b is a times the median factor, up to `bound` of its length, if the nearest other row is `GAP` times
    as far away: else rounding and a little training look alike, and the pair is not readable.

    Parameters
    ----------
    a, b
        ``(n, d)``, one token a row.
    bound
        Relative: the coarser file's `spacing`, or `FINEST`.

    Returns
    -------
    tuple of array, float and bool
        Ascending numbers of the rows; ln of the length of b's rows over that of a's, 0 without rows; and whether
        anything is readable.
    """
    products, squares = np.einsum("ij,ij->i", a, b), np.einsum("ij,ij->i", a, a)  # (n,), (n,)
    lengths = np.linalg.norm(b, axis=1)
    some = np.flatnonzero((squares > 0) & (lengths > 0))
    factors = products[some] / squares[some]
    apart = np.linalg.norm(b[some] - factors[:, None] * a[some], axis=1) / lengths[some]
    near = some[(apart <= bound) & (factors > 0)]
    if not len(near):
        return near, 0.0, True
    factor = np.median(products[near] / squares[near])
    apart = np.linalg.norm(b[some] - factor * a[some], axis=1) / lengths[some]
    kept, moved = apart <= bound, apart[apart > bound]
    if not kept.any() or (moved.size and moved.min() < GAP * apart[kept].max()):
        return some[:0], 0.0, not kept.any()
    ids = some[kept]
    return ids, float(np.log(products[ids].sum() / squares[ids].sum())), True


class KeptRows(Statistic):
    """Rows of the embedding that neither model of a pair trained since they parted; the value is ln of their factor."""

    name = "kept_rows"
    symbol = "kept rows"
    reads = "embeddings"
    spells = True

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """One unit; both need an embedding of one width."""
        if not (a.anatomy.has("embedding") and b.anatomy.has("embedding")) or a.anatomy.width != b.anatomy.width:
            raise NotComparableError(f"{self.name} needs two embeddings of one width: {a.name}, {b.name}")
        return [None]

    def prepare(self, model: Model, options: Options) -> EmbeddingRows:
        """Arrange to read the embedding."""
        return EmbeddingRows(model)

    def tensors(self, model: Model, partner: Model, block: int | None, options: Options) -> dict[str, int | None]:
        """One table."""
        return {model.anatomy.tensor_name("embedding"): None}

    def compare_block(self, a: Any, b: Any, block: int | None, options: Options) -> BlockResult:
        """Compare the rows of tokens that both know; the matching holds the first model's numbers of the kept ones."""
        (rows, model, coarse), (others, other, as_coarse) = a, b
        ids = None
        if not one_numbering((model, other)):
            ids = common(spellings(model.checkpoint, len(rows)), spellings(other.checkpoint, len(others)))
        first, second = ids or [np.arange(min(len(rows), len(others)))] * 2
        bound = max(coarse, as_coarse)
        kept, factor, readable = kept_rows(rows[first].astype(np.float64), others[second].astype(np.float64), bound)
        own = {"kept": len(kept), "rows": len(first), "tolerance": bound, "readable": readable}
        return BlockResult(None, factor, detail=Detail(own=own), matching=first[kept])

    def aggregate(self, blocks: Any) -> Outcome:
        """The one result, its rows with it."""
        return Outcome(blocks[0].value, None, tuple(blocks), detail=blocks[0].detail)


@dataclass(frozen=True)
class WeightsByBlock(Features):
    """Reads the tensors of one block, or all outside the blocks, when it is asked for them."""

    model: Model

    def block(self, block: int | None) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
        """Read them by role, and what is known of one model alone.

        That is, of each tensor, the sum of its squares and that of the squared errors of rounding to be expected in
        its file; the mean kurtosis of the matrices, and the mean distance of norms' gains from 1.
        """
        anatomy, checkpoint = self.model.anatomy, self.model.checkpoint
        roles = [s.role for part in anatomy.parts if part.block == block for s in part.segments]
        tensors = {role: anatomy.read(checkpoint, role, block) for role in roles}
        matrices = {role: array for role, array in tensors.items() if array.ndim == 2}
        gains = [np.abs(array - 1).mean() for role, array in tensors.items() if role.endswith("norm")]
        squares = {role: float(np.square(array.astype(np.float64)).sum()) for role, array in tensors.items()}
        spacings = {role: spacing(array, self.model, role, block) for role, array in tensors.items()}
        about = {
            "squares": squares,
            "rounding": {role: rounding(array, spacings[role]) for role, array in tensors.items()},
            "matrices": sum(squares[role] for role in matrices),
            "kurtosis": float(np.mean([kurtosis(m) for m in matrices.values()])) if matrices else 0.0,
            "gains": float(np.mean(gains)) if gains else 0.0,
        }
        return tensors, about


def rounding(values: NDArray[np.floating], spacing: float) -> float:
    """Expected sum of squares of the errors that one rounding of these values made."""
    places = np.frexp(values.astype(np.float64))[1] - 1  # exponents, so that a value is 1 to 2 times 2^place
    return float((np.square(spacing * np.exp2(places)) / 12)[values != 0].sum())


def kurtosis(values: NDArray[np.floating]) -> float:
    """Fourth moment over the square of the second, of all numbers of an array."""
    centred = values.astype(np.float64) - values.mean(dtype=np.float64)
    squares = np.square(centred)
    return float(np.square(squares).mean() / max(squares.mean() ** 2, np.finfo(float).tiny))


class WeightDistance(Statistic):
    """Distance of all weights that have one shape in both models, squared tensor by tensor."""

    name = "weight_distance"
    symbol = "distance of weights"
    reads = "all weights"
    version = 3  # reads attention to an encoder too

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """What lies outside the blocks, and each block."""
        alone = not (a.anatomy.n_blocks or b.anatomy.n_blocks)  # tables without blocks
        return [None, *([] if alone else super().blocks(a, b))]

    def prepare(self, model: Model, options: Options) -> WeightsByBlock:
        """Arrange to read all weights."""
        return WeightsByBlock(model)

    def compare_block(self, a: Any, b: Any, block: int | None, options: Options) -> BlockResult:
        """Sums of squared differences; tensors of two shapes are left out, by name."""
        (own, about), (others, as_about) = a, b
        shared = [role for role, array in own.items() if role in others and array.shape == others[role].shape]
        apart = {role: float(np.square(own[role].astype(np.float64) - others[role]).sum()) for role in shared}
        return BlockResult(block, sum(apart.values()), detail=Detail(own={"apart": apart, "a": about, "b": as_about}))

    def aggregate(self, blocks: Any) -> Outcome:
        """The distance, and what was read of each model alone."""
        sides = {
            side: {
                "squares": sum(block.detail.own[side]["matrices"] for block in blocks),
                **{
                    k: float(np.mean([block.detail.own[side][k] for block in blocks[1:] or blocks]))
                    for k in ("kurtosis", "gains")
                },
            }
            for side in "ab"
        }
        return Outcome(
            float(np.sqrt(sum(block.value for block in blocks))), None, tuple(blocks), detail=Detail(own=sides)
        )
