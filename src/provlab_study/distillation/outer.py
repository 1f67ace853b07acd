"""phi_VIEWS from outside: do both ends of a hidden unit agree, as text and logits see them?

`provlab.further.phi_views` compares rows and columns over the residual stream, so a rotation of the stream hides a
model from it. `PhiViewsOuter` looks at a row through its pre-activations on text, and at a column through what it adds
to the model's logits, which no change of basis touches. But models that learned one language alike agree there a
little, even if trained independently: it gives a score and no p-value.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
from provlab.further.phi_views import centred, through_norm, writes
from provlab.reading.canonical import applied
from provlab.statistics import register
from provlab.statistics.alive import living_rows
from provlab.statistics.base import Array, Features, Statistic
from provlab.statistics.model import Model
from provlab.statistics.options import Options
from provlab.statistics.phi_match import PhiMatch
from provlab.statistics.results import BlockResult
from provlab.statistics.text import one_pass
from provlab.statistics.two_views import Views

_MATCH = PhiMatch()


@dataclass(frozen=True)
class EndsFromOutside(Features):
    """Both ends as text and logits see them; the pre-activations of all blocks are from one pass over the text.

    Attributes
    ----------
    model : Model
        Whose columns are read when a block is asked for.
    activations : list of array
        Per block ``(h, kept tokens)`` float32: what enters the activation function.
    tokens : array
        ``(n_sequences, sequence_length)``.
    units : list of array
        Per block, the units that there really are, as `provlab.reading.canonical.merged` says.
    """

    model: Model
    activations: list[Array]
    tokens: NDArray[np.int64]
    units: list[NDArray[np.float64]]

    def block(self, block: int | None) -> Views:
        """Pre-activations, and what each unit adds to the logits, ``(h, vocabulary)``, of one block."""
        assert block is not None
        role = "head" if self.model.anatomy.has("head") else "embedding"
        head = centred(self.model, through_norm(self.model, role, None)).astype(np.float32)
        name = f"an MLP of {self.model.name}"
        units = self.units[block]
        written = applied(units, writes(self.model, block), "down").astype(np.float32) @ head.T
        inner, outer = living_rows(applied(units, self.activations[block], "up"), written, name=name)
        return Views(inner, outer, self.tokens)


@register
class PhiViewsOuter(Statistic):
    """phi_VIEWS by text and logits: the mean correlation over blocks, a score without a p-value."""

    name, symbol = "phi_views_outer", r"outer $\phi_{VIEWS}$"
    version = 7  # 1 ties; 2 two-sided t tail; 3 no allowance; 4 idle units; 5 opposite gates; 6 allowed a fixed share
    reads = "pre-activations of the MLPs on held-out text, down projections, and the head"
    settings = PhiMatch.settings
    recorded = EndsFromOutside

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """Blocks of equal index, with or without gates, of any width."""
        for model in (a, b):
            if not (model.anatomy.has("head") or model.anatomy.has("embedding")):
                raise NotComparableError(f"{self.name} needs a head, which {model.name} has not")
        if a.anatomy.vocab_size != b.anatomy.vocab_size:
            raise NotComparableError(f"{self.name} needs one vocabulary, but {a.name} and {b.name} have two")
        return super().blocks(a, b)

    def prepare(self, model: Model, options: Options) -> Features:
        """Run the model once over the text."""
        kept, tokens = one_pass(self, model, options, ("up", "units"))
        return EndsFromOutside(model, kept["up"], tokens, kept["units"])

    def tensors(self, model: Model, partner: Model, block: int | None, options: Options) -> dict[str, int | None]:
        """The down projection, and the head."""
        anatomy = model.anatomy
        head = anatomy.tensor_name("head" if anatomy.has("head") else "embedding")
        return dict.fromkeys([anatomy.tensor_name("down", block), head])

    def compare_block(self, a: Views, b: Views, block: int | None, options: Options) -> BlockResult:
        """Correlate the two matchings; what would be log10 p if the score were one stands in the detail."""
        result = _MATCH.compare_block(a, b, block, options)
        detail = replace(result.detail, own={"nominal": result.log10_p})
        return BlockResult(block, result.value, detail=detail, matching=result.matching)
