"""phi_JSD: how far apart are two models' next-token distributions? (Section 4.1, after Lin 1991)

The baseline that does not work. It depends on outputs only, which no permutation changes, so PERMTEST cannot turn it
into a p-value: it is reported raw, and the study shows that it does not tell dependent from independent pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NotComparableError
from provlab.models.activations import next_token_log_probs
from provlab.models.room import keep
from provlab.statistics.base import (
    BATCH,
    Array,
    BlockResult,
    Features,
    Model,
    Need,
    Options,
    Outcome,
    Statistic,
    loaded_bytes,
    require_positions,
)
from provlab.statistics.text import encode

ROWS = 256  # distributions compared at once, in float64


@dataclass(frozen=True)
class NextTokens(Features):
    """Next-token distributions on the held-out text.

    Attributes
    ----------
    tokens : array
        The inputs, ``(n_sequences, sequence_length)``: two models are compared on the same tokens only.
    log_probs : array
        ``(n_sequences * sequence_length, vocab)`` float32, natural logarithm.
    """

    tokens: NDArray[np.int64]
    log_probs: Array

    def block(self, block: int | None) -> "NextTokens":
        """Outputs belong to no block."""
        return self


def jensen_shannon(log_p: Array, log_q: Array) -> Array:
    """Jensen-Shannon divergence of each row in nats, between 0 and ln 2 (Lin 1991, Equation 4.1).

    Parameters
    ----------
    log_p, log_q : array
        ``(n, vocab)`` natural logarithms of distributions.

    Returns
    -------
    array
        ``(n,)`` float64.
    """
    divergence = np.empty(len(log_p))
    for start in range(0, len(log_p), ROWS):
        rows = slice(start, start + ROWS)
        p, q = log_p[rows].astype(np.float64), log_q[rows].astype(np.float64)
        mean = np.logaddexp(p, q) - np.log(2)
        divergence[rows] = 0.5 * (np.exp(p) * (p - mean) + np.exp(q) * (q - mean)).sum(axis=1)
    return np.maximum(divergence, 0.0)  # rounding may leave -1e-17 for equal rows


class PhiJSD(Statistic):
    """Mean Jensen-Shannon divergence of next-token distributions over held-out text, in nats; no p-value."""

    name = "phi_jsd"
    reads = "next-token distributions on text"
    recorded = NextTokens

    def parameters(self, options: Options) -> dict[str, Any]:
        """Inputs and arithmetic."""
        names = ("text_sha256", "n_sequences", "sequence_length", "device", "dtype")
        return {name: getattr(options, name) for name in names}

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """One unit; both models must predict the same vocabulary."""
        if a.anatomy.vocab_size != b.anatomy.vocab_size:
            raise NotComparableError(
                f"{self.name} needs one vocabulary, but {a.name} has {a.anatomy.vocab_size} tokens and {b.name} "
                f"{b.anatomy.vocab_size}; the weight statistics do not look at the vocabulary"
            )
        return [None]

    def prepare(self, model: Model, options: Options) -> NextTokens:
        """Run the model once over the text."""
        require_positions(self, model, options)
        tokens = encode(model.checkpoint, options)
        chunks = next_token_log_probs(model.checkpoint, tokens, device=options.device, dtype=options.torch_dtype)
        return NextTokens(tokens, keep(np.concatenate(list(chunks))))

    def need(self, model: Model, block: int | None, options: Options) -> Need:
        """All distributions."""
        tokens = options.n_sequences * options.sequence_length
        return Need(features=4 * tokens * model.anatomy.vocab_size)

    def recording(self, model: Model, options: Options) -> Need:
        """One pass; the distributions are there twice as their pieces are put together."""
        kept = self.need(model, None, options).features
        batch = 3 * 4 * BATCH * options.sequence_length * model.anatomy.vocab_size
        return Need(tuple(p.name for p in model.anatomy.parts), kept, loaded_bytes(model, options) + kept + batch)

    def comparing(self, a: Model, b: Model, block: int | None, options: Options) -> int:
        """Some rows at a time in float64."""
        return 8 * 8 * ROWS * a.anatomy.vocab_size

    def compare_block(self, a: NextTokens, b: NextTokens, block: int | None, options: Options) -> BlockResult:
        """Average the divergence over positions."""
        if not np.array_equal(a.tokens, b.tokens):
            raise NotComparableError(
                f"{self.name} needs the same inputs, but the two tokenizers cut the text differently"
            )
        per_token = jensen_shannon(a.log_probs, b.log_probs)
        return BlockResult(block, float(per_token.mean()), None, {"n": len(per_token)})

    def aggregate(self, blocks: Sequence[BlockResult]) -> Outcome:
        """Return the single unit as it is."""
        return Outcome(blocks[0].value, None, tuple(blocks), detail=dict(blocks[0].detail))
