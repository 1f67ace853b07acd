"""Tests that share one axis: why their p-values may be dependent, and what that does to ways of combining them.

Two models may be compared through several matrices whose rows count the same units. Their null is that of
`provlab.chapters.shared.joint_null.relabelled_null`; here are models that are independent while their tests are not,
and what each way of combining tests makes of it.

Source: "Independence Tests for Language Models", Appendix H.1, which leaves Fisher's method out for this reason.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.matching import match

Floats = NDArray[np.float64]


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


#: what each way of looking at several p-values takes for "dependent": log10 p ``(draws, tests)`` and a log10 level
WAYS: dict[str, Callable[[Floats, float], NDArray[np.bool_]]] = {
    "Fisher": lambda log10_p, level: pvalues.fisher(log10_p, axis=1) <= level,
    "smallest p, uncorrected": lambda log10_p, level: log10_p.min(axis=1) <= level,
    "Holm": lambda log10_p, level: np.array([pvalues.holm(draw).min() <= level for draw in log10_p]),
    "Benjamini-Yekutieli": lambda log10_p, level: np.array(
        [pvalues.benjamini_yekutieli(draw).min() <= level for draw in log10_p]
    ),
}


def rejections(log10_p: Floats, level: float) -> dict[str, int]:
    """Count the draws, ``(draws, tests)``, in which each of `WAYS` calls anything dependent at `level`."""
    bound = float(np.log10(level))
    return {name: int(rejects(log10_p, bound).sum()) for name, rejects in WAYS.items()}
