"""phi_l2: how close are the weights, measured against exchangeable copies? (Section 4.1, after Xu et al. 2024)

Minus the sum over blocks of the Euclidean distance between two models' weights. Raw distances do not tell dependent
from independent models; PERMTEST makes them comparable by comparing each with the distances of copies of the first
model whose hidden units and embedding dimensions are permuted (Appendix B). `PhiL2Blocks` permutes the hidden units of
each MLP on their own (footnote 3), which gives independent p-values for Fisher's method.

Theorem 1 asks for copies that are drawn from a group of permutations, and any group will do. Here an axis is cut into
at most `CHUNKS` pieces of equal length, and a copy puts the pieces into another order: 16! orders of an axis, drawn
uniformly. A rest that the cut leaves over stays where it is. The squared distance of a copy P A from B is

    |P A - B|^2 = |A - B|^2 + 2 <A, B> - 2 <P A, B>,

and <P A, B> is a sum of inner products of a piece of A with a piece of B. So one pass over the weights, a product of
their pieces, answers for any number of copies; with the order of each single unit drawn, every copy is a pass over all
weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from provlab.arrays import There, Values, here, of, on, squared
from provlab.errors import NotComparableError
from provlab.inference import permtest
from provlab.reading.anatomy import Anatomy, TensorPart
from provlab.reading.architectures import Segment
from provlab.reading.checkpoint import Checkpoint
from provlab.reading.symmetry import check_complete
from provlab.statistics import order
from provlab.statistics.aggregate import aggregated
from provlab.statistics.base import BY_THEOREM, Array, Features, Statistic
from provlab.statistics.model import Model, tensor_names
from provlab.statistics.options import Options
from provlab.statistics.phi_u import PERMUTATION_ASSUMPTIONS
from provlab.statistics.results import BlockResult, Detail, Outcome

Weights = dict[str, Array]
CHUNKS = 16  # pieces of an axis, at most
SLAB = 2**22  # weights of one tensor that are worked on at a time
MLP_ROLES = ("gate", "up", "down", "gate_bias", "up_bias")  # what moves with a block's hidden units
UNITS, STREAM = "mlp", "model"  # the axes that are permuted, by the names that the anatomy gives them
PURPOSE = {STREAM: 1, UNITS: 2}  # of a stream of random numbers, never 0


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """All tensors of one block by name, float32, and which model they belong to."""

    anatomy: Anatomy
    block: int
    tensors: Weights
    checkpoint: Checkpoint | None = None  # of which they are; None for weights without a file

    @cached_property
    def pieces(self) -> list[tuple[TensorPart, Segment, Array]]:
        """Each role with its tensor's part and its matrix, output units first; in one order for all models."""
        held = sorted((part for part in self.anatomy.parts if part.name in self.tensors), key=roles_of)
        split = [(part, part.split(self.tensors[part.name])) for part in held]
        return [(part, segment, pieces[segment.role]) for part, pieces in split for segment in part.segments]

    @cached_property
    def order(self) -> dict[str, Any]:
        """What a record holds of the order of the hidden units: see `provlab.statistics.order`."""
        rows = self._mlp()
        keys = order.keys_of_block(self.checkpoint, self.block, rows) if self.checkpoint else order.keys_of_mlp(rows)
        return order.described(keys, order.along_direction(rows["up"]))

    @cached_property
    def stream(self) -> dict[str, Any]:
        """The same of the coordinates of the residual stream, by what the up projection reads of each."""
        columns = self._mlp()["up"].T
        lengths = np.linalg.norm(columns, axis=1)
        unit = columns / np.where(lengths > 0, lengths, 1)[:, None]
        return order.described(order.keys_of(unit, lengths, "columns of the up projection"), lengths)

    def _mlp(self) -> dict[str, Array]:
        """Everything that belongs to a hidden unit, by role, one row a unit: ``(h, columns)`` each."""
        pieces = {segment.role: piece for _, segment, piece in self.pieces if segment.role in MLP_ROLES}
        rows = {role: pieces[role].mT if role == "down" else pieces[role] for role in sorted(pieces)}
        return {role: piece.reshape(len(piece), -1) for role, piece in rows.items()}  # (h, columns)


@dataclass(frozen=True)
class AllWeights(Features):
    """The weights of each block, or those of some roles in it, read when the block is asked for."""

    model: Model
    roles: tuple[str, ...] | None = None

    def block(self, block: int | None) -> BlockWeights:
        """Read every tensor of one block."""
        assert block is not None
        anatomy = self.model.anatomy
        names = tensor_names(anatomy, block, self.roles)
        tensors = {name: self.model.checkpoint.array(name) for name in names}
        return BlockWeights(anatomy, block, tensors, self.model.checkpoint)


def roles_of(part: TensorPart) -> tuple[str, ...]:
    """Roles of a tensor: the key that pairs the tensors of two models, however their files name them."""
    return tuple(segment.role for segment in part.segments)


