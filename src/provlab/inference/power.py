"""The power of a matching test: the smallest share of common units that it would have rejected.

A share s of the n units of each block is common to both models, and both matchings find it; the other units are drawn
apart. Among the s n units that agree, those that are allowed for are no evidence: g are left among m that count.
Spearman's correlation of these has the mean g / m, and times sqrt(m - 1) it is about normal with standard deviation 1
or less. Blocks are combined by Fisher's method.
"""

from collections.abc import Sequence

import numpy as np

from provlab.inference import pvalues

POWER = 0.9  # probability with which the share would have been found
_DRAWS = 2000
_STEPS = 200  # of the share, in each of which it grows by half a percent


def units_that_count(floor: float) -> int:
    """Return how many units a block has whose smallest log10 p is `floor`: the n of -log10 n!."""
    low, high = 1, 2
    while pvalues.log10_floor(high) > floor + 1e-9:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pvalues.log10_floor(middle) > floor + 1e-9 else (low, middle)
    return high if floor < 0 else 1


def smallest_share(units: Sequence[int], counted: Sequence[int], log10_level: float) -> float | None:
    """Return the smallest share of units, common in each block, that is rejected with probability `POWER`.

    Parameters
    ----------
    units, counted
        How many units of each block were matched, and how many of them could be evidence.
    log10_level
        At which the blocks together are rejected.

    Returns
    -------
    float or None
        From 0 to 1, in steps of half a percent; None if not even all units would be found.
    """
    n, m = (np.asarray(some, dtype=np.float64) for some in (units, counted))
    noise = np.random.default_rng(0).standard_normal((_DRAWS, len(n)))
    shares = np.arange(1, _STEPS + 1) / _STEPS

    def probability(share: float) -> float:
        agreeing = np.clip(share * n - (n - m), 0, None)  # (blocks,)
        z = agreeing / m * np.sqrt(np.maximum(m - 1, 0)) + noise  # (draws, blocks)
        log10_p = pvalues.log10_p_normal(z)
        return float((pvalues.fisher(np.minimum(log10_p, 0), axis=1) <= log10_level).mean())

    if probability(1.0) < POWER:
        return None
    low, high = 0, _STEPS  # it grows with the share
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if probability(shares[middle - 1]) >= POWER else (middle, high)
    return float(shares[high - 1])
