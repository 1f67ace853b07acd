"""Whether the chains of a replica exchange have converged, and if not, the remedy.

Source of the measures: Vehtari et al. (2021) for rank-normalised R-hat and effective sample sizes, computed by
ArviZ; swap rates and round trips of a tempered ladder as in Syed et al. (2022).
"""

from dataclasses import dataclass

import numpy as np
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray

from provlab.errors import ProvlabError
from provlab.modeldiff.moves import Rewrite
from provlab.modeldiff.sampler import Samples

_MOST_RHAT = 1.05  # of the NLL at any temperature
_LEAST_ESS = 100.0  # effective draws at any temperature, all chains together
_LEAST_SWAP_RATE = 0.05  # mean acceptance of swaps between neighbours
_LEAST_ACCEPTANCE = 0.005  # over all moves, at any temperature
_LEAST_ROUND_TRIPS = 1.0  # journeys through the ladder and back, mean over chains


class NotConverged(ProvlabError):
    """Chains have not run long enough, or their ladder has gaps; the message says which, and the remedy."""


@dataclass(frozen=True, eq=False)
class Convergence:
    """How well the chains mixed, and whether that is enough.

    Attributes
    ----------
    ess
        ``(temperature,)`` effective number of draws of the NLL, bulk, over all chains.
    rhat
        ``(temperature,)`` R-hat of the NLL over chains, rank-normalised and split. NaN for a single short chain.
    failures
        One line for each criterion that fails, with the remedy; empty if all hold.
    """

    ess: NDArray[np.float64]
    rhat: NDArray[np.float64]
    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every criterion holds."""
        return not self.failures

    def require(self) -> None:
        """Raise `NotConverged` unless every criterion holds."""
        if not self.ok:
            raise NotConverged(str(self))

    def __str__(self) -> str:
        return "converged" if self.ok else "not converged: " + "; ".join(self.failures)


def converged(samples: Samples) -> Convergence:
    """Judge whether the chains of `sampler.replica_exchange` may be used.

    Returns
    -------
    Convergence
        With `require()`, which raises `NotConverged`.
    """
    ess, rhat = (np.array([measure(level) for level in samples.nll]) for measure in (_ess, _rhat))
    names = [f"{value:.3g}" for value in samples.temperatures]
    failures = []
    for k in np.flatnonzero(samples.swap_rate < _LEAST_SWAP_RATE):
        failures.append(
            f"levels {names[k]} and {names[k + 1]} swap in {samples.swap_rate[k]:.1%} of tries "
            f"({_LEAST_SWAP_RATE:.0%} is needed): add a temperature between, such as "
            f"{between(samples.temperatures[k], samples.temperatures[k + 1]):.3g}"
        )
    tried = samples.attempted.sum(axis=1)
    for k in np.flatnonzero((tried > 0) & (samples.accepted.sum(axis=1) < _LEAST_ACCEPTANCE * tried)):
        failures.append(
            f"temperature {names[k]} accepts {samples.accepted[k].sum() / tried[k]:.2%} of its moves "
            f"({_LEAST_ACCEPTANCE:.1%} is needed): use smaller or informed moves, or leave that temperature out"
        )
    worst = int(np.nanargmax(np.where(np.isnan(rhat), np.inf, rhat)))
    if not rhat[worst] <= _MOST_RHAT:
        means = samples.nll[worst].mean(axis=1)  # (chain,)
        outlier = np.abs(means - np.median(means)).argmax()
        failures.append(
            f"R-hat is {rhat[worst]:.2f} at temperature {names[worst]} (at most {_MOST_RHAT:g}; chain "
            f"{outlier} stands furthest out): run more steps"
        )
    least = int(np.argmin(ess))
    if not ess[least] >= _LEAST_ESS:
        failures.append(
            f"temperature {names[least]} has {ess[least]:.0f} effective draws ({_LEAST_ESS:.0f} are needed): run more "
            f"steps or chains"
        )
    # a move that redraws whole sequences at each level does not need the journey to get out of a corner
    redrawn = Rewrite().name in samples.moves
    if len(names) > 1 and not redrawn and samples.round_trips.mean() < _LEAST_ROUND_TRIPS:
        failures.append(
            f"a chain went through the ladder and back {samples.round_trips.mean():.1f} times ({_LEAST_ROUND_TRIPS:g} "
            "are needed): run more steps, or lay another ladder with tune_ladder"
        )
    return Convergence(ess, rhat, tuple(failures))


def between(hotter: float, colder: float) -> float:
    """Temperature between two: their geometric mean; twice the colder one if the hotter is infinite."""
    return float(2 * colder if np.isinf(hotter) else np.sqrt(hotter * colder))


def _ess(level: NDArray[np.float64]) -> float:
    """Effective draws of ``(chain, draw)``; a level where nothing ever moved has one."""
    if level.shape[1] < 4 or np.ptp(level) == 0:
        return float(level.shape[0] if np.ptp(level) else 1)
    return float(array_stats.ess(level))


def _rhat(level: NDArray[np.float64]) -> float:
    """R-hat of ``(chain, draw)``, infinite where each chain stands still at a value of its own."""
    if level.shape[1] < 4:
        return float("nan")
    if (np.ptp(level, axis=1) == 0).all():
        return 1.0 if np.ptp(level) == 0 else float("inf")
    return float(array_stats.rhat(level))
