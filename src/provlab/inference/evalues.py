"""E-values: evidence that may be averaged whatever its dependence, and multiplied where it is independent.

An e-value is at least 0 and has mean at most 1 under the null, so it exceeds 1/alpha with probability at most alpha. A
product of independent ones, read in an order fixed beforehand, does so *at any time* (Ville's inequality), which
Fisher's method, asked again after each, would not.
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
