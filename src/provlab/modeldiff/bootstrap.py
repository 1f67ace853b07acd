"""Resampling whole chains: draws of one chain resemble each other, chains do not."""

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95  # of every interval


def chain_counts(n_chains: int, n_resamples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How often each chain is drawn in each resample, ``(n_resamples, n_chains)``."""
    return rng.multinomial(n_chains, np.full(n_chains, 1 / n_chains), size=n_resamples)


def percentiles(draws: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the 95% interval of resamples ``(n_resamples, ...)``; an undefined one counts as infinite."""
    tail = (1 - LEVEL) / 2
    filled = np.where(np.isnan(draws), np.inf, draws)
    # at the order statistics themselves: between a finite value and infinity there is nothing to interpolate
    return (
        np.quantile(filled, tail, axis=0, method="lower"),
        np.quantile(filled, 1 - tail, axis=0, method="higher"),
    )
