"""phi_JSD: how far apart are two models' next-token distributions? (Section 4.1, after Lin 1991)

The baseline that does not work. It depends on outputs only, which no permutation changes, so PERMTEST cannot turn it
into a p-value: it is reported raw, and the study shows that it does not tell dependent from independent pairs.

Where two vocabularies differ, the tokens are compared that both have.

Two figures say how to read it, and both are measured on each model. The *rounding* is the divergence of the model from
itself where every module's output is rounded to the coarser of two dtypes, that of its file and that in which it runs.
A disguise that keeps the function leaves about that much: on oak of the zoo nine exact ones left 0 to 2 times as much.
The *spread* is the divergence of the model's predictions at neighbouring positions: where outputs hardly depend on the
input, any two models agree well.

Two more say whether a model knows the ids that it read as text: its loss, and that of the frequencies of these tokens.
A model without a tokenizer is lent the other's ids, which mean nothing to it if its tokens were numbered otherwise.
"""

from dataclasses import dataclass

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from provlab.arrays import There, Values, beside, here, of, on
from provlab.errors import NotComparableError
from provlab.reading.files.dtypes import UNITS
from provlab.reading.forms import NAMES
from provlab.running.predictions import rounded_log_probs
from provlab.statistics.base import Array, Features, Statistic, require_positions
from provlab.statistics.model import Model, numel
from provlab.statistics.options import PASS, Options
from provlab.statistics.results import BlockResult, Detail
from provlab.statistics.text import Columns, common, cut, loss_of, predicted, read_as, spellings

_AT_ONCE = 1 << 16  # numbers of a law that are taken to float64 at once: so many stay in a core's cache
_AT_ONCE_THERE = 1 << 22  # the same on a device, which half a gigabyte holds; fewer would be waited for
SEQUENCES = 2  # on which the rounding is measured
_NEIGHBOURS = 128  # positions on which the spread is


@dataclass(frozen=True)
class NextTokens(Features):
    """Next-token distributions on the held-out text.

    Attributes
    ----------
    vocabulary : array
        ``(vocab,)`` int64: what each token is (`provlab.statistics.text.spellings`).
    tokens : array
        ``(n_sequences, sequence_length)``: where in the text each token stands (`provlab.statistics.text.cut`); two
        models are compared on the same inputs only.
    log_probs : array
        ``(n_sequences * sequence_length, vocab)`` float32, natural logarithm.
    about : array
        ``(6,)`` float64: rounding and spread in nats, the unit of the rounding, a value of `UNITS`, the loss of the
        next token, and the loss of the tokens' own frequencies, both in nats; and in which form it read the text, a
        place in `provlab.reading.forms.NAMES`.
    """

    vocabulary: NDArray[np.int64]
    tokens: NDArray[np.int64]
    log_probs: Array
    about: NDArray[np.float64]

    def block(self, block: int | None) -> "NextTokens":
        """Outputs belong to no block."""
        return self


