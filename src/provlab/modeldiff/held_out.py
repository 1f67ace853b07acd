"""Text that neither model of a comparison was trained on: their losses on it, and the range Z by a rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from provlab.kept import Kept
from provlab.modeldiff import pipeline
from provlab.modeldiff.pipeline import Model

Range = tuple[float, float]
N_PIECES = 500  # of each kind of text, where nothing else is asked for


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Pieces of held-out text, and the losses of models on them.

    Models that are compared are given the same tokens, those of the first one's tokenizer; pairs of different
    tokenizers have pieces of their own.

    Attributes
    ----------
    texts
        Kind of text to the text.
    n_pieces
        Pieces of each kind.
    kept
        Where losses are kept.
    seed
        Of the places where pieces are cut.
    """

    texts: Mapping[str, str]
    n_pieces: int
    kept: Kept
    seed: int
    _encoded: dict[str, dict[str, NDArray[np.int64]]] = field(default_factory=dict, init=False, repr=False)

    def pieces_by_kind(self, model: Model, length: int) -> dict[str, NDArray[np.int64]]:
        """Pieces of `length` tokens of each kind, ``(n_pieces, length)``, by a model's tokenizer."""
        if model.source not in self._encoded:
            self._encoded[model.source] = {kind: model.encode(text) for kind, text in self.texts.items()}
        return {
            kind: pipeline.pieces(ids, length, self.n_pieces, seed=self.seed + i)
            for i, (kind, ids) in enumerate(self._encoded[model.source].items())
        }

    def pieces(self, model: Model, length: int) -> NDArray[np.int64]:
        """Pieces of all kinds alike, ``(kinds * n_pieces, length)``, by a model's tokenizer."""
        return np.concatenate(list(self.pieces_by_kind(model, length).values()))

    def losses(self, models: Sequence[Model], length: int) -> list[float]:
        """Mean loss of the pieces (nats per token) under each of some models that are compared."""
        pieces = self.pieces(models[0], length)
        return [float(pipeline.judged(model, pieces, self.kept).mean()) for model in models]

    def loss_apart(self, a: Model, b: Model, length: int) -> list[float]:
        """Mean loss of B less that of A (nats per token) with the ends of its 95% interval, piece against piece."""
        pieces = self.pieces(a, length)
        apart = np.subtract(*(pipeline.judged(model, pieces, self.kept) for model in (b, a)))
        mean, reach = float(apart.mean()), 1.96 * float(apart.std(ddof=1)) / len(apart) ** 0.5
        return [mean, mean - reach, mean + reach]

    def range_of(self, a: Model, b: Model, length: int, shares: Sequence[float], given: Sequence[float]) -> Range:
        """Z as given, or by the rule: two quantiles of the losses of the pieces under both models together."""
        if given:
            return given[0], given[1]
        return pipeline.typical_range(a, b, self.pieces(a, length), self.kept, shares=(shares[0], shares[1]))
