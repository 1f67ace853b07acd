"""The null by symmetry: renumbered matchings, all permutations counted, and the tail that neither reaches."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from provlab.chapters.calibration import spearman as null_spearman
from provlab.chapters.shared import calibration
from provlab.inference import pvalues
from provlab.inference.tail import exact_law, log10_tail

# The null by symmetry ---------------------------------------------------------------------------------------------


def by_symmetry(widths: Sequence[int], n_draws: int, *, seed: int) -> dict[str, calibration.CalibrationReport]:
    """Check the t tail on renumbered matchings of each width."""
    draws = {
        width: null_spearman.relabelled_distances(np.arange(width), n_draws, seed=seed + width) for width in widths
    }
    return {
        f"t tail, {width:,} units": calibration.check(pvalues.log10_p_t(found, width)) for width, found in draws.items()
    }


def exact_sizes() -> pd.DataFrame:
    """Actual size of the t tail at nominal levels (columns) for few units (rows), by counting all permutations."""
    rows = {}
    for n in (6, 8, 10, 12, 14):
        law = exact_law(n)
        t, exact = pvalues.log10_p_t(law.distance, n), law.log10_p(law.distance)
        # the largest exact p among the values that the t tail puts up to the level is the actual size there
        rows[n] = {
            f"{level:g}": 10.0 ** exact[t <= np.log10(level)].max() if (t <= np.log10(level)).any() else 0.0
            for level in (0.05, 0.01, 0.001, 1e-4)
        }
    return pd.DataFrame(rows).T.rename_axis(index="units", columns="nominal level")


def far_tails(widths: Sequence[int], *, seed: int) -> dict[int, pd.DataFrame]:
    """Orders of magnitude (y, low, high) by which the exact p exceeds the t tail's (x is its -log10), by width.

    y is drawn, by splitting; saddlepoint is the same gap as `provlab.inference.tail` computes it.
    """
    tails = {}
    for n in widths:
        reachable = [depth for depth in (2, 4, 6, 8, 12, 16, 24) if -depth > 0.8 * pvalues.log10_floor(n)]
        targets = [pvalues.distance_at(-depth, n) for depth in reachable]
        tails[n] = pd.DataFrame(
            [
                {
                    "x": -one.log10_p_t,
                    "y": one.log10_p - one.log10_p_t,
                    "low": one.low - one.log10_p_t,
                    "high": one.high - one.log10_p_t,
                    "saddlepoint": float(log10_tail(one.distance, n)) + math.log10(2.0) - one.log10_p_t,
                }
                for one in null_spearman.tail_by_splitting(n, targets, seed=seed + n)
            ]
        )
    return tails


def exact_tail() -> pd.DataFrame:
    """The same gap (x, y), counted over all permutations of 14 units."""
    n = 14
    law = exact_law(n)
    d = law.distance[(law.distance >= 20) & (law.distance < 200)]
    t = pvalues.log10_p_t(d, n)
    return pd.DataFrame({"x": -t, "y": law.log10_p(d) - t})[::3]
