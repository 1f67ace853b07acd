"""Level 1: which models belong to one family, with a bound on the chance that two independent ones ever do.

Relatedness is not transitive: the mean of two unrelated models is related to both. So a statement about a family is one
about its pairs. A pair is *called related* where its p-value is at most level / (N (N - 1) / 2), N being the number of
models. By the union over the independent pairs, however dependent their p-values are, all pairs that are called related
are so with a probability of at least 1 - level. A family is a group *all* of whose pairs are called related, so this is
the bound for all families at once.

Groups are joined as long as all their cross pairs are called related, and the mean of the cross pairs' e-values
(`provlab.inference.evalues`; a mean of e-values is one whatever their dependence) is at least N (N - 1) / 2 / level,
the largest mean first. The second condition costs true families next to nothing, and one pair that came about by chance
joins no groups.

A *bridge* is a model that is related to families that are not related to each other: a merge of both does that, and so
does a common parent whose children have grown too far apart to be called related. It is in neither family, since no
family holds a pair that was not called related, and is named beside them. There may be many bridges, and bridges
between bridges; each is one by its pairs. Where it would take more bridges than there are pairs between two families
that were not called related, the pairs are the simpler story: the two families are listed as related in part, with
those pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from provlab.inference.evalues import log10_e

LEVEL = 0.01  # of a forest
Pair = tuple[str, str]
Group = tuple[str, ...]


@dataclass(frozen=True)
class Families:
    """Families of models, and what is related across them.

    Attributes
    ----------
    groups
        Families, each in the order of the models. A bridge is a group of its own.
    joins
        Two groups, and log10 of the mean e-value over their cross pairs, in the order in which they were joined.
    bridges
        For each bridge the families that it is related to, with more than half of the models of each.
    partly
        Two families some of whose cross pairs are called related, which no bridge explains: those that are, those that
        are not.
    """

    groups: tuple[Group, ...]
    joins: tuple[tuple[Group, Group, float], ...]
    bridges: Mapping[str, tuple[Group, ...]]
    partly: tuple[tuple[Group, Group, tuple[Pair, ...], tuple[Pair, ...]], ...]


def log10_bar(n_models: int, level: float) -> float:
    """log10 of the mean e-value from which two groups of so many models in all are joined."""
    return float(np.log10(max(1, n_models * (n_models - 1) / 2) / level))


def join(models: Sequence[str], log10_p: Mapping[Pair, float], level: float) -> Families:
    """Join models to families.

    Parameters
    ----------
    models
        In the order in which families are to be listed.
    log10_p
        For the pairs that were tested, either way round. A pair that was not tested is not called related.
    level
        Bound on the probability that a pair is called related, in a family or across, that is independent.
    """
    place = {model: i for i, model in enumerate(models)}
    logs = np.full((len(models), len(models)), -np.inf)  # ln of the e-value of each pair
    called = np.zeros(logs.shape, dtype=bool)
    bar = log10_bar(len(models), level)
    for (a, b), value in log10_p.items():
        i, j = place[a], place[b]
        logs[i, j] = logs[j, i] = log10_e(value) * np.log(10)
        called[i, j] = called[j, i] = value <= -bar
    between: set[int] = set()
    idle: set[int] = set()  # they seemed to stand between, as others did that were taken out later
    while True:
        groups, joins = _cliques([i for i in range(len(models)) if i not in between], logs, called, bar * np.log(10))
        if new := _bridges(groups, logs, called, bar * np.log(10)) - idle:
            between |= new
        elif back := {k for k in between if sum(_related(k, group, called) for group in groups) < 2}:
            between, idle = between - back, idle | back
        else:
            break
    named = [tuple(models[k] for k in group) for group in groups]
    bridges = {
        models[k]: tuple(names for names, group in zip(named, groups, strict=True) if _related(k, group, called))
        for k in sorted(between)
    }
    partly = []
    for x, y in combinations(range(len(groups)), 2):
        pairs = [(i, j) for i in groups[x] for j in groups[y]]
        split = [
            tuple((models[i], models[j]) for i, j in pairs if called[i, j] == related) for related in (True, False)
        ]
        partly += [(named[x], named[y], *split)] * bool(split[0])
    everybody = sorted([*named, *((models[k],) for k in between)], key=lambda group: place[group[0]])
    steps = [(*(tuple(models[k] for k in group) for group in pair), mean) for *pair, mean in joins]
    return Families(tuple(everybody), tuple(steps), bridges, tuple(partly))  # type: ignore[arg-type]


Numbers = tuple[int, ...]


def _cliques(
    some: Sequence[int], logs: NDArray[np.float64], called: NDArray[np.bool_], bar: float
) -> tuple[list[Numbers], list[tuple[Numbers, Numbers, float]]]:
    """Groups all of whose pairs are called related, in the order of their first models; and the joins."""
    groups: dict[int, Numbers] = {i: (i,) for i in some}
    logs, barred, joins = logs.copy(), ~called, []  # between groups: ln of the sum, and whether a pair is not called
    alone = np.setdiff1d(np.arange(len(logs)), some)
    logs[alone] = logs[:, alone] = -np.inf
    np.fill_diagonal(logs, -np.inf)
    sizes = np.ones(len(logs))
    while len(groups) > 1:
        mean = np.where(barred, -np.inf, logs - np.log(np.outer(sizes, sizes)))
        i, j = sorted(divmod(int(np.argmax(mean)), len(logs)))
        if mean[i, j] < bar:
            break
        joins.append((groups[i], groups[j], float(mean[i, j] / np.log(10))))
        groups[i] = tuple(sorted(groups[i] + groups.pop(j)))
        logs[i] = logs[:, i] = logsumexp(logs[[i, j]], axis=0)
        barred[i] = barred[:, i] = barred[i] | barred[j]
        logs[i, i] = -np.inf
        logs[j] = logs[:, j] = -np.inf
        sizes[i] += sizes[j]
    return [groups[i] for i in sorted(groups)], joins


def _related(model: int, group: Numbers, called: NDArray[np.bool_]) -> bool:
    """Whether a model is called related to more than half of the models of a group."""
    return bool(2 * called[model, list(group)].sum() > len(group))


def _bridges(groups: list[Numbers], logs: NDArray[np.float64], called: NDArray[np.bool_], bar: float) -> set[int]:
    """Models of a family that stand between it and another one: no more than pairs that were not called related."""
    for own, other in permutations(groups, 2):
        between = {
            k for k in own if _related(k, other, called) and logsumexp(logs[k, list(other)]) - np.log(len(other)) >= bar
        }
        rest = [k for k in own if k not in between]
        if between and len(between) <= (~called[np.ix_(rest, list(other))]).sum():
            return between
    return set()
