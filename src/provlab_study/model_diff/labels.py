"""Simple rules that describe inputs and know neither of the models compared: repetition, and kind of text."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError
from provlab.modeldiff.moves import Tokens


def repetition(tokens: Tokens) -> NDArray[np.float64]:
    """Share of the pairs of neighbouring tokens that stood earlier in the sequence: ``(n,)`` of ``(n, length)``.

    0 where no pair comes twice; close to 1 where one or two tokens alternate to the end.
    """
    array = np.asarray(tokens, dtype=np.int64)
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(f"tokens must be (n, length) with a length of at least 2, not {array.shape}")
    pairs = np.sort(array[:, :-1] * (array.max(initial=0) + 1) + array[:, 1:], axis=1)
    return np.asarray((np.diff(pairs, axis=1) == 0).sum(axis=1) / pairs.shape[1])


@dataclass(frozen=True)
class TextKinds:
    """Tells two kinds of text apart by their pairs of neighbouring tokens: naive Bayes with add-one smoothing.

    Attributes
    ----------
    log_odds
        ``(vocabulary, vocabulary)`` log of how much likelier a pair is in the first kind than in the second.
    """

    log_odds: NDArray[np.float64]

    @classmethod
    def fit(cls, first: ArrayLike, second: ArrayLike, vocabulary: int) -> "TextKinds":
        """Count the pairs of two long texts, ``(n,)`` token ids each."""
        logs = []
        for text in (first, second):
            ids = np.asarray(text, dtype=np.int64)
            if len(ids) < 2:
                raise InputError("each text must have at least two tokens")
            counts = np.bincount(ids[:-1] * vocabulary + ids[1:], minlength=vocabulary**2).reshape(
                vocabulary, vocabulary
            )
            # a pair that was not seen counts as if its tokens met by chance: sparse tables stay fair to both kinds
            alone = (counts.sum(axis=0) + 1.0) / (counts.sum() + vocabulary)
            smoothed = counts + vocabulary * alone
            logs.append(np.log(smoothed / smoothed.sum(axis=1, keepdims=True)))
        return cls(logs[0] - logs[1])

    def score(self, tokens: Tokens) -> NDArray[np.float64]:
        """Mean log odds of a pair, ``(n,)``: above 0 where a sequence looks like the first kind."""
        array = np.asarray(tokens, dtype=np.int64)
        return np.asarray(self.log_odds[array[:, :-1], array[:, 1:]].mean(axis=1))
