"""HuRef's invariants: products of weights that permutations cannot change, compared by their cosine (Appendix D.1).

Zeng et al. (2024) compare two models by three matrices over the vocabulary, one for each way through a block:
M_a = E W_Q^T W_K E^T, M_b = E W_V^T W_O^T E^T, and M_c = E G^T D^T E^T with the embedding E, the gate G (the up
projection where there is none) and the down projection D. Permutations, and rotations inside the heads, cancel in them;
replaced norms (T5) do not. There is no null distribution: the statistics are raw values.

The matrices, a vocabulary wide, are never formed. With M = E A E^T and C = E_1^T E_2, the inner product of two of
them is the trace of A_1 C A_2^T C^T, all of the width of the models; all tokens count, where the original takes some. C
is the same for all blocks and ways of two models, and is far more work than the rest: it is multiplied once.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from provlab.arrays import crossed
from provlab.errors import NotComparableError
from provlab.reading.anatomy import Anatomy
from provlab.statistics import register
from provlab.statistics.base import Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.results import BlockResult

Matrix = NDArray[np.float64]


class Table:
    """The embedding of one model, and its products with those of others, each multiplied once while both are in use."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._products: WeakKeyDictionary[Table, Matrix] = WeakKeyDictionary()

    @classmethod
    def of(cls, model: Model) -> "Table":
        """Return the table that other ways through the same model use, if there are any."""
        return _IN_USE.setdefault(model.checkpoint.digest, cls(model))

    def times(self, other: "Table") -> Matrix:
        """C = E_1^T E_2, ``(width, width)`` of this model and the other one."""
        if other not in self._products:
            rows = self.model.anatomy.read(self.model.checkpoint, "embedding")
            others = rows if other is self else other.model.anatomy.read(other.model.checkpoint, "embedding")
            self._products[other] = crossed(rows, others)
        return self._products[other]


_IN_USE: WeakValueDictionary[str, Table] = WeakValueDictionary()


@dataclass(frozen=True)
class Invariant:
    """One block's matrix M = E A E^T, by its factors.

    Attributes
    ----------
    table : Table
        E, ``(vocab, width)``.
    core : array
        A, ``(width, width)`` float64.
    """

    table: Table
    core: Matrix

    def inner(self, other: "Invariant") -> float:
        """Sum of the products of all entries of two such matrices."""
        between = self.table.times(other.table)
        return float(np.sum((self.core @ between) * (between @ other.core)))

    @cached_property
    def square(self) -> float:
        """Sum of the squares of all entries."""
        return self.inner(self)

    def cosine(self, other: "Invariant") -> float:
        """Cosine of the angle between two such matrices, from -1 to 1."""
        return self.inner(other) / float(np.sqrt(self.square * other.square))


@dataclass(frozen=True)
class Cores(Features):
    """Reads A of each block when it is asked for."""

    model: Model
    way: str

    @cached_property
    def table(self) -> Table:
        """E, shared with the other ways."""
        return Table.of(self.model)

    def block(self, block: int | None) -> Invariant:
        """Multiply the two projections of one block's way: queries and keys, values and output, or gate and down."""
        if self.way == "a":
            core = self._per_key_head("query", block).T @ self._read("key", block)
        elif self.way == "b":
            output = self._per_key_head("output", block)
            core = self._read("value", block).T @ output
        else:
            entry = "gate" if self.model.anatomy.has("gate") else "up"
            core = self._read(entry, block).T @ self._read("down", block).T
        return Invariant(self.table, core)

    def _read(self, role: str, block: int | None) -> Matrix:
        return self.model.anatomy.read(self.model.checkpoint, role, block).astype(np.float64)

    def _per_key_head(self, role: str, block: int | None) -> Matrix:
        """Rows of the query heads that share a key head, added up: each meets the same keys or values."""
        rows = self._read(role, block)
        rows = rows.T if role == "output" else rows
        keys, size = _key_heads(self.model.anatomy, block)
        return rows.reshape(keys, -1, size, rows.shape[1]).sum(axis=1).reshape(keys * size, -1)


def _key_heads(anatomy: Anatomy, block: int | None) -> tuple[int, int]:
    size = anatomy.part("query", block).head_size
    return anatomy.shape("key", block)[0] // size, size


class HuRef(Statistic):
    """Mean cosine, over blocks, of one of the three invariants; no p-value."""

    way: ClassVar[str]

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """Blocks of equal index; both models must have one vocabulary."""
        if a.anatomy.vocab_size != b.anatomy.vocab_size:
            raise NotComparableError(
                f"{self.name} needs one vocabulary, but {a.name} has {a.anatomy.vocab_size} tokens and {b.name} "
                f"{b.anatomy.vocab_size}; the weight statistics do not look at the vocabulary"
            )
        return super().blocks(a, b)

    def prepare(self, model: Model, options: Options) -> Cores:
        """Arrange to read the projections."""
        return Cores(model, self.way)

    def tensors(self, model: Model, partner: Model, block: int | None, options: Options) -> dict[str, int | None]:
        """The way's two projections and the embedding."""
        way = {"a": ("query", "key"), "b": ("output", "value"), "c": ("gate", "down")}[self.way]
        roles = [role if model.anatomy.has(role) else "up" for role in way]
        names = [model.anatomy.tensor_name(role, block) for role in roles]
        return dict.fromkeys([*names, model.anatomy.tensor_name("embedding")])

    def compare_block(self, a: Invariant, b: Invariant, block: int | None, options: Options) -> BlockResult:
        """Cosine of the two matrices."""
        return BlockResult(block, a.cosine(b))


@register
class HuRefA(HuRef):
    """M_a, through queries and keys."""

    way, name, symbol = "a", "huref_a", "$M_a$"
    reads = "embedding, query and key projections"


@register
class HuRefB(HuRef):
    """M_b, through values and the attention's output."""

    way, name, symbol = "b", "huref_b", "$M_b$"
    reads = "embedding, value and output projections"


@register
class HuRefC(HuRef):
    """M_c, through the MLP."""

    way, name, symbol = "c", "huref_c", "$M_c$"
    reads = "embedding, gate and down projections"


#: registered by the entry points `provlab.statistics`
HUREF = (HuRefA.name, HuRefB.name, HuRefC.name)
