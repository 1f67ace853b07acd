"""phi_l2: how close are the weights, measured against exchangeable copies? (Section 4.1, after Xu et al. 2024)

Minus the sum over blocks of the Euclidean distance between two models' weights. Raw distances do not tell dependent
from independent models; PERMTEST makes them comparable by comparing each with the distances of copies of the first
model whose hidden units and embedding dimensions are permuted (Appendix B). `PhiL2Blocks` permutes the hidden units of
each MLP on their own (footnote 3), which gives independent p-values for Fisher's method.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
from provlab.inference import permtest
from provlab.models.anatomy import Anatomy, TensorPart
from provlab.models.architectures import Segment
from provlab.models.symmetry import EmbeddingPermutations, MlpPermutations, Permutation
from provlab.statistics import order
from provlab.statistics.base import (
    BY_THEOREM,
    Array,
    BlockResult,
    Features,
    Model,
    Options,
    Outcome,
    Statistic,
    aggregated,
    tensor_names,
    withheld,
)
from provlab.statistics.phi_u import PERMUTATION_ASSUMPTIONS

Weights = dict[str, Array]
IN_CACHE = 2**16  # weights worked on at a time: with their float64 squares they stay in a processor's cache
COPIES_IN_MEMORY = 2**26  # bytes of the permuted copies of one block
MLP_ROLES = ("gate", "up", "down", "gate_bias", "up_bias")  # what moves with a block's hidden units
EMBEDDING, UNITS, OWN = 1, 2, 3  # what a stream of random numbers is for
EXCEEDANCES = 50  # copies that come as close as the pair before a block's own test stops: its p is then good to 14%


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """All tensors of one block by name, float32, and which model they belong to."""

    anatomy: Anatomy
    block: int
    tensors: Weights
    _copies: dict[tuple[int, int], Array] = field(default_factory=dict, repr=False)

    def flat(self) -> Array:
        """All weights of the block in one row."""
        return _in_a_row(self._parts(), self.tensors)

    def copies(self, options: Options) -> Array:
        """T permuted copies as rows, kept for the next pair."""
        key = (options.seed, options.n_permutations)
        if key not in self._copies:
            drawn = (_in_a_row(self._parts(), copy(self.tensors)) for copy in self.permutations(options))
            self._copies[key] = np.stack(list(drawn))
        return self._copies[key]

    def permutations(self, options: Options) -> Iterator[Permutation]:
        """Draw those of the T copies.

        The t-th copy permutes the embedding dimension and the block's hidden units; the permutation of the embedding
        is the same in every block, as the t-th copy is one model.
        """
        embedding, units = EmbeddingPermutations(self.anatomy), MlpPermutations(self.anatomy, blocks=[self.block])
        for t in range(options.n_permutations):
            # two streams of random numbers: one shared by the blocks of copy t, one of this block alone
            shared = embedding.sample(stream(options, t, 0, EMBEDDING))
            own = units.sample(stream(options, t, self.block, UNITS))
            yield Permutation(self._parts(), {**shared.orders, **own.orders})

    @cached_property
    def pieces(self) -> list[tuple[TensorPart, Segment, Array]]:
        """Each role with its tensor's part and its matrix, output units first; in one order for all models."""
        split = [(part, part.split(self.tensors[part.name])) for part in self._parts()]
        return [(part, segment, pieces[segment.role]) for part, pieces in split for segment in part.segments]

    def _parts(self) -> tuple[TensorPart, ...]:
        held = (part for part in self.anatomy.parts if part.name in self.tensors)
        return tuple(sorted(held, key=roles_of))

    @cached_property
    def order(self) -> dict[str, Any]:
        """What a record holds of the order of the hidden units: see `provlab.statistics.order`."""
        rows = self.mlp()
        return order.described(order.keys_of_mlp(rows), order.along_direction(rows["up"]))

    @cached_property
    def stream(self) -> dict[str, Any]:
        """The same of the coordinates of the residual stream, by what the up projection reads of each."""
        columns = self.mlp()["up"].T
        lengths = np.linalg.norm(columns, axis=1)
        unit = columns / np.where(lengths > 0, lengths, 1)[:, None]
        return order.described(order.keys_of(unit, lengths, "columns of the up projection"), lengths)

    def mlp(self) -> dict[str, NDArray[np.float64]]:
        """Everything that belongs to a hidden unit, by role, one row a unit: ``(h, columns)`` float64 each."""
        pieces = {segment.role: piece for _, segment, piece in self.pieces if segment.role in MLP_ROLES}
        rows = {role: pieces[role].mT if role == "down" else pieces[role] for role in sorted(pieces)}
        return {role: piece.reshape(len(piece), -1).astype(np.float64) for role, piece in rows.items()}


def _in_a_row(parts: Sequence[TensorPart], tensors: Weights) -> Array:
    return np.concatenate([tensors[part.name].reshape(-1) for part in parts])


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
        return BlockWeights(anatomy, block, {name: self.model.checkpoint.array(name) for name in names})


def stream(options: Options, copy: int, block: int, purpose: int) -> np.random.Generator:
    """Random numbers of one permuted copy, of one block in it, for one purpose.

    The purpose stands last and is never 0: numpy pads a seed with zeros, so ``[seed, copy]`` and ``[seed, copy, 0]``
    would be one stream, and the hidden units of block 0 would be permuted in step with the embedding.
    """
    return np.random.default_rng([options.seed, copy, block, purpose])


def roles_of(part: TensorPart) -> tuple[str, ...]:
    """Roles of a tensor: the key that pairs the tensors of two models, however their files name them."""
    return tuple(segment.role for segment in part.segments)


