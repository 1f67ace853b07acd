"""phi_MATCH of all blocks by some of their units: does a block of one model stand anywhere in the other? An extension.

Tests that compare blocks of one index see no copy whose blocks were moved: leave out two middle blocks of 32, put an
empty one at either end, and no block stands at its place. All blocks against all by all units are 1,024 matchings of
a pair of 32 blocks. So here `UNITS` units of each block of one model look for their partners among all units of every
block of the other, by gate and by up, over `TOKENS` tokens. The two matchings of a pair of blocks are compared as by
phi_MATCH, by the size of the cosine, with its allowance for units that independent models have in common; the p-value
is the smallest of all pairs of blocks, by Holm over them.

Which units look is drawn by a seed that the digests of both models make, so the maker of neither chooses them, and each
unit as likely as the share of the block's output that it writes. So units that write next to nothing, by which a model
can be made to imitate another, are not drawn there. But they may be what is found: units of a model find their
imitations in a stranger. So what is found is asked back, by units drawn from the block that was found, and the larger
of the two p-values counts. Only p-values below the bar of a finding are asked back, which is valid: the result is at
most t only if the first p-value is.

Experts of a block are one MLP here (`provlab.statistics.experts.Inputs.whole`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError, NoUnitsError
from provlab.inference import allowing, pvalues
from provlab.inference.matching import UnitRows, match_shuffled, tie_seed
from provlab.statistics import experts
from provlab.statistics.base import CALIBRATED, Array, Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import PhiMatch, PhiMatchUnsigned
from provlab.statistics.results import FOUND, BlockResult, Detail, Outcome, of_all_blocks
from provlab.statistics.two_views import Views, viewed


@dataclass(frozen=True)
class EveryBlock(Features):
    """Gate and up activations of all blocks, over few tokens.

    Attributes
    ----------
    gate, up : list of array
        Per block ``(units, tokens)`` float32, of the units that there really are (`provlab.reading.canonical`); no row
        where fewer than two write anything.
    written : list of array
        Per block, what share of its output each unit writes, ``(units,)``.
    tokens : array
        As of `provlab.statistics.phi_match.GateAndUp`.
    digest : array
        SHA-256 of the model, ``(32,)`` uint8.
    """

    gate: list[Array]
    up: list[Array]
    written: list[NDArray[np.float64]]
    tokens: NDArray[np.int64]
    digest: NDArray[np.uint8]

    def block(self, block: int | None) -> "EveryBlock":
        """All blocks, the one place where two models are compared."""
        return self

    @property
    def living(self) -> list[int]:
        """Blocks that have two units or more."""
        return [block for block, rows in enumerate(self.gate) if len(rows)]

    def views(self, block: int) -> Views:
        """Both activations of a block, ready to be matched."""
        return viewed(self.gate[block], self.up[block], self.tokens, written=self.written[block])


class Found(NamedTuple):
    """What some units of one block found in one of the other model.

    Attributes
    ----------
    rho
        Spearman's correlation of the two matchings.
    agree
        Units that found one partner by both.
    n
        Units that looked.
    log10_p, reach
        The p-value, and the smallest that could have come out.
    """

    rho: float
    agree: int
    n: int
    log10_p: float
    reach: float


class PhiMatchAll(Statistic):
    """The smallest p-value of phi_MATCH by some units over all pairs of blocks, by Holm."""

    name = "phi_match_all"
    symbol = r"$\phi_{|MATCH|}$ of all blocks"
    reads = "activations of some units, text"
    assumptions = PhiMatch.assumptions
    settings: ClassVar[tuple[str, ...]] = ("seed", "text_sha256", "n_sequences", "sequence_length", "device", "dtype")
    recorded = EveryBlock
    warrant = CALIBRATED
    evidence = "units"  # they get random labels
    #: units of a block that look for their partners in every block of the other model
    UNITS: ClassVar[int] = 128
    #: tokens over which activations are compared
    TOKENS: ClassVar[int] = 256

    def require(self, a: Model, b: Model) -> None:
        """Both models must have gated MLPs."""
        PhiMatchUnsigned().require(a, b)

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """The whole models, of any depth."""
        self.require_parts(a, b)
        self.require(a, b)
        return [None]

    def prepare(self, model: Model, options: Options) -> EveryBlock:
        """Run the model once over a few tokens of the text."""
        n = min(options.n_sequences, math.ceil(self.TOKENS / options.sequence_length))
        few = replace(options, n_sequences=n, activation_tokens=min(self.TOKENS, options.activation_tokens))
        features = PhiMatchUnsigned().prepare(model, few)
        nothing = np.empty((0, few.kept_tokens), np.float32)
        gate, up, written = [], [], []
        for block in range(model.anatomy.n_blocks):
            try:
                views = features.whole(block).views if isinstance(features, experts.Inputs) else features.block(block)
            except NoUnitsError:
                views = None
            gate.append(nothing if views is None else np.asarray(views.gate.rows, np.float32))
            up.append(nothing if views is None else np.asarray(views.up.rows, np.float32))
            shares = None if views is None else views.written
            written.append(np.ones(len(gate[-1])) if shares is None else shares)
        digest = np.frombuffer(bytes.fromhex(model.checkpoint.digest), np.uint8)
        return EveryBlock(gate, up, written, features.tokens, digest)

    def compare_block(self, a: EveryBlock, b: EveryBlock, block: int | None, options: Options) -> BlockResult:
        """Have some units of each block of `a` look into every block of `b`, and ask back what is found.

        Raises
        ------
        NotComparableError
            The two models read other inputs.
        NoUnitsError
            No block of one of them has two units.
        """
        if not np.array_equal(a.tokens, b.tokens):
            raise NotComparableError(
                f"{self.name} needs the same inputs, but the two tokenizers cut the text differently"
            )
        if not a.living or not b.living:
            raise NoUnitsError("no block has two hidden units that write anything")
        shape = len(a.gate), len(b.gate)
        bar = float(np.log10(FOUND / math.prod(shape)))
        digests = sorted(side.digest.tobytes().hex() for side in (a, b))
        seeds = {i: tie_seed(options.seed, self.name, i, *digests) for i in range(max(shape))}
        lookers = {i: self._drawn(a.views(i), seeds[i]) for i in a.living}
        found: dict[tuple[int, int], Found] = {}
        for j in b.living:
            there = b.views(j)
            for i, own in lookers.items():
                seed = tie_seed(options.seed, self.name, i, j)
                found[i, j] = self._met(own, there, seed)
                if found[i, j].log10_p <= bar:
                    back = self._met(self._drawn(there, seeds[j]), a.views(i), seed)
                    found[i, j] = max(found[i, j], back, key=lambda met: met.log10_p)
        return self._result(found, shape)

    def _drawn(self, views: Views, seed: int) -> Views:
        """Draw some units of a block without putting back, each as likely as the share of the output that it writes."""
        assert views.written is not None
        assert views.tied is not None
        waits = np.random.default_rng(seed).exponential(size=len(views.gate))
        waits /= np.maximum(np.abs(views.written), np.finfo(float).tiny)  # the shortest are drawn
        which = np.sort(np.argsort(waits, kind="stable")[: self.UNITS])
        gate, up = (_some_of(rows, which) for rows in views[:2])
        return views._replace(gate=gate, up=up, written=views.written[which], tied=views.tied[which])

    def _met(self, own: Views, other: Views, seed: int) -> Found:
        """Match some units of a block with all of another, or as many as that has, by gate and by up."""
        assert own.tied is not None
        assert other.tied is not None
        if len(own.gate) > len(other.gate):
            which = np.arange(len(other.gate))
            gate, up = (_some_of(rows, which) for rows in own[:2])
            own = own._replace(gate=gate, up=up, tied=own.tied[which])
        tied = own.tied
        assert tied is not None
        by_gate, by_up = (
            match_shuffled(x, y, seed=tie_seed(seed, side), unsigned=True).indices
            for side, (x, y) in enumerate(zip(own[:2], other[:2], strict=True))
        )
        n = len(by_gate)
        common = allowing.allowance(n)
        free = np.minimum(tied <= PhiMatch.TIED, other.tied[by_up] <= PhiMatch.TIED)
        evidence = (by_gate == by_up) & free
        rng = np.random.default_rng(tie_seed(seed, "labels"))
        log10_p = allowing.log10_p_allowing(by_gate, by_up, common, rng=rng, idle=(by_gate == by_up) & ~free)
        if evidence.any() and max(tied[evidence].mean(), other.tied[by_up[evidence]].mean()) > PhiMatch.MOST_TIED:
            log10_p = 0.0  # where gate and up of a unit are nearly one, so are the two matchings
        countable = min(int((tied <= PhiMatch.TIED).sum()), int((other.tied <= PhiMatch.TIED).sum()))
        reach = pvalues.log10_floor(max(countable - common, 1))
        rho = pvalues.spearman(by_gate, by_up).rho
        return Found(rho, int((by_gate == by_up).sum()), n, log10_p, min(0.0, reach))

    def _result(self, found: dict[tuple[int, int], Found], shape: tuple[int, int]) -> BlockResult:
        """Bring all pairs of blocks to one p-value."""
        log10_p, reach = np.zeros(shape), np.zeros(shape)  # a pair of blocks that was not compared is no evidence
        for pair, met in found.items():
            log10_p[pair], reach[pair] = met.log10_p, met.reach
        many = float(np.log10(log10_p.size))
        holm, everywhere, pairs = of_all_blocks(log10_p, len(found))
        best = min(found, key=lambda pair: (log10_p[pair], -found[pair].rho))
        # half of the blocks of either model could have been found somewhere
        could = max(float(np.median(reach.min(axis=axis))) for axis in (0, 1))
        said = (
            f"{self.name} looked for {found[best].n} units of each of the {shape[0]} blocks of one in all {shape[1]} "
            f"of the other (found: {pairs})."
        )
        detail = Detail(n=found[best].n, agree=found[best].agree, all_blocks=everywhere, said=said)
        p = float(holm[best])
        return BlockResult(None, found[best].rho, p, min(0.0, could + many, p), None, detail)

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """The one result, which stands for the whole models."""
        (result,) = blocks
        return Outcome(result.value, result.log10_p, tuple(blocks), result.reach, result.why, result.detail)


def _some_of(rows: UnitRows, which: NDArray[np.int64]) -> UnitRows:
    """Rows of some units alone, by their ascending numbers among `rows`; each keeps its place (`UnitRows.places`)."""
    everywhere = np.arange(len(rows) + len(rows.left_out))
    left_out = np.setdiff1d(everywhere, rows.places[which])
    return UnitRows(rows.unit[which], rows.rows[which], rows.scales[which], rows.lengths[which], left_out)
