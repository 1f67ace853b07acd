"""phi_ANCHOR: phi_MATCH after one model's units were brought together along the gates of the other. An extension.

phi_MATCH pairs units one to one. An adversary may spread each unit over several whose gates are tilted a little and
whose up rows lie far off, such as u + w and u - w, so that what they add to the unit's output cancels nearly
(`provlab disguise --with fan`). No part is then much like the unit. But the claimant's gates, the anchor, still say
which parts belong together: each unit goes to the gate of the anchor to which its own is most similar, many to one.
The units of one gate write a(g x) M x with M = sum d u^T (`provlab.reading.canonical`), and what was added cancels in
M. Its first singular vectors are the merged unit, and phi_MATCH compares merged units with the anchor's, by the size of
the cosine. Either model is the anchor once; the smaller p-value counts, times two.

Bringing units together by gates looks at no up row of the anchor, so nothing makes gates and ups of independent models
agree here that does not do so in phi_MATCH; assumption and allowance are its own. 496 pairs of independent models of
the zoo are rejected at 0.05, 0.01 and 0.001 in 18, 3 and 0 cases, 1,000 pairs of drawn ones in 32, 8 and 1. Units of
one gate whose outputs cancel are merged with each other, so such decoys vanish. Decoys that write too little to matter
(`faint`) are often alone at a gate; so merged units are compared only if they and the anchor's units are among those
that carry 90% of the output, a rule that was settled after such decoys had framed models without it.

It reads each block twice. It is run when it is named, beside the others where one model has more units, so that
phi_MATCH might not see them spread, and where no test of units rejects. A block and pair of 11,008 units, width 4,096
and 2,048 positions took 30 CPU seconds of one thread and 0.8 GB beside the activations where two blocks of normal
weights were independent, 21 seconds where one was a noisy copy; phi_MATCH took 13 and 2 seconds (2026-11-30, commit
1dad078b, AMD EPYC, a busy machine).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching import unit_rows
from provlab.reading.canonical import applied, spanned
from provlab.statistics import experts
from provlab.statistics.base import Features
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import GateAndUp, PhiMatchUnsigned, Reason
from provlab.statistics.results import FEW, BlockResult
from provlab.statistics.two_views import Views, tied

#: merged units count if they are among the fewest that write this share of the output, as do the anchor's units
CARRIED = 0.9
_ROWS = 256  # units, or groups of them, at a time


@dataclass(frozen=True)
class BlockUnits:
    """Units of one block: both views, and what each writes, ``(h, width)``."""

    views: Views
    down: NDArray[np.float32]


@dataclass(frozen=True)
class GateUpAndDown(GateAndUp):
    """As phi_MATCH has them, and the model whose down projections are read when a block is asked for."""

    model: Model = field(kw_only=True)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], model: Model) -> Features:
        """Rebuild features, those of experts too."""
        return OfExperts.of_arrays(arrays, model) if "inputs.0" in arrays else super().of_arrays(arrays, model)

    def block(self, block: int | None) -> BlockUnits:  # type: ignore[override]
        """Both activations of one block, and what its units write."""
        assert block is not None
        views = super().block(block)
        down = self.model.anatomy.read(self.model.checkpoint, "down", block).astype(np.float32).T
        return BlockUnits(views, applied(self.units[block], down, "down")[views[0].places])


class OfExperts(experts.Inputs):
    """All experts of a block as one MLP."""

    def block(self, block: int | None) -> BlockUnits:
        """Both activations of one block, and what its units write."""
        assert block is not None
        return BlockUnits(*self.whole(block)[:2])


def along(parts: BlockUnits, anchor: Views) -> Views:
    """Bring the units of a block together along the gates of another: one for each gate that some are nearest to."""
    gate, up = parts.views[:2]
    aims, (listens, reads) = anchor[0].unit, (np.asarray(view.rows, np.float32) for view in (gate, up))
    nearest, sides = np.empty(len(gate), np.int64), np.empty(len(gate), np.float32)
    for start in range(0, len(gate), _ROWS):
        rows = slice(start, start + _ROWS)
        cosines = gate.unit[rows] @ aims.T  # (some h, tokens) @ (tokens, gates of the anchor)
        nearest[rows] = np.abs(cosines).argmax(axis=1)
        # a gate that is most similar to the opposite of the anchor's counts as its opposite
        sides[rows] = np.sign(np.take_along_axis(cosines, nearest[rows, None], axis=1)[:, 0])
    order = np.argsort(nearest, kind="stable")
    groups = sorted(np.split(order, np.flatnonzero(np.diff(nearest[order])) + 1), key=len)
    gates, ups = [], []
    for start in range(0, len(groups), _ROWS):
        some = groups[start : start + _ROWS]
        first = (of_up[0] for _, of_up, _ in spanned(some, reads, parts.down))  # factors of the first singular vector
        for _, alike in groupby(zip(some, first, strict=True), key=lambda pair: len(pair[0])):
            units, factors = map(np.stack, zip(*alike, strict=True))  # (groups, k) each
            # (groups, 1, k) @ (groups, k, tokens)
            gates += list((sides[units][:, None] @ listens[units])[:, 0])
            ups += list((factors[:, None] @ reads[units])[:, 0])
    written, kept = None, np.arange(len(groups))
    if parts.views.written is not None and anchor.written is not None:
        written = np.array([parts.views.written[units].sum() for units in groups])
        kept = _carrying(written, anchor.written[[nearest[units[0]] for units in groups]])
        written = written[kept]
    by_gate, by_up = (unit_rows(np.array(rows, np.float32)[kept], name="merged units") for rows in (gates, ups))
    return Views(by_gate, by_up, parts.views.tokens, written, tied(by_gate, by_up))


def _carrying(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which pairs of units carry `CARRIED` of the output that both units of all pairs write; at least two."""
    both = np.minimum(np.abs(first), np.abs(second))
    order = np.argsort(-both, kind="stable")
    n = np.searchsorted(both[order].cumsum(), CARRIED * both.sum()) + 1
    return np.sort(order[: max(int(n), 2)])


