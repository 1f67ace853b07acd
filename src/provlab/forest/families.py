"""Level 1: which models belong to one family, with a bound on the chance that two independent ones ever do.

p-values become e-values (`provlab.inference.evalues`), and the mean of e-values is an e-value whatever their
dependence. Two groups of models are joined by the mean over *all* their cross pairs, the largest mean first, as long as
it is at least N (N - 1) / (2 level), N being the number of models.

Let the first join of independent models be that of A and B. Until then no group held independent models, so all cross
pairs of A and B are independent, and one of them has an e-value of at least that mean. By Markov's inequality and the
union over at most N (N - 1) / 2 independent pairs this has a probability of at most `level`. True families are whole
before a chance pair comes up for a join, and then it counts as one of many.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import logsumexp

from provlab.inference.evalues import log10_e

LEVEL = 0.01  # of a forest
Pair = tuple[str, str]


def log10_bar(n_models: int, level: float) -> float:
    """log10 of the mean e-value from which two groups of so many models in all are joined."""
    return float(np.log10(max(1, n_models * (n_models - 1) / 2) / level))


def join(
    models: Sequence[str], log10_p: Mapping[Pair, float], level: float
) -> tuple[list[tuple[str, ...]], list[tuple[tuple[str, ...], tuple[str, ...], float]]]:
    """Join models to families.

    Parameters
    ----------
    models
        In the order in which families are to be listed.
    log10_p
        For the pairs that were tested, either way round. A pair that was not tested counts with an e-value of 0, which
        is valid and costs power.
    level
        Bound on the probability that one family holds two independent models.

    Returns
    -------
    tuple of two lists
        Families, each in the order of `models`; and the joins: two groups, and log10 of their mean e-value.
    """
    place = {model: i for i, model in enumerate(models)}
    logs = np.full((len(models), len(models)), -np.inf)  # ln of the sum of e-values between two groups
    for (a, b), value in log10_p.items():
        logs[place[a], place[b]] = logs[place[b], place[a]] = log10_e(value) * np.log(10)
    groups: dict[int, tuple[int, ...]] = {i: (i,) for i in range(len(models))}
    bar, joins = log10_bar(len(models), level) * np.log(10), []
    sizes = np.ones(len(models))
    while len(groups) > 1:
        mean = logs - np.log(np.outer(sizes, sizes))
        i, j = sorted(divmod(int(np.argmax(mean)), len(models)))
        if mean[i, j] < bar:
            break
        named = [tuple(models[k] for k in groups[k]) for k in (i, j)]
        joins.append((named[0], named[1], float(mean[i, j] / np.log(10))))
        groups[i] = tuple(sorted(groups[i] + groups.pop(j)))
        logs[i] = logs[:, i] = logsumexp(logs[[i, j]], axis=0)
        logs[i, i] = -np.inf
        logs[j] = logs[:, j] = -np.inf
        sizes[i] += sizes[j]
    return [tuple(models[k] for k in group) for group in groups.values()], joins
