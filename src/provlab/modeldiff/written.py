"""Where the divergence of two models is, over what one of them writes: how concentrated, in which lines and groups.

An output counts as often as the model writes it. Its nats are the divergences of the laws of the next token, summed
over its places: never negative, and in the mean the divergence of the two models (`provlab.modeldiff.reading`). So a
share of the outputs has a share of the divergence, and the outputs can be ranked.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from provlab.modeldiff.bootstrap import LEVEL, chain_counts, percentiles, share_interval
from provlab.modeldiff.excess import N_GROUPS, PIECES_A_GROUP
from provlab.modeldiff.reading import Reading
from provlab.modeldiff.representative import Direction, Draws, Side, effective

Interval = list[float]  # value, low, high of the 95% interval

_RESAMPLES = 1000  # of the chain bootstrap
_AT_ONCE = 100  # of these held together, each a number for every draw
_GRAM = 4  # tokens in a row that two copies of one line have in common
_ALIKE = 0.5  # share of a line's runs of tokens that another output has, to count as the same line


@dataclass(frozen=True, eq=False)
class Written:
    """What one model writes, and what the other says of it.

    Attributes
    ----------
    outputs
        The draws, weighted by how often the model writes them; D = NLL_A - NLL_B.
    tokens
        ``(n, length)``.
    by_token
        ``(n, predictions)``: D of each token (nats).
    divergence
        ``(n, predictions)``: divergence of the other's law of the next token from the model's own (nats).
    own
        ``(n,)`` bool: the model itself drew it; the other draws may be what it would hardly write.
    nll
        ``(n,)``: loss under the model that writes (nats per token).
    at
        ``(n,)``: the opening behind which each stands.
    given
        Whether nobody wrote it: pieces of a text, where the divergence is the mean of both, and either may dispute.
    """

    outputs: Direction
    tokens: NDArray[np.int64]
    by_token: NDArray[np.float64]
    divergence: NDArray[np.float64]
    own: NDArray[np.bool_]
    nll: NDArray[np.float64]
    at: NDArray[np.int64]
    given: bool = False

    @property
    def side(self) -> Side:
        """The model that writes."""
        return self.outputs.side

    @property
    def nats(self) -> NDArray[np.float64]:
        """Divergence along each output, ``(n,)``, in nats per output."""
        return np.asarray(self.divergence.sum(axis=1))

    @property
    def predictions(self) -> int:
        """Tokens of an output that are predicted."""
        return self.divergence.shape[1]

    @property
    def toward(self) -> NDArray[np.float64]:
        """``(n, predictions)``: by how much the other model's loss of each token is higher (nats); of a text, apart."""
        if self.given:
            return np.abs(self.by_token)
        return -self.by_token if self.side == "A" else self.by_token

    def mean(self, *, seed: int = 0) -> Interval:
        """Divergence of the other model from this one, in nats per token, with its interval.

        By chain bootstrap, and at least as wide as Student's law gives of its log, over chains or over draws: of few
        draws with a heavy tail most resamples lack what carries the mean (`benchmarks/intervals.csv`).
        """
        value, low, high = self._ratio(self.nats / self.predictions, np.ones(len(self.nats)), seed)
        n = self.outputs.n_chains
        if not value > 0 or n < 2:
            return [value, low, high]
        weight = self.outputs.weight / self.outputs.weight.sum()
        moved = weight * (self.nats / self.predictions - value)  # by each draw
        by_chain = np.bincount(self.outputs.chain, moved, minlength=n)
        # draws of one chain may resemble each other; where they do not, their own scatter is known better
        error = math.sqrt(max(n / (n - 1) * float(by_chain @ by_chain), float(moved @ moved))) / value
        degrees = max(1.0, min(n, effective(self._carried())) - 1)  # few draws may carry most of it
        reach = error * float(special.stdtrit(degrees, (1 + LEVEL) / 2))
        return [value, min(low, value * math.exp(-reach)), max(high, value * math.exp(reach))]

    def share(self, rows: NDArray[np.bool_], *, seed: int = 0) -> Interval:
        """Share of the outputs that some rows make up."""
        return list(self.outputs.share(rows, seed=seed))

    def share_of_divergence(self, rows: NDArray[np.bool_], *, seed: int = 0) -> Interval:
        """Share of the divergence that some rows carry; at least as wide as the effective draws allow."""
        value, low, high = self._ratio(self.nats * rows, self.nats, seed)
        least, most = share_interval(min(value, 1.0), min(self.outputs.effective, effective(self._carried())))
        return [value, min(low, float(least)), max(high, float(most))]

    def half(self, part: float = 0.5, *, seed: int = 0) -> tuple[Interval, NDArray[np.bool_]]:
        """The least share of the outputs that carries a part of the divergence, and the rows that it is.

        By chain bootstrap, and at least as wide as the draws allow that carry the divergence.
        """
        order = np.argsort(-self.nats, kind="stable")
        weight, carried, chain = self.outputs.weight[order], self._carried()[order], self.outputs.chain[order]
        counts = chain_counts(self.outputs.n_chains, _RESAMPLES, np.random.default_rng(seed)).astype(np.float64)
        shares = []
        for some in (np.ones((1, self.outputs.n_chains)), *np.array_split(counts, -(-_RESAMPLES // _AT_ONCE))):
            often = some[:, chain]  # (resamples, n)
            reached = np.cumsum(often * carried, axis=1)
            place = (reached < part * reached[:, -1:]).sum(axis=1)
            outputs = np.cumsum(often * weight, axis=1)
            at = np.minimum(place, len(order) - 1)
            shares += list(outputs[np.arange(len(some)), at] / outputs[:, -1])
        low, high = percentiles(np.array(shares[1:]), self.outputs.n_chains)
        least, most = share_interval(min(float(shares[0]), 1.0), min(self.outputs.effective, effective(carried)))
        low, high = min(low, least), max(high, most)
        rows = np.zeros(len(order), dtype=bool)
        rows[order[: int((np.cumsum(carried) < part * carried.sum()).sum()) + 1]] = True
        return [float(shares[0]), float(low), float(high)], rows

    def _carried(self) -> NDArray[np.float64]:
        return self.outputs.weight * self.nats

    def _ratio(self, above: NDArray[np.float64], below: NDArray[np.float64], seed: int) -> Interval:
        columns = np.stack([above, below], axis=1)  # (n, 2)
        sums = self.outputs.resampled(columns, _RESAMPLES, np.random.default_rng(seed))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = sums[:, 0] / sums[:, 1]
        low, high = percentiles(ratio[1:], self.outputs.n_chains)
        return [float(ratio[0]), float(low), float(high)]


@dataclass(frozen=True)
class Line:
    """One output, and the others that have most of it in common.

    Attributes
    ----------
    row
        The one with the most nats.
    nats
        Its divergence, in nats.
    share, divergence
        Shares of the outputs and of the divergence, with their 95% intervals: of all that have half of its runs of
        four tokens.
    """

    row: int
    nats: float
    share: Interval
    divergence: Interval


def lines(written: Written, n: int, *, seed: int) -> list[Line]:
    """The outputs that the other model disputes most, each with its near copies, and none of these twice.

    Parameters
    ----------
    written
        What a model writes.
    n
        How many lines.
    seed
        The seed of intervals.
    """
    size = min(_GRAM, written.tokens.shape[1])
    grams = [{tuple(row[k : k + size]) for k in range(len(row) - size + 1)} for row in written.tokens.tolist()]
    result: list[Line] = []
    shown = ~written.own
    nats = written.nats
    for row in np.argsort(-nats, kind="stable"):
        if len(result) == n or not nats[row] > 0:
            break
        if shown[row]:
            continue
        alike = np.array([len(grams[row] & other) >= _ALIKE * len(grams[row]) for other in grams])
        shown |= alike
        result.append(
            Line(
                int(row),
                float(nats[row]),
                written.share(alike, seed=seed),
                written.share_of_divergence(alike, seed=seed),
            )
        )
    return result


def of_text(reading: Reading, at: NDArray[np.int64]) -> Written:
    """Take the pieces of a text, in its order, as if one model wrote them: neighbours are one chain.

    Parameters
    ----------
    reading
        What A and B, first of all models, say of the pieces.
    at
        ``(n,)``: the opening of each.
    """
    n, nll = len(reading.tokens), reading.nll
    chains = max(2, min(N_GROUPS, n // PIECES_A_GROUP))
    chain = np.arange(n) * chains // n
    everywhere = np.ones(n, dtype=bool)
    outputs = Direction("A", nll[0] - nll[1], np.ones(n), everywhere, chain, chains)
    by_token = (reading.loss[0] - reading.loss[1]).astype(np.float64)
    both = (reading.divergence[0, 1].astype(np.float64) + reading.divergence[1, 0]) / 2
    return Written(outputs, reading.tokens, by_token, both, everywhere, nll[0], at, given=True)


def by_law(draws: Draws, other: NDArray[np.float64], side: Side, predictions: int) -> Direction:
    """Return what a model writes, each sequence as often as the model at its own temper writes it.

    Parameters
    ----------
    draws
        The draws of the model.
    other
        ``(n,)`` their loss under the other one.
    side
        Whose they are.
    predictions
        Tokens of a sequence that are judged.
    """
    log_weight = draws.log_weight - predictions * draws.nll
    difference = draws.nll - other if side == "A" else other - draws.nll
    weight, everywhere = np.exp(log_weight - log_weight.max()), np.ones(len(other), dtype=bool)
    return Direction(side, difference, weight, everywhere, draws.chain.astype(np.int64), draws.n_chains, draws=draws)


def if_normal(nats: float) -> float:
    """The share of its outputs that the other model would find less likely if the log ratio of both were normal.

    The ratio of two laws has mean 1 under the second one, so that a normal log ratio of mean K has the variance 2 K,
    and is positive with the chance Phi(sqrt(K / 2)). No theorem: log ratios need not be normal.
    """
    return float(special.ndtr(math.sqrt(max(0.0, nats) / 2)))


def rounding(written: NDArray[np.float64], judged: NDArray[np.float64], spacing: float) -> float:
    """Largest difference (nats per token) that rounding alone makes of the losses of one model.

    Where both ways give the same bits for all draws, as on a processor that takes the sums of 16-bit numbers in one
    order however many tokens it reads, this measures nothing: a model with its hidden units in another order has other
    bits. Half a step of the dtype at the largest loss stands for it there.

    Parameters
    ----------
    written, judged
        ``(n,)``: loss of the same draws as they were written, token by token, and as they were read, all at once. Both
        are one number; the order of sums is not.
    spacing
        Step between the numbers next to 1 of the dtype in which the model runs.
    """
    measured = np.abs(written - judged).max(initial=0.0)
    return float(measured or spacing / 2 * np.abs(judged).max(initial=0.0))
