"""Median of largest activation cosines: a score that withstands T1 to T6 and is no p-value (Appendix E).

Let G be a gate projection with the weights of the norm before it multiplied in, and K = G G^T the inner products of its
rows: the hidden units as they stand to each other, whatever basis the residual stream is written in. Feed both models
random combinations of their own rows, x = v G with one Gaussian v for both, and the units answer v K. Match the units
by their gate activations on text, so that v means the same in both; take for each unit the largest cosine of its
answers with those of any unit of the other model, and the median over units.

The paper's figure has dependent pairs near 0.2 and independent ones above 0.4, so what it shows falls with likeness;
the value here is one minus the median. No theory says how independent pairs are spread: a threshold must be found for
each kind of model.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.further.phi_views import through_norm
from provlab.inference.matching import cosine_similarity, match_shuffled, tie_seed
from provlab.reading.canonical import applied
from provlab.statistics import register
from provlab.statistics.alive import alive
from provlab.statistics.base import Array, Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import PhiMatch
from provlab.statistics.results import BlockResult
from provlab.statistics.text import one_pass

N_INPUTS = 2048  # random inputs


@dataclass(frozen=True)
class Gates(Features):
    """Gate activations on text, from one pass; gate projections, read when a block is asked for."""

    model: Model
    activations: list[Array]
    units: list[NDArray[np.float64]]  # as `provlab.reading.canonical.merged` says

    def block(self, block: int | None) -> tuple[Array, Array]:
        """Activations ``(h, tokens)`` and rows ``(h, width)`` of one block, float32."""
        assert block is not None
        both = self.activations[block], through_norm(self.model, "gate", block)
        activations, rows = (applied(self.units[block], values, "gate") for values in both)
        kept = alive(activations, rows, name=f"an MLP of {self.model.name}")
        rows = rows.astype(np.float32)
        return (activations, rows) if kept.all() else (activations[kept], rows[kept])


@register
class MedianMax(Statistic):
    """One minus the median, over units, of the largest cosine; mean over blocks."""

    name, symbol = "median_max", "median-max"
    reads = "gate projections, and gate activations on held-out text"
    version = 3  # 1 broke ties alike in every block; 2 had units that do nothing
    recorded = Gates
    roles = ("gate",)  # after the pass
    require = PhiMatch.require

    def parameters(self, options: Options) -> dict[str, Any]:
        """Inputs and arithmetic."""
        return {**PhiMatch().parameters(options), "n_inputs": N_INPUTS}

    def prepare(self, model: Model, options: Options) -> Gates:
        """Run the model once over the text."""
        kept, _ = one_pass(self, model, options, ("gate", "units"))
        return Gates(model, kept["gate"], kept["units"])

    def compare_block(
        self, a: tuple[Array, Array], b: tuple[Array, Array], block: int | None, options: Options
    ) -> BlockResult:
        """Answers of both to the same random inputs, unit by unit."""
        partner = match_shuffled(a[0], b[0], seed=tie_seed(options.seed, self.name, block)).indices
        smaller, larger = (a, b) if len(a[0]) <= len(b[0]) else (b, a)
        inputs = np.random.default_rng([options.seed, 1]).standard_normal((N_INPUTS, len(partner))).astype(np.float32)
        # (inputs, h) @ (h, d) @ (d, h): K itself is wider than the rows that it is made of
        answers = [(inputs @ rows) @ rows.T for rows in (smaller[1], larger[1][partner])]
        largest = cosine_similarity(answers[0].T, answers[1].T).max(axis=1)
        return BlockResult(block, float(1 - np.median(largest)))
