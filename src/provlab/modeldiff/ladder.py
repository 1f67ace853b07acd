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
_LEAST = 1e-3  # a rejection rate below this is not told from zero by a pilot run


@dataclass(frozen=True, eq=False)
class Ladder:
    """Temperatures for a run, and what the pilots saw.

    Attributes
    ----------
    temperatures
        ``(level,)`` hottest first.
    swap_rate
        The rate expected between any two neighbours.
    barrier
        Sum of the rejection rates from end to end: with N levels, a round trip takes about ``2 + 2 barrier`` steps
        for each sequence in the best case, divided among N.
    evaluations
        Sequences that the pilots sent to the model.
    """

    temperatures: NDArray[np.float64]
    swap_rate: float
    barrier: float
    evaluations: int


def tune_ladder(
    nll: Nll,
    *,
    vocabulary: int,
    length: int,
    coldest: float,
    hottest: float = math.inf,
    swap_rate: float = 0.3,
    moves: Move | Mixture | None = None,
    n_chains: int = 8,
    n_steps: int = 200,
    rounds: int = 4,
    max_levels: int = 40,
    seed: int,
    progress: bool | str = False,
) -> Ladder:
    """Lay a ladder between two temperatures such that neighbours swap at least as often as asked.

    Parameters
    ----------
    nll, vocabulary, length, moves, n_chains
        As for `sampler.replica_exchange`.
    coldest, hottest
        The ends, kept as they are.
    swap_rate
        Mean acceptance of swaps to aim at.
    n_steps
        Steps of each pilot run; the first half is left out.
    rounds
        Pilot runs. Each begins where the last one ended.
    max_levels
        Most temperatures.
    seed
        Everything random follows from it.
    progress
        Show bars.

    Raises
    ------
    NotConverged
        The rate needs more than `max_levels` temperatures.
    InputError
        A parameter does not fit.
    """
    if not 0 < coldest < hottest:
        raise InputError(f"coldest must lie between 0 and hottest = {hottest:g}, not {coldest:g}")
    if not 0 < swap_rate < 1:
        raise InputError(f"swap_rate must lie between 0 and 1, not {swap_rate:g}")
    if rounds < 1 or n_steps < 4:
        raise InputError(f"rounds must be at least 1 and n_steps at least 4, not {rounds} and {n_steps}")
    betas = _first(nll, vocabulary, length, coldest, hottest, seed)
    start, evaluations = None, 0
    for k in range(rounds):
        pilot = replica_exchange(
            nll,
            vocabulary=vocabulary,
            length=length,
            temperatures=_temperatures(betas, hottest, coldest),
            n_chains=n_chains,
            n_steps=n_steps,
            burn_in=n_steps // 2,
            moves=moves,
            seed=seed + k,
            start=start,
            progress=f"pilot run {k + 1} of {rounds}" if progress else False,
        )
        evaluations += pilot.evaluations
        reached = np.concatenate([[0.0], np.cumsum(np.maximum(1 - pilot.swap_rate, _LEAST))])
        levels = max(2, math.ceil(reached[-1] / (1 - swap_rate)) + 1)
        if levels > max_levels:
            raise NotConverged(
                f"not converged: {levels} temperatures between {hottest:g} and {coldest:g} are needed for a swap rate "
                f"of {swap_rate:g}, and max_levels is {max_levels}; take a higher coldest temperature or a lower rate"
            )
        old = betas
        # piecewise cubic and monotone: as smooth as the barrier, and never out of order
        betas = PchipInterpolator(reached, old)(np.linspace(0, reached[-1], levels))
        start = _carried(pilot, old, betas)
    return Ladder(
        _temperatures(betas, hottest, coldest),
        float(1 - reached[-1] / (levels - 1)),
        float(reached[-1]),
        evaluations,
    )


def _first(nll: Nll, vocabulary: int, length: int, coldest: float, hottest: float, seed: int) -> NDArray[np.float64]:
    """Inverse temperatures of a geometric ladder; from infinity, the first step is one spread of the NLL."""
    if math.isfinite(hottest):
        return np.geomspace(1 / hottest, 1 / coldest, _FIRST)
    uniform = np.random.default_rng([seed, 2]).integers(vocabulary, size=(256, length))
    spread = float(np.std(nll(uniform)))
    warm = max(spread, 2 * coldest)
    return np.concatenate([[0.0], np.geomspace(1 / warm, 1 / coldest, _FIRST - 1)])


def _temperatures(betas: NDArray[np.float64], hottest: float, coldest: float) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        temperatures = 1 / betas
    temperatures[0], temperatures[-1] = hottest, coldest  # exactly as asked
    return np.asarray(temperatures)


def _carried(pilot: Samples, old: NDArray[np.float64], new: NDArray[np.float64]) -> NDArray[np.integer[Any]]:
    """Last sequences of the pilot at the old level nearest to each new one, as the start of the next run."""
    nearest = np.abs(old[None, :] - new[:, None]).argmin(axis=1)
    return pilot.tokens[nearest, :, -1].reshape(-1, pilot.length).astype(np.int64)
