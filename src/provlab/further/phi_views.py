"""phi_VIEWS: do both ends of a hidden unit agree on which unit is which? An extension for MLPs without gates.

phi_MATCH asks two views of a hidden unit, its gate and its up projection. An MLP without gates has two views as well:
the row that it reads the residual stream with, and the column that it writes with. Match the units of two models by
each, and correlate the two matchings, as phi_MATCH does and with its allowance. Permuting hidden units moves both ends
alike. As there, units that agree count only if they write a share of the MLP's output. No text is read: what a unit
writes is estimated from weights and biases, as if the normalised stream were normal numbers and the activation ReLU, so
units that fire on
these and never on text may still imitate another model's.

The price is that rows and columns must be written in the same basis: a permutation or rotation of the residual stream
hides a model from it. It is not the paper's. Before the comparison, what a norm makes indifferent is taken out: its
weights are multiplied into the rows, and where it subtracts the mean (LayerNorm), the mean of rows and columns is.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
from provlab.reading.architectures import described
from provlab.reading.canonical import applied, by_weights, shares
from provlab.statistics.alive import living_rows
from provlab.statistics.base import CALIBRATED, Array, Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import PhiMatch
from provlab.statistics.results import BlockResult
from provlab.statistics.two_views import Views

_MATCH = PhiMatch()  # two views of a unit are compared as its two are
Matrix = NDArray[np.float64]
_INPUTS = 256  # drawn ones, on which it is judged what each unit writes
_NO_TOKENS = np.zeros((0, 0), dtype=np.int64)


def reads(model: Model, block: int | None, up: Array | None = None) -> Matrix:
    """Rows that read the stream, ``(h, width)`` float64, with the norm before them multiplied in."""
    return centred(model, through_norm(model, "up", block, up))


def writes(model: Model, block: int | None) -> Matrix:
    """Columns that write to the stream, as rows ``(h, width)`` float64."""
    return centred(model, model.anatomy.read(model.checkpoint, "down", block).astype(np.float64).T)


def through_norm(model: Model, role: str, block: int | None, read: Array | None = None) -> Matrix:
    """Rows ``(units, width)`` of a matrix that reads the stream through a norm, as they act on the normalised stream.

    That is W diag(g), with what the norm multiplies by: its weights, plus 1 in Gemma. `read` is W, if it is at hand.
    """
    anatomy, checkpoint = model.anatomy, model.checkpoint
    rows = (anatomy.read(checkpoint, role, block) if read is None else read).astype(np.float64)
    if (norm := anatomy.norm_before("head" if role == "embedding" else role)) is not None:
        weights = anatomy.read(checkpoint, norm, None if norm == "final_norm" else block).astype(np.float64)
        rows *= weights + anatomy.norm_offset
    return rows


def centred(model: Model, rows: Matrix) -> Matrix:
    """Rows ``(n, width)`` without their means, where the model's norms subtract the mean."""
    if described(model.anatomy.architecture).centred:
        return rows - rows.mean(axis=1, keepdims=True)
    return rows


@dataclass(frozen=True)
class Ends(Features):
    """Both ends of the hidden units, read when a block is asked for."""

    model: Model

    def block(self, block: int | None) -> Views:
        """Rows and columns of one block."""
        anatomy, checkpoint = self.model.anatomy, self.model.checkpoint
        gated = anatomy.has("gate")
        read = [anatomy.read(checkpoint, role, block) for role in ("up", "gate")[: 1 + gated]]
        rows = reads(self.model, block, np.concatenate(read))  # both read the stream through one norm
        h = len(read[0])
        ends = rows[:h], writes(self.model, block)
        units = by_weights(checkpoint, anatomy, block, *ends, gate=read[-1] if gated else None)
        up, down = applied(units, ends[0], "up"), applied(units, ends[1], "down")
        name = f"an MLP of {self.model.name}"
        inner, outer = living_rows(up.astype(np.float32), down.astype(np.float32), name=name)
        inputs = np.random.default_rng(rows.shape[1]).normal(size=(rows.shape[1], _INPUTS))
        first, *others = (
            piece @ inputs + _bias(self.model, role, block, kept)[:, None]  # (h, d) @ (d, inputs)
            for role, piece, kept in zip(("up", "gate"), np.split(rows, 1 + gated), read, strict=False)
        )
        fires, beside = (others[0], first) if gated else (first, None)
        written = shares(fires, beside, ends[1], units, lambda z: np.maximum(z, 0))
        return Views(inner, outer, _NO_TOKENS, written[inner.places])


def _bias(model: Model, role: str, block: int | None, read: Array) -> Matrix:
    """What a projection adds to each unit, ``(h,)``: its bias, and what the norm's gives through its rows `read`."""
    anatomy, checkpoint = model.anatomy, model.checkpoint
    bias = np.zeros(len(read))
    if anatomy.has(f"{role}_bias"):
        bias += anatomy.read(checkpoint, f"{role}_bias", block)
    if anatomy.has(shift := f"{anatomy.norm_before(role)}_bias"):
        bias += read @ anatomy.read(checkpoint, shift, block)
    return bias


class PhiViews(Statistic):
    """phi_VIEWS by the weights of both ends, aggregated by Fisher's method."""

    name = "phi_views"
    # 1, 2 tails; 3 no allowance; 4 idle units; 5 opposite gates; 6 a fixed share; 7 units that write nothing; 8 shares
    # that two units could inflate; 9 took the p-value of silent blocks for 1
    version = 10
    reads = "up and down projections of the MLPs"
    roles = ("up", "down", "gate", "gate_bias", "up_bias")  # what `by_weights` reads says which units are one
    settings = ("seed",)
    warrant = CALIBRATED
    evidence = "units"  # they get random labels
    assumptions = (
        "an empirical finding, not a theorem: of independent models at most about 6% of the units of a block (a wider "
        "margin where it has few) are matched alike by row and by column for other reasons than chance, and the others "
        "as chance has it"
    )

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """Blocks of equal index, with or without gates; the residual streams must be of one width."""
        if a.anatomy.width != b.anatomy.width:
            raise NotComparableError(
                f"{self.name} compares rows and columns over the residual stream, which is {a.anatomy.width} wide in "
                f"{a.name} and {b.anatomy.width} in {b.name}"
            )
        return super().blocks(a, b)

    def prepare(self, model: Model, options: Options) -> Features:
        """Arrange to read both projections."""
        return Ends(model)

    def compare_block(self, a: Views, b: Views, block: int | None, options: Options) -> BlockResult:
        """Correlate the matching by rows with the matching by columns, as phi_MATCH does its two."""
        return _MATCH.compare_block(a, b, block, options)