def chunks(n: int) -> int:
    """Into how many pieces an axis of length n is cut: at most `CHUNKS`, at least half as many, with the least left."""
    most = min(CHUNKS, n)
    return min(range(most, most // 2, -1), key=lambda k: n % k)


def draw_orders(seed: int, n_copies: int, block: int, axis: str, n: int) -> NDArray[np.int64]:
    """Draw the order of the pieces of an axis of length n in each copy, ``(n_copies, pieces)``.

    The stream has one order in all blocks, as a copy is one model: it is drawn for block 0. numpy pads a seed with
    zeros, so that the purpose stands last: without it, the units of block 0 would be permuted in step with the stream.
    """
    rng = np.random.default_rng([seed, 0 if axis == STREAM else block, PURPOSE[axis]])
    pieces = np.broadcast_to(np.arange(chunks(n)), (n_copies, chunks(n)))
    return rng.permuted(pieces, axis=1)


def block_distances(
    a: BlockWeights,
    b: BlockWeights,
    *,
    seed: int,
    n_copies: int,
    axes: Sequence[str] = (UNITS, STREAM),
    there: There = of,
) -> NDArray[np.float64]:
    """Euclidean distance of one block and, behind it, of permuted copies of `a`, ``(1 + n_copies,)``.

    Parameters
    ----------
    a, b
        Weights of one block, with the same roles and shapes.
    seed, n_copies
        How many copies are drawn, T in the paper, and from which seed.
    axes
        Which axes a copy permutes: those of the hidden units, of the residual stream, or both.
    there
        Takes one tensor of each model at a time to where they are multiplied (`provlab.arrays.on`); numpy by default.
    """
    lengths = {UNITS: a.anatomy.mlp_width, STREAM: a.anatomy.width}
    orders = {axis: draw_orders(seed, n_copies, a.block, axis, lengths[axis]) for axis in axes}
    observed, gained = 0.0, np.zeros(n_copies)  # squared
    for (_, segment, mine), (_, _, theirs) in zip(a.pieces, b.pieces, strict=True):
        # (rows, columns); a vector has one column
        x, y = there(mine.reshape(len(mine), -1)), there(theirs.reshape(len(theirs), -1))
        observed += _squared_distance(x, y)
        moved = [axis.partition(".")[0] for axis in segment.axes[:2]]
        gained += _gained(x, y, [orders.get(axis) for axis in (*moved, "")[:2]])
    return np.sqrt(np.maximum(np.concatenate([[observed], observed + 2 * gained]), 0))


def _squared_distance(x: Values, y: Values) -> float:
    step = max(1, SLAB // max(x.shape[1], 1))
    slabs = (slice(first, first + step) for first in range(0, len(x), step))
    return sum(float(squared(x[some] - y[some]).sum()) for some in slabs)


def _gained(x: Values, y: Values, orders: Sequence[NDArray[np.int64] | None]) -> NDArray[np.float64]:
    """<x, y> - <P x, y> of each copy P, ``(T,)``, or 0 where none of the two axes moves.

    Parameters
    ----------
    x, y
        ``(rows, columns)``.
    orders
        Those of the rows and of the columns, ``(T, pieces)``; None for an axis that stays.
    """
    gained = np.zeros(())
    parts = [_cut(n, order) for n, order in zip(x.shape, orders, strict=True)]
    for (rows, of_rows), (columns, of_columns) in product(*parts):
        if of_rows is None and of_columns is None:
            continue
        k, m = (1 if order is None else order.shape[1] for order in (of_rows, of_columns))
        gram = _gram(x[rows, columns], y[rows, columns], k, m)
        u, v = np.arange(k)[:, None], np.arange(m)
        new_u = u if of_rows is None else of_rows[:, :, None]  # (T, k, 1)
        new_v = v if of_columns is None else of_columns[:, None, :]  # (T, 1, m)
        gained = gained + gram[u, v, u, v].sum() - gram[new_u, new_v, u, v].sum(axis=(-2, -1))
    return gained


def _cut(n: int, order: NDArray[np.int64] | None) -> list[tuple[slice, NDArray[np.int64] | None]]:
    """Tell apart what moves along an axis of length n, with its order, and what the cut into pieces leaves over."""
    left = 0 if order is None else n % order.shape[1]
    return [(slice(n - left), order), *[(slice(n - left, n), None)] * bool(left)]


def _gram(x: Values, y: Values, k: int, m: int) -> NDArray[np.float64]:
    """Inner products of the k x m pieces of x with those of y, ``(k, m, k, m)``; summed over slabs in float64; here."""
    pieces = [side.reshape(k, len(side) // k, m, -1) for side in (x, y)]  # (k, rows of a piece, m, its columns)
    xp = array_api_compat.array_namespace(x)
    step = max(1, SLAB // max(math.prod(pieces[0][:, 0].shape), 1))
    gram = xp.zeros((k * m, k * m), dtype=xp.float64, device=array_api_compat.device(x))
    for first in range(0, pieces[0].shape[1], step):
        mine, theirs = (side[:, first : first + step].swapaxes(1, 2).reshape(k * m, -1) for side in pieces)
        gram += mine @ theirs.T  # (k m, weights of a slab) @ (weights of a slab, k m)
    return here(gram).reshape(k, m, k, m)  # (k m, k m) before


class PhiL2(Statistic):
    """phi_l2 with PERMTEST over hidden units and embedding dimensions of the whole model."""

    name = "phi_l2"
    symbol = r"$\phi_{\ell_2}$"
    # 1 permuted block 0 with the embedding; 2 summed by threads; 3 drew T copies a block; 4 by name; 5 tested each MLP;
    # 6 took any order; 7 summed large blocks whole; 8 permuted each unit on its own
    version = 9
    reads = "all weights of the blocks"
    settings = ("seed", "n_permutations")
    warrant = BY_THEOREM
    assumptions = (
        "one of the two models stands in the order that training left: it was trained by an algorithm that treats "
        "hidden units and embedding dimensions alike, from an initialisation that does, and these were neither sorted "
        "nor put into the order of the other's"
    )

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """Every block; both models must have the same tensors in the same shapes, one MLP a block among them."""
        blocks = super().blocks(a, b)
        for model in (a, b):
            check_complete(model.anatomy)
            for block in blocks:
                model.anatomy.part("up", block)  # experts have no MLP of their block whose units could be permuted
        parts = [
            {(part.block, roles_of(part)): part for part in model.anatomy.parts if part.block is not None}
            for model in (a, b)
        ]
        for key in sorted(parts[0].keys() | parts[1].keys()):
            held = [table.get(key) for table in parts]
            shapes = [str(part.shape) if part else "absent" for part in held]
            if shapes[0] != shapes[1]:
                name = next(part.name for part in held if part)
                raise NotComparableError(
                    f"{self.name} needs equal shapes, but {name} is {shapes[0]} in {a.name} and {shapes[1]} in {b.name}"
                )
        return blocks

    def prepare(self, model: Model, options: Options) -> AllWeights:
        """Arrange to read the weights, or those of its roles."""
        return AllWeights(model, self.roles)

    def compare_block(self, a: BlockWeights, b: BlockWeights, block: int | None, options: Options) -> BlockResult:
        """Distance of the block, and its place among those of the copies."""
        assert block is not None
        there = on(options.device)
        distances = block_distances(a, b, seed=options.seed, n_copies=options.n_permutations, there=there).tolist()
        detail = Detail(distances=distances, order=[a.order, b.order], stream=[a.stream, b.stream])
        return BlockResult(block, -distances[0], _log10_p(distances), _reach(len(distances)), detail=detail)

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """PERMTEST of the sum over blocks, which are permuted together: their own p-values are no independent ones.

        Blocks that stand in one order in both models are permuted apart in each copy, and so would be more alike as
        they stand than in any copy: the first of them speaks for all.
        """
        distances = np.array([block.detail.needed("distances") for block in blocks])
        about, both_sorted, labels = order.of_pair([block.detail.needed("order") for block in blocks])
        chosen = np.unique(labels, return_index=True)[1]
        if len(chosen) < len(blocks):
            about = replace(about, together=labels.tolist())
        # all blocks have one stream: one of them says whether it is sorted
        stream, streams_sorted, _ = order.of_pair([blocks[0].detail.needed("stream")])
        about |= stream if streams_sorted else Detail()
        log10_p, reach = _log10_p(distances[chosen].sum(axis=0)), _reach(distances.shape[1])
        outcome = Outcome(-float(distances[:, 0].sum()), log10_p, tuple(blocks), reach, detail=about)
        why = streams_sorted or both_sorted
        return outcome.without_p(why) if why else outcome


def _reach(distances: int) -> float:
    """Smallest log10 p of one distance among so many."""
    return float(-np.log10(distances))


def _log10_p(distances: Sequence[float] | NDArray[np.float64]) -> float:
    """log10 p of the first distance among all, where the rest are those of permuted copies."""
    phi = -np.asarray(distances)
    return float(np.log10(permtest.p_value(phi[0], phi[1:])))


class PhiL2Blocks(PhiL2):
    """phi_l2 of each block's MLP on its own, aggregated by Fisher's method (footnote 3).

    Its p-value goes down to that of 1 / (T + 1) in every block, where the whole-model test cannot pass 1 / (T + 1).
    """

    name = "phi_l2_blocks"
    symbol = r"blocks' $\phi_{\ell_2}$"
    # 1 summed in the order of names; 2 took any order; 3 summed large blocks whole; 4 permuted each unit on its own
    version = 5
    reads = "MLP weights of the blocks"
    roles = MLP_ROLES
    settings = ("seed", "n_block_permutations")
    assumptions = PERMUTATION_ASSUMPTIONS

    def compare_block(self, a: BlockWeights, b: BlockWeights, block: int | None, options: Options) -> BlockResult:
        """Distance of the MLPs, and its place among those of permuted copies."""
        assert block is not None
        n_copies = options.n_block_permutations
        distances = block_distances(a, b, seed=options.seed, n_copies=n_copies, axes=[UNITS], there=on(options.device))
        detail = Detail(order=[a.order, b.order])
        return BlockResult(block, -float(distances[0]), _log10_p(distances), _reach(len(distances)), detail=detail)

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Fisher over blocks, which permute units of their own; the value is the mean over blocks."""
        return aggregated(blocks)
