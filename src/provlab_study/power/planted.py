"""Matching with planted partners: how far do they stand out, and how many of them are found?

The model behind `provlab_study.power.blocks_needed`: two matrices of h rows each, where row k of one is the partner
of row k of the other. MATCH finds a share of the partners; the cavity equation of the assignment problem says which.

Sources
-------
The cavity equation is that of Mezard and Parisi (1985) for the random assignment problem, proved by Aldous (2001); with
planted partners, and exponential weights in place of normal ones, by Moharrami, Moore and Xu (2021). For rows of finite
length it is an approximation, compared with simulation in the tests.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, signal, special

from provlab.inference.matching import cosine_similarity

_GRID = 601
_REACH = 12.0  # standard deviations of a similarity that the grid covers on either side


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
        shrink, added = 1.0 + noise**2, noise**2 / columns
        unit = math.sqrt((1.0 / self.dimensions + added) / shrink)  # a stranger's standard deviation now
        mean = self.mean / math.sqrt(self.dimensions * shrink) / unit
        spread = math.sqrt((self.spread**2 / self.dimensions + added) / shrink) / unit
        return Separation(self.width, mean, spread, 1.0 / unit**2)


def gaussian_separation(width: int, columns: int, correlation: float) -> Separation:
    """Separation of `width` rows of independent Gaussian weights whose partners have a correlation.

    The cosine of two strangers has the standard deviation 1/sqrt(columns), that of partners (1 - rho^2)/sqrt(columns)
    about rho.
    """
    return Separation(width, correlation * math.sqrt(columns), max(1.0 - correlation**2, 1e-3), columns)


def measured_separation(a: ArrayLike, b: ArrayLike) -> Separation:
    """Separation of two real matrices whose rows stand in the same order: a base and its tune, say.

    Parameters
    ----------
    a, b
        ``(h, m)`` each, row k of one the partner of row k of the other.
    """
    similarity = cosine_similarity(a, b).astype(np.float64)
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
        self._transform = np.fft.rfft(of_sum, self._length)

    def __call__(self, cdf: NDArray[np.float64]) -> NDArray[np.float64]:
        masses = np.fft.rfft(_masses(cdf)[::-1], self._length)
        return np.fft.irfft(self._transform * masses, self._length)[cdf.size - 1 : 2 * cdf.size - 1]


def _masses(cdf: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of the grid's points: half of what lies to either side, and at the ends all that lies beyond.

    Where partners stand out from every stranger, X has no limit: it wanders off to the end of the grid, and Z to the
    other, which is as good as infinity.
    """
    masses = np.empty_like(cdf)
    masses[1:-1] = (cdf[2:] - cdf[:-2]) / 2
    masses[0], masses[-1] = (cdf[0] + cdf[1]) / 2, 1.0 - (cdf[-1] + cdf[-2]) / 2
    return masses
