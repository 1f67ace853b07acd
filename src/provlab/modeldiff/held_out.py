"""Text that neither model of a comparison was trained on: their losses on it, and the range Z by a rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError
from provlab.kept import ArrayCache
from provlab.modeldiff.pipeline import SequenceModel, judged

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
        Decides the places where pieces are cut.
    """

    texts: Mapping[str, str]
    n_pieces: int
    kept: ArrayCache
    seed: int
    _encoded: dict[str, dict[str, NDArray[np.int64]]] = field(default_factory=dict, init=False, repr=False)

    def pieces_by_kind(self, model: SequenceModel, length: int) -> dict[str, NDArray[np.int64]]:
        """Pieces of `length` tokens of each kind, ``(n_pieces, length)``, by a model's tokenizer."""
        if model.source not in self._encoded:
            self._encoded[model.source] = {kind: model.encode(text) for kind, text in self.texts.items()}
        return {
            kind: pieces(ids, length, self.n_pieces, seed=self.seed + i)
            for i, (kind, ids) in enumerate(self._encoded[model.source].items())
        }

    def pieces(self, model: SequenceModel, length: int) -> NDArray[np.int64]:
        """Pieces of all kinds alike, ``(kinds * n_pieces, length)``, by a model's tokenizer."""
        return np.concatenate(list(self.pieces_by_kind(model, length).values()))

    def each_loss(self, models: Sequence[SequenceModel], length: int) -> NDArray[np.float64]:
        """Loss of each piece (nats per token) under each of some models that are compared, ``(models, pieces)``."""
        tokens = self.pieces(models[0], length)
        return np.stack([judged(model, tokens, self.kept) for model in models])  # (models, pieces)

    def range_of(
        self, a: SequenceModel, b: SequenceModel, length: int, shares: Sequence[float], z: Sequence[float] = ()
    ) -> Range:
        """Z as given, or by a rule that looks at no ratio: two quantiles of the losses under both models together."""
        if z:
            return z[0], z[1]
        if not 0 <= shares[0] < shares[1] <= 1:
            raise InputError(f"shares must rise within 0 to 1, not {tuple(shares)}")
        low, high = np.quantile(self.each_loss([a, b], length), shares)
        return float(low), float(high)


def pieces(ids: ArrayLike, length: int, n: int, *, seed: int = 0) -> NDArray[np.int64]:
    """Cut pieces of `length` tokens without -1 from a text, in order: ``(n, length)``, fewer from a short text.

    From a text of `n` pieces or more, at random places. A shorter one is cut once from its beginning to its end: pieces
    of it that overlap would count the same words again, and an interval would be that of more text than there is.
    """
    text = np.asarray(ids, dtype=np.int64)
    if len(text) <= length:
        raise InputError(f"the text has {len(text)} tokens, too few for pieces of {length}")
    foreign = np.concatenate([[0], np.cumsum(text < 0)])  # before each place
    places = np.flatnonzero(foreign[length:] == foreign[: len(text) - length + 1])
    if not len(places):
        raise InputError(
            f"the text has no {length} tokens in a row that all models of the comparison have: {(text < 0).mean():.0%} "
            "of its tokens are unknown words, control tokens, or of one model alone; give a text of their own kind "
            "(text=, --text FILE)"
        )
    apart: list[int] = []
    for place in places.tolist():
        if not apart or place >= apart[-1] + length:
            apart.append(place)
    if len(apart) < n:
        begin = np.array(apart)
    else:
        places = places[places < len(text) - length]
        begin = np.sort(places[np.random.default_rng(seed).integers(len(places), size=n)])
    return np.asarray(text[begin[:, None] + np.arange(length)])
