"""The law of Spearman's correlation under independence: exact, drawn, and far out.

A uniformly random permutation pi has D = sum_i (pi(i) - i)^2, and that is all there is to the null of phi_U and phi_H:
renumber the hidden units of one model by a uniform permutation, and by equivariance its matching with any other model,
dependent or not, becomes uniform. So a null draw from a pair needs no new assignment, only a shuffle of the matching
at hand, and the law of D depends on the width and on nothing else. Three ways to know it:

- `provlab.inference.tail.exact_law`: all n! permutations, counted by a pass over subsets, for n up to 14;
- `relabelled_distances`: draws, at any width, for the bulk of the law;
- `tail_by_splitting`: D so small that no draw comes near, reached in steps each of which is likely given the last.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from provlab.errors import InputError
from provlab.inference import pvalues

_CHUNK = 2**22  # entries of random permutations held at a time
_ROUNDS = 2000  # levels of splitting: a factor of five each
_RUNS = 8  # independent populations
_PARTICLES = 250  # permutations in each
_SWEEPS = 2  # of n proposals for each permutation, at every level


@dataclass(frozen=True)
class TailEstimate:
    """Far tail of the law at one D, from independent runs of `tail_by_splitting`.

    Attributes
    ----------
    distance
        D.
    log10_p
        Two-sided, log10 of twice P(D <= distance), the mean over runs.
    low, high
        95% interval from the spread of log10 p over runs, by Student's t.
    log10_p_t
        What the t tail says.
    """

    distance: int
    log10_p: float
    low: float
    high: float
    log10_p_t: float


def relabelled_distances(matching: ArrayLike, n_draws: int, *, seed: int) -> NDArray[np.int64]:
    """D of a matching after each of many uniform renumberings of the first model's units.

    Parameters
    ----------
    matching
        Shape (n,): a permutation, the partner of each unit, of any pair of models.
    n_draws
        How many.
    seed
        Of the renumberings.

    Returns
    -------
    ndarray
        int64, shape (n_draws,): exact draws from the null, since MATCH(pi W1, W2) = pi MATCH(W1, W2).

    Raises
    ------
    InputError
        If `matching` is no permutation or `n_draws` is below 1.
    """
    order = np.asarray(matching)
    if order.ndim != 1 or not np.array_equal(np.sort(order), np.arange(order.size)):
        raise InputError("matching must be a permutation of 0 to n - 1; match all units")
    if n_draws < 1:
        raise InputError(f"n_draws is {n_draws}; it must be at least 1")
    n = order.size
    rng = np.random.default_rng(seed)
    found = np.empty(n_draws, dtype=np.int64)
    rows = max(1, _CHUNK // n)
    narrow = order.astype(np.int32)
    for start in range(0, n_draws, rows):
        copies = rng.permuted(np.broadcast_to(narrow, (min(rows, n_draws - start), n)), axis=1)
        found[start : start + rows] = pvalues.distances(copies)
    return found


def tail_by_splitting(
    n: int,
    targets: Sequence[int],
    *,
    seed: int,
) -> list[TailEstimate]:
    """Estimate P(D <= target) where it is far too small to be drawn.

    A population of permutations is brought to smaller and smaller D. At each level the fifth with the smallest D is
    kept and copied back to full number; random transpositions that do not lead above the level then make the copies
    differ again. The probability is the product of the shares kept (subset simulation, Au and Beck 2001).

    Parameters
    ----------
    n
        Number of ranks, at least 3.
    targets
        Values of D below the middle, (n^3 - n) / 6.
    seed
        Everything random follows from it.

    Raises
    ------
    InputError
        If a target is not below the middle.

    Notes
    -----
    The spread over `_RUNS` populations gives the interval; each has a relative bias of the order of 1/`_PARTICLES` per
    level.
    """
    middle = (n**3 - n) // 6
    if n < 3 or not targets or min(targets) < 0 or max(targets) >= middle:
        raise InputError(f"targets are {list(targets)}; for n = {n} each must lie from 0 to below the middle, {middle}")
    runs, particles = _RUNS, _PARTICLES
    rng = np.random.default_rng(seed)
    states = rng.permuted(np.broadcast_to(np.arange(n, dtype=np.int32), (runs * particles, n)), axis=1)
    d = pvalues.distances(states)
    level = np.full(runs, 2 * middle)
    ln_level = np.zeros(runs)  # ln P(D <= level) of each run
    found = np.full((len(targets), runs), np.nan)
    for _ in range(_ROUNDS):
        by_run = np.sort(d.reshape(runs, particles), axis=1)
        fifth = by_run[:, particles // 5 - 1]
        # where so many share one D that the fifth is no step down, the next smaller D is
        level = np.where(fifth < level, fifth, level - 2)
        for k, target in enumerate(targets):
            # read off while the target is likely given the level; never again once read
            share = (by_run <= target).mean(axis=1)
            reached = np.isnan(found[k]) & (level <= target) & (share > 0.0)
            found[k, reached] = ln_level[reached] + np.log(share[reached])
        if not np.isnan(found).any():
            return [_estimate(int(target), n, found[k]) for k, target in enumerate(targets)]
        survivors = by_run <= level[:, None]
        level = np.where(survivors.any(axis=1), level, level + 2)  # none there yet: go on exchanging
        ln_level = ln_level + np.log((by_run <= level[:, None]).mean(axis=1))
        for run in range(runs):
            mine = np.arange(run * particles, (run + 1) * particles)
            alive = mine[d[mine] <= level[run]]
            chosen = rng.choice(alive, particles)
            states[mine], d[mine] = states[chosen], d[chosen]
        _transpose(states, d, np.repeat(level, particles), _SWEEPS * n, rng)
    raise InputError(f"splitting found no way down to {min(targets)} in {_ROUNDS} levels; give nearer targets")


def _transpose(
    states: NDArray[np.int32], d: NDArray[np.int64], level: NDArray[np.int64], steps: int, rng: np.random.Generator
) -> None:
    """Exchange two entries of every permutation, `steps` times, wherever D stays up to its level. In place.

    Half of the proposals take two places at random, half two near each other: far out only these are accepted.
    """
    count, n = states.shape
    row = np.arange(count)
    for step in range(steps):
        i: NDArray[np.int64] = rng.integers(n, size=(count,))
        # every other proposal is near: the offset n^u, u uniform, is as often of one size as of another
        offset = rng.integers(1, n, size=(count,)) if step % 2 else (n ** rng.random(count)).astype(np.int64)
        j = i + offset
        j[j >= n] -= n
        x, y = states[row, i].astype(np.int64), states[row, j].astype(np.int64)
        change = 2 * (x - y) * (i - j)  # (y-i)^2 + (x-j)^2 - (x-i)^2 - (y-j)^2
        accept = np.flatnonzero(d + change <= level)
        states[accept, i[accept]] = y[accept]
        states[accept, j[accept]] = x[accept]
        d[accept] += change[accept]


def _estimate(target: int, n: int, ln_tail: NDArray[np.float64]) -> TailEstimate:
    values = (ln_tail + math.log(2.0)) / pvalues.LN10
    half = float(stats.t.isf(0.025, values.size - 1)) * float(values.std(ddof=1)) / math.sqrt(values.size)
    mean = float(values.mean())
    return TailEstimate(target, mean, mean - half, mean + half, pvalues.log10_p_t(target - target % 2, n))