def jensen_shannon(log_p: Array, log_q: Array, common: Columns | None = None, there: There = of) -> Array:
    """Jensen-Shannon divergence of each row in nats, between 0 and ln 2 (Lin 1991, Equation 4.1).

    Parameters
    ----------
    log_p, log_q : array
        ``(n, vocab)`` natural logarithms of distributions.
    common : tuple of two arrays, optional
        Columns of each that stand for one token; what is compared is the distributions given one of these tokens. All
        columns, in their order, by default.
    there
        Takes some rows at a time to where they are compared (`provlab.arrays.on`); numpy compares them by default.

    Returns
    -------
    array
        ``(n,)`` float64.
    """
    divergence = np.empty(len(log_p))
    few = max(1, (_AT_ONCE if there is of else _AT_ONCE_THERE) // log_p.shape[1])
    for start in range(0, len(log_p), few):
        rows = slice(start, start + few)
        p, q = (_given(there(law[rows]), ids) for law, ids in zip((log_p, log_q), common or (None, None), strict=True))
        xp = array_api_compat.array_namespace(p)
        of_p, of_q = xp.exp(p), xp.exp(q)
        # a token that both give less than 1e-308 adds nothing, and has no logarithm
        mean = xp.log(xp.maximum((of_p + of_q) / 2, beside(p, np.finfo(np.float64).tiny)))
        divergence[rows] = here(0.5 * xp.sum(of_p * (p - mean) + of_q * (q - mean), axis=1))
    return np.maximum(divergence, 0.0)  # rounding may leave -1e-17 for equal rows


def _given(log_p: Values, ids: NDArray[np.int64] | None) -> Values:
    """Take distributions ``(n, vocab)`` to float64, conditioned on the token being one of `ids`, if any are given."""
    xp = array_api_compat.array_namespace(log_p)
    if ids is None:
        return xp.astype(log_p, xp.float64)
    kept = xp.astype(log_p[:, ids], xp.float64)
    kept -= xp.max(kept, axis=1, keepdims=True)
    return kept - xp.log(xp.sum(xp.exp(kept), axis=1, keepdims=True))


class PhiJSD(Statistic):
    """Mean Jensen-Shannon divergence of next-token distributions over held-out text, in nats; no p-value."""

    name = "phi_jsd"
    version = 4  # 1 did not measure rounding and spread, 2 no losses; 3 took the mean law by other sums
    reads = "next-token distributions on text"
    settings = ("text_sha256", *PASS)
    recorded = NextTokens
    predicts = True

    def blocks(self, a: Model, b: Model) -> list[int | None]:
        """One unit."""
        self.require_parts(a, b)
        return [None]

    def prepare(self, model: Model, options: Options) -> NextTokens:
        """Run the model once over the text."""
        require_positions(self, model, options)
        tokens, places = cut(model.checkpoint, options)
        log_probs = predicted(model, tokens, options)
        vocabulary = spellings(model.checkpoint, log_probs.shape[1])
        unit = max(UNITS[options.dtype], unit_of(model))
        rounded = rounded_log_probs(
            model.checkpoint,
            tokens[:SEQUENCES],
            unit,
            device=options.device,
            dtype=options.torch_dtype,
            form=(form := read_as(model, options)),
        )
        some = log_probs[:_NEIGHBOURS]
        there = on(options.device)
        first = log_probs[: len(rounded)]
        values = jensen_shannon(first, rounded, there=there), jensen_shannon(some[:-1], some[1:], there=there)
        frequencies = _loss_of_frequencies(tokens)
        about = [*(v.mean() for v in values), unit, loss_of(log_probs, tokens), frequencies, NAMES.index(form.name)]
        return NextTokens(vocabulary, places, log_probs, np.array(about))

    def compare_block(self, a: NextTokens, b: NextTokens, block: int | None, options: Options) -> BlockResult:
        """Average the divergence over positions, of the tokens that both have where the vocabularies differ."""
        if not np.array_equal(a.tokens, b.tokens):
            raise NotComparableError(
                f"{self.name} needs the same inputs, but the two tokenizers cut the text differently"
            )
        both = common(a.vocabulary, b.vocabulary)
        per_token = jensen_shannon(a.log_probs, b.log_probs, both, on(options.device))
        rounding, spread, unit, losses, frequencies, forms = np.stack([a.about, b.about]).T
        detail = Detail(
            n=len(per_token),
            rounding=float(rounding.max()),
            spread=float(spread.min()),
            unit=float(unit.max()),
            losses=losses.tolist(),
            frequencies=frequencies.tolist(),
            forms=[NAMES[int(form)] for form in forms],
        )
        return BlockResult(block, float(per_token.mean()), detail=detail)


def _loss_of_frequencies(tokens: NDArray[np.int64]) -> float:
    """Mean loss in nats where each token is predicted by its frequency in this text."""
    shares = np.unique(tokens, return_counts=True)[1] / tokens.size
    return float(-(shares * np.log(shares)).sum())


def unit_of(model: Model) -> float:
    """Largest relative error of a number in the dtype of a model's largest tensor."""
    largest = max((part.name for part in model.anatomy.parts), key=lambda name: numel(model, name))
    return UNITS.get(model.checkpoint.dtype(largest), UNITS["bfloat16"])
