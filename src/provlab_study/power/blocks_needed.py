"""How little dependence does a matching statistic detect, and how many blocks must be read for it?

A model with one number answers, the *separation* of `provlab_study.power.planted`: by how many standard deviations
the similarity of a row with its partner exceeds that of unrelated rows. For rows of m Gaussian weights with correlation
rho that is about rho sqrt(m). The answer takes three steps:

1. `recovered_share`: of h planted partners, how many does the best assignment find? (`provlab_study.power.planted`)
2. `evidence`: partners that are found make Spearman's correlation, whose law turns it into -ln p.
3. `blocks_needed`: over blocks, -ln p adds up, and Fisher's method says how large the sum must be.

Instead of the first two, -ln p may come from a few blocks read as a pilot. The model covers statistics that match the
rows of two models and rank the matching: phi_U and phi_H, aggregated by Fisher's method (Section 3.2, Algorithm 3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab_study.power.planted import Separation, gaussian_separation, recovered_share

MOST_BLOCKS = 100_000  # beyond this the answer is: not by reading blocks
_NODES = 41
_TINY = 1e-9  # stands for a spread of zero


@dataclass(frozen=True)
class BlockEvidence:
    """Mean and standard deviation of -ln p over blocks (nats); under independence both are 1."""

    mean: float
    sd: float


def evidence(width: int, share: float) -> BlockEvidence:
    """-ln p of one block in which a share of `width` rows has found its partner and the others are matched at random.

    Spearman's correlation has then the mean `share` and the variance (1 - share)(1 + 1.8 share) / width: the first
    factor from the rows matched at random, the second from which rows found theirs (1.8 is the kurtosis of ranks).
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    rho = share + nodes * _spread(width, share)
    distances = np.rint((1.0 - np.clip(rho, -1.0, 1.0)) * (width**3 - width) / 12).astype(np.int64) * 2
    values = -pvalues.LN10 * pvalues.log10_p_spearman(distances, width)
    weights = weights / weights.sum()
    mean = float(weights @ values)
    return BlockEvidence(mean, math.sqrt(float(weights @ (values - mean) ** 2)))


# From evidence to blocks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlocksNeeded:
    """How many blocks to read.

    Attributes
    ----------
    blocks
        The smallest number with which Fisher's aggregate reaches the target with the power asked for; None if
        `MOST_BLOCKS` do not.
    low, high
        95% interval from the spread of the pilot blocks (Student's t), None at an end where no number suffices; both
        equal to `blocks` where the answer comes from the model.
    evidence
        -ln p of one block.
    share
        The share of partners found in a block, by the model; None with a pilot.
    """

    blocks: int | None
    low: int | None
    high: int | None
    evidence: BlockEvidence
    share: float | None = None


def reach_probability(separation: Separation, n_blocks: int, target: float = -20.0) -> float:
    """Probability that Fisher's aggregate over `n_blocks` blocks reaches log10 p = `target`, by the model."""
    return float(stats.norm.cdf(_margin(separation, n_blocks, target)))


def _margin(separation: Separation, n_blocks: int, target: float) -> float:
    """Standard deviations by which the expected sum of -ln p exceeds Fisher's threshold."""
    share = recovered_share(separation)
    alone = _margin_of_one(separation.width, share, target)
    if n_blocks == 1:
        return alone
    block = evidence(separation.width, share)
    threshold = float(pvalues.fisher_threshold(target, n_blocks))
    together = (n_blocks * block.mean - threshold) / (math.sqrt(n_blocks) * max(block.sd, _TINY))  # no sd at the floor
    return max(alone, together)


def _margin_of_one(width: int, share: float, target: float) -> float:
    """The same for one block, in standard deviations of Spearman's correlation, whose law is less skewed than -ln p."""
    if pvalues.log10_p_spearman(0, width) > target:
        return -1.0 / _TINY
    needed = 1.0 - 6.0 * pvalues.distance_at(target, width) / (width**3 - width)
    return (share - needed) / max(_spread(width, share), _TINY)


def _spread(width: int, share: float) -> float:
    """Standard deviation of Spearman's correlation over blocks in which this share of partners is found."""
    return math.sqrt(max((1.0 - share) * (1.0 + 1.8 * share), 0.0) / width)


