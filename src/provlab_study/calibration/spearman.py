"""The law of Spearman's correlation under independence: exact, drawn, and far out.

A uniformly random permutation pi has D = sum_i (pi(i) - i)^2, and that is all there is to the null of phi_U and phi_H:
renumber the hidden units of one model by a uniform permutation, and by equivariance its matching with any other model,
dependent or not, becomes uniform. So a null draw from a pair needs no new assignment, only a shuffle of the matching
at hand, and the law of D depends on the width and on nothing else. Three ways to know it:

- `provlab.inference.tail.exact_law`: all n! permutations, counted by a pass over subsets, for n up to 14;
- random permutations, at any width, for the bulk of the law (on the page itself);
- `tail_by_splitting`: D so small that no draw comes near, reached in steps each of which is likely given the last.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.inference.tail import COUNTED, LARGEST_EXACT, exact_law

_FIFTH = math.log10(0.2)  # from level to level of splitting
_RUNS = 8  # independent populations
_PARTICLES = 1000  # permutations in each
_SWEEPS = 2  # of n proposals for each permutation, at every level


@dataclass(frozen=True)
class TailEstimate:
    """Far tail of the law at one D, from independent runs of `tail_by_splitting`.

    Attributes
    ----------
    distance
        D.
    log10_p
        log10 of P(D <= distance): of the mean over runs.
    low, high
        95% interval from the spread over runs, by the jackknife of log10_p.
    """

    distance: int
    log10_p: float
    low: float
    high: float


def tail_by_splitting(n: int, targets: Sequence[int], *, seed: int) -> list[TailEstimate]:
    """Estimate P(D <= target) where it is far too small to be drawn.

    A population of permutations is brought to smaller and smaller D, by levels that are laid beforehand, each a fifth
    as likely as the one before. Those at or below a level are kept and copied back to full number; random
    transpositions that do not lead above the level then make the copies differ again. The product of the shares kept
    estimates the probability (subset simulation, Au and Beck 2001).

    Over runs the product is right on average, however few the permutations and however alike the copies stay, because
    the levels do not look at the population (Cerou, Del Moral, Furon and Guyader 2012). With levels put at the fifth of
    a population of 250, whose copies are alike, and with the mean of logarithms in place of the logarithm of the mean,
    it is not: n = 64 came out at 10^-47.6 in place of 10^-48.0, and n = 256 at 10^-89.5 in place of 10^-91.7.

    Parameters
    ----------
    n
        Number of ranks, at least 3.
    targets
        Values of D below the middle, (n^3 - n) / 6.
    seed
        The seed of all draws.

    Returns
    -------
    list of TailEstimate
        In the order of `targets`.

    Raises
    ------
    InputError
        If there is no target or one is out of range, or no run comes down to one.
    """
    middle = (n**3 - n) // 6
    if n < 3 or not targets or min(targets) < 0 or max(targets) >= middle:
        raise InputError(f"targets are {list(targets)}; for n = {n} each must lie from 0 to below the middle, {middle}")
    rng = np.random.default_rng(seed)
    states = rng.permuted(np.tile(np.arange(n, dtype=np.int32), (_RUNS * _PARTICLES, 1)), axis=1)
    d = pvalues.distances(states)
    ln_share = np.zeros(_RUNS)  # ln P(D <= level) by each run; -inf once none of its permutations is there
    ln_share_at: dict[int, NDArray[np.float64]] = {}
    for level in _levels(n, targets):
        below = (d <= level).reshape(_RUNS, _PARTICLES)
        with np.errstate(divide="ignore"):
            ln_share = ln_share + np.log(below.mean(axis=1))
        ln_share_at[level] = ln_share
        if np.isneginf(ln_share).all():
            raise InputError(f"splitting found no way down to {level} for n = {n}; give nearer targets")
        for run, alive in enumerate(below):
            if alive.any():
                mine = run * _PARTICLES + np.arange(_PARTICLES)
                chosen = rng.choice(mine[alive], _PARTICLES)
                states[mine], d[mine] = states[chosen], d[chosen]
        _transpose(states, d, level, _SWEEPS * n, rng)
    return [_estimate(int(target), ln_share_at[int(target)]) for target in targets]


def _levels(n: int, targets: Sequence[int]) -> list[int]:
    """The targets and steps of a fifth between them, from the largest D down.

    By the law under test, which makes them cheap; the estimate is right with any.
    """
    deepest = pvalues.log10_p_spearman(min(targets) - min(targets) % 2, n)
    steps = [pvalues.distance_at(depth, n) for depth in np.arange(_FIFTH, deepest, _FIFTH)]
    return sorted({d for d in steps if d > min(targets)} | {int(target) for target in targets}, reverse=True)


def _transpose(
    states: NDArray[np.int32], d: NDArray[np.int64], level: int, steps: int, rng: np.random.Generator
) -> None:
    """Exchange two entries of every permutation, `steps` times, wherever D stays up to the level. In place.

    Half of the proposals take two places at random, half two near each other: far out only these are accepted.
    """
    count, n = states.shape
    far = np.tile(np.arange(1, n), 16)
    # near ones are n^u apart, u uniform: as often of one size as of another
    near = (n ** ((np.arange(far.size) + 0.5) / far.size)).astype(np.int64)
    offsets = np.concatenate([far, near])
    flat, rows = states.reshape(-1), n * np.arange(count)  # one index finds an entry much faster than two
    for _ in range(steps):
        i: NDArray[np.int64] = rng.integers(n, size=(count,))
        j = (i + offsets.take(rng.integers(offsets.size, size=count))) % n
        x, y = flat.take(rows + i), flat.take(rows + j)
        change = 2 * (x - y) * (i - j)  # (y-i)^2 + (x-j)^2 - (x-i)^2 - (y-j)^2
        accept = np.flatnonzero(d + change <= level)
        row = rows[accept]
        flat[row + i[accept]] = y[accept]
        flat[row + j[accept]] = x[accept]
        d[accept] += change[accept]


def _estimate(target: int, ln_share: NDArray[np.float64]) -> TailEstimate:
    scaled = np.exp(ln_share - ln_share.max())  # of each run, (runs,)
    others = (scaled.sum() - scaled) / (scaled.size - 1)
    log10_p = (float(ln_share.max()) + math.log(scaled.mean())) / pvalues.LN10
    spread = np.log10(np.maximum(others, np.finfo(float).tiny))
    error = math.sqrt((scaled.size - 1) * float(spread.var()))
    half = float(stats.t.isf(0.025, scaled.size - 1)) * error
    return TailEstimate(target, log10_p, log10_p - half, log10_p + half)


# The far tail by width ----------------------------------------------------------------------------------------------


def far_tails(widths: Sequence[int], *, seed: int) -> dict[int, pd.DataFrame]:
    """One-sided log10 p far out, by width.

    Columns: distance, splitting, low, high (its 95% interval), saddlepoint (`provlab.inference.tail`), t tail, exact
    (all permutations counted; NaN where they are too many).
    """
    tails = {}
    for n in widths:
        reachable = [depth for depth in (2, 4, 8, 12, 24, 48, 90) if -depth > 0.8 * pvalues.log10_floor(n)]
        targets = [pvalues.distance_at(-depth, n) for depth in reachable]
        drawn = tail_by_splitting(n, targets, seed=seed + n)
        d = np.array(targets)
        tails[n] = pd.DataFrame(
            {
                "distance": d,
                "splitting": [estimate.log10_p for estimate in drawn],
                "low": [estimate.low for estimate in drawn],
                "high": [estimate.high for estimate in drawn],
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
    return np.asarray(np.log10(np.cumsum(exact_law(n)) / math.factorial(n)))


def gaps(tails: Mapping[int, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """By how much (y, low, high) the t tail's log10 p falls short at its -log10 p (x): drawn, computed, and counted."""
    curves = {}
    for n, table in tails.items():
        t = table["t tail"]
        columns = {name: table[name] - t for name in ("splitting", "low", "high", "saddlepoint")}
        drawn = pd.DataFrame({"x": -t, **columns}).rename(columns={"splitting": "y"})
        curves[f"{n} units"] = drawn[["x", "y", "low", "high"]]
        curves[f"{n} units, saddlepoint"] = drawn[["x", "saddlepoint"]].set_axis(["x", "y"], axis=1)
        if n <= LARGEST_EXACT:
            d = 2 * np.arange(10, 100)
            t = one_sided_t(d, n)
            curves[f"{n} units, exact"] = pd.DataFrame({"x": -t, "y": counted(n)[10:100] - t})[::3]
    return curves