def block_distances(a: BlockWeights, b: BlockWeights, options: Options) -> list[float]:
    """Euclidean distance of one block and, behind it, of T permuted copies of `a`; summed in float64."""
    if sum(tensor.nbytes for tensor in a.tensors.values()) * options.n_permutations > COPIES_IN_MEMORY:
        permutations = chain([Permutation(a._parts(), {})], a.permutations(options))
        return [_distance(a, b, permutation) for permutation in permutations]
    flat, other, copies = a.flat(), b.flat(), a.copies(options)
    at_once = max(1, IN_CACHE // len(flat))
    rows = chain([flat[None]], (copies[first : first + at_once] for first in range(0, len(copies), at_once)))
    return [float(d) for some in rows for d in np.sqrt(np.square((some - other).astype(np.float64)).sum(axis=1))]


def _distance(a: BlockWeights, b: BlockWeights, permutation: Permutation) -> float:
    """Euclidean distance of a permuted copy of `a` from `b`, of which no more is made at a time than a cache holds."""
    total = 0.0
    for (part, segment, mine), (_, _, theirs) in zip(a.pieces, b.pieces, strict=True):
        rows, *columns = (permutation.order(axis, part) for axis in segment.axes)
        step = max(1, IN_CACHE // max(mine[0].size, 1))
        for first in range(0, len(mine), step):
            some = mine[first : first + step] if rows is None else mine[rows[first : first + step]]
            for places in columns:
                some = some if places is None else some.take(places, axis=1)
            total += float(np.square(some - theirs[first : first + step], dtype=np.float64).sum())
    return math.sqrt(total)


def block_permtest(a: BlockWeights, b: BlockWeights, block: int, options: Options) -> permtest.PermTest:
    """PERMTEST of one block's MLP distance under permutations of its hidden units, stopped at `EXCEEDANCES`.

    The squared distance under a permutation is a constant minus twice a sum over the Gram matrix of the two MLPs, so
    each permutation costs h additions and not h x d.
    """
    pieces = list(zip(a.mlp().values(), b.mlp().values(), strict=True))
    constant = sum(float((x * x).sum() + (y * y).sum()) for x, y in pieces)
    gram: NDArray[np.float64] = sum((x @ y.T for x, y in pieces), np.zeros(1))
    units = np.arange(len(gram))

    def phi(order: NDArray[np.int64]) -> float:
        return -float(np.sqrt(max(constant - 2 * float(gram[order, units].sum()), 0.0)))

    rng = stream(options, 0, block, OWN)
    copies = (phi(rng.permutation(len(gram))) for _ in range(options.n_block_permutations))
    return permtest.stopped(phi(units), copies, exceedances=EXCEEDANCES)


class PhiL2(Statistic):
    """phi_l2 with PERMTEST over hidden units and embedding dimensions of the whole model."""

    name = "phi_l2"
    # 1 permuted block 0 with the embedding; 2 summed by threads; 3 drew T copies a block; 4 by name; 5 tested each MLP;
    # 6 took any order; 7 summed large blocks whole
    version = 8
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
        distances = block_distances(a, b, options)
        floor = float(-np.log10(len(distances)))
        orders = {"order": [a.order, b.order], "stream": [a.stream, b.stream]}
        return BlockResult(block, -distances[0], _log10_p(distances), {"distances": distances, "floor": floor} | orders)

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """PERMTEST of the sum over blocks, which are permuted together: their own p-values are no independent ones.

        Blocks that stand in one order in both models are permuted apart in each copy, and so would be more alike as
        they stand than in any copy: the first of them speaks for all.
        """
        distances = np.array([block.detail["distances"] for block in blocks])
        about, labels = order.of_pair([block.detail for block in blocks])
        chosen = np.unique(labels, return_index=True)[1]
        if len(chosen) < len(blocks):
            about["together"] = labels.tolist()
        floor = float(-np.log10(distances.shape[1]))
        # all blocks have one stream: one of them says whether it is sorted
        stream, _ = order.of_pair([{"order": blocks[0].detail["stream"]}])
        about |= stream if "withheld" in stream else {}
        log10_p = _log10_p(distances[chosen].sum(axis=0))
        outcome = Outcome(-float(distances[:, 0].sum()), log10_p, tuple(blocks), floor, about)
        return withheld(outcome, about["withheld"]) if "withheld" in about else outcome


def _log10_p(distances: Sequence[float] | NDArray[np.float64]) -> float:
    """log10 p of the first distance among all, where the rest are those of permuted copies."""
    phi = -np.asarray(distances)
    return float(np.log10(permtest.p_value(phi[0], phi[1:])))


class PhiL2Blocks(PhiL2):
    """phi_l2 of each block's MLP on its own, aggregated by Fisher's method (footnote 3).

    Its p-value goes down to that of 1 / (T + 1) in every block, where the whole-model test cannot pass 1 / (T + 1).
    """

    name = "phi_l2_blocks"
    version = 4  # 1 summed in the order of names; 2 took any order; 3 summed large blocks whole
    reads = "MLP weights of the blocks"
    roles = MLP_ROLES
    settings = ("seed", "n_block_permutations")
    independent_blocks = True  # each permutes the hidden units of its own MLP, and no stream
    assumptions = PERMUTATION_ASSUMPTIONS

    def compare_block(self, a: BlockWeights, b: BlockWeights, block: int | None, options: Options) -> BlockResult:
        """Distance of the MLPs, and its place among those of permuted copies."""
        assert block is not None
        own = block_permtest(a, b, block, options)
        floor = float(-np.log10(options.n_block_permutations + 1))
        return BlockResult(block, own.observed, own.log10_p, {"floor": floor, "order": [a.order, b.order]})

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Fisher over blocks, which permute units of their own; the value is the mean over blocks."""
        return aggregated(blocks)
