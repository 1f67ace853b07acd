"""phi_MATCH: do gate and up projections agree on which unit is which? (Section 3.3)

Match the hidden units of two GLU MLPs twice, by their gate activations and by their up activations, and correlate the
two matchings. Permuting, rotating or rescaling a model must move both alike to keep its outputs, so the statistic
survives where phi_U and phi_H do not. The inputs are a fixed sample of positions of one declared text, the same for all
models, and one pass over it serves all blocks and all pairs (`provlab.models.activations` says why no Gram matrix is
streamed instead).

No theorem makes it a p-value: training may give independent models some units for one purpose, which gate and up then
match alike, and numbering units at random does not undo that. Calibration on independent models finds a few such units
(of 256, seven at most in runs of one recipe with other seeds). So the p-value here allows for `COMMON` of the units
(`provlab.inference.pvalues.log10_p_allowing`), declared before a pair is looked at; the paper's, without allowance,
stands beside it. Few tokens cost power and not size: 300 pairs of trained models of 48 units, at 8, 32, 256 and 1,024
tokens, are rejected at 0.05 in 2 to 3% of cases and at 0.01 in at most 0.7%.

One thing it does not survive as the paper defines it: an up projection times a *negative* constant (T6) turns every
cosine of the up activations round, and MATCH then looks for the least similar unit. `PhiMatchUnsigned`, an extension,
matches by the size of the cosine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
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
    Statistic,
    left_out,
    of_matching,
)
from provlab.statistics.phi_u import has_experts
from provlab.statistics.text import one_pass

Views = tuple[UnitRows, UnitRows, NDArray[np.int64]]  # gate, up, and the tokens at which both were seen


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
    """

    gate: list[Array]
    up: list[Array]
    tokens: NDArray[np.int64]
    units: list[NDArray[np.float64]] = field(default_factory=list)

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
        return gate, up, self.tokens


def keep_views(views: Any, limit: int) -> Any:
    """Return a block's normalised activations, in temporary files if each half of them passes half of `limit` bytes."""
    if isinstance(views, dict):
        return {name: keep_views(some, limit // len(views)) for name, some in views.items()}
    gate, up = (replace(view, held=keep(view.unit, limit // 2)) for view in views[:2])
    return gate, up, views[2]


class PhiMatch(Statistic):
    """phi_MATCH over blocks of equal index, aggregated by Fisher's method (Section 3.3.1)."""

    name = "phi_match"
    reads = "gate and up activations on text"
    version = 7  # 1, 2 broke ties alike; 3 two-sided t tail; 4 no allowance; 5 units that do nothing; 6 opposite gates
    assumptions = (
        "an empirical finding, not a theorem: of independent models at most 5% of the units of a block are matched "
        "alike by gate and by up for other reasons than chance, and the others as chance has it"
    )
    recorded = GateAndUp
    unsigned: ClassVar[bool] = False
    #: share of the units that independent models may have in common. Runs of one recipe agreed on 7 of 256 (2.7%) at
    #: most; a copy, hundreds of whose units agree, is at the floor of the other 95%
    COMMON: ClassVar[float] = 0.05

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
        kept, places = one_pass(self, model, options, ("gate", "up", "units"))
        return GateAndUp(kept["gate"], kept["up"], places, kept["units"])

    def compare_block(self, a: Any, b: Any, block: int | None, options: Options) -> BlockResult:
        """Correlate the matching of gates with the matching of ups; its p-value allows for `COMMON` of the units."""
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
        larger = max(b, a, key=lambda views: len(views[0]))[0].places  # units that are alive there, by number
        by_gate, by_up = (
            larger[
                match_shuffled(
                    x, y, seed=tie_seed(options.seed, self.name, block, side), unsigned=self.unsigned
                ).indices
            ]
            for side, (x, y) in enumerate(zip(a[:2], b[:2], strict=True))
        )
        result = pvalues.spearman(by_gate, by_up)
        common = int(self.COMMON * result.n)
        drawn = np.random.default_rng(tie_seed(options.seed, self.name, block, "common"))
        return BlockResult(
            block,
            result.rho,
            pvalues.log10_p_allowing(by_gate, by_up, common, rng=drawn),
            of_matching(result, by_gate, by_up, common) | left_out(a[0], b[0]),
            np.stack([by_gate, by_up]),
        )


class PhiMatchUnsigned(PhiMatch):
    """phi_MATCH by the size of the cosine, whatever its sign: an extension that no sign in T6 evades."""

    name = "phi_match_unsigned"
    unsigned = True