def blocks_needed(
    target: float = -20.0,
    *,
    pilot: ArrayLike | None = None,
    separation: Separation | None = None,
    power: float = 0.9,
) -> BlocksNeeded:
    """How many blocks must be read for Fisher's aggregate to reach log10 p = `target`?

    Parameters
    ----------
    target
        log10 p, from -300 to below 0.
    pilot
        log10 p of at least two blocks, drawn at random from those that could be read. They are taken to be alike:
        their -ln p is independent with one mean and one variance.
    separation
        Instead of a pilot: how far partners stand out, by `gaussian_separation` or `measured_separation`.
    power
        Probability with which the target is to be reached.

    Raises
    ------
    InputError
        If `target` or `power` is out of range, or the pilot has fewer than two blocks.

    Notes
    -----
    Over L blocks the sum of -ln p has about the normal law with L times the mean and variance of one; Fisher's method
    asks that it exceed the upper 10^target quantile of the gamma law of shape L. Both sides grow with L, and the sum
    wins if its mean is above 1, which it is wherever there is dependence.
    """
    if not -300.0 <= target < 0.0:
        raise InputError(f"target is {target}; it must be a log10 p from -300 to below 0")
    if not 0.0 < power < 1.0:
        raise InputError(f"power is {power}; it must lie strictly between 0 and 1")
    if separation is not None:
        share = recovered_share(separation)
        block = evidence(separation.width, share)
        alone = _margin_of_one(separation.width, share, target) >= stats.norm.ppf(power)
        blocks = 1 if alone else _blocks(block, target, power)
        return BlocksNeeded(blocks, blocks, blocks, block, share)
    values = -pvalues.LN10 * np.asarray(pilot, dtype=np.float64)
    if values.ndim != 1 or values.size < 2 or not np.isfinite(values).all() or values.min() < 0.0:
        raise InputError(f"pilot must hold log10 p of at least two blocks, finite and at most 0, not {pilot!r}")
    block = BlockEvidence(float(values.mean()), float(values.std(ddof=1)))
    margin = float(stats.t.isf(0.025, values.size - 1)) * block.sd / math.sqrt(values.size)
    low, high = (_blocks(BlockEvidence(block.mean + sign * margin, block.sd), target, power) for sign in (1, -1))
    return BlocksNeeded(_blocks(block, target, power), low, high, block)


def _blocks(block: BlockEvidence, target: float, power: float) -> int | None:
    numbers = _candidates()
    sure = numbers * block.mean - stats.norm.ppf(power) * np.sqrt(numbers) * block.sd
    enough = sure >= _fisher_threshold(target)
    return int(numbers[enough.argmax()]) if enough.any() else None


@lru_cache(maxsize=1)
def _candidates() -> NDArray[np.float64]:
    """Every number of blocks to 10,000, then steps of a hundredth, up to `MOST_BLOCKS`."""
    return np.concatenate([np.arange(1, 10_000), np.rint(np.geomspace(10_000, MOST_BLOCKS, 232))])


@lru_cache(maxsize=64)
def _fisher_threshold(target: float) -> NDArray[np.float64]:
    """Sum of -ln p over blocks at which Fisher's p equals 10^target, for each of `_candidates`."""
    return pvalues.fisher_threshold(target, _candidates())


def smallest_correlation(
    width: int, columns: int, n_blocks: int, target: float = -20.0, *, power: float = 0.9
) -> float | None:
    """Smallest correlation of partners at which `n_blocks` blocks reach the target; None if not even equal rows do.

    Gaussian rows, by the model, to 1e-4 and on the safe side.
    """
    needed = float(stats.norm.ppf(power))

    def excess(correlation: float) -> float:
        margin = _margin(gaussian_separation(width, columns, correlation), n_blocks, target)
        return math.asinh(margin) - math.asinh(needed)  # margins run over many decades

    if excess(1.0) < 0.0:
        return None
    if excess(0.0) >= 0.0:
        return 0.0
    return min(1.0, float(optimize.brentq(excess, 0.0, 1.0, xtol=1e-5, rtol=1e-4)) + 1e-4)


def noise_limit(separations: Sequence[Separation], columns: int, target: float = -20.0) -> float | None:
    """Noise, in sizes of the weights, at which the expected evidence of all blocks together falls to the target.

    Parameters
    ----------
    separations
        The separations of every block, before noise, by `measured_separation`.
    columns
        Weights in a row.
    target
        log10 p of Fisher's aggregate.

    Returns
    -------
    float or None
        To 1e-3, by the model; None if the target is missed without any noise.
    """
    needed = float(pvalues.fisher_threshold(target, len(separations)))

    def is_detected(noise: float) -> bool:
        noisy = [separation.with_noise(noise, columns) for separation in separations]
        return sum(evidence(block.width, recovered_share(block)).mean for block in noisy) >= needed

    if not is_detected(0.0):
        return None
    low, high = 0.0, 1.0
    while is_detected(high):
        low, high = high, 2 * high
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if is_detected(middle) else (low, middle)
    return low
