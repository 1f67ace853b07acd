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
from provlab.kept import Arrays
from provlab.modeldiff.diagnostics import NotConverged
from provlab.modeldiff.moves import Mixture, Move, Nll
from provlab.modeldiff.sampler import replica_exchange

_FIRST = 8  # levels of the first ladder
_LEAST = 1e-3  # a rejection rate below this cannot be distinguished from zero by a pilot run
_SWAP_RATE = 0.3  # mean acceptance of swaps to aim at
_ROUNDS = 4  # pilot runs, each of which begins where the last one ended
_CHAINS = 8  # of each pilot run; the first half of its steps is left out
_MOST_LEVELS = 40


@dataclass(frozen=True, eq=False)
class Ladder:
    """Temperatures for a run, and the rates that the pilots measured.

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


def lay(nll: Nll, **settings: Any) -> Arrays:
    """Return ``temperatures`` of `tune_ladder`, which takes the settings, to be kept."""
    return {"temperatures": tune_ladder(nll, **settings).temperatures}


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
        The number of steps of each of the pilot runs.
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
    fixed = list(dict.fromkeys((hottest, *([] if through is None else [through]), coldest)))
    kept = 1 / np.array(fixed)

    def temperatures(betas: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            laid = 1 / betas
        laid[np.searchsorted(betas, kept)] = fixed  # exactly, whatever division rounded
        return laid

    # at first a geometric ladder through the kept ones; below infinity it begins at one spread of the NLL
    first = kept[0]
    if first == 0:
        uniform = np.random.default_rng([seed, 2]).integers(vocabulary, size=(256, length))
        first = min(1 / float(np.std(nll(uniform))), kept[-1] / 2)
    betas = np.union1d(kept, np.geomspace(first, kept[-1], _FIRST - 1)[:-1])
    start = None
    for k in range(_ROUNDS):
        pilot = replica_exchange(
            nll,
            vocabulary=vocabulary,
            length=length,
            temperatures=temperatures(betas),
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
        smooth = PchipInterpolator(reached, betas)
        parts = [
            np.concatenate([[end], smooth(np.linspace(a, b, n + 1)[1:-1])])
            for end, a, b, n in zip(kept, ends[:-1], ends[1:], steps, strict=False)
        ]
        old, betas = betas, np.concatenate([*parts, kept[-1:]])
        # each level begins with the last sequences of the pilot at the old level nearest to it
        nearest = np.abs(old[None, :] - betas[:, None]).argmin(axis=1)
        start = pilot.tokens[nearest, :, -1].reshape(-1, length).astype(np.int64)
    return Ladder(temperatures(betas), float(1 - (np.diff(ends) / steps).max()), float(reached[-1]))
