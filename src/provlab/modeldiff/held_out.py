"""Text that neither model of a comparison was trained on: their losses on it, and the range Z by a rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provlab.kept import Kept
from provlab.modeldiff import pipeline
from provlab.modeldiff.pipeline import Model

Range = tuple[float, float]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Pieces of held-out text, and the losses of models on them.

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
    def of(cls, texts: Mapping[str, str], model: Model, n_pieces: int, kept: Kept, *, seed: int) -> "HeldOut":
        """Tokenize texts, by their kinds, with the tokenizer of one of the models of a comparison."""
        return cls({kind: model.encode(text) for kind, text in texts.items()}, n_pieces, kept, seed)

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
