"""Whether PERMTEST gives valid p-values."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from provlab_study.publishing.evidence import FAILS, NOT_RUN, Bar, ClaimStatus, judge
from provlab_study.shared import calibration


def permtest_uniform(example_one: Mapping[str, Any], *, min_pairs: int, min_tunes: int, smallest: float) -> ClaimStatus:
    """P(p <= k/(T+1)) within its binomial band for all k at once, not too many at 0.01, and fine-tunes at 1/(T+1).

    So many pairs of either kind are needed, and a T with which 1/(T+1) is `smallest` or less: at T = 1 half of all
    independent pairs reach it too.
    """
    independent, dependent = np.array(example_one["independent"]), np.array(example_one["dependent"])
    t = example_one["n_permutations"]
    if len(independent) < min_pairs or len(dependent) < min_tunes or t + 1 < 1 / smallest:
        sizes = f"{len(independent)} pairs, {len(dependent)} fine-tunes, T = {t}"
        return ClaimStatus(
            NOT_RUN, "", f"{sizes}; {min_pairs}, {min_tunes} and {round(1 / smallest) - 1} are asked for"
        )
    steps = np.concatenate([independent, dependent]) * (t + 1)
    if not (np.abs(steps - np.rint(steps)) < 1e-6).all() or not ((steps > 0.5) & (steps < t + 1.5)).all():
        return ClaimStatus(FAILS, "", f"a p-value is off the grid 1/{t + 1}, ..., 1")
    grid_p = calibration.uniform_on_grid(independent, t)
    at_minimum = int((np.rint(dependent * (t + 1)) == 1).sum())
    ours = (
        f"{len(independent):,} independent pairs, T = {t}: P(p ≤ 0.05) = {np.mean(independent <= 0.05):.3f}, "
        f"uniform with p = {grid_p:.2g}; {at_minimum} of {len(dependent)} fine-tunes at 1/{t + 1}"
    )
    problems = [
        (at_minimum < len(dependent), f"{len(dependent) - at_minimum} fine-tunes above 1/{t + 1}"),
        *calibration.too_many_small("independent pairs", np.log10(independent), n_permutations=t),
    ]
    bars = [Bar("p of uniformity on the grid", [grid_p], 0.01, above=True)]
    why = "the share of p-values up to k/(T+1) is within the exact band at every k at once"
    return judge(ours, why, problems, bars)
