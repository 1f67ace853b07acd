"""The null by symmetry: renumbered matchings, all permutations counted, and the tail that neither reaches."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.chapters.calibration import spearman as null_spearman
from provlab.chapters.shared import calibration
from provlab.inference import pvalues
from provlab.inference.tail import COUNTED, LARGEST_EXACT, exact_law

# The null by symmetry ---------------------------------------------------------------------------------------------


def by_symmetry(widths: Sequence[int], n_draws: int, *, seed: int) -> dict[str, calibration.CalibrationReport]:
    """Check the law and the t tail on renumbered matchings of each width."""
    draws = {
        width: null_spearman.relabelled_distances(np.arange(width), n_draws, seed=seed + width) for width in widths
    }
    return {
        f"{name}, {width:,} units": calibration.check(log10_p(found, width))
        for name, log10_p in (("law", pvalues.log10_p_spearman), ("t tail", pvalues.log10_p_t))
        for width, found in draws.items()
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
    """One-sided log10 p far out, by width.

    Columns: distance, splitting, low, high (its 95% interval), saddlepoint (`provlab.inference.tail`), t tail, exact
    (all permutations counted; NaN where they are too many).
    """
    tails = {}
    for n in widths:
        reachable = [depth for depth in (2, 4, 8, 12, 24, 48, 90) if -depth > 0.8 * pvalues.log10_floor(n)]
        targets = [pvalues.distance_at(-depth, n) for depth in reachable]
        drawn = null_spearman.tail_by_splitting(n, targets, seed=seed + n)
        d = np.array(targets)
        tails[n] = pd.DataFrame(
            {
                "distance": d,
                "splitting": [one.log10_p for one in drawn],
                "low": [one.low for one in drawn],
                "high": [one.high for one in drawn],
                "saddlepoint": pvalues.log10_p_spearman(d, n),
                "t tail": one_sided_t(d, n),
                "exact": counted(n)[d // 2] if n <= LARGEST_EXACT else np.nan,
            }
        )
    return tails


def one_sided_t(distance: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """log10 p of the t tail on the side of agreement, for distances up to the middle."""
    return pvalues.log10_p_t(distance, n) - math.log10(2.0)


def counted(n: int) -> NDArray[np.float64]:
    """log10 of P(D <= d) at every d = 0, 2, 4, ... by counting all permutations."""
    return np.asarray(np.log10(np.cumsum(exact_law(n).count) / math.factorial(n)))


def gaps(tails: Mapping[int, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """By how much (y, low, high) the t tail's log10 p falls short at its -log10 p (x): drawn, computed, and counted."""
    found = {}
    for n, table in tails.items():
        t = table["t tail"]
        columns = {name: table[name] - t for name in ("splitting", "low", "high", "saddlepoint")}
        drawn = pd.DataFrame({"x": -t, **columns}).rename(columns={"splitting": "y"})
        found[f"{n} units"] = drawn[["x", "y", "low", "high"]]
        found[f"{n} units, saddlepoint"] = drawn[["x", "saddlepoint"]].set_axis(["x", "y"], axis=1)
        if n <= LARGEST_EXACT:
            d = exact_law(n).distance[10:100]
            t = one_sided_t(d, n)
            found[f"{n} units, exact"] = pd.DataFrame({"x": -t, "y": counted(n)[10:100] - t})[::3]
    return found


def tail_table(tails: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """The same values in words, one row a width and distance."""
    rows = [
        {
            "units": n,
            "exact": "" if np.isnan(row["exact"]) else f"{row['exact']:.2f}",
            "saddlepoint": f"{row['saddlepoint']:.2f}",
            "splitting": f"{row['splitting']:.2f} ({row['low']:.2f} to {row['high']:.2f})",
            "t tail": f"{row['t tail']:.2f}",
        }
        for n, table in tails.items()
        for _, row in table.iterrows()
    ]
    return pd.DataFrame(rows)


def worst_errors(tails: Mapping[int, pd.DataFrame]) -> str:
    """How far saddlepoint and t tail are from the counted law at all its values, and from splitting, in Markdown."""
    saddlepoint, t = (0.0, 0), (0.0, 0)
    for n in range(COUNTED + 1, LARGEST_EXACT + 1):
        truth = counted(n)
        near = exact_law(n).distance[: truth.size // 2]
        saddlepoint = max(saddlepoint, (float(np.abs(pvalues.log10_p_spearman(near, n) - truth[near // 2]).max()), n))
        # at the perfect match the t tail is at its own floor
        t = max(t, (float(np.abs(one_sided_t(near[1:], n) - truth[1 : near.size]).max()), n))
    wide = pd.concat(tails.values())
    within = wide["saddlepoint"].between(wide["low"], wide["high"])
    return (
        f"Of all values of {COUNTED + 1} to {LARGEST_EXACT} units, counted: the saddlepoint's largest error is "
        f"**{saddlepoint[0]:.3f}** in log10 p (at {saddlepoint[1]} units), the t tail's **{t[0]:.1f}** (at {t[1]}). "
        f"Splitting's 95% interval holds the saddlepoint's value in **{within.sum()} of {len(wide)}** places; the t "
        f"tail is off its estimate by up to **{(wide['t tail'] - wide['splitting']).abs().max():.1f}**."
    )
