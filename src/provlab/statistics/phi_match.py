"""phi_MATCH: do gate and up projections agree on which unit is which? (Section 3.3)

Match the hidden units of two GLU MLPs twice, by their gate activations and by their up activations, and correlate the
two matchings. Permuting, rotating or rescaling a model must move both alike to keep its outputs, so the statistic
survives where phi_U and phi_H do not. The inputs are a fixed sample of positions of one declared text, the same for all
models, and one pass over it serves all blocks and all pairs (`provlab.models.activations` says why no Gram matrix is
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

Evidence that was silenced is no evidence of independence. Where units agree that may not count, or where those that
may count write less than half of the output, a block that does not reject has no p-value, and says why (``withheld``).
If most of its blocks are so, a pair has none. That takes p-values away and never makes one smaller. Where a model has
most of its output from units in groups of like gates, as if each had been spread over several, the p-value stays, as
models that were trained for a short time are so too; but the block could not have found a copy (``blind``), and its
``power`` is none. The same is said where one model has so many units that all which matter of the other may have been
spread in it, whatever the gates. Units are paired one to one, and a copy has at least twice as many as it spread: so
more than `SPREAD` times as many units are too many, and so are more units that are twice the fewest which write `KEPT`
of the other's output. A copy of oak-chat that left out the rest had lost 0.1 nats, and one that kept 95% of the output
0.06; the rule was settled after such copies were seen. Where fewer were spread, the others are there to be found.

With `Options.units` so many units m of the model that has fewer are matched among all of the other's. They are drawn,
by a seed that the digests of both models make: the maker of either cannot choose which they will be, and units to
hide, to spread or to imitate must be about as many as without it. By trying many digests (4,000 in a second, where a
model is small) a maker moves how many are drawn by four or five standard deviations over all blocks: of a copy with 96
of 256 units, 67 of 256 that are drawn in four blocks in place of 96; of 32 blocks with 1,024 each, under a tenth of
them. A seed that the maker does not know (``--seed``) ends that. Drawn units are to independent models what all are, so
the allowance is that of m. All units of both say how much each writes, which gates stand in groups, and which units are
tied. The share of the output that agreeing units write is estimated: n units, of which m were drawn, write n / m times
what those do. Few loud units would make a poor estimate, so none counts for more than a part of `WRITTEN`, unless it
writes more by itself (`PhiMatch._counted`). So as many must agree as come to `WRITTEN` that way (``least``): half of
64, or 10% of 1,024, and more where few units write most. Less is found by all units: the verdict says which share would
have been found, and a pair has no p-value if all its blocks together reject by units that may not count.

One thing it does not survive as the paper defines it: an up projection times a *negative* constant (T6) turns every
cosine of the up activations round, and MATCH then looks for the least similar unit. `PhiMatchUnsigned`, an extension,
matches by the size of the cosine.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
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
from provlab.models.canonical import AS_THEY_ARE
from provlab.models.held import once
from provlab.statistics import experts
from provlab.statistics.alive import some_of
from provlab.statistics.base import CALIBRATED, PASS, Array, Features, Model, Options, Statistic
from provlab.statistics.flaws import SPREAD
from provlab.statistics.phi_u import has_experts, require_one_mlp
from provlab.statistics.results import BlockResult, Detail, Outcome, dropped, of_matching, withheld
from provlab.statistics.text import one_pass
from provlab.statistics.two_views import Views, grouped, viewed

LIKE_UP = "the gate and up projections of a unit look alike"
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


class Matched(NamedTuple):
    """Two matchings of a block's units, before it is settled whether the units that agree count.

    Attributes
    ----------
    by_gate, by_up
        ``(n,)``: partners in the larger side.
    evidence
        ``(n,)``: units that agree and are not tied.
    written
        What share of the block's output these write, of either model, as far as it counts (`PhiMatch._counted`); empty
        where that is unknown.
    countable
        How many units are not tied, of the model that has fewer.
    least
        How many of drawn units must agree until they are likely to count; None where all are compared.
    silent
        Why a block that does not reject has no p-value, by tied units; empty if they are no reason.
    sides
        The units.
    """

    by_gate: NDArray[np.int64]
    by_up: NDArray[np.int64]
    evidence: NDArray[np.bool_]
    written: list[float]
    countable: int
    least: int | None
    silent: str
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
        Per block, the units that there really are, as `provlab.models.canonical.merged` says; empty: all, as they are.
    written : list of array
        Per block, `provlab.models.canonical.shares` of these units, ``(h,)``; empty: unknown.
    digest : array
        SHA-256 of the model, ``(32,)`` uint8, by which units are drawn where some are compared; empty: all are.
    """

    gate: list[Array]
    up: list[Array]
    tokens: NDArray[np.int64]
    units: list[NDArray[np.float64]] = field(default_factory=list)
    written: list[NDArray[np.float64]] = field(default_factory=list)
    digest: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], model: Model) -> Features:
        """Rebuild features, those of experts too."""
        return experts.Inputs.of_arrays(arrays, model) if "inputs.0" in arrays else super().of_arrays(arrays, model)

    def block(self, block: int | None) -> Views:
        """Both activations of one block, normalised once for all its pairs."""
        assert block is not None
        units = self.units[block] if self.units else AS_THEY_ARE
        written = self.written[block] if self.written else None
        return viewed(self.gate[block], self.up[block], self.tokens, units, written)._replace(digest=self.digest)


