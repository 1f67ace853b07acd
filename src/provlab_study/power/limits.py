"""From draws to a limit: where does a test reach its power, and how precisely is that known?"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from provlab.inference import pvalues

_RESAMPLES = 400  # of the bootstrap
_ENDS = [0.025, 0.975]  # of a 95% percentile interval
_SETS = 1000  # of blocks, over which Fisher's method is tried

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Limit:
    """Where a power is reached, with a bootstrap interval; NaN where it lies beyond the values tried."""

    value: float
    low: float
    high: float


def detection_limit(
    x: ArrayLike, log10_p: ArrayLike, target: float = -20.0, *, power: float = 0.9, rng: np.random.Generator
) -> Limit:
    """Find the value of x at which draws reach `target` with a given power, by interpolation.

    Parameters
    ----------
    x
        ``(k,)``, ascending: the strength of dependence, with which power rises.
    log10_p
        ``(k, draws)``: outcomes at each x.
    target, power
        A draw at or below `target` counts; `power` is the share of draws that must.
    rng
        For the 95% percentile interval: draws are resampled at each x.
    """
    reached = np.asarray(log10_p) <= target
    picks = rng.integers(reached.shape[1], size=(_RESAMPLES, *reached.shape))
    resampled = np.take_along_axis(reached[None], picks, axis=2).mean(axis=2)
    crossings = np.array([_crossing(x, shares, power) for shares in resampled])
    low, high = np.quantile(np.where(np.isnan(crossings), np.inf, crossings), _ENDS, method="nearest")
    ends = (float(end) if np.isfinite(end) else np.nan for end in (low, high))
    return Limit(_crossing(x, reached.mean(axis=1), power), *ends)


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
        ``(k,)``, ascending: the strength of dependence, with which power rises.
    log10_p
        ``(k, n)``: log10 p of n single blocks at each x, from which sets of `n_blocks` are drawn.
    n_blocks, target, power
        A set counts if Fisher's log10 p is at or below the target; `power` is the share of sets that must.
    rng
        For the sets, and for the 95% percentile interval: the n blocks themselves are resampled, since only they are
        known.
    """
    outcomes = np.asarray(log10_p)
    needed = float(pvalues.fisher_threshold(target, n_blocks))

    def crossing(blocks: Floats, draws: int) -> float:
        picks = rng.integers(blocks.shape[1], size=(draws, n_blocks))
        shares = (-np.log(10.0) * blocks[:, picks].sum(axis=2) >= needed).mean(axis=1)
        return _crossing(x, shares, power)

    crossings = []
    for _ in range(_RESAMPLES // 2):  # each looks at many sets
        kept = rng.integers(outcomes.shape[1], size=outcomes.shape)
        crossings.append(crossing(np.take_along_axis(outcomes, kept, axis=1), _SETS // 4))
    value = crossing(outcomes, _SETS)
    low, high = np.quantile(crossings, _ENDS)  # NaN if one crossing is
    return Limit(value, float(low), float(high))


def mean_crossing(x: ArrayLike, log10_p: ArrayLike, target: float = -20.0, *, rng: np.random.Generator) -> Limit:
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
        For the 95% percentile interval of the mean over draws.

    Returns
    -------
    Limit
        NaN where a draw begins above the target or never rises past it.
    """
    places = np.asarray(x)
    fitted = [optimize.isotonic_regression(draw).x for draw in np.asarray(log10_p, dtype=np.float64).T]
    crossings = np.array([_interpolated(places, f, target, int(np.searchsorted(f, target, "right"))) for f in fitted])
    if np.isnan(crossings).any():
        return Limit(np.nan, np.nan, np.nan)
    means = rng.choice(crossings, (_RESAMPLES, crossings.size)).mean(axis=1)
    low, high = np.quantile(means, _ENDS)
    return Limit(float(crossings.mean()), float(low), float(high))


def _crossing(x: ArrayLike, shares: Floats, power: float) -> float:
    """Place where the shares, made monotone, reach the power; NaN where they never do or always did."""
    steady = np.maximum.accumulate(shares)
    return _interpolated(np.asarray(x), steady, power, int(np.searchsorted(steady, power)))


def _interpolated(x: Floats, rising: Floats, level: float, above: int) -> float:
    """Place between the points `above` - 1 and `above` where straight lines between rising values pass the level."""
    if above in (0, rising.size):
        return np.nan
    step = (level - rising[above - 1]) / (rising[above] - rising[above - 1])
    return float(x[above - 1] + step * (x[above] - x[above - 1]))
