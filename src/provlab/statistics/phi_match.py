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
its two matchings are one: such units never count, and a model whose units are so in the mean gets no p-value.

One thing it does not survive as the paper defines it: an up projection times a *negative* constant (T6) turns every
cosine of the up activations round, and MATCH then looks for the least similar unit. `PhiMatchUnsigned`, an extension,
matches by the size of the cosine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
from provlab.files import digest
from provlab.inference import allowing, pvalues
from provlab.inference.matching import match_shuffled, tie_seed
from provlab.statistics import experts
from provlab.statistics.base import (
    PASS,
    Array,
    BlockResult,
    Features,
    Model,
    Options,
    Outcome,
    Statistic,
    left_out,
    of_matching,
    withheld,
)
from provlab.statistics.phi_u import has_experts
from provlab.statistics.text import one_pass
from provlab.statistics.two_views import AS_THEY_ARE, Views, viewed


class Matched(NamedTuple):
    """Two matchings of a block's units, before it is settled whether the units that agree count.

    Attributes
    ----------
    by_gate, by_up
        ``(n,)``: partners in the larger side.
    evidence
        ``(n,)``: units that agree and are not tied.
    written
        What share of the block's output these write, of either model; empty where that is unknown.
    """

    by_gate: NDArray[np.int64]
    by_up: NDArray[np.int64]
    evidence: NDArray[np.bool_]
    written: list[float]
    detail: dict[str, Any]


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
    # 1, 2: ties; 3: two-sided; 4: no allowance; 5: idle; 6: opposite gates; 7: 5%; 8: shares; 9, 10: experts
    version = 11
    assumptions = (
        "an empirical finding, not a theorem: of independent models at most about 6% of the units of a block (a wider "
        "margin where it has few) are matched alike by gate and by up for other reasons than chance, as far as no unit "
        "has one direction for both, and the others as chance has it"
    )
    settings = ("seed", "text_sha256", *PASS, "sampled_tokens")
    recorded = GateAndUp
    unsigned: ClassVar[bool] = False
    #: agreeing units count as evidence if they write at least this share of the MLP's output, on both sides
    WRITTEN: ClassVar[float] = 0.05
    #: a unit is tied if the cosine of its own gate and up activations is larger: its two matchings are then nearly one
    TIED: ClassVar[float] = 0.9
    #: a block gives no p-value where the mean size of that cosine is larger, in either model; the zoo has up to 0.67
    MOST_TIED: ClassVar[float] = 0.7

    def require(self, a: Model, b: Model) -> None:
        """Both models must have gated MLPs."""
        for model in (a, b):
            if not any(role.partition(".")[0] == "gate" for role in model.anatomy.roles):
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
        these units write in either model, under ``tied`` the mean size of the cosine between a unit's gate and up, and
        under ``withheld`` why there is no p-value.
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
        by_gate, by_up = (
            match_shuffled(x, y, seed=tie_seed(options.seed, self.name, block, side), unsigned=self.unsigned).indices
            for side, (x, y) in enumerate(zip(a[:2], b[:2], strict=True))
        )
        sides, own = (Views(*a), Views(*b)), np.arange(len(by_gate))
        units = (own, by_gate) if len(a[0]) <= len(b[0]) else (by_gate, own)  # of either model, pair by pair
        detail: dict[str, Any] = left_out(a[0], b[0])
        evidence = by_gate == by_up
        if len(alike := [side.tied for side in sides if side.tied is not None]) == 2:
            detail["tied"] = [round(float(cosines.mean()), 4) for cosines in alike]
            for cosines, n in zip(alike, units, strict=True):
                evidence &= cosines[n] <= self.TIED
        shares = [side.written for side in sides if side.written is not None]
        written = [float(s[n[evidence]].sum()) for s, n in zip(shares, units, strict=True)] if len(shares) == 2 else []
        if written:
            detail["written"] = [round(share, 4) for share in written]
        larger = max(sides[::-1], key=lambda side: len(side.gate)).gate.places  # units that are alive there, by number
        return Matched(larger[by_gate], larger[by_up], evidence, written, detail)

    def _carried(self, pairs: Sequence[Matched]) -> bool:
        """Whether units that agree write enough of the block's output in both models, all its MLPs together."""
        known = [pair.written for pair in pairs if pair.written]
        return not known or min(np.sum(known, axis=0)) >= self.WRITTEN

    def _judged(self, matched: Matched, carried: bool, block: int | None, options: Options) -> BlockResult:
        """Give two matchings their p-value; no unit counts as evidence unless `carried`."""
        by_gate, by_up, evidence = matched[:3]
        result, idle = pvalues.spearman(by_gate, by_up), (by_gate == by_up) & ~(evidence & carried)
        common = allowing.allowance(result.n)
        allowed = min(common + int(idle.sum()), result.n - 1)
        detail = matched.detail | of_matching(result, by_gate, by_up, allowed)
        matching = np.stack([by_gate, by_up])
        if max(detail.get("tied", (0.0,))) > self.MOST_TIED:
            detail |= {"floor": 0.0, "withheld": "the gate and up projections of a unit look alike"}
            return BlockResult(block, result.rho, 0.0, detail, matching)
        # labels that depend on the matchings: no order of units can be chosen to fit them
        drawn = np.random.default_rng(tie_seed(options.seed, self.name, block, digest(matching.tolist())))
        log10_p = allowing.log10_p_allowing(by_gate, by_up, common, rng=drawn, idle=idle)
        return BlockResult(block, result.rho, log10_p, detail, matching)

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Fisher over blocks, where one that gives no p-value counts as no evidence; none if none of them does."""
        outcome = super().aggregate(blocks)
        tied = [max(block.detail["tied"]) for block in blocks if "withheld" in block.detail]
        if len(tied) < len(blocks):
            return outcome
        why = "the gate and up projections of each unit of one model are too much alike to be matched apart"
        return withheld(outcome, f"{why}: their mean |cosine| is {min(tied):.2f} or more in every block")


class PhiMatchUnsigned(PhiMatch):
    """phi_MATCH by the size of the cosine, whatever its sign: an extension that no sign in T6 evades."""

    name = "phi_match_unsigned"
    unsigned = True
