"""What a sampler asks of a model: the NLL of sequences, and for informed moves what it would write."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError

Tokens = NDArray[np.integer[Any]]

#: nats by which two evaluations of one sequence may differ
SAME = 1e-4


class Nll(Protocol):
    """Mean token NLL, ``(n,)`` float64 in nats, of ``(n, length)`` tokens."""

    def __call__(self, tokens: Tokens) -> NDArray[np.float64]: ...


@runtime_checkable
class Causal(Protocol):
    """A model that predicts each token from what stands left of it, as `provlab.modeldiff.nll.SequenceNll` does."""

    def predictions(self, length: int) -> int: ...

    def next_log_probs(self, prefix: Tokens) -> NDArray[np.float64]: ...

    def rewrite(
        self, tokens: Tokens, cut: int, temper: NDArray[np.float64], seed: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]: ...


class Energy:
    """A model as the sampler sees it: its answers are counted, and refused where they are not finite."""

    def __init__(self, nll: Nll, informed: bool) -> None:
        self.nll = nll
        self.causal = nll if isinstance(nll, Causal) else None
        self.evaluations = 0
        if informed and self.causal is None:
            raise InputError("an informed move needs an nll that predicts tokens; make one with sequence_nll(model)")

    def __call__(self, tokens: Tokens) -> NDArray[np.float64]:
        """Return the NLL ``(n,)`` of ``(n, length)`` tokens."""
        self.evaluations += len(tokens)
        return self._finite(self.nll(tokens))

    def predictions(self, length: int) -> int:
        """How many tokens of a sequence are predicted."""
        assert self.causal is not None
        return self.causal.predictions(length)

    def next_log_probs(self, prefix: Tokens) -> NDArray[np.float64]:
        """Return the log probability of each token after a prefix, ``(n, vocabulary)``."""
        assert self.causal is not None
        self.evaluations += len(prefix)
        return self.causal.next_log_probs(prefix)

    def rewrite(
        self, tokens: Tokens, cut: int, temper: NDArray[np.float64], seed: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Draw all tokens from `cut` on anew: new sequences, their NLL, and the log Hastings factor."""
        assert self.causal is not None
        self.evaluations += 2 * len(tokens)  # the old ones are judged, the new ones written
        new, nll, log_hastings = self.causal.rewrite(tokens, cut, temper, seed)
        return new, self._finite(nll), log_hastings

    def _finite(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        values = np.asarray(values, dtype=np.float64)
        if not np.isfinite(values).all():
            raise InputError("nll must be finite for every sequence; it returned NaN or Inf")
        return values
