"""Whether the chains of a replica exchange can be believed, and if not, what to change.

Source of the measures: Vehtari et al. (2021) for rank-normalised R-hat and effective sample sizes, computed by
ArviZ; swap rates and round trips of a tempered ladder as in Syed et al. (2022).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray

from provlab.errors import ProvlabError

if TYPE_CHECKING:
    from provlab.modeldiff.sampler import Samples


class NotConverged(ProvlabError):
    """Chains have not run long enough, or their ladder has gaps; the message says which, and the remedy."""


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """How well chains moved.

    Attributes
    ----------
    acceptance
        ``(temperature, move)`` share of proposals accepted, NaN where none was made.
    swap_rate
        ``(temperature - 1,)`` mean acceptance probability between neighbouring levels.
    round_trips
        ``(chain,)`` journeys from the hottest level to the coldest and back.
    ess
        ``(temperature,)`` effective number of draws of the NLL, bulk, over all chains.
    rhat
        ``(temperature,)`` R-hat of the NLL over chains, rank-normalised and split. NaN for a single short chain.
    outlier
        ``(temperature,)`` the chain whose mean NLL lies furthest from the others.
    """

    acceptance: NDArray[np.float64]
    swap_rate: NDArray[np.float64]
    round_trips: NDArray[np.int64]
    ess: NDArray[np.float64]
    rhat: NDArray[np.float64]
    outlier: NDArray[np.int64]


@dataclass(frozen=True)
class Convergence:
    """The gate's answer.

    Attributes
    ----------
    failures
        One line for each criterion that fails, with the remedy; empty if all hold.
    """

    failures: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every criterion holds."""
        return not self.failures

    def require(self) -> None:
        """Raise `NotConverged` unless every criterion holds."""
        if self.failures:
            raise NotConverged("not converged: " + "; ".join(self.failures))

    def __str__(self) -> str:
        return "converged" if self.ok else "not converged: " + "; ".join(self.failures)


def diagnose(samples: "Samples") -> Diagnostics:
    """Compute the diagnostics of chains from their draws."""
    nll = samples.nll
    attempted = samples.attempted
    means = nll.mean(axis=2)
    return Diagnostics(
        acceptance=np.divide(samples.accepted, attempted, out=np.full(attempted.shape, np.nan), where=attempted > 0),
        swap_rate=samples.swap_rate,
        round_trips=samples.round_trips,
        ess=np.array([_ess(level) for level in nll]),
        rhat=np.array([_rhat(level) for level in nll]),
        outlier=np.abs(means - np.median(means, axis=1, keepdims=True)).argmax(axis=1),
    )


def converged(
    samples: "Samples",
    *,
    max_rhat: float = 1.05,
    min_ess: float = 100.0,
    min_swap_rate: float = 0.05,
    min_acceptance: float = 0.005,
    min_round_trips: float = 1.0,
) -> Convergence:
    """Judge whether the chains may be used.

    Parameters
    ----------
    samples
        Of `sampler.replica_exchange`.
    max_rhat
        Largest R-hat of the NLL at any temperature.
    min_ess
        Fewest effective draws at any temperature, all chains together.
    min_swap_rate
        Least mean acceptance of swaps between neighbours.
    min_acceptance
        Least acceptance, over all moves, at any temperature.
    min_round_trips
        Fewest journeys through the ladder and back, mean over chains.

    Returns
    -------
    Convergence
        With `require()`, which raises `NotConverged`.
    """
    found = samples.diagnostics
    hot = [f"{value:.3g}" for value in samples.temperatures]
    failures = []
    for k in np.flatnonzero(found.swap_rate < min_swap_rate):
        failures.append(
            f"levels {hot[k]} and {hot[k + 1]} swap in {found.swap_rate[k]:.1%} of tries "
            f"({min_swap_rate:.0%} is needed): add a temperature between, such as "
            f"{between(samples.temperatures[k], samples.temperatures[k + 1]):.3g}"
        )
    tried = samples.attempted.sum(axis=1)
    for k in np.flatnonzero((tried > 0) & (samples.accepted.sum(axis=1) < min_acceptance * tried)):
        failures.append(
            f"temperature {hot[k]} accepts {samples.accepted[k].sum() / tried[k]:.2%} of its moves "
            f"({min_acceptance:.1%} is needed): use smaller or informed moves, or leave that temperature out"
        )
    worst = int(np.nanargmax(np.where(np.isnan(found.rhat), np.inf, found.rhat)))
    if not found.rhat[worst] <= max_rhat:
        failures.append(
            f"R-hat is {found.rhat[worst]:.2f} at temperature {hot[worst]} (at most {max_rhat:g}; chain "
            f"{found.outlier[worst]} stands furthest out): run more steps"
        )
    least = int(np.argmin(found.ess))
    if not found.ess[least] >= min_ess:
        failures.append(
            f"temperature {hot[least]} has {found.ess[least]:.0f} effective draws ({min_ess:.0f} are needed): run more "
            f"steps or chains"
        )
    if len(hot) > 1 and found.round_trips.mean() < min_round_trips:
        failures.append(
            f"a chain went through the ladder and back {found.round_trips.mean():.1f} times ({min_round_trips:g} are "
            "needed): run more steps, or lay the ladder anew with tune_ladder"
        )
    return Convergence(tuple(failures))


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
