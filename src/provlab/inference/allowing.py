"""p-values of two matchings where independent models may have some units in common.

Some units are alike in models that never met: the data teach them. A test that correlates two matchings of the same
units therefore allows for as many as independent models have in common, and takes evidence from the others alone.
"""

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from provlab.errors import InputError
from provlab.inference.pvalues import spearman

#: Beta law of the share of a block's units that independent models have in common: what is known of it after 7 of 256
#: were seen. Its mean is 3.1%, and it is above 6.2% in one of 100 blocks. In 84 blocks of 21 pairs of the zoo's roots,
#: 4 of 256 units agreed in the mean and 12 at most (by the size of the cosine 5 and 16), of which one by chance
COMMON = (8, 249)
QUANTILE = 0.99  # of the blocks that are allowed for


@cache
def allowance(n: int) -> int:
    """Return how many of n units independent models may have in common in one block: no more in 99 of 100 blocks.

    Parameters
    ----------
    n
        Units of the block, at least 1.

    Notes
    -----
    With a share c of law `COMMON` and each unit in common with probability c, the number f in common is beta-binomial.
    Its 99% quantile k is returned: 3 of 24, 19 of 256 (7.4%), 680 of 11,008 (6.2%). At small widths chance makes the
    margin, and at large ones what is not known of the share.

    The cost of a share c: with f > k units in common, f - k are left among n, and Spearman's correlation of these is
    (f - k) / sqrt(n) standard deviations too large; Fisher's sum over L blocks is too large by about sqrt(L) times the
    mean, E (f - k)+ / sqrt(n). With f binomial and c = 5% that is below 0.09 standard deviations for n from 8 to 28,672
    and L up to 128: a size below 0.06 where 0.05 is meant. `benchmarks/sizes.py` measures it.
    """
    # not by scipy.stats, which takes ten times as long to import as a matching takes
    f, (a, b) = np.arange(n + 1), COMMON
    # P(f) = C(n, f) B(f + a, n - f + b) / B(a, b), and C(n, f) = 1 / ((n + 1) B(n - f + 1, f + 1))
    ln_p = special.betaln(f + a, n - f + b) - special.betaln(a, b) - special.betaln(n - f + 1, f + 1) - np.log(n + 1)
    return min(int(np.searchsorted(np.cumsum(np.exp(ln_p)), QUANTILE)), n - 1)


def counted(
    a: ArrayLike, b: ArrayLike, common: int, *, rng: np.random.Generator, idle: ArrayLike | None = None
) -> NDArray[np.int64]:
    """Return which of n units count where two matchings are correlated and `common` may agree without evidence.

    Three kinds are left out: those that `idle` names; up to `common` of the others that have one partner by both
    matchings, drawn at random; and units swapped in pairs, where the gate of one goes with the up row of the other and
    the reverse.

    Returns
    -------
    array
        int64, ascending.
    """
    first, second = np.asarray(a), np.asarray(b)
    left = np.ones(len(first), bool) if idle is None else ~np.asarray(idle, bool)
    agreeing = np.flatnonzero(left & (first == second))
    left[rng.choice(agreeing, min(common, agreeing.size), replace=False)] = False
    by_second = np.full(max(first.max(), second.max()) + 1, -1)
    by_second[second] = np.arange(len(second))
    onto = by_second[first]  # the unit that has by b the partner that this one has by a, or -1
    swapped = (onto >= 0) & (onto != np.arange(len(first))) & (onto[onto] == np.arange(len(first)))
    return np.flatnonzero(left & ~swapped)


def log10_p_allowing(
    a: ArrayLike, b: ArrayLike, common: int, *, rng: np.random.Generator, idle: ArrayLike | None = None
) -> float:
    """One-sided log10 p of two matchings of the same units, where up to `common` units may agree without evidence.

    The partners of the units that are `counted` get random labels, and `log10_p_spearman` is taken of these; it is 0
    where fewer than two units count.

    Parameters
    ----------
    a, b
        As of `spearman`; the partner of each of n units, by either matching.
    common
        The allowance, declared before the matchings were seen, below n.
    rng
        Draws the units that are left out, and the labels.
    idle
        ``(n,)`` bool: units whose agreement is no evidence.

    Raises
    ------
    InputError
        As of `spearman`, or if the allowance is not from 0 to below n.

    Notes
    -----
    Why it is valid. Suppose independent models have f units in common, and the matchings of the others are a uniform
    pairing: sigma = b^-1 a is a uniform permutation of n - f units, and f fixed points that were added to it. Fixed
    points, common or by chance, look alike to the draw. So to leave out f of them leaves a permutation of n - f units
    with as many fixed points as chance had made, uniform given their number, hence uniform: with `common` = f the
    p-value is exact. With fewer than `common` truly common ones, chance agreements are left out as well, and the rest
    agrees less than a uniform permutation does: the p-value is too large. Idle units that agree make it larger only.
    With more than `common` it is too small; `allowance` says by how much.

    Labels. The order in which a model's units stand is training's, or an adversary's, and Spearman's correlation reads
    it: units in the order of the cycles of sigma agree nearly whatever sigma is. Random labels leave sigma alone.

    Swapped pairs. Cycles of length two count each product of labels twice, so that many of them double the variance:
    half of the units swapped in pairs gave a size of 0.04 at 0.01. A uniform sigma has half such a pair in the mean.
    Longer cycles have no such effect.
    """
    whole = spearman(a, b)
    if not 0 <= common < whole.n:
        raise InputError(f"common is {common}; of {whole.n} units from 0 to {whole.n - 1} may be allowed for")
    which = counted(a, b, common, rng=rng, idle=idle)
    if which.size < 2:
        return 0.0
    partners, places = np.unique([np.asarray(a)[which], np.asarray(b)[which]], return_inverse=True)
    labels = rng.permutation(partners.size)[places.reshape(2, -1)]  # (2, units that count)
    return spearman(*labels).log10_p