def tail_table(tails: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """The same values in words, one row a width and distance."""
    table = pd.concat(tails, names=["units"]).reset_index("units")
    words = {
        name: table[name].map("{:.2f}".format)
        for name in ("exact", "saddlepoint", "splitting", "low", "high", "t tail")
    }
    return pd.DataFrame(
        {
            "units": table["units"],
            "exact": words["exact"].where(table["exact"].notna(), ""),
            "saddlepoint": words["saddlepoint"],
            "splitting": words["splitting"] + " (" + words["low"] + " to " + words["high"] + ")",
            "t tail": words["t tail"],
        }
    ).reset_index(drop=True)


def worst_errors(tails: Mapping[int, pd.DataFrame]) -> str:
    """How far saddlepoint and t tail are from the counted law at all its values, and from splitting, in Markdown."""
    saddlepoint, t = [], []
    for n in range(COUNTED + 1, LARGEST_EXACT + 1):
        truth = counted(n)
        near = 2 * np.arange(truth.size // 2)
        saddlepoint.append((float(np.abs(pvalues.log10_p_spearman(near, n) - truth[near // 2]).max()), n))
        # at the perfect match the t tail is at its own floor
        t.append((float(np.abs(one_sided_t(near[1:], n) - truth[1 : near.size]).max()), n))
    wide = pd.concat(tails.values())
    within = wide["saddlepoint"].between(wide["low"], wide["high"])
    (error, units), (t_error, t_units) = max(saddlepoint), max(t)
    return (
        f"At all values of {COUNTED + 1} to {LARGEST_EXACT} units, counted, the saddlepoint's largest error is "
        f"**{error:.3f}** in log10 p (at {units} units), the t tail's **{t_error:.1f}** (at {t_units}). "
        f"Splitting's 95% interval holds the saddlepoint's value in **{within.sum()} of {len(wide)}** places; the t "
        f"tail is off its estimate by up to **{(wide['t tail'] - wide['splitting']).abs().max():.1f}**."
    )
