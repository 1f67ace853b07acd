"""What a sampler asks of a model: the NLL of sequences, and for informed moves the conditionals behind it."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError

Tokens = NDArray[np.integer[Any]]

#: nats by which two evaluations of one sequence may differ
SAME = 1e-4
_CONDITIONALS = 4 << 30  # most bytes of conditionals kept for the present sequences


class Nll(Protocol):
    """Mean token NLL, ``(n,)`` float64 in nats, of ``(n, length)`` tokens."""

    def __call__(self, tokens: Tokens) -> NDArray[np.float64]: ...


@runtime_checkable
class HasConditionals(Protocol):
    """An NLL that also gives the log probability of each token at each position, given what stands left of it."""

    def conditionals(self, tokens: Tokens) -> NDArray[np.float32]: ...


class Energy:
    """NLL and, for informed moves, conditionals of sequences, by one pass of the model."""

    def __init__(self, nll: Nll, informed: bool, vocabulary: int) -> None:
        self.nll = nll
        self.vocabulary = vocabulary
        self.evaluations = 0
        self._skip: int | None = None
        if informed and not isinstance(nll, HasConditionals):
            raise InputError("an informed move needs an nll that has .conditionals; make one with sequence_nll(model)")
        self.informed = informed

    def __call__(self, tokens: Tokens) -> tuple[NDArray[np.float64], NDArray[np.float32] | None]:
        """Return NLL ``(n,)`` and conditionals ``(n, length, vocabulary)``, or None for those."""
        self.evaluations += len(tokens)
        if not self.informed:
            return self._finite(self.nll(tokens)), None
        assert isinstance(self.nll, HasConditionals)
        size = 4 * tokens.size * self.vocabulary
        if size > _CONDITIONALS:
            raise InputError(
                f"conditionals of {len(tokens)} sequences take {size / 2**30:.0f} GiB; take fewer chains or levels"
            )
        conditionals = self.nll.conditionals(tokens)
        picked = np.take_along_axis(conditionals, tokens[..., None].astype(np.int64), axis=2)[..., 0]
        if self._skip is None:
            self._skip = self._convention(tokens, picked)
        return self._finite(-picked[:, self._skip :].mean(axis=1, dtype=np.float64)), conditionals

    def _convention(self, tokens: Tokens, picked: NDArray[np.float32]) -> int:
        """Whether the NLL counts all positions (0) or leaves the first out (1): asked of the model, once."""
        direct = self.nll(tokens)
        for skip in (0, 1):
            if picked.shape[1] > skip and np.allclose(-picked[:, skip:].mean(axis=1), direct, rtol=0, atol=SAME):
                return skip
        raise InputError("nll and its conditionals disagree: the mean of -log p(token | left context) must be the NLL")

    def _finite(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        values = np.asarray(values, dtype=np.float64)
        if not np.isfinite(values).all():
            raise InputError("nll must be finite for every sequence; it returned NaN or Inf")
        return values
