"""What both models of a comparison write, as draws of either, each with what the other says of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.kept import ArrayCache
from provlab.modeldiff import pipeline, reading, rounding
from provlab.modeldiff.held_out import N_PIECES
from provlab.modeldiff.openings import Openings
from provlab.modeldiff.pipeline import Generation, SequenceModel
from provlab.modeldiff.reading import Reading
from provlab.modeldiff.representative import Direction, Draws, Side, checked_range, within
from provlab.modeldiff.rounding import Rounding
from provlab.modeldiff.written import Written, by_law, of_text
from provlab.modeldiff.written import rounding as rounding_of_losses

SIDES: tuple[Side, Side] = ("A", "B")
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
    rows
        Which of all draws these are.
    losses
        Where all its draws lie, beside Z.
    written
        What it writes.
    """

    inputs: Direction
    rows: NDArray[np.int64]
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
    text
        The pieces of the text, as something written; None where none was read.
    roundings
        What rounding the weights makes of either model; none where the two are equal.
    """

    z: Range
    sides: tuple[Drawn, Drawn]
    floor: float
    read: Reading
    text: Written | None
    roundings: tuple[Rounding, ...]


def draw(
    models: Sequence[SequenceModel],
    openings: Openings,
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
    openings
        The same behind what their inputs follow.
    settings, kept
        How they write, and where draws are kept.
    pieces
        ``(n, length)`` of a text that all models read; None for what A writes.
    z, shares
        The range of loss; if None it lies between these quantiles of the losses of the text under A and B together,
        or, without a text or behind prompts, of what both write.

    Raises
    ------
    InputError
        The losses leave no range.
    """
    text = None if pieces is None else reading.read(models, pieces, kept)
    raw, floor = _written(openings, settings, kept)
    if z is None:
        by_text = text is not None and not any(openings.texts)
        z = checked_range(
            _quantiles(text.nll[:2], shares) if text and by_text else _own_range([of for _, _, of in raw], shares)
        )
    if text is None:
        rows = _sample(raw[0][2], N_PIECES, settings.seed)
        read = openings.read(raw[0][2].tokens[rows], raw[0][2].at[rows], kept)
    else:
        read = text
    first, second = (_side(*of, z) for of in raw)
    given = None if text is None else of_text(text, np.zeros(len(text.tokens), dtype=np.int64))
    return Drawing(z, (first, second), floor, read, given, _roundings(models, openings, raw, given))


def _roundings(
    models: Sequence[SequenceModel],
    openings: Openings,
    raw: Sequence[tuple[Draws, NDArray[np.float64], Written]],
    text: Written | None,
) -> tuple[Rounding, ...]:
    """Each way of rounding on what each model wrote, and on the text, where A and B differ there."""
    kinds = {str(written.side): (openings.nlls, written) for _, _, written in raw}
    if text is not None:
        kinds["text"] = [(models[0].nll, models[1].nll)], text
    found: list[Rounding] = []
    for where, (pairs, written) in kinds.items():
        rows = np.flatnonzero(written.own)
        if (distances := written.nats[rows] / written.predictions).any():
            found += rounding.measured(where, pairs, written.tokens[rows], written.at[rows], distances)
    return tuple(found)


def _side(draws: Draws, other: NDArray[np.float64], written: Written, z: Range) -> Drawn:
    """Draws of one model beside Z, with their loss under the other one, ``(n,)``."""
    rows = np.flatnonzero(within(draws.nll, z))
    low, high = np.quantile(draws.nll, [0.01, 0.99])
    losses = Losses(len(rows), len(draws), float(low), float(high))
    if len(np.unique(draws.chain[rows])) < 2:
        nowhere = Direction.from_draws(draws.within(_NOWHERE), other[:0], written.side, z)
        return Drawn(nowhere, rows[:0], losses, written)
    return Drawn(Direction.from_draws(draws.within(z), other[rows], written.side, z), rows, losses, written)


def _written(
    openings: Openings, settings: Generation, kept: ArrayCache
) -> tuple[list[tuple[Draws, NDArray[np.float64], Written]], float]:
    """Draws of either model, their loss under the other one, what it writes; and what rounding alone makes of D."""
    pair = openings.behind[0][:2]
    (raw_a, at_a), (raw_b, at_b) = (openings.written(k, settings, kept) for k in range(2))
    raw = [raw_a, raw_b]
    mixed = settings.tempers == (1.0,)
    if mixed:
        at = [np.concatenate([at_a, at_b])] * 2
        read = [openings.read(np.concatenate([raw_a.tokens, raw_b.tokens]), at[0], kept, models=2)] * 2
        of_own = [read[0].nll[0, : len(raw_a)], read[0].nll[1, len(raw_a) :]]
    else:
        at = [at_a, at_b]
        read = [openings.read(draws.tokens, own, kept, models=2) for draws, own in zip(raw, at, strict=True)]
        of_own = [read[0].nll[0], read[1].nll[1]]
    # the same losses, as the model wrote token by token and as it read all at once, and what this makes of D
    floor = sum(
        rounding_of_losses(draws.nll, own, model.nll.spacing)
        for draws, own, model in zip(raw, of_own, pair, strict=True)
    )
    result, predictions = [], pair[0].nll.predictions(settings.length)
    losses = [_rounded_off(part.nll, floor) for part in read]
    if mixed:
        # of an opening and what follows it
        log_first = [model.nll.log_first - math.log(len(openings)) for model in pair]
        log_q = [first - predictions * nll for first, nll in zip(log_first, losses[0], strict=True)]
        draws = list(pipeline.one_sample(raw, list(losses[0]), log_q))
    else:
        draws = [replace(part, nll=losses[k][k]) for k, part in enumerate(raw)]
    for k, (side, part) in enumerate(zip(SIDES, draws, strict=True)):
        others = losses[k][1 - k]
        own = np.ones(len(others), dtype=bool)
        if mixed:
            own[len(raw_a) :], own[: len(raw_a)] = k == 1, k == 0
        by_token = (read[k].loss[0] - read[k].loss[1]).astype(np.float64)
        of_next = read[k].divergence[k, 1 - k].astype(np.float64)
        law = by_law(part, others, side, predictions)
        result.append((part, others, Written(law, read[k].tokens, by_token, of_next, own, part.nll, at[k])))
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
    """Rows of some of what a model writes, chain by chain."""
    weight, chain = written.outputs.weight, written.outputs.chain
    rows = np.random.default_rng(seed).choice(len(weight), n, p=weight / weight.sum())
    return np.asarray(rows[np.argsort(chain[rows], kind="stable")], dtype=np.int64)
