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
other, and 0.2% at most where they were put there at no cost. An adversary who lets them write more than that pays with
the model's quality. And where gate and up of a unit are nearly one, its two matchings are one: such units never count,
and a model whose units are so in the mean gets no p-value.

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
from provlab.inference import pvalues
from provlab.inference.matching import UnitRows, match_shuffled, tie_seed
from provlab.models.canonical import applied
from provlab.models.room import keep
from provlab.statistics import experts
from provlab.statistics.alive import living_rows
from provlab.statistics.base import (
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


class Views(NamedTuple):
    """A block's units, twice.

    Attributes
    ----------
    gate, up
        Activations, or other rows by which units are matched.
    tokens
        At which both were seen.
    written
        ``(units,)``: what share of the MLP's output each writes; None where that is unknown, and asked of none.
    tied
        ``(units,)``: the size of the cosine between each unit's own gate and up; None where these are no such pair.
    """

    gate: UnitRows
    up: UnitRows
    tokens: NDArray[np.int64]
    written: NDArray[np.float64] | None = None
    tied: NDArray[np.float64] | None = None


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
        activations = {"gate": self.gate[block], "up": self.up[block]}
        views = (applied(self.units[block], rows, role) if self.units else rows for role, rows in activations.items())
        gate, up = living_rows(*views, name="the activations of one side")
        written = self.written[block][gate.places] if self.written else None
        return Views(gate, up, self.tokens, written, tied(gate, up))


def tied(gate: UnitRows, up: UnitRows) -> NDArray[np.float64]:
    """Size of the cosine between each unit's gate and up, ``(h,)``."""
    return np.asarray(np.abs(np.einsum("ij,ij->i", gate.unit, up.unit)), np.float64)


def keep_views(views: Any, limit: int) -> Any:
    """Return a block's normalised activations, in temporary files if each half of them passes half of `limit` bytes."""
    if isinstance(views, dict):
        return {name: keep_views(some, limit // len(views)) for name, some in views.items()}
    gate, up = (replace(view, held=keep(view.unit, limit // 2)) for view in views[:2])
    return Views(gate, up, *views[2:])


class PhiMatch(Statistic):
    """phi_MATCH over blocks of equal index, aggregated by Fisher's method (Section 3.3.1)."""

    name = "phi_match"
    reads = "gate and up activations on text"
    version = (
        9  # 1, 2 ties; 3 two-sided tail; 4 no allowance; 5 idle units; 6 opposite gates; 7 fixed allowance; 8 shares
    )
    assumptions = (
        "an empirical finding, not a theorem: of independent models at most about 6% of the units of a block (a wider "
        "margin where it has few) are matched alike by gate and by up for other reasons than chance, as far as no unit "
        "has one direction for both, and the others as chance has it"
    )
    recorded = GateAndUp
    unsigned: ClassVar[bool] = False
    #: agreeing units count as evidence if they write at least this share of the MLP's output, on both sides
    WRITTEN: ClassVar[float] = 0.05
    #: a unit is tied if the cosine of its own gate and up activations is larger: its two matchings are then nearly one
    TIED: ClassVar[float] = 0.9
    #: a block gives no p-value where the mean size of that cosine is larger, in either model; the zoo has up to 0.67
    MOST_TIED: ClassVar[float] = 0.7

    def parameters(self, options: Options) -> dict[str, Any]:
        """Inputs and arithmetic."""
        names = ("seed", "text_sha256", "n_sequences", "sequence_length", "device", "dtype")
        return {name: getattr(options, name) for name in names} | options.sampled()

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
            kept, places = one_pass(self, model, options, ("input",))
            return experts.Inputs(model, kept["input"], places)  # type: ignore[return-value]  # its blocks are alike
        kept, places = one_pass(self, model, options, ("gate", "up", "units", "written"))
        return GateAndUp(kept["gate"], kept["up"], places, kept["units"], kept["written"])

    def compare_block(self, a: Any, b: Any, block: int | None, options: Options) -> BlockResult:
        """Correlate the matching of gates with that of ups; `provlab.inference.pvalues.allowance` says what is allowed.

        Agreement is evidence where the units that agree carry the block's output: together they must write `WRITTEN` of
        it in both models, or none of them counts. Tied units never do. Both rules only take agreement away, so that the
        p-value is never smaller for them. The detail says under ``written`` what share these units write in either
        model, under ``tied`` the mean size of the cosine between a unit's gate and up, and under ``withheld`` why there
        is no p-value.
        """
        if isinstance(a, dict) or isinstance(b, dict):
            return experts.best(
                a,
                b,
                lambda x, y, *names: self.compare_block(
                    x, y, block, replace(options, seed=tie_seed(options.seed, *names))
                ),
            )
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
        detail: dict[str, Any] = {}
        agree = evidence = by_gate == by_up
        if len(alike := [side.tied for side in sides if side.tied is not None]) == 2:
            detail["tied"] = [round(float(cosines.mean()), 4) for cosines in alike]
            apart = [cosines[n] <= self.TIED for cosines, n in zip(alike, units, strict=True)]
            evidence = agree & apart[0] & apart[1]
        if len(written := [side.written for side in sides if side.written is not None]) == 2:
            shares = [float(share[n[evidence]].sum()) for share, n in zip(written, units, strict=True)]
            detail["written"] = [round(share, 4) for share in shares]
            evidence = evidence & (min(shares) >= self.WRITTEN)
        larger = max(sides[::-1], key=lambda side: len(side.gate)).gate.places  # units that are alive there, by number
        by_gate, by_up = larger[by_gate], larger[by_up]
        result, idle = pvalues.spearman(by_gate, by_up), agree & ~evidence
        common = pvalues.allowance(result.n)
        detail |= of_matching(result, by_gate, by_up, min(common + int(idle.sum()), result.n - 1))
        detail |= left_out(a[0], b[0])
        matching = np.stack([by_gate, by_up])
        if max(detail.get("tied", (0.0,))) > self.MOST_TIED:
            detail |= {"floor": 0.0, "withheld": "the gate and up projections of a unit look alike"}
            return BlockResult(block, result.rho, 0.0, detail, matching)
        # labels that depend on the matchings: no order of units can be chosen to fit them
        drawn = np.random.default_rng(tie_seed(options.seed, self.name, block, digest(matching.tolist())))
        log10_p = pvalues.log10_p_allowing(by_gate, by_up, common, rng=drawn, idle=idle)
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
