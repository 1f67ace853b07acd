"""Intervals by resampling whole chains: draws of one chain resemble each other, chains do not."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

LEVEL = 0.95  # of every interval


def chain_counts(n_chains: int, n_resamples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How often each chain is drawn in each resample, ``(n_resamples, n_chains)``."""
    return rng.multinomial(n_chains, np.full(n_chains, 1 / n_chains), size=n_resamples)


def tail(n_chains: int) -> float:
    """Share of resamples to leave out at either end for a 95% interval.

    Resamples of n chains scatter by sqrt((n - 1) / n) too little, and as a normal law where Student's with n - 1
    degrees of freedom is due: at eight chains the plain 2.5% cover 89%. The expanded percentile interval
    (Hesterberg 2015, "What teachers should know about the bootstrap") takes smaller shares to make up for both.
    """
    if n_chains < 2:
        return (1 - LEVEL) / 2
    reach = math.sqrt(n_chains / (n_chains - 1)) * special.stdtrit(n_chains - 1, (1 + LEVEL) / 2)
    return float(special.ndtr(-reach))


def percentiles(draws: NDArray[np.float64], n_chains: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the 95% interval of resamples ``(n_resamples, ...)`` of chains; an undefined one counts as infinite."""
    share = tail(n_chains)
    filled = np.where(np.isnan(draws), np.inf, draws)
    # at the order statistics themselves: between a finite value and infinity there is nothing to interpolate
    return (
        np.quantile(filled, share, axis=0, method="lower"),
        np.quantile(filled, 1 - share, axis=0, method="higher"),
    )


def share_interval(share: ArrayLike, worth: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the 95% interval of shares ``(...)`` that rest on so many effective draws.

    A share that all draws show, or none, looks certain to every resample. None of n draws may still be a share of
    3.7 / n: the interval of Clopper and Pearson (1934), with effective draws for draws (Korn and Graubard 1998).
    """
    hits = np.asarray(share, dtype=float) * worth
    misses, out = np.maximum(worth - hits, 0.0), (1 - LEVEL) / 2
    low = special.betaincinv(np.maximum(hits, 1e-12), misses + 1, out)
    high = special.betaincinv(hits + 1, np.maximum(misses, 1e-12), 1 - out)
    return np.where(hits > 0, low, 0.0), np.where(misses > 0, high, 1.0)
