"""Temperatures at which neighbours swap equally often, found by pilot runs.

Swaps between inverse temperatures b and b + db are rejected at a rate L(b) db, whatever the ladder: the integral of L
from end to end, the communication barrier, is a property of the law alone. Levels that split the barrier evenly swap
equally often, and sequences then go through the ladder fastest (Syed, Bouchard-Cote, Deligiannidis and Doucet 2022).
Each pilot run measures the barrier on the ladder it has, and the next is laid by it.
"""

import math
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
_CHAINS, _STEPS = 8, 200  # of each pilot run; the first half of its steps is left out
_MOST_LEVELS = 40


@dataclass(frozen=True, eq=False)
class Ladder:
    """Temperatures for a run, and what the pilots saw.

    Attributes
    ----------
    temperatures
        ``(level,)`` hottest first, infinity.
    swap_rate
        The rate expected between any two neighbours.
    barrier
        Sum of the rejection rates from end to end: with N levels, a round trip takes about ``2 + 2 barrier`` steps
        for each sequence in the best case, divided among N.
    """

    temperatures: NDArray[np.float64]
    swap_rate: float
    barrier: float


def tune_ladder(nll: Nll, *, vocabulary: int, length: int, coldest: float, moves: Move | Mixture, seed: int) -> Ladder:
    """Lay a ladder from infinity down to a temperature such that neighbours swap in three of ten tries at least.

    Parameters
    ----------
    nll, vocabulary, length, moves
        As for `sampler.replica_exchange`.
    coldest
        The last temperature, kept as it is.
    seed
        Everything random follows from it.

    Raises
    ------
    NotConverged
        The rate needs more than 40 temperatures.
    InputError
        `coldest` is not above 0.
    """
    if not 0 < coldest < math.inf:
        raise InputError(f"coldest must lie between 0 and infinity, not {coldest:g}")
    betas = _first(nll, vocabulary, length, coldest, seed)
    start = None
    for k in range(_ROUNDS):
        pilot = replica_exchange(
            nll,
            vocabulary=vocabulary,
            length=length,
            temperatures=_temperatures(betas, coldest),
            n_chains=_CHAINS,
            n_steps=_STEPS,
            burn_in=_STEPS // 2,
            moves=moves,
            seed=seed + k,
            start=start,
        )
        # the barrier from the hottest level to each, (levels,)
        reached = np.concatenate([[0.0], np.cumsum(np.maximum(1 - pilot.swap_rate, _LEAST))])
        levels = max(2, math.ceil(reached[-1] / (1 - _SWAP_RATE)) + 1)
        if levels > _MOST_LEVELS:
            raise NotConverged(
                f"not converged: {levels} temperatures down to {coldest:g} are needed for a swap rate of "
                f"{_SWAP_RATE:g}, and at most {_MOST_LEVELS} are laid; take a higher coldest temperature"
            )
        old = betas
        # piecewise cubic and monotone: as smooth as the barrier, and never out of order
        betas = PchipInterpolator(reached, old)(np.linspace(0, reached[-1], levels))
        start = _carried(pilot, old, betas)
    return Ladder(_temperatures(betas, coldest), float(1 - reached[-1] / (levels - 1)), float(reached[-1]))


def _first(nll: Nll, vocabulary: int, length: int, coldest: float, seed: int) -> NDArray[np.float64]:
    """Inverse temperatures of a geometric ladder below infinity, whose first step is one spread of the NLL."""
    uniform = np.random.default_rng([seed, 2]).integers(vocabulary, size=(256, length))
    spread = float(np.std(nll(uniform)))
    warm = max(spread, 2 * coldest)
    return np.concatenate([[0.0], np.geomspace(1 / warm, 1 / coldest, _FIRST - 1)])


def _temperatures(betas: NDArray[np.float64], coldest: float) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        temperatures = 1 / betas
    temperatures[0], temperatures[-1] = math.inf, coldest  # exactly, whatever the interpolation rounded
    return np.asarray(temperatures)


def _carried(pilot: Samples, old: NDArray[np.float64], new: NDArray[np.float64]) -> NDArray[np.integer[Any]]:
    """Last sequences of the pilot at the old level nearest to each new one, as the start of the next run."""
    nearest = np.abs(old[None, :] - new[:, None]).argmin(axis=1)
    return pilot.tokens[nearest, :, -1].reshape(-1, pilot.length).astype(np.int64)
