"""What both models of a comparison write, as draws of either, each with what the other says of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.kept import ArrayCache
from provlab.modeldiff import pipeline, reading
from provlab.modeldiff.pipeline import Generation, SequenceModel
from provlab.modeldiff.representative import Direction, Draws, Side, within
from provlab.modeldiff.written import Written, by_law, rounding

SIDES: tuple[Side, Side] = ("A", "B")
Pair = tuple[SequenceModel, SequenceModel]
Range = tuple[float, float]
_NOWHERE: Range = -2.0, -1.0  # a range that no loss lies in


class Losses(NamedTuple):
    """Losses of one model's draws: how many lie in Z, of how many, and the 1% and 99% quantiles of all."""

    in_z: int
    drawn: int
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws that stand for one model's inputs, their loss under the other one, ``(n,)``, and what the model writes."""

    draws: Draws
    other: NDArray[np.float64]
    written: Written

    def losses(self, z: Range) -> Losses:
        """Where the draws lie, beside Z."""
        low, high = np.quantile(self.draws.nll, [0.01, 0.99])
        return Losses(int(within(self.draws.nll, z).sum()), len(self.draws), float(low), float(high))

    def inputs(self, z: Range) -> Direction:
        """The draws in Z; none where they are of fewer than two chains, too few for an interval."""
        inside = within(self.draws.nll, z)
        if len(np.unique(self.draws.chain[inside])) < 2:
            return Direction.from_draws(self.draws.within(_NOWHERE), self.other[:0], self.written.side, z)
        return Direction.from_draws(self.draws.within(z), self.other[inside], self.written.side, z)

    def sample(self, n: int, *, seed: int) -> NDArray[np.int64]:
        """So many outputs of the model, ``(n, length)``, chain by chain."""
        weight, chain = self.written.outputs.weight, self.written.outputs.chain
        rows = np.random.default_rng(seed).choice(len(weight), n, p=weight / weight.sum())
        return self.written.tokens[rows[np.argsort(chain[rows], kind="stable")]]


def draw(pair: Pair, settings: Generation, kept: ArrayCache) -> tuple[list[Drawn], float]:
    """Let both models write, and read what both wrote.

    Returns
    -------
    list of Drawn, float
        Of A and of B, and the largest difference of losses that rounding alone makes (nats per token).
    """
    raw = [pipeline.generated(model, settings, kept) for model in pair]
    mixed = settings.tempers == (1.0,)
    if mixed:
        read = [reading.read(pair, np.concatenate([draws.tokens for draws in raw]), kept)] * 2
        of_own = [read[0].nll[0, : len(raw[0])], read[0].nll[1, len(raw[0]) :]]
    else:
        read = [reading.read(pair, draws.tokens, kept) for draws in raw]
        of_own = [read[0].nll[0], read[1].nll[1]]
    # the same losses, as the model wrote token by token and as it read all at once, and what this makes of D
    floor = sum(
        rounding(draws.nll, own, model.nll.spacing) for draws, own, model in zip(raw, of_own, pair, strict=True)
    )
    result, predictions = [], pair[0].nll.predictions(settings.length)
    losses = [_rounded_off(part.nll, floor) for part in read]
    if mixed:
        log_q = [model.nll.log_first - predictions * nll for model, nll in zip(pair, losses[0], strict=True)]
        draws = list(pipeline.one_sample(raw, list(losses[0]), log_q))
    else:
        draws = [replace(part, nll=losses[k][k]) for k, part in enumerate(raw)]
    for k, (side, part) in enumerate(zip(SIDES, draws, strict=True)):
        others = losses[k][1 - k]
        own = np.ones(len(others), dtype=bool)
        if mixed:
            own[len(raw[0]) :], own[: len(raw[0])] = k == 1, k == 0
        by_token = (read[k].loss[0] - read[k].loss[1]).astype(np.float64)
        of_next = read[k].divergence[k, 1 - k].astype(np.float64)
        law = by_law(part, others, side, predictions)
        result.append(Drawn(part, others, Written(law, read[k].tokens, by_token, of_next, own)))
    return result, floor


def _rounded_off(losses: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """Losses under A and B, ``(2, n)``, B's as A's where they differ by no more than rounding."""
    a, b = losses
    return np.stack([a, np.where(np.abs(a - b) <= floor, a, b)])


def own_range(drawn: Sequence[Drawn], shares: Range) -> Range:
    """Two quantiles of the losses of what each of two models writes, both models counting alike."""
    sides = [side.written.outputs for side in drawn]
    losses = np.concatenate([side.draws.nll for side in sides if side.draws is not None])
    weights = np.concatenate([side.weight / side.weight.sum() for side in sides])
    low, high = np.quantile(losses, shares, weights=weights, method="inverted_cdf")
    return float(low), float(high) if high > low else float(np.nextafter(high, np.inf))
