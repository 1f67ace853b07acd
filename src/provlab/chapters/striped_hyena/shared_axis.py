"""Tests that share one axis: why their p-values may be dependent, and what that does to ways of combining them.

Two models may be compared through several matrices whose rows count the same units: the columns of all that reads the
residual stream, say. If the models are independent and the order of the units is arbitrary, a random relabelling
sigma of one model's units is as likely as none, and it turns *all* matchings pi_t at once into sigma o pi_t. Each
p-value stays uniform; together they are independent only if the matchings are unrelated. Theorem 2 does not cover
them, since it asks for a relabelling of its own for each test.

Source: "Independence Tests for Language Models", Appendix H.1, which leaves Fisher's method out for this reason.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import match

Floats = NDArray[np.float64]


def relabelled_null(matchings: ArrayLike, n_draws: int, *, rng: np.random.Generator) -> Floats:
    """Draw the p-values of several tests under independence, exactly, by relabelling the axis that they share.

    Parameters
    ----------
    matchings
        ``(tests, n)``: a permutation for each test, found between two models, dependent ones too.
    n_draws
        Random relabellings.
    rng
        Of the relabellings.

    Returns
    -------
    array
        ``(n_draws, tests)``, log10 p of Spearman's correlation with the identity by the t tail. Each column is a draw
        from that test's null; the rows keep how the tests depend on each other.

    Raises
    ------
    InputError
        If a row is no permutation of at least three units.
    """
    permutations = np.asarray(matchings)
    if permutations.ndim != 2 or permutations.shape[1] < 3:
        raise InputError(f"matchings has shape {permutations.shape}; it must be (tests, units) of at least 3 units")
    n = permutations.shape[1]
    if (np.sort(permutations, axis=1) != np.arange(n)).any():
        raise InputError("matchings holds a row that is no permutation; both models need the same units")
    log10_p = np.empty((n_draws, len(permutations)))
    for draw in range(n_draws):
        relabelled = rng.permutation(n)[permutations]
        log10_p[draw] = _log10_p(((relabelled - np.arange(n)) ** 2).sum(axis=1), n)
    return log10_p


def _log10_p(distances: NDArray[np.int64], n: int) -> Floats:
    """Two-sided t tail of many distances at once, where double precision holds them: under the null it does."""
    rho = np.clip(1.0 - 6.0 * distances / (n * (n * n - 1.0)), -1.0 + 1e-15, 1.0 - 1e-15)
    t = np.abs(rho) * np.sqrt((n - 2) / (1.0 - rho**2))
    log10_p: Floats = np.log10(2.0 * special.stdtr(n - 2, -t))
    return log10_p


def common_profile(
    n_units: int, n_features: int, n_tests: int, overlap: float, *, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Match two independent models whose tests all look at one profile of each unit, through noise of their own.

    Every unit of either model has a Gaussian profile over features that both models share (tokens, for an embedding
    and a head). Test t sees it with weight `overlap` and noise of its own with the rest: at 0 the tests have nothing in
    common, at 1 they are one test counted several times. The two models have nothing in common at all.

    Returns
    -------
    array
        ``(n_tests, n_units)`` int64, one matching a test.
    """
    if not 0.0 <= overlap <= 1.0:
        raise InputError(f"overlap is {overlap}; it must lie in [0, 1]")
    shape = (n_units, n_features)
    profiles = [rng.standard_normal(shape) for _ in range(2)]

    def seen(profile: Floats) -> Floats:
        return np.sqrt(overlap) * profile + np.sqrt(1.0 - overlap) * rng.standard_normal(shape)

    return np.stack([match(*(seen(profile) for profile in profiles)).indices for _ in range(n_tests)])


#: what each way of looking at several p-values takes for "dependent", given log10 p of the tests and a log10 level
WAYS: dict[str, Callable[[Floats, float], bool]] = {
    "Fisher": lambda log10_p, level: pvalues.fisher(log10_p) <= level,
    "smallest p, uncorrected": lambda log10_p, level: bool(log10_p.min() <= level),
    "Holm": lambda log10_p, level: bool(pvalues.holm(log10_p).min() <= level),
    "Benjamini-Yekutieli": lambda log10_p, level: bool(pvalues.benjamini_yekutieli(log10_p).min() <= level),
}


def rejections(log10_p: Floats, level: float) -> dict[str, int]:
    """Count the draws, ``(draws, tests)``, in which each of `WAYS` calls anything dependent at `level`."""
    bound = float(np.log10(level))
    return {name: sum(rejects(draw, bound) for draw in log10_p) for name, rejects in WAYS.items()}
