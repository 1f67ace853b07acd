"""What both models of a comparison write, as draws of either, each with what the other says of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.kept import ArrayCache
from provlab.modeldiff import pipeline, reading
from provlab.modeldiff.held_out import N_PIECES
from provlab.modeldiff.pipeline import Generation, SequenceModel
from provlab.modeldiff.reading import Reading
from provlab.modeldiff.representative import Direction, Draws, Side, checked_range, within
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
    """What stands for one model.

    Attributes
    ----------
    inputs
        Its draws in Z; none where they are of fewer than two chains, too few for an interval.
    losses
        Where all its draws lie, beside Z.
    written
        What it writes.
    """

    inputs: Direction
    losses: Losses
    written: Written


@dataclass(frozen=True, eq=False)
class Drawing:
    """What two models wrote, and what all models of a comparison say of the same tokens.

    Attributes
    ----------
    z
        The range of loss that makes an input one of a model's.
    sides
        Of A and of B.
    floor
        Largest difference of losses that rounding alone makes (nats per token).
    read
        What A, B and the references say of a text, or of what A writes.
    """

    z: Range
    sides: tuple[Drawn, Drawn]
    floor: float
    read: Reading


def draw(
    models: Sequence[SequenceModel],
    settings: Generation,
    kept: ArrayCache,
    *,
    pieces: NDArray[np.int64] | None,
    z: Range | None,
    shares: Range,
) -> Drawing:
    """Let A and B write, read what both wrote, and choose Z.

    Parameters
    ----------
    models
        A, B and references, of `provlab.modeldiff.pipeline.open_models`.
    settings, kept
        How they write, and where draws are kept.
    pieces
        ``(n, length)`` of a text that all models read; None for what A writes.
    z, shares
        The range of loss; if None it lies between these quantiles of the losses of the text under A and B together,
        or, without a text, of what both write.

    Raises
    ------
    InputError
        The losses leave no range.
    """
    read = None if pieces is None else reading.read(models, pieces, kept)
    raw, floor = _written((models[0], models[1]), settings, kept)
    if z is None:
        z = checked_range(_quantiles(read.nll[:2], shares) if read else _own_range([of for _, _, of in raw], shares))
    if read is None:
        read = reading.read(models, _sample(raw[0][2], N_PIECES, settings.seed), kept)
    first, second = (_side(*of, z) for of in raw)
    return Drawing(z, (first, second), floor, read)


def _side(draws: Draws, other: NDArray[np.float64], written: Written, z: Range) -> Drawn:
    """Draws of one model beside Z, with their loss under the other one, ``(n,)``."""
    inside = within(draws.nll, z)
    low, high = np.quantile(draws.nll, [0.01, 0.99])
    losses = Losses(int(inside.sum()), len(draws), float(low), float(high))
    if len(np.unique(draws.chain[inside])) < 2:
        return Drawn(Direction.from_draws(draws.within(_NOWHERE), other[:0], written.side, z), losses, written)
    return Drawn(Direction.from_draws(draws.within(z), other[inside], written.side, z), losses, written)


def _written(
    pair: Pair, settings: Generation, kept: ArrayCache
) -> tuple[list[tuple[Draws, NDArray[np.float64], Written]], float]:
    """Draws of either model, their loss under the other one, what it writes; and what rounding alone makes of D."""
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
        result.append((part, others, Written(law, read[k].tokens, by_token, of_next, own)))
    return result, floor


def _rounded_off(losses: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """Losses under A and B, ``(2, n)``, B's as A's where they differ by no more than rounding."""
    a, b = losses
    return np.stack([a, np.where(np.abs(a - b) <= floor, a, b)])


def _quantiles(losses: NDArray[np.float64], shares: Range) -> Range:
    low, high = np.quantile(losses, shares)
    return float(low), float(high)


def _own_range(written: Sequence[Written], shares: Range) -> Range:
    """Two quantiles of the losses of what each of two models writes, both models counting alike."""
    sides = [side.outputs for side in written]
    losses = np.concatenate([side.draws.nll for side in sides if side.draws is not None])
    weights = np.concatenate([side.weight / side.weight.sum() for side in sides])
    low, high = np.quantile(losses, shares, weights=weights, method="inverted_cdf")
    return float(low), float(high) if high > low else float(np.nextafter(high, np.inf))


def _sample(written: Written, n: int, seed: int) -> NDArray[np.int64]:
    """Some of what a model writes, chain by chain."""
    weight, chain = written.outputs.weight, written.outputs.chain
    rows = np.random.default_rng(seed).choice(len(weight), n, p=weight / weight.sum())
    return written.tokens[rows[np.argsort(chain[rows], kind="stable")]]
