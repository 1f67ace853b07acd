"""phi_MATCH: do gate and up projections agree on which unit is which? (Section 3.3)

Match the hidden units of two GLU MLPs twice, by their gate activations and by their up activations, and correlate the
two matchings. Whoever permutes, rotates or rescales a model must move both alike to keep its outputs, so the statistic
survives where phi_U and phi_H do not. It is no exact p-value: that it behaves like one is an empirical finding.

One thing it does not survive as the paper defines it: an up projection times a *negative* constant (T6) turns every
cosine of the up activations round, and MATCH then looks for the least similar unit. `PhiMatchUnsigned`, an extension,
matches by the size of the cosine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from provlab.errors import NotComparableError
from provlab.inference import pvalues
from provlab.inference.matching import match_shuffled
from provlab.models.activations import mlp_activations
from provlab.statistics.base import (
    Array,
    BlockResult,
    Features,
    Model,
    Need,
    Options,
    Outcome,
    Statistic,
    fisher_over_blocks,
    matching_bytes,
    require_positions,
    unit_rows_bytes,
)
from provlab.statistics.spill import keep
from provlab.statistics.text import encode


@dataclass(frozen=True)
class GateAndUp(Features):
    """Gate and up activations per block, each ``(h, tokens)`` float32, from one pass over the text."""

    gate: list[Array]
    up: list[Array]

    def block(self, block: int | None) -> tuple[Array, Array]:
        """Both activations of one block."""
        assert block is not None
        return self.gate[block], self.up[block]


class PhiMatch(Statistic):
    """phi_MATCH over blocks of equal index, aggregated by Fisher's method (Section 3.3.1)."""

    name = "phi_match"
    symbol = "φ_MATCH"
    reads = "gate and up activations of the MLPs on held-out text"
    version = 2  # 1 let the order of the rows break ties
    assumptions = "an empirical finding, not a theorem: over independent models the statistic behaves like a p-value"
    recorded = GateAndUp
    unsigned: ClassVar[bool] = False

    def parameters(self, options: Options) -> dict[str, Any]:
        """Inputs and arithmetic."""
        names = ("seed", "text_sha256", "n_sequences", "sequence_length", "device", "dtype")
        return {name: getattr(options, name) for name in names}

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """Blocks of equal index; both models must have gated MLPs."""
        self.require_gates(a, b)
        return super().blocks(a, b)

    def require_gates(self, *models: Model) -> None:
        """Raise NotComparableError unless every model has gated MLPs."""
        for model in models:
            if not model.anatomy.has("gate"):
                raise NotComparableError(
                    f"{self.name} needs a gated MLP, which {model.checkpoint.architecture} ({model.name}) has not"
                )

    def prepare(self, model: Model, options: Options) -> GateAndUp:
        """Run the model once over the text."""
        require_positions(self, model, options)
        tokens = encode(model.checkpoint, options)
        kept = mlp_activations(
            model.checkpoint, tokens, kinds=("gate", "up"), device=options.device, dtype=options.torch_dtype
        )
        return GateAndUp(keep(kept["gate"]), keep(kept["up"]))

    def need(self, model: Model, block: int | None, options: Options) -> Need:
        """Gate and up activations of one block."""
        tokens = options.n_sequences * options.sequence_length
        return Need(features=2 * unit_rows_bytes(model.anatomy.mlp_width, tokens))

    def comparing(self, a: Model, b: Model, block: int | None, options: Options) -> int:
        """MATCH, first of gates and then of ups."""
        tokens = options.n_sequences * options.sequence_length
        return matching_bytes(a.anatomy.mlp_width, b.anatomy.mlp_width, tokens)

    def compare_block(
        self, a: tuple[Array, Array], b: tuple[Array, Array], block: int | None, options: Options
    ) -> BlockResult:
        """Correlate the matching of gates with the matching of ups, two-sided."""
        if a[0].shape[1] != b[0].shape[1]:
            raise NotComparableError(
                f"{self.name} needs the same inputs, but the two tokenizers cut the text differently"
            )
        # in two orders, or ties would be broken alike on both sides
        by_gate, by_up = (
            match_shuffled(x, y, seed=2 * options.seed + side, unsigned=self.unsigned).indices
            for side, (x, y) in enumerate(zip(a, b, strict=True))
        )
        result = pvalues.spearman(by_gate, by_up)
        return BlockResult(
            block,
            result.rho,
            result.log10_p,
            {"n": result.n, "floor": pvalues.log10_floor(result.n)},
            np.stack([by_gate, by_up]),
        )

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Fisher over blocks."""
        return fisher_over_blocks(blocks)


class PhiMatchUnsigned(PhiMatch):
    """phi_MATCH by the size of the cosine, whatever its sign: an extension that no sign in T6 evades."""

    name = "phi_match_unsigned"
    symbol = "φ_|MATCH|"
    on_request = True
    unsigned = True
