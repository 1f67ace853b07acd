"""From draws to a limit: where does a test reach its power, and how surely is that known?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from provlab.errors import InputError
from provlab.inference import pvalues

_RESAMPLES = 400  # of the bootstrap
_ENDS = [0.025, 0.975]  # of a 95% percentile interval
_SETS = 1000  # of blocks, over which Fisher's method is tried


@dataclass(frozen=True)
class Limit:
    """Where a power is reached, with a bootstrap interval; None where it lies beyond the values tried."""

    value: float | None
    low: float | None
    high: float | None


def detection_limit(
    x: ArrayLike,
    log10_p: ArrayLike,
    target: float = -20.0,
    *,
    power: float = 0.9,
    rng: np.random.Generator,
) -> Limit:
    """Find the value of x at which draws reach `target` with a given power, by interpolation.

    Parameters
    ----------
    x
        ``(k,)``, ascending: what makes dependence weaker or stronger.
    log10_p
        ``(k, draws)``: outcomes at each x. Power may rise with x (correlation) or fall with it (noise).
    target, power
        A draw at or below `target` counts; `power` is the share of draws that must.
    rng
        Of the 95% percentile interval: draws are resampled at each x.

    Raises
    ------
    InputError
        If the shapes do not fit, or x does not ascend.
    """
    places, outcomes = _checked(x, log10_p)
    reached = outcomes <= target
    rises = reached[-1].mean() >= reached[0].mean()
    value = _crossing(places, reached.mean(axis=1), power, rises)
    picks = rng.integers(reached.shape[1], size=(_RESAMPLES, *reached.shape))
    resampled = np.take_along_axis(reached[None], picks, axis=2).mean(axis=2)
    found = np.array([_crossing(places, shares, power, rises) for shares in resampled], dtype=np.float64)  # None is NaN
    beyond = -np.inf if not rises else np.inf
    low, high = np.quantile(np.where(np.isnan(found), beyond, found), _ENDS, method="nearest")
    return Limit(value, float(low) if np.isfinite(low) else None, float(high) if np.isfinite(high) else None)


def limit_over_blocks(
    x: ArrayLike,
    log10_p: ArrayLike,
    n_blocks: int,
    target: float = -20.0,
    *,
    power: float = 0.9,
    rng: np.random.Generator,
) -> Limit:
    """Find the x at which Fisher's aggregate over `n_blocks` blocks reaches `target` with a given power.

    Parameters
    ----------
    x
        ``(k,)``, ascending.
    log10_p
        ``(k, n)``: log10 p of n single blocks at each x, from which sets of `n_blocks` are drawn.
    n_blocks, target, power
        A set counts if Fisher's log10 p is at or below the target; `power` is the share of sets that must.
    rng
        Of the sets, and of the 95% percentile interval: the n blocks themselves are resampled, since they are what is
        known.

    Raises
    ------
    InputError
        If the shapes do not fit, or x does not ascend.
    """
    places, outcomes = _checked(x, log10_p)
    needed = float(pvalues.fisher_threshold(target, n_blocks))

    def crossing(blocks: NDArray[np.float64], draws: int) -> float | None:
        picks = rng.integers(blocks.shape[1], size=(draws, n_blocks))
        shares = (-np.log(10.0) * blocks[:, picks].sum(axis=2) >= needed).mean(axis=1)
        return _crossing(places, shares, power, bool(shares[-1] >= shares[0]))

    found = []
    for _ in range(_RESAMPLES // 2):  # each looks at many sets
        kept = rng.integers(outcomes.shape[1], size=outcomes.shape)
        found.append(crossing(np.take_along_axis(outcomes, kept, axis=1), _SETS // 4))
    value = crossing(outcomes, _SETS)
    if value is None or None in found:
        return Limit(value, None, None)
    low, high = np.quantile(np.array(found, dtype=np.float64), _ENDS)
    return Limit(value, float(low), float(high))


def mean_crossing(
    x: ArrayLike,
    log10_p: ArrayLike,
    target: float = -20.0,
    *,
    rng: np.random.Generator,
) -> Limit:
    """Mean, over draws, of the x at which a draw's log10 p rises past the target.

    Each draw is followed along x: the same noise, ever louder. A monotone fit bridges the ups and downs of a single
    draw, and its crossing is interpolated.

    Parameters
    ----------
    x
        ``(k,)``, ascending.
    log10_p
        ``(k, draws)``, rising with x by and large.
    target
        log10 p.
    rng
        Of the 95% percentile interval for the mean over draws.

    Returns
    -------
    Limit
        Without numbers where a draw begins above the target or never rises past it.

    Raises
    ------
    InputError
        If the shapes do not fit, or x does not ascend.
    """
    places, outcomes = _checked(x, log10_p)
    crossings = np.empty(outcomes.shape[1])
    for draw, values in enumerate(outcomes.T):
        fitted = optimize.isotonic_regression(values).x
        if fitted[0] > target or fitted[-1] <= target:
            return Limit(None, None, None)
        above = int(np.argmax(fitted > target))
        step = (target - fitted[above - 1]) / (fitted[above] - fitted[above - 1])
        crossings[draw] = places[above - 1] + step * (places[above] - places[above - 1])
    means = rng.choice(crossings, (_RESAMPLES, crossings.size)).mean(axis=1)
    low, high = np.quantile(means, _ENDS)
    return Limit(float(crossings.mean()), float(low), float(high))


def _checked(x: ArrayLike, log10_p: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    places, outcomes = np.asarray(x, dtype=np.float64), np.asarray(log10_p, dtype=np.float64)
    if outcomes.ndim != 2 or places.shape != outcomes.shape[:1] or places.size < 2 or (np.diff(places) <= 0).any():
        raise InputError(f"x has shape {places.shape}, log10_p {outcomes.shape}; give ascending (k,) and (k, draws)")
    return places, outcomes


def _crossing(x: NDArray[np.float64], shares: NDArray[np.float64], power: float, rises: bool) -> float | None:
    """Place where the shares, made monotone, pass the power; None where they never reach it or always exceed it."""
    if not rises:
        mirrored = _crossing(-x[::-1], shares[::-1], power, True)
        return None if mirrored is None else -mirrored
    steady = np.maximum.accumulate(shares)
    if steady[-1] < power or steady[0] >= power:
        return None
    at = int(np.argmax(steady >= power))
    step = (power - steady[at - 1]) / (steady[at] - steady[at - 1])
    return float(x[at - 1] + step * (x[at] - x[at - 1]))
