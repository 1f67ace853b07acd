"""Temperatures at which neighbours swap equally often, found by pilot runs.

Swaps between inverse temperatures b and b + db are rejected at a rate L(b) db, whatever the ladder: the integral of L
from end to end, the communication barrier, is a property of the law alone. Levels that split the barrier evenly swap
equally often, and sequences then go through the ladder fastest (Syed, Bouchard-Cote, Deligiannidis and Doucet 2022).
Each pilot run measures the barrier on the ladder it has, and the next is laid by it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from provlab.errors import InputError
from provlab.modeldiff.diagnostics import NotConverged
from provlab.modeldiff.energy import Nll
from provlab.modeldiff.moves import Mixture, Move
from provlab.modeldiff.sampler import Samples, replica_exchange

_FIRST = 8  # levels of the first ladder
_LEAST = 1e-3  # a rejection rate below this cannot be distinguished from zero by a pilot run
_SWAP_RATE = 0.3  # mean acceptance of swaps to aim at
_ROUNDS = 4  # pilot runs, each of which begins where the last one ended
_CHAINS = 8  # of each pilot run; the first half of its steps is left out
_MOST_LEVELS = 40


@dataclass(frozen=True, eq=False)
class Ladder:
    """Temperatures for a run, and what the pilots saw.

    Attributes
    ----------
    temperatures
        ``(level,)`` hottest first.
    swap_rate
        The least rate expected between two neighbours.
    barrier
        Sum of the rejection rates from end to end: with N levels, a round trip takes about ``2 + 2 barrier`` steps
        for each sequence in the best case, divided among N.
    """

    temperatures: NDArray[np.float64]
    swap_rate: float
    barrier: float


def tune_ladder(
    nll: Nll,
    *,
    vocabulary: int,
    length: int,
    coldest: float,
    moves: Move | Mixture,
    seed: int,
    n_steps: int = 200,
    hottest: float = math.inf,
    through: float | None = None,
) -> Ladder:
    """Lay a ladder down to a temperature such that neighbours swap in three of ten tries at least.

    Parameters
    ----------
    nll, vocabulary, length, moves
        As for `sampler.replica_exchange`.
    coldest, hottest
        The ends, kept as they are.
    seed
        Everything random follows from it.
    n_steps
        Of each of the pilot runs.
    through
        A temperature between the ends that is to be a level as it is.

    Raises
    ------
    NotConverged
        The rate needs more than 40 temperatures.
    InputError
        `coldest` is not above 0 or not below `hottest`.
    """
    if not 0 < coldest < hottest:
        raise InputError(f"coldest must lie between 0 and {hottest:g}, not {coldest:g}")
    fixed = tuple(dict.fromkeys((hottest, *([] if through is None else [through]), coldest)))
    kept = 1 / np.array(fixed)
    betas = _first(nll, vocabulary, length, kept, seed)
    start = None
    for k in range(_ROUNDS):
        pilot = replica_exchange(
            nll,
            vocabulary=vocabulary,
            length=length,
            temperatures=_temperatures(betas, fixed),
            n_chains=_CHAINS,
            n_steps=n_steps,
            burn_in=n_steps // 2,
            moves=moves,
            seed=seed + k,
            start=start,
        )
        # the barrier from the hottest level to each, (levels,), and to those that are kept
        reached = np.concatenate([[0.0], np.cumsum(np.maximum(1 - pilot.swap_rate, _LEAST))])
        ends = reached[np.searchsorted(betas, kept)]
        steps = np.maximum(1, np.ceil(np.diff(ends) / (1 - _SWAP_RATE))).astype(int)
        levels = int(steps.sum()) + 1
        if levels > _MOST_LEVELS:
            raise NotConverged(
                f"not converged: {levels} temperatures down to {coldest:g} are needed for a swap rate of "
                f"{_SWAP_RATE:g}, and at most {_MOST_LEVELS} are laid; take a higher coldest temperature"
            )
        # piecewise cubic and monotone: as smooth as the barrier, and never out of order
        laid = PchipInterpolator(reached, betas)
        parts = [
            np.concatenate([[first], laid(np.linspace(a, b, n + 1)[1:-1])])
            for first, a, b, n in zip(kept, ends[:-1], ends[1:], steps, strict=False)
        ]
        old, betas = betas, np.concatenate([*parts, kept[-1:]])
        start = _carried(pilot, old, betas)
    return Ladder(_temperatures(betas, fixed), float(1 - (np.diff(ends) / steps).max()), float(reached[-1]))


def _first(nll: Nll, vocabulary: int, length: int, kept: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Inverse temperatures of a geometric ladder through those kept, from one spread of the NLL below infinity."""
    hot, cold = kept[0], kept[-1]
    if hot == 0:
        uniform = np.random.default_rng([seed, 2]).integers(vocabulary, size=(256, length))
        hot = min(1 / float(np.std(nll(uniform))), cold / 2)
    return np.union1d(kept, np.geomspace(hot, cold, _FIRST - 1)[:-1])


def _temperatures(betas: NDArray[np.float64], fixed: Sequence[float]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        temperatures = 1 / betas
        temperatures[np.searchsorted(betas, 1 / np.array(fixed))] = fixed  # exactly, whatever division rounded
    return np.asarray(temperatures)


def _carried(pilot: Samples, old: NDArray[np.float64], new: NDArray[np.float64]) -> NDArray[np.integer[Any]]:
    """Last sequences of the pilot at the old level nearest to each new one, as the start of the next run."""
    nearest = np.abs(old[None, :] - new[:, None]).argmin(axis=1)
    return pilot.tokens[nearest, :, -1].reshape(-1, pilot.length).astype(np.int64)