class PhiMatch(Statistic):
    """phi_MATCH over blocks of equal index, aggregated by Fisher's method (Section 3.3.1)."""

    name = "phi_match"
    reads = "gate and up activations on text"
    # 1, 2: ties; 3: two-sided; 4: no allowance; 5: idle; 6: opposite gates; 7: 5%; 8: shares; 9, 10: experts; 11: two
    # units could inflate shares; 12: experts that are all active; 15, 16: power beside a model of many more units
    version = 17
    assumptions = (
        "an empirical finding, not a theorem: of independent models at most about 6% of the units of a block (a wider "
        "margin where it has few) are matched alike by gate and by up for other reasons than chance, as far as no unit "
        "has one direction for both, and the others as chance has it"
    )
    settings: ClassVar[tuple[str, ...]] = ("seed", "text_sha256", *PASS, "sampled_tokens", "compared_units")
    recorded = GateAndUp
    warrant = CALIBRATED
    evidence = "units"  # they get random labels
    unsigned: ClassVar[bool] = False
    #: agreeing units count as evidence if they write at least this share of the MLP's output, on both sides
    WRITTEN: ClassVar[float] = 0.05
    #: where some units are compared, one counts for at most this share of the bar, unless it writes more by itself: an
    #: estimate from a hundred units is good to a tenth
    PART_OF_BAR: ClassVar[float] = 0.01
    #: a unit is tied if the cosine of its own gate and up activations is larger: its two matchings are then nearly one
    TIED: ClassVar[float] = 0.9
    #: a block gives no p-value where the mean size of that cosine is larger, in either model: over the units that agree
    #: or, if these are no more than chance has, over all by what they write; the zoo has up to 0.67
    MOST_TIED: ClassVar[float] = 0.7
    #: units that may count must write this share of the output, or a block that does not reject has no p-value
    COMPARED: ClassVar[float] = 0.5
    #: units that agree and may not count are too many for chance below this log10 p
    SILENCED: ClassVar[float] = -3.0
    #: a copy may leave out units that write less than the rest of the output, and spread those that are left
    KEPT: ClassVar[float] = 0.9
    #: so many draws of units say how many must agree until they count
    DRAWS: ClassVar[int] = 99
    #: units left out of the side that has fewer are named under ``without`` if they are at most so many
    NAMED: ClassVar[int] = 256
    #: a block, or a pair, with silenced evidence has a p-value if it is below this log10 p
    REJECTING: ClassVar[float] = -2.0

    def require(self, a: Model, b: Model) -> None:
        """Both models must have gated MLPs."""
        for model in (a, b):
            if not model.anatomy.gated:
                raise NotComparableError(
                    f"{self.name} needs a gated MLP, which {model.checkpoint.architecture} ({model.name}) has not"
                )

    def prepare(self, model: Model, options: Options) -> GateAndUp:
        """Run the model once over the text."""
        require_one_mlp(model, options)
        if any(has_experts(model, block) for block in range(model.anatomy.n_blocks)):
            kept, places = one_pass(self, model, options, ("input", "output"))
            return experts.Inputs(model, kept["input"], kept["output"], places)  # type: ignore[return-value]
        kept, places = one_pass(self, model, options, ("gate", "up", "units", "written"))
        digest = np.frombuffer(bytes.fromhex(model.checkpoint.digest), np.uint8)
        return GateAndUp(kept["gate"], kept["up"], places, kept["units"], kept["written"], digest)

    def compare_block(self, a: Any, b: Any, block: int | None, options: Options) -> BlockResult:
        """Correlate the matching of gates with that of ups; `provlab.inference.allowing` says what is allowed.

        Agreement is evidence where the units that agree carry the block's output: all of them, of all its experts, must
        together write `WRITTEN` of it in both models, or none of them counts. Tied units never do. Both rules only take
        agreement away, so that the p-value is never smaller for them. The detail says under ``written`` what share
        these units write in either model, under ``tied`` the mean size of the cosine between a unit's gate and up, by
        what units write, under ``power`` the smallest log10 p that the units left could have given, under ``blind``
        why a copy may have gone unseen, and under ``withheld`` why there is no p-value.
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
        first = len(sides[0].gate) <= len(sides[1].gate)  # whether the units of the first model are matched
        own = self._drawn(sides, len(sides[not first].gate), block, options)
        views = list(zip(sides[0][:2], sides[1][:2], strict=True))
        if len(own) < len(sides[not first].gate):
            views = [(some_of(x, own), y) if first else (x, some_of(y, own)) for x, y in views]
        by_gate, by_up = (
            match_shuffled(x, y, seed=tie_seed(options.seed, self.name, block, side), unsigned=self.unsigned).indices
            for side, (x, y) in enumerate(views)
        )
        units = (own, by_gate) if first else (by_gate, own)  # of either model, pair by pair
        times = len(sides[not first].gate) / len(own)  # so many units stand for those that were drawn
        detail = Detail(dropped=dropped(a[0], b[0]))
        if times > 1:
            detail = replace(detail, of_units=[len(side.gate) + len(side.gate.left_out) for side in sides])
        fewer = min(sides, key=lambda side: len(side.gate)).gate.left_out
        if 0 < len(fewer) <= self.NAMED:
            detail = replace(detail, without=fewer.tolist())
        evidence = by_gate == by_up
        shares = [side.written for side in sides if side.written is not None]
        silent, countable = "", len(by_gate)
        if len(alike := [side.tied for side in sides if side.tied is not None]) == 2:
            may_count = [cosines <= self.TIED for cosines in alike]
            countable = min(int(may_count[not first][own].sum()), int(may_count[first].sum()))
            weights = [side.written if side.written is not None and side.written.any() else None for side in sides]
            means = [float(np.average(c, weights=w)) for c, w in zip(alike, weights, strict=True)]
            for some, n in zip(may_count, units, strict=True):
                evidence &= some[n]
            if evidence.sum() > allowing.allowance(len(by_gate)):
                means = [float(cosines[n[evidence]].mean()) for cosines, n in zip(alike, units, strict=True)]
            detail = replace(detail, tied=[round(mean, 4) for mean in means])
            if max(means) > self.MOST_TIED:
                silent = LIKE_UP
            elif len(shares) == 2 and min(
                float(s[some].sum()) for s, some in zip(shares, may_count, strict=True)
            ) < self.COMPARED * min(1.0, *(float(s.sum()) for s in shares)):
                silent = TOO_FEW
        agreeing = [s[n[evidence]] for s, n in zip(shares, units, strict=True)] if len(shares) == 2 else []
        written = [self._counted(some, times, len(own)) for some in agreeing]
        if written:
            # of some units an estimate of what all that agree write; not more than all units do
            wholes = [times * float(some.sum()) for some in agreeing]
            wholes = [min(w, float(s.sum())) if times > 1 else w for w, s in zip(wholes, shares, strict=True)]
            detail = replace(detail, written=[round(share, 4) for share in wholes])
        least = None
        if written and times > 1:
            seed = tie_seed(options.seed, "least", block)
            least = max(self._least(share, times, len(own), seed) for share in shares)
        larger = max(sides[::-1], key=lambda side: len(side.gate)).gate.places  # units that are alive there, by number
        return Matched(larger[by_gate], larger[by_up], evidence, written, countable, least, silent, sides, detail)

    def _drawn(self, sides: Sequence[Views], n: int, block: int | None, options: Options) -> NDArray[np.int64]:
        """Numbers of the units that are matched, ascending, of the n of the model that has fewer."""
        if options.units is None or options.units >= n or not all(len(side.digest) for side in sides):
            return np.arange(n)
        digests = (side.digest.tobytes().hex() for side in sides)
        rng = np.random.default_rng(tie_seed(options.seed, "units", block, *digests))
        return np.sort(rng.choice(n, options.units, replace=False))

    def _counted(self, written: NDArray[np.float64], times: float, matched: int) -> float:
        """How much the units write for which these stand, each for `times` units, as far as that can be estimated.

        Each counts for no more than a part of `WRITTEN`, or for what it writes itself: so as many must agree as make a
        good estimate, or they must write the whole of `WRITTEN` themselves.
        """
        return float(self._parts(written, times, matched).sum())

    def _parts(self, written: NDArray[np.float64], times: float, matched: int) -> NDArray[np.float64]:
        most = self.WRITTEN * max(self.PART_OF_BAR, 2 / matched)
        return np.asarray(np.maximum(written, np.minimum(times * written, most)))

    def _least(self, written: NDArray[np.float64], times: float, matched: int, seed: int) -> int:
        """How many units of a model, drawn at random, come to `WRITTEN` nine times in ten; `matched` + 1: fewer."""
        drawn = np.random.default_rng(seed).choice(written, (self.DRAWS, matched))
        reached = self._parts(drawn, times, matched).cumsum(axis=1) >= self.WRITTEN  # (draws, matched)
        return int(np.quantile(matched + 1 - reached.sum(axis=1), 0.9))

    def _carried(self, pairs: Sequence[Matched]) -> bool:
        """Whether units that agree write enough of the block's output in both models, all its MLPs together."""
        known = [pair.written for pair in pairs if pair.written]
        return not known or min(np.sum(known, axis=0)) >= self.WRITTEN

    def _judged(self, matched: Matched, carried: bool, block: int | None, options: Options) -> BlockResult:
        """Give two matchings their p-value; no unit counts as evidence unless `carried`."""
        by_gate, by_up, evidence = matched[:3]
        result, tied = pvalues.spearman(by_gate, by_up), (by_gate == by_up) & ~evidence
        common = allowing.allowance(result.n)

        def log10_p(idle: NDArray[np.bool_]) -> float:
            # labels that depend on the matchings: no order of units can be chosen to fit them
            drawn = np.random.default_rng(tie_seed(options.seed, self.name, block, digest(matching.tolist())))
            return allowing.log10_p_allowing(by_gate, by_up, common, rng=drawn, idle=idle)

        matching = np.stack([by_gate, by_up])  # (2, h)
        idle = tied if carried else by_gate == by_up
        allowed = min(common + int(idle.sum()), result.n - 1)
        detail = matched.detail | of_matching(result, by_gate, by_up, allowed)
        power = min(0.0, pvalues.log10_floor(max(min(matched.countable, result.n) - common, 1)))
        detail = replace(detail, power=power, least=matched.least)
        smallest = 0.0 if matched.silent == LIKE_UP else log10_p(idle)
        silent = matched.silent
        if not carried and not silent:
            silenced = log10_p(tied)
            if matched.least is not None:
                detail = replace(detail, own={"silenced": silenced})
            silent = TOO_FAINT if silenced <= self.SILENCED else ""
        if silent and smallest > self.REJECTING:
            detail = replace(detail, floor=0.0, power=0.0, withheld=silent)
            smallest = 0.0
        # a copy that is found comes near what a block can reach; a few units that agree by chance do not
        elif smallest > power / 2 and (why := self._spread(matched.sides, options)):
            detail = replace(detail, power=0.0, blind=why)  # a valid p-value, and no evidence that nothing is there
        return BlockResult(block, result.rho, smallest, detail, matching)

    def _spread(self, sides: Sequence[Views], options: Options) -> str:
        """Say which model may have each unit of the other spread over several; empty where none may.

        It has many more units than write the other's output, or most of its output from units in groups of like gates.
        """
        units = [len(side.gate) for side in sides]
        more = units.index(max(units))
        if max(units) > min(units):
            count, share = min(units), 1.0
            if (written := sides[1 - more].written) is not None and written.sum() > 0:
                upward = np.sort(written)[::-1].cumsum()
                count, share = int(np.searchsorted(upward, self.KEPT * upward[-1])) + 1, self.KEPT
            if max(units) > SPREAD * min(units) or max(units) >= 2 * count:
                return MANY.format(("first", "second")[more], max(units), count, share)
        in_groups = machine.side_by_side(*(partial(self._in_groups, side, options) for side in sides))
        return next(
            (IN_GROUPS.format(which) for which, so in zip(("first", "second"), in_groups, strict=True) if so), ""
        )

    def _in_groups(self, side: Views, options: Options) -> bool:
        """Whether units whose gates are near each other write most of the output."""
        if side.tied is None or side.written is None:
            return False
        find = partial(grouped, np.asarray(side.gate.rows), on(options.device))
        near = once(side.gate, "grouped", find)  # both forms ask for it
        return bool(side.written[near].sum() > self.COMPARED * min(1.0, float(side.written.sum())))

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Fisher over blocks, where one that gives no p-value counts as no evidence; see `unless_silenced`."""
        return unless_silenced(super().aggregate(blocks))


def unless_silenced(outcome: Outcome) -> Outcome:
    """Take the p-value from an outcome that does not reject if most of its blocks give none, and say why.

    Where units were drawn, it has none either if its blocks together reject by those that agree and may not count.
    """
    silent = [block for block in outcome.blocks if block.detail.withheld]
    rejecting = outcome.log10_p is not None and outcome.log10_p <= PhiMatch.REJECTING
    counted = [block for block in outcome.blocks if block.log10_p is not None]
    by_all = [float(block.detail.own.get("silenced", block.log10_p)) for block in counted]
    if by_all and not rejecting and 2 * len(silent) <= len(outcome.blocks):
        faint = sum("silenced" in block.detail.own for block in counted)
        if faint and pvalues.fisher(np.minimum(by_all, 0)) <= PhiMatch.SILENCED:
            return withheld(outcome, f"{TOO_FAINT}: so in {faint} of {len(outcome.blocks)} blocks together")
    if 2 * len(silent) <= len(outcome.blocks) or (rejecting and len(silent) < len(outcome.blocks)):
        return outcome
    reasons = Counter(block.detail.withheld for block in silent)
    why = str(reasons.most_common(1)[0][0])
    if why == LIKE_UP:
        least = min(max(block.detail.needed("tied")) for block in silent if block.detail.withheld == why)
        why = (
            "the gate and up projections of each unit of one model are too much alike to be matched apart, with a mean "
            f"|cosine| of {least:.2f} or more"
        )
    return withheld(outcome, f"{why}: so in {len(silent)} of {len(outcome.blocks)} blocks")


class PhiMatchUnsigned(PhiMatch):
    """phi_MATCH by the size of the cosine, whatever its sign: an extension that no sign in T6 evades."""

    name = "phi_match_unsigned"
    unsigned = True
