"""E-values: evidence that may be read block by block and stopped at any time.

An e-value is at least 0 and has mean at most 1 under the null. A product of independent ones, read in an order fixed
beforehand, then exceeds 1/alpha *at any time* with probability at most alpha (Ville's inequality): reading blocks
until the question is settled keeps the level, which Fisher's method, asked again after each block, would not.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

_LN10 = np.log(10.0)


def log10_e(log10_p: ArrayLike) -> NDArray[np.float64]:
    """Turn p-values into e-values: the mean of kappa p^(kappa - 1) over kappa in (0, 1), as log10.

    That is (1 - p + p ln p) / (p (ln p)^2), which integrates to 1 over p and falls from infinity to 1/2 (Vovk and Wang
    2021, Section 2); any shape, values at most 0.
    """
    y = -np.asarray(log10_p, dtype=np.float64) * _LN10  # -ln p
    small = y < 1e-4  # where numerator and denominator vanish: 1/2 + y/6
    safe = np.where(small, 1.0, y)
    # 1 - p + p ln p = 1 - exp(-y) (1 + y), the incomplete gamma function of 2
    log10_e = (np.log(special.gammainc(2.0, safe)) + safe - 2.0 * np.log(safe)) / _LN10
    return np.asarray(np.where(small, np.log10(0.5 + y / 6.0), log10_e))


def running(log10_p: ArrayLike) -> NDArray[np.float64]:
    """log10 of the product of e-values after each block, for independent p-values in the order read: ``(L,)``."""
    return np.cumsum(log10_e(log10_p))


def anytime_log10_p(log10_p: ArrayLike) -> float:
    """log10 of a p-value that is valid whenever reading stopped: one over the largest product on the way."""
    return float(min(0.0, -running(log10_p).max()))
