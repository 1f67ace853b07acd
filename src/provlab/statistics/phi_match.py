"""phi_MATCH: do gate and up projections agree on which unit is which? (Section 3.3)

Match the hidden units of two GLU MLPs twice, by their gate activations and by their up activations, and correlate the
two matchings. Permuting, rotating or rescaling a model must move both alike to keep its outputs, so the statistic
survives where phi_U and phi_H do not. The inputs are a fixed sample of positions of one declared text, the same for all
models, and one pass over it serves all blocks and all pairs (`provlab.running.activations` says why no Gram matrix is
streamed instead).

No theorem makes it a p-value: training may give independent models some units for one purpose, which gate and up then
match alike, and numbering units at random does not undo that. Calibration on independent models finds a few such units:
of 256, four in the mean and twelve at most. So the p-value here leaves out as many as `provlab.inference.pvalues`
allows for (19 of 256), a law settled after a look at these models and before a pair is looked at; the paper's, without
allowance, stands beside it. The units that are left get random labels, so that no order in which a model was stored
counts. Few tokens cost power and not size.

Two models agree on units that only imitate: a model may be given least-squares copies of another's gate and up rows, as
units that write next to nothing (`provlab disguise --with faint`). So agreement counts only where the units that agree
write a share of the MLP's output in both models, `WRITTEN`: they write 40% and more where one model comes from the
other, and 0.2% at most where they were put there at no cost. That bar does not shut out an adversary who lets them
write more (`provlab disguise --with posing`): on one pair of the zoo a share of 7% cost 0.0003 nats and one of 30% cost
0.009, so no bar below what related models write makes it dear. Such a model does hold copies of the other's units; but
its own training owes nothing to them, and the verdict names this cause. And where gate and up of a unit are nearly one,
its two matchings are one: such units never count, and where those that agree are so in the mean there is no p-value.

Evidence that was silenced is no evidence of independence. Units that may not count are idle: they take evidence away
and never make a p-value smaller. A block's reach is what its other units could give; and where it does not come near
that, the first reason that holds of those in `PhiMatch._judged` makes its reach 0. Each is a way in which a copy would
be missed: all units may be tied; units that agree may not count; those that may count write less than half of the
output; or they may have been spread. A model has most of its output from units in groups of like gates, as if each had
been spread over several (models that were trained for a short time are so too). Or one model has so many units that all
which matter of the other may have been spread in it, whatever the gates: units are paired one to one, and a copy has at
least twice as many as it spread. So more than `SPREAD` times as many units are too many, and so are more units that are
twice the fewest which write `KEPT` of the other's output. A copy of oak-chat that left out the rest had lost 0.1 nats,
and one that kept 95% of the output 0.06; the rule was settled after such copies were seen. Where fewer were spread, the
others are there to be found.

One thing it does not survive as the paper defines it: an up projection times a *negative* constant (T6) turns every
cosine of the up activations round, and MATCH then looks for the least similar unit. `PhiMatchUnsigned`, an extension,
matches by the size of the cosine.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab import machine
from provlab.arrays import on
from provlab.errors import NotComparableError
from provlab.files import digest
from provlab.inference import allowing, pvalues
from provlab.inference.matching import match_shuffled, tie_seed
from provlab.reading.canonical import AS_THEY_ARE
from provlab.reading.held import once
from provlab.statistics import experts
from provlab.statistics.base import CALIBRATED, Array, Features, Statistic
from provlab.statistics.flaws import SPREAD
from provlab.statistics.model import Model
from provlab.statistics.options import PASS, Options
from provlab.statistics.phi_u import has_experts
from provlab.statistics.results import FEW, BlockResult, Detail, dropped, of_matching
from provlab.statistics.text import one_pass
from provlab.statistics.two_views import Views, grouped, known, viewed

LIKE_UP = "the gate and up projections of a unit are too much alike to be matched apart"
TOO_FEW = "units whose gate and up projections differ write less than half of the output"
TOO_FAINT = (
    "units agree that write less than 5% of the output, be it that they were put there to look alike or that others "
    "were put beside them"
)
MANY = (
    "the {} has {:,} hidden units that write anything, and {:,} write {:.0%} of the other's output: a copy each of "
    "whose units was spread over two or more has as many; phi_anchor brings them together"
)
IN_GROUPS = (
    "the {} has most of its output from units in groups of like gates, as if each had been spread over several; "
    "phi_anchor brings such groups together"
)
#: whether a reason holds for which a copy may go unseen, and the reason
Reason = tuple[bool, str]


class Matched(NamedTuple):
    """Two matchings of a block's units, before it is settled whether the units that agree count.

    Attributes
    ----------
    by_gate, by_up
        ``(n,)``: partners in the larger side.
    evidence
        ``(n,)``: units that agree and are not tied.
    written
        ``(2,)``: what share of the block's output these write, of either model; NaN where that is unknown.
    countable
        How many units are not tied, of the model that has fewer.
    tied
        ``(2,)``: mean size of the cosine between a unit's gate and up, of either model; NaN where these are no pair.
    sides
        The units.
    """

    by_gate: NDArray[np.int64]
    by_up: NDArray[np.int64]
    evidence: NDArray[np.bool_]
    written: NDArray[np.float64]
    countable: int
    tied: NDArray[np.float64]
    sides: tuple[Views, Views]
    detail: Detail


@dataclass(frozen=True)
class GateAndUp(Features):
    """Gate and up activations of all blocks, from one pass over the text; in temporary files where they are large.

    Attributes
    ----------
    gate, up : list of array
        Per block ``(h, kept tokens)`` float32.
    tokens : array
        ``(n_sequences, sequence_length)``: where in the text each token stands (`provlab.statistics.text.cut`); two
        models are compared on the same inputs only.
    units : list of array
        Per block, the units that there really are, as `provlab.reading.canonical.merged` says; empty: all, as they are.
    written : list of array
        Per block, `provlab.reading.canonical.shares` of these units, ``(h,)``; empty: unknown.
    """

    gate: list[Array]
    up: list[Array]
    tokens: NDArray[np.int64]
    units: list[NDArray[np.float64]] = field(default_factory=list)
    written: list[NDArray[np.float64]] = field(default_factory=list)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], model: Model) -> Features:
        """Rebuild features, those of experts too."""
        return experts.Inputs.of_arrays(arrays, model) if "inputs.0" in arrays else super().of_arrays(arrays, model)

    def block(self, block: int | None) -> Views:
        """Both activations of one block, normalised once for all its pairs."""
        assert block is not None
        units = self.units[block] if self.units else AS_THEY_ARE
        written = self.written[block] if self.written else None
        return viewed(self.gate[block], self.up[block], self.tokens, units, written)


class PhiMatch(Statistic):
    """phi_MATCH over blocks of equal index, aggregated by Fisher's method (Section 3.3.1)."""

    name = "phi_match"
    reads = "gate and up activations on text"
    # 1, 2: ties; 3: two-sided; 4: no allowance; 5: idle; 6: opposite gates; 7: 5%; 8: shares; 9, 10: experts; 11: two
    # units could inflate shares; 12: experts that are all active; 15, 16: power beside a model of many more units;
    # 17: took the p-value of silent blocks for 1
    version = 17
    assumptions = (
        "an empirical finding, not a theorem: of independent models at most about 6% of the units of a block (a wider "
        "margin where it has few) are matched alike by gate and by up for other reasons than chance, as far as no unit "
        "has one direction for both, and the others as chance has it"
    )
    settings: ClassVar[tuple[str, ...]] = ("seed", "text_sha256", *PASS, "sampled_tokens")
    recorded = GateAndUp
    warrant = CALIBRATED
    meets_all = True
    needs_gates = True
    evidence = "units"  # they get random labels
    unsigned: ClassVar[bool] = False
    #: agreeing units count as evidence if they write at least this share of the MLP's output, on both sides
    WRITTEN: ClassVar[float] = 0.05
    #: a unit is tied if the cosine of its own gate and up activations is larger: its two matchings are then nearly one
    TIED: ClassVar[float] = 0.9
    #: nothing counts where the mean size of that cosine is larger, in either model: over the units that agree or, if
    #: these are no more than chance has, over all by what they write; the zoo has up to 0.67
    MOST_TIED: ClassVar[float] = 0.7
    #: units that may count must write this share of the output, or a copy may go unseen
    COMPARED: ClassVar[float] = 0.5
    #: units that agree and may not count are too many for chance below this log10 p
    SILENCED: ClassVar[float] = -3.0
    #: a copy may leave out units that write less than the rest of the output, and spread those that are left
    KEPT: ClassVar[float] = 0.9
    #: units left out of the side that has fewer are named under ``without`` if they are at most so many
    NAMED: ClassVar[int] = 256

    def require(self, a: Model, b: Model) -> None:
        """Both models must have gated MLPs."""
        for model in (a, b):
            if not model.anatomy.gated:
                raise NotComparableError(
                    f"{self.name} needs a gated MLP, which {model.checkpoint.architecture} ({model.name}) has not"
                )

    def prepare(self, model: Model, options: Options) -> GateAndUp:
        """Run the model once over the text."""
        if any(has_experts(model, block) for block in range(model.anatomy.n_blocks)):
            kept, places = one_pass(self, model, options, ("input", "output"))
            return experts.Inputs(model, kept["input"], kept["output"], places)  # type: ignore[return-value]
        kept, places = one_pass(self, model, options, ("gate", "up", "units", "written"))
        return GateAndUp(kept["gate"], kept["up"], places, kept["units"], kept["written"])

    def compare_block(self, a: Any, b: Any, block: int | None, options: Options) -> BlockResult:
        """Correlate the matching of gates with that of ups; `provlab.inference.allowing` says what is allowed.

        Agreement is evidence where the units that agree carry the block's output: all of them, of all its experts, must
        together write `WRITTEN` of it in both models, or none of them counts. Tied units never do. Both rules only take
        agreement away, so that the p-value is never smaller for them. The detail says under ``written`` what share
        these units write in either model, and under ``tied`` the mean size of the cosine between a unit's gate and up,
        by what units write.
        """
        if not (isinstance(a, dict) or isinstance(b, dict)):
            matched = self._matched(a, b, block, options)
            return self._judged(matched, self._carried([matched]), block, options)
        seeds = {names: replace(options, seed=tie_seed(options.seed, *names)) for names in experts.paired(a, b)}
        pairs = {names: self._matched(x, y, block, seeds[names]) for names, (x, y) in experts.paired(a, b).items()}
        together = (experts.WHOLE, experts.WHOLE)
        apart = self._carried([pair for names, pair in pairs.items() if names != together])
        carried = dict.fromkeys(pairs, apart)
        if together in pairs:  # which holds the units of all pairs once more
            carried[together] = self._carried([pairs[together]])
        return experts.best(
            {names: self._judged(pair, carried[names], block, seeds[names]) for names, pair in pairs.items()}
        )

    def _matched(self, a: Any, b: Any, block: int | None, options: Options) -> Matched:
        """Match the units of two MLPs by gate and by up."""
        if not np.array_equal(a[2], b[2]):
            raise NotComparableError(
                f"{self.name} needs the same inputs, but the two tokenizers cut the text differently"
            )
        sides = (Views(*a), Views(*b))
        by_gate, by_up = (
            match_shuffled(x, y, seed=tie_seed(options.seed, self.name, block, side), unsigned=self.unsigned).indices
            for side, (x, y) in enumerate(zip(sides[0][:2], sides[1][:2], strict=True))
        )
        first = 1 - 2 * (len(sides[0].gate) > len(sides[1].gate))  # 1 if the first model has fewer, whose are matched
        fewer, more = sides[::first]
        pairs = list(zip(sides, (np.arange(len(by_gate)), by_gate)[::first], strict=True))  # units of either, in step
        evidence = np.logical_and.reduce([by_gate == by_up, *(side.may_count(self.TIED)[n] for side, n in pairs)])
        agreeing = [(side, n[evidence]) for side, n in pairs]
        unusual = bool(evidence.sum() > allowing.allowance(len(by_gate)))
        tied = np.array([side.mean_tied(n) if unusual else side.mean_tied() for side, n in agreeing])
        written = np.array([side.shares[n].sum() for side, n in agreeing])
        left_out = fewer.gate.left_out
        detail = Detail(
            dropped=dropped(a[0], b[0]),
            without=left_out.tolist() if 0 < len(left_out) <= self.NAMED else None,
            tied=known(tied),
            written=known(written),
        )
        countable = min(int(side.may_count(self.TIED).sum()) for side in sides)
        larger = more.gate.places  # units that are alive there, by number
        return Matched(larger[by_gate], larger[by_up], evidence, written, countable, tied, sides, detail)

    def _carried(self, pairs: Sequence[Matched]) -> bool:
        """Whether units that agree write enough of the block's output in both models, all its MLPs together."""
        return not np.sum([pair.written for pair in pairs], axis=0).min() < self.WRITTEN  # unknown shares may be enough

    def _judged(self, matched: Matched, carried: bool, block: int | None, options: Options) -> BlockResult:
        """Give two matchings their p-value, and say what they could have given; no unit counts unless `carried`."""
        by_gate, by_up, evidence = matched[:3]
        result, agreeing = pvalues.spearman(by_gate, by_up), by_gate == by_up
        common, matching = allowing.allowance(result.n), np.stack([by_gate, by_up])  # (2, h)

        def log10_p(idle: NDArray[np.bool_]) -> float:
            # labels that depend on the matchings: no order of units can be chosen to fit them
            drawn = np.random.default_rng(tie_seed(options.seed, self.name, block, digest(matching.tolist())))
            return allowing.log10_p_allowing(by_gate, by_up, common, rng=drawn, idle=idle)

        def reasons() -> Iterator[Reason]:
            """Why a copy may go unseen, each asked only if none before it holds."""
            yield alike, LIKE_UP
            yield self._few_count(matched.sides), TOO_FEW
            yield not carried and log10_p(agreeing & ~evidence) <= self.SILENCED, TOO_FAINT
            yield from self._spread(matched.sides, options)
            yield could == 0, FEW

        alike = bool(matched.tied.max() > self.MOST_TIED)
        p = log10_p(agreeing & ~(evidence & carried) | alike)
        could = min(0.0, pvalues.log10_floor(max(matched.countable - common, 1)))
        # a copy that is found comes near what a block can reach; a few units that agree by chance do not
        found = p <= could / 2 < 0
        why = None if found else next((why for holds, why in reasons() if holds), None)
        detail = matched.detail | of_matching(result, by_gate, by_up)
        value = result.rho if result.n > 1 else 0.0  # one unit has no order
        return BlockResult(block, value, p, 0.0 if why else could, why, detail, matching)

    def _few_count(self, sides: Sequence[Views]) -> bool:
        """Whether units that are not tied write too little of the output of either model."""
        counted = np.min([side.shares[side.may_count(self.TIED)].sum() for side in sides])
        return bool(counted < self.COMPARED * np.min([1.0, *(side.shares.sum() for side in sides)]))

    def _spread(self, sides: Sequence[Views], options: Options) -> Iterator[Reason]:
        """Say which model may have each unit of the other spread over several.

        It has many more units than write the other's output, or most of its output from units in groups of like gates.
        """
        which = ("first", "second")
        (_, fewer), (name, more) = sorted(zip(which, sides, strict=True), key=lambda named: len(named[1].gate))
        n, count = len(more.gate), fewer.fewest(self.KEPT)
        enough = max(len(fewer.gate), min(SPREAD * len(fewer.gate), 2 * count - 1))
        yield n > enough, MANY.format(name, n, count, self.KEPT)
        in_groups = machine.side_by_side(*(partial(self._in_groups, side, options) for side in sides))
        yield from zip(in_groups, map(IN_GROUPS.format, which), strict=True)

    def _in_groups(self, side: Views, options: Options) -> bool:
        """Whether units whose gates are near each other write most of the output."""
        if side.tied is None:  # these are no gates
            return False
        find = partial(grouped, np.asarray(side.gate.rows), on(options.device))
        near = once(side.gate, "grouped", find)  # both forms ask for it
        return bool(side.shares[near].sum() > self.COMPARED * min(1.0, float(side.shares.sum())))


class PhiMatchUnsigned(PhiMatch):
    """phi_MATCH by the size of the cosine, whatever its sign: an extension that no sign in T6 evades."""

    name = "phi_match_unsigned"
    symbol = r"$\phi_{|MATCH|}$"
    unsigned = True
