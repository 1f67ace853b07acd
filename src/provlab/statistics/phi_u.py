"""phi_U: do the rows of two up projections match in the order in which they stand? (Section 4.1)

Match the hidden units of block l by the cosine similarity of their up-projection rows, and take Spearman's
correlation of the matching with the identity. Were the models independent, the matching would be a uniformly random
permutation, whatever the data (Section 3.2), so that the null distribution is known without simulation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from provlab.inference import pvalues
from provlab.inference.matching import match_shuffled
from provlab.statistics.base import (
    Array,
    BlockResult,
    Features,
    Model,
    Options,
    Outcome,
    Statistic,
    fisher_over_blocks,
    require_equal,
)

PERMUTATION_ASSUMPTIONS = (
    "at least one of the two models was trained by an algorithm that treats hidden units alike (SGD, Adam, ...) "
    "from an initialisation that does, and nobody permuted its hidden units afterwards"
)


@dataclass(frozen=True)
class UpProjections(Features):
    """Up projections, each read when its block is asked for: ``(h, d)`` float32."""

    model: Model

    def block(self, block: int | None) -> Array:
        """Read the up projection of one block."""
        return self.model.anatomy.read(self.model.checkpoint, "up", block).numpy()


def correlation_with_identity(a: Array, b: Array, block: int | None, seed: int) -> BlockResult:
    """Spearman's correlation of MATCH(a, b) with the identity, two-sided (Equation 2).

    Parameters
    ----------
    a, b : array
        ``(h, m)`` each; row k belongs to hidden unit k.
    block : int or None
        Where the rows come from.
    seed : int
        Of the order in which ties are broken.
    """
    matching = match_shuffled(a, b, seed=seed).indices
    result = pvalues.spearman(matching)
    detail = {"n": result.n, "floor": pvalues.log10_floor(result.n)}
    return BlockResult(block, result.rho, result.log10_p, detail, matching)


class PhiU(Statistic):
    """phi_U over all blocks, aggregated by Fisher's method (Sections 3.2 and 4.1)."""

    name = "phi_u"
    symbol = "φ_U"
    reads = "up projections of the MLPs"
    assumptions = PERMUTATION_ASSUMPTIONS
    version = 2  # 1 let the order of the rows break ties

    def parameters(self, options: Options) -> dict[str, Any]:
        """The order in which ties are broken."""
        return {"seed": options.seed}

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """Every block; both models must have up projections of the same shape."""
        require_equal(self, a, b, "mlp_width", "width")
        return super().blocks(a, b)

    def prepare(self, model: Model, options: Options) -> UpProjections:
        """Arrange to read the up projections."""
        return UpProjections(model)

    def compare_block(self, a: Array, b: Array, block: int | None, options: Options) -> BlockResult:
        """Match the rows of two up projections."""
        return correlation_with_identity(a, b, block, options.seed)

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Fisher over blocks."""
        return fisher_over_blocks(blocks)
