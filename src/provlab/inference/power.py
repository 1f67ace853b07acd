"""How much can a matching statistic see, and how many blocks must be read for it?

The question is put to a model with one number in it, the *separation*: by how many standard deviations the similarity
of a row with its own partner exceeds that of rows that have nothing to do with each other. For rows of m Gaussian
weights with correlation rho that is about rho sqrt(m). Three steps lead from it to an answer:

1. `recovered_share`: of h planted partners, how many does the best assignment find? By the cavity equation of the
   assignment problem, solved on a grid.
2. `evidence`: partners that are found make Spearman's correlation, which the t tail turns into -ln p.
3. `blocks_needed`: over blocks, -ln p adds up, and Fisher's method says how large the sum must be.

Instead of the first two, -ln p may come from a few blocks read as a pilot. Statistics that match two models' rows and
rank the matching are meant: phi_U and phi_H, aggregated by Fisher's method (Section 3.2, Algorithm 3).

Sources
-------
The cavity equation is that of Mezard and Parisi (1985) for the random assignment problem, proved by Aldous (2001); with
planted partners, and exponential weights in place of normal ones, by Moharrami, Moore and Xu (2021). For rows of finite
length and normal similarities it is an approximation, held against simulation in the tests.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, optimize, signal, special, stats

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import cosine_similarity, match

MOST_BLOCKS = 100_000  # beyond this the answer is: not by reading blocks
_GRID = 601
_REACH = 12.0  # standard deviations of a similarity that the grid covers on either side
_NODES = 41


# The planted model -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Separation:
    """How far partners stand out among `width` rows.

    Attributes
    ----------
    width
        h, rows of each matrix.
    mean, spread
        Mean and standard deviation of a partner's similarity, in standard deviations of a stranger's, whose mean is 0.
    dimensions
        Strangers are as alike as random directions in so many dimensions, which need be no whole number.
    """

    width: int
    mean: float
    spread: float
    dimensions: float

    def with_noise(self, noise: float, columns: int) -> "Separation":
        """Separation after one side got Gaussian noise of `noise` times the size of its weights, `columns` to a row.

        Rows are taken to be of one length.
        """
        if noise < 0.0 or columns < 2:
            raise InputError(f"noise is {noise} and columns is {columns}; they must be at least 0 and 2")
        shrink, added = 1.0 + noise**2, noise**2 / columns
        unit = math.sqrt((1.0 / self.dimensions + added) / shrink)  # a stranger's standard deviation now
        mean = self.mean / math.sqrt(self.dimensions * shrink) / unit
        spread = math.sqrt((self.spread**2 / self.dimensions + added) / shrink) / unit
        return Separation(self.width, mean, spread, 1.0 / unit**2)


def gaussian_separation(width: int, columns: int, correlation: float) -> Separation:
    """Separation of `width` rows of independent Gaussian weights whose partners have a correlation.

    The cosine of two strangers has the standard deviation 1/sqrt(columns), that of partners (1 - rho^2)/sqrt(columns)
    about rho.

    Raises
    ------
    InputError
        If width or columns is below 2, or the correlation is not in [0, 1].
    """
    if width < 2 or columns < 2:
        raise InputError(f"width is {width} and columns is {columns}; both must be at least 2")
    if not 0.0 <= correlation <= 1.0:
        raise InputError(f"correlation is {correlation}; that of partners must lie in [0, 1]")
    return Separation(width, correlation * math.sqrt(columns), max(1.0 - correlation**2, 1e-3), columns)


def measured_separation(a: ArrayLike, b: ArrayLike) -> Separation:
    """Separation of two real matrices whose rows stand in the same order: a base and its tune, say.

    Parameters
    ----------
    a, b
        ``(h, m)`` each, row k of one the partner of row k of the other.

    Raises
    ------
    InputError
        If the shapes differ, or as `provlab.inference.matching.match`.
    """
    similarity = cosine_similarity(a, b).astype(np.float64)
    if similarity.shape[0] != similarity.shape[1]:
        raise InputError(f"a has {similarity.shape[0]} rows and b {similarity.shape[1]}; partners need equal numbers")
    partners = np.diag(similarity)
    strangers = similarity[~np.eye(len(similarity), dtype=bool)]
    unit = strangers.std()
    mean, spread = float((partners.mean() - strangers.mean()) / unit), float(partners.std() / unit)
    return Separation(len(partners), mean, spread, float(1.0 / unit**2))


def planted_rows(
    width: int, columns: int, correlation: float, *, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Draw two Gaussian matrices, ``(width, columns)`` each, whose rows of equal index have a correlation."""
    first = rng.standard_normal((width, columns), dtype=np.float32)
    other = rng.standard_normal((width, columns), dtype=np.float32)
    return first, np.float32(correlation) * first + np.float32(math.sqrt(1.0 - correlation**2)) * other


