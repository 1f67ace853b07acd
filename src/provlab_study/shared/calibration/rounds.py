"""Uniformity over all pairs of a few models, with no theorem about how the pairs depend on each other.

Forty models make 780 pairs but only 20 that share no model, and only such pairs are separate experiments. A round of
a tournament is such a set: everyone plays once. All rounds together play each pair once. Every round gives a valid
test; tests of different rounds depend on each other in an unknown way, and even so twice the mean of their p-values is
a p-value (Rüschendorf 1982; Vovk and Wang 2020). For rates there is Hoeffding's theory of averages over
pairs: left out one by one, the models say how uncertain an average over all pairs is (Arvesen 1969).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from provlab.errors import InputError
from provlab_study.shared.calibration.bands import ks_uniform

LEVEL = 0.05  # of the share of small p-values


@dataclass(frozen=True, eq=False)
class RoundRobin:
    """p-values of all pairs among models, compared with the uniform round by round.

    Attributes
    ----------
    p
        Twice the mean over rounds of the Kolmogorov-Smirnov p-value, at most 1. Cautious: under uniformity it falls
        below a level far less often than the level.
    rounds
        Shape (n_rounds,): the p-value of each round, each valid on its own.
    share, low, high
        Share of all pairs with p up to `LEVEL`, and its 95% interval by the jackknife over models.
    """

    p: float
    rounds: NDArray[np.float64]
    share: float
    low: float
    high: float


def tournament(models: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Rounds in which every model meets another, each pair once over all rounds (the circle method).

    Parameters
    ----------
    models
        An even number of names, at least two; pairs keep their order.

    Raises
    ------
    InputError
        If the number is odd or a name repeats.
    """
    n = len(models)
    if n < 2 or n % 2 or len(set(models)) != n:
        raise InputError(f"models are {n}, {len(set(models))} of them distinct; a tournament needs an even number")
    place = {model: i for i, model in enumerate(models)}
    circle = list(models)
    rounds = []
    for _ in range(n - 1):
        pairs = ((circle[i], circle[n - 1 - i]) for i in range(n // 2))
        rounds.append([(a, b) if place[a] < place[b] else (b, a) for a, b in pairs])
        circle = [circle[0], circle[-1], *circle[1:-1]]  # one stays, the others move on by one seat
    return rounds


def round_robin(log10_p: Mapping[tuple[str, str], float | Sequence[float]]) -> RoundRobin:
    """Compare the p-values of all pairs among independent models with the uniform.

    Parameters
    ----------
    log10_p
        For each pair of models one log10 p, or one for each block. Every pair must be there once, and the number of
        models be even.

    Raises
    ------
    InputError
        If the number of models is odd.

    Notes
    -----
    The test of a round takes the p-values within it, of other models each and of other blocks, as independent. The
    jackknife's interval is approximate; its normal quantile is replaced by Student's with one less than the models.
    """
    models = list(dict.fromkeys(model for pair in log10_p for model in pair))
    rounds = tournament(models)
    both_ways = {frozenset(pair): np.atleast_1d(np.asarray(value, dtype=float)) for pair, value in log10_p.items()}
    by_round = np.array([ks_uniform(np.concatenate([both_ways[frozenset(p)] for p in pairs])).p for pairs in rounds])
    small = {(a, b): float(np.mean(both_ways[frozenset((a, b))] <= math.log10(LEVEL) + 1e-12)) for a, b in log10_p}
    share, low, high = jackknife(small)
    return RoundRobin(
        p=min(1.0, 2.0 * float(by_round.mean())),
        rounds=by_round,
        share=share,
        low=max(0.0, low),
        high=min(1.0, high),
    )


def jackknife(
    values: Mapping[tuple[str, str], float], *, groups: Mapping[str, str] | None = None
) -> tuple[float, float, float]:
    """Mean of a value over pairs of models, with a 95% interval by leaving out one model at a time.

    Parameters
    ----------
    values
        One a pair of models.
    groups
        The group of each model, where models of one group share an origin: one group at a time is left out then.

    Returns
    -------
    tuple
        Mean, and the interval's ends; infinite ones with fewer than four models or groups, or where one of them is in
        every pair, so that nothing is left without it. The interval is approximate, with Student's quantile of one
        degree less than there are models or groups.
    """
    sides = [{groups[model] if groups else model for model in pair} for pair in values]
    total, n_pairs = math.fsum(values.values()), len(values)
    names = sorted(set().union(*sides))
    n = len(names)
    mean = total / n_pairs
    met = [[value for value, side in zip(values.values(), sides, strict=True) if name in side] for name in names]
    if n < 4 or max(map(len, met)) == n_pairs:
        return mean, -math.inf, math.inf
    without = [(total - math.fsum(some)) / (n_pairs - len(some)) for some in met]
    spread = math.fsum((value - math.fsum(without) / n) ** 2 for value in without)
    half = float(stats.t.isf(0.025, n - 1)) * math.sqrt((n - 1) / n * spread)
    return mean, mean - half, mean + half
