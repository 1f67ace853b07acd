"""phi_H: do hidden units fire alike, in the order in which they stand? (Section 4.1)

As phi_U, with the hidden activations of each MLP (the input of its down projection) in place of weights. The test is
valid for any input; the paper, and this file, draw tokens uniformly at random from the vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from provlab.inference.matching import UnitRows, tie_seed
from provlab.models.activations import mlp_activations, random_tokens
from provlab.statistics.alive import living_rows
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
    require_equal,
    require_positions,
    unit_rows_bytes,
)
from provlab.statistics.phi_u import PERMUTATION_ASSUMPTIONS, correlation_with_identity


@dataclass(frozen=True)
class HiddenActivations(Features):
    """One ``(h, tokens)`` float32 array per block, from one pass over the inputs; in temporary files where large."""

    arrays: list[Array]

    def block(self, block: int | None) -> UnitRows:
        """Activations of one block, normalised once for all its pairs."""
        assert block is not None
        return living_rows(self.arrays[block], name="the matrix of activations")[0]


class PhiH(Statistic):
    """phi_H over all blocks, aggregated by Fisher's method (Sections 3.2 and 4.1)."""

    name = "phi_h"
    reads = "hidden activations on random tokens"
    assumptions = PERMUTATION_ASSUMPTIONS
    version = 4  # 1 let the order of rows break ties; 2 broke them alike in every block; 3 had the two-sided t tail
    recorded = HiddenActivations

    def parameters(self, options: Options) -> dict[str, Any]:
        """Inputs and arithmetic."""
        names = ("seed", "vocab_size", "n_sequences", "sequence_length", "device", "dtype")
        return {name: getattr(options, name) for name in names} | options.sampled()

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """Every block; both MLPs must be equally wide."""
        require_equal(self, a, b, "mlp_width")
        return super().blocks(a, b)

    def prepare(self, model: Model, options: Options) -> HiddenActivations:
        """Run the model once over random tokens."""
        require_positions(self, model, options)
        vocab_size = options.vocab_size or model.anatomy.vocab_size
        tokens = random_tokens(vocab_size, options.n_sequences, options.sequence_length, seed=options.seed)
        kept = mlp_activations(
            model.checkpoint,
            tokens,
            kinds=("hidden",),
            device=options.device,
            dtype=options.torch_dtype,
            positions=options.kept_positions(),
        )
        return HiddenActivations(kept["hidden"])

    def need(self, model: Model, block: int | None, options: Options) -> Need:
        """Activations of one block."""
        return Need(features=unit_rows_bytes(model.anatomy.mlp_width, options.kept_tokens))

    def comparing(self, a: Model, b: Model, block: int | None, options: Options) -> int:
        """MATCH."""
        return matching_bytes(a.anatomy.mlp_width, b.anatomy.mlp_width, options.kept_tokens)

    def compare_block(self, a: UnitRows, b: UnitRows, block: int | None, options: Options) -> BlockResult:
        """Match the units of two blocks by their activations."""
        return correlation_with_identity(a, b, block, tie_seed(options.seed, self.name, block))

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Fisher over blocks."""
        return fisher_over_blocks(blocks)