def simulated_log10_p(
    width: int, columns: int, correlation: float, n_blocks: int, *, rng: np.random.Generator
) -> NDArray[np.float64]:
    """log10 p of MATCH and Spearman on planted Gaussian rows, ``(n_blocks,)``: what the model is held against."""
    drawn = (planted_rows(width, columns, correlation, rng=rng) for _ in range(n_blocks))
    return np.array([pvalues.spearman(match(a, b).indices).log10_p for a, b in drawn])


# From separation to evidence -------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def recovered_share(separation: Separation) -> float:
    """Expected share of the partners that the best assignment finds.

    Let X be what a row can gain at best elsewhere when one stranger is taken from it, and Z when its partner is. With
    w a partner's similarity and s a stranger's, the cavity equation reads

        Z = max over h - 1 strangers of (s - X),   X = max(w - Z', Z),

    all variables on the right independent, and partners are matched where w > Z + Z'. Both sides of the assignment
    being alike, one pair of distributions answers for both.
    """
    h, mean, spread = separation.width, separation.mean, max(separation.spread, 0.05)
    if mean - 6.0 * spread > math.sqrt(2.0 * math.log(h)) + 3.0:  # the worst partner beats the best stranger
        return 1.0
    grid = np.linspace(-_REACH, _REACH + max(mean, 0.0), _GRID)
    sums = 2 * grid[0] + np.arange(2 * _GRID - 1) * (grid[1] - grid[0])  # all that x + z can be
    beyond = _stranger_exceeds(sums, separation.dimensions)  # P(s > z + x)
    planted = special.ndtr((sums - mean) / spread)  # P(w <= x + z)
    over_x, over_z = _MeanOver(beyond), _MeanOver(planted)
    cdf_x = special.ndtr((grid - math.sqrt(math.log(h) / 2)) / 0.5)
    for _ in range(1000):
        cdf_z = np.exp((h - 1) * np.log1p(-np.clip(over_x(cdf_x), 0.0, 1.0 - 1e-15)))
        new = cdf_z * np.clip(over_z(cdf_z), 0.0, 1.0)
        moved = float(np.abs(new - cdf_x).max())
        cdf_x = (cdf_x + new) / 2  # undamped, the map overshoots and may swing
        if moved < 1e-6:
            break
    both = signal.fftconvolve(_masses(cdf_z), _masses(cdf_z))
    return float(np.clip(both @ (1.0 - planted), 0.0, 1.0))


def _stranger_exceeds(values: NDArray[np.float64], dimensions: float) -> NDArray[np.float64]:
    """P(the cosine of two random directions, in its standard deviations, exceeds these values)."""
    cosine = np.clip(values / math.sqrt(dimensions), -1.0 + 1e-12, 1.0 - 1e-12)
    degrees = max(dimensions - 1.0, 1.0)
    return special.stdtr(degrees, -cosine * np.sqrt(degrees / (1.0 - cosine**2)))


class _MeanOver:
    """Mean of f(z + x) over x of a given law, for each z of the grid, where f is given on all sums: a convolution."""

    def __init__(self, of_sum: NDArray[np.float64]) -> None:
        self._length = fft.next_fast_len(of_sum.size, real=True)  # enough: what wraps round is cut off
        self._transform = fft.rfft(of_sum, self._length)

    def __call__(self, cdf: NDArray[np.float64]) -> NDArray[np.float64]:
        masses = fft.rfft(_masses(cdf)[::-1], self._length)
        mean: NDArray[np.float64] = fft.irfft(self._transform * masses, self._length)[cdf.size - 1 : 2 * cdf.size - 1]
        return mean