class PhiAnchor(PhiMatchUnsigned):
    """phi_ANCHOR over blocks of equal index, aggregated by Fisher's method."""

    name = "phi_anchor"
    # 1 to 3 let some units agree that write nothing; 4 had shares that two units could inflate; 5 refused experts
    # 6 took the p-value of silent blocks for 1
    version = 6
    reads = "activations, down projections"
    roles = ("down",)
    recorded = GateUpAndDown  # type: ignore[assignment]  # it has the model too
    taken_from = GateAndUp

    def _spread(self, sides: Sequence[Views], options: Options) -> Iterator[Reason]:
        """Units that were spread are what this statistic brings together."""
        yield from ()

    def prepare(self, model: Model, options: Options) -> GateUpAndDown:
        """Run the model once over the text."""
        return self.prepare_from(super().prepare(model, options), model)

    def prepare_from(self, features: Features, model: Model) -> GateUpAndDown:
        """Take activations as phi_MATCH has them."""
        values = {entry.name: getattr(features, entry.name) for entry in fields(features)}  # type: ignore[arg-type]
        if isinstance(features, experts.Inputs):
            return OfExperts(**values)  # type: ignore[return-value]  # it has other fields
        return GateUpAndDown(**values, model=model)

    def compare_block(self, a: BlockUnits, b: BlockUnits, block: int | None, options: Options) -> BlockResult:
        """Compare as phi_MATCH does with either model as the anchor; Bonferroni's correction for the two."""
        results = [
            super(PhiAnchor, self).compare_block(along(x, y.views), y.views, block, options)
            for x, y in ((a, b), (b, a))
        ]
        log10_p, reaches = ([getattr(each, name) for each in results] for name in ("log10_p", "reach"))
        first, two = int(np.argmin(log10_p)), math.log10(2)
        reach = min(0.0, min(reaches) + two)
        return replace(
            results[first].about(anchor=first),
            log10_p=min(0.0, log10_p[first] + two),
            reach=reach,
            why=None if reach else results[first].why or FEW,
            matching=None,
        )
