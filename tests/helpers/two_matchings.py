"""Matchings by gate and by up of independent models, with a planted number of units in common."""

from itertools import combinations

import numpy as np


def two_matchings(rng, common, h):
    """Matchings by gate and by up, ``(2, h)``, that agree on exactly `common` units; None for chance."""
    gate, up = rng.permutation(h), rng.permutation(h)
    if common is not None:
        up = gate.copy()
        rest = np.arange(common, h)
        up[rest] = gate[np.roll(rest, 1)]
    return np.stack([gate, up])


def table_of(n_models, n_blocks, common, seed, h=64):
    """Matchings of all pairs of so many models."""
    rng = np.random.default_rng(seed)
    pairs = combinations([f"m{i}" for i in range(n_models)], 2)
    return {pair: [two_matchings(rng, common, h) for _ in range(n_blocks)] for pair in pairs}