def _masses(cdf: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of the grid's points: half of what lies to either side, and at the ends all that lies beyond.

    Where partners stand out from every stranger, X has no limit: it wanders off to the end of the grid, and Z to the
    other, which is as good as infinity.
    """
    middles = np.concatenate([[0.0], (cdf[1:] + cdf[:-1]) / 2, [1.0]])
    return np.diff(middles)


@dataclass(frozen=True)
class Evidence:
    """Mean and standard deviation of -ln p over blocks (nats); under independence both are 1."""

    mean: float
    sd: float


def evidence(width: int, share: float) -> Evidence:
    """-ln p of one block in which a share of `width` rows has found its partner and the others are matched at random.

    Spearman's correlation has then the mean `share` and the variance (1 - share)(1 + 1.8 share) / width: the first
    factor from the rows matched at random, the second from which rows found theirs (1.8 is the kurtosis of ranks).
    """
    if not 0.0 <= share <= 1.0:
        raise InputError(f"share is {share}; it must lie in [0, 1]")
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    rho = share + nodes * math.sqrt((1.0 - share) * (1.0 + 1.8 * share) / width)
    distances = np.rint((1.0 - np.clip(rho, -1.0, 1.0)) * (width**3 - width) / 12) * 2
    values = np.array([-pvalues.LN10 * pvalues.log10_p_spearman(int(d), width) for d in distances])
    weights = weights / weights.sum()
    mean = float(weights @ values)
    return Evidence(mean, math.sqrt(float(weights @ (values - mean) ** 2)))


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
        Interval from the spread of the pilot blocks, None at an end where no number suffices; both equal to `blocks`
        where the answer comes from the model.
    evidence
        -ln p of one block.
    share
        Of partners found in a block, by the model; None with a pilot.
    """

    blocks: int | None
    low: int | None
    high: int | None
    evidence: Evidence
    share: float | None = None


def reach_probability(separation: Separation, n_blocks: int, target: float = -20.0) -> float:
    """Probability that Fisher's aggregate over `n_blocks` blocks reaches log10 p = `target`, by the model."""
    return float(stats.norm.cdf(_margin(separation, n_blocks, target)))


def _margin(separation: Separation, n_blocks: int, target: float) -> float:
    """Standard deviations by which the expected sum of -ln p exceeds Fisher's threshold."""
    one = evidence(separation.width, recovered_share(separation))
    threshold = float(special.gammainccinv(n_blocks, 10.0**target))
    return (n_blocks * one.mean - threshold) / (math.sqrt(n_blocks) * max(one.sd, 1e-9))  # at the floor there is no sd


def blocks_needed(
    target: float = -20.0,
    *,
    pilot: ArrayLike | None = None,
    separation: Separation | None = None,
    power: float = 0.9,
    level: float = 0.95,
) -> BlocksNeeded:
    """How many blocks must be read for Fisher's aggregate to reach log10 p = `target`?

    Parameters
    ----------
    target
        log10 p, from -300 to below 0.
    pilot
        log10 p of at least two blocks, drawn at random from those that could be read. Blocks are taken to be alike:
        their -ln p to be independent with one mean and one variance.
    separation
        Instead of a pilot: how far partners stand out, by `gaussian_separation` or `measured_separation`.
    power
        Probability with which the target is to be reached.
    level
        Of the interval for a pilot's mean evidence (Student's t), from which `low` and `high` follow.

    Raises
    ------
    InputError
        If not exactly one of `pilot` and `separation` is given, or one argument is out of range.

    Notes
    -----
    Over L blocks the sum of -ln p has about the normal law with L times the mean and variance of one; Fisher's method
    asks that it exceed the upper 10^target quantile of the gamma law of shape L. Both sides grow with L, and the sum
    wins if its mean is above 1, which it is wherever there is dependence.
    """
    if (pilot is None) == (separation is None):
        raise InputError("give either pilot, log10 p of some blocks, or separation, for the model's answer")
    if not -300.0 <= target < 0.0:
        raise InputError(f"target is {target}; it must be a log10 p from -300 to below 0")
    for name, value in (("power", power), ("level", level)):
        if not 0.0 < value < 1.0:
            raise InputError(f"{name} is {value}; it must lie strictly between 0 and 1")
    if separation is not None:
        share = recovered_share(separation)
        found = evidence(separation.width, share)
        blocks = _blocks(found, target, power)
        return BlocksNeeded(blocks, blocks, blocks, found, share)
    values = -pvalues.LN10 * np.asarray(pilot, dtype=np.float64)
    if values.ndim != 1 or values.size < 2 or not np.isfinite(values).all() or values.min() < 0.0:
        raise InputError(f"pilot must hold log10 p of at least two blocks, finite and at most 0, not {pilot!r}")
    found = Evidence(float(values.mean()), float(values.std(ddof=1)))
    margin = float(stats.t.isf((1.0 - level) / 2, values.size - 1)) * found.sd / math.sqrt(values.size)
    low, high = (_blocks(Evidence(found.mean + sign * margin, found.sd), target, power) for sign in (1, -1))
    return BlocksNeeded(_blocks(found, target, power), low, high, found)


def _blocks(one: Evidence, target: float, power: float) -> int | None:
    numbers = _candidates()
    sure = numbers * one.mean - stats.norm.ppf(power) * np.sqrt(numbers) * one.sd
    enough = sure >= _fisher_threshold(target)
    return int(numbers[enough.argmax()]) if enough.any() else None


@lru_cache(maxsize=1)
def _candidates() -> NDArray[np.float64]:
    """Every number of blocks to 10,000, then steps of a hundredth, up to `MOST_BLOCKS`."""
    return np.concatenate([np.arange(1, 10_000), np.rint(np.geomspace(10_000, MOST_BLOCKS, 232))])


@lru_cache(maxsize=64)
def _fisher_threshold(target: float) -> NDArray[np.float64]:
    """Sum of -ln p over blocks at which Fisher's p equals 10^target, for each of `_candidates`."""
    threshold: NDArray[np.float64] = special.gammainccinv(_candidates(), 10.0**target)
    return threshold


def smallest_correlation(
    width: int, columns: int, n_blocks: int, target: float = -20.0, *, power: float = 0.9
) -> float | None:
    """Smallest correlation of partners at which `n_blocks` blocks reach the target; None if not even equal rows do.

    Gaussian rows, by the model, to 1e-4.
    """
    wanted = float(stats.norm.ppf(power))

    def excess(correlation: float) -> float:
        margin = _margin(gaussian_separation(width, columns, correlation), n_blocks, target)
        return math.asinh(margin) - math.asinh(wanted)  # margins run over many decades

    if excess(1.0) < 0.0:
        return None
    if excess(0.0) >= 0.0:
        return 0.0
    return float(optimize.brentq(excess, 0.0, 1.0, xtol=1e-5, rtol=1e-4))


def noise_limit(separations: Sequence[Separation], columns: int, target: float = -20.0) -> float | None:
    """Noise, in sizes of the weights, at which the expected evidence of all blocks together falls to the target.

    Parameters
    ----------
    separations
        Of every block, before noise, by `measured_separation`.
    columns
        Weights in a row.
    target
        log10 p of Fisher's aggregate.

    Returns
    -------
    float or None
        To 1e-3, by the model; None if the target is missed without any noise.
    """
    needed = float(special.gammainccinv(len(separations), 10.0**target))

    def found(noise: float) -> bool:
        noisy = [separation.with_noise(noise, columns) for separation in separations]
        return sum(evidence(one.width, recovered_share(one)).mean for one in noisy) >= needed

    if not found(0.0):
        return None
    low, high = 0.0, 1.0
    while found(high):
        low, high = high, 2 * high
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if found(middle) else (low, middle)
    return low
