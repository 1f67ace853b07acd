"""What pages about two models' likely inputs share: held-out text, the range Z by a rule, and panels of rho(D)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab import zoo
from provlab.kept import Kept
from provlab.modeldiff import pipeline
from provlab.modeldiff.comparison import Comparison
from provlab.modeldiff.pipeline import Model
from provlab.plots.modeldiff import Panel

Range = tuple[float, float]
_BINS = 40  # of a panel


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Text that no zoo model was trained on, and the losses of models on it.

    Attributes
    ----------
    ids
        Kind of text to its token ids, ``(n,)``.
    n_pieces
        Pieces of each kind.
    kept
        Where losses are kept.
    seed
        Of the places where pieces are cut.
    """

    ids: dict[str, NDArray[np.int64]]
    n_pieces: int
    kept: Kept
    seed: int

    @classmethod
    def read(cls, tokenizer: Any, characters: int, n_pieces: int, kept: Kept, *, seed: int) -> "HeldOut":
        """Tokenize the first `characters` of the zoo's held-out prose and code."""
        ids = {
            kind: np.array(tokenizer(zoo.held_out_text(kind)[:characters])["input_ids"]) for kind in ("prose", "code")
        }
        return cls(ids, n_pieces, kept, seed)

    def pieces(self, length: int) -> NDArray[np.int64]:
        """Pieces of `length` tokens, prose and code alike, ``(kinds * n_pieces, length)``."""
        cut = [
            pipeline.pieces(ids, length, self.n_pieces, seed=self.seed + i) for i, ids in enumerate(self.ids.values())
        ]
        return np.concatenate(cut)

    def loss(self, model: Model, length: int) -> float:
        """Mean loss of the pieces (nats per token)."""
        return float(pipeline.judged(model, self.pieces(length), self.kept).mean())

    def loss_apart(self, a: Model, b: Model, length: int) -> list[float]:
        """Mean loss of B less that of A (nats per token) with the ends of its 95% interval, piece against piece."""
        apart = np.subtract(*(pipeline.judged(model, self.pieces(length), self.kept) for model in (b, a)))
        mean, reach = float(apart.mean()), 1.96 * float(apart.std(ddof=1)) / len(apart) ** 0.5
        return [mean, mean - reach, mean + reach]

    def range_of(self, a: Model, b: Model, length: int, shares: Sequence[float], given: Sequence[float]) -> Range:
        """Z as given, or by the rule: two quantiles of the losses of the pieces under both models together."""
        if given:
            return given[0], given[1]
        return pipeline.typical_range(a, b, self.pieces(length), self.kept, shares=(shares[0], shares[1]))


def panel(title: str, compared: Comparison, *, tail: float, seed: int, bins: int = _BINS) -> Panel:
    """Both directions over common bins that hold all but a share `tail` at either end, scaled so that A's sum to 1."""
    ends = np.concatenate([side.quantile([tail, 1 - tail]) for side in (compared.a, compared.b)])
    reach = 1.05 * np.abs(ends).max()
    edges = np.linspace(-reach, reach, bins + 1)
    return Panel(title, edges, *(compared.rho(side, edges, "count", seed=seed) for side in ("A", "B")))
