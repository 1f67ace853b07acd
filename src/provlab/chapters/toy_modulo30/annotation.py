"""Which model's disagreement is right: precision and recall against scores of the inputs (Section 3.4).

A score says how good an input is, from 1 (what the models were trained for) to 0 (nothing of the kind). A person gives
them to some inputs of each bin of D; where a rule says what is good, as in the toy, `oracle` scores every input.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError
from provlab.modeldiff.representative import Direction, bin_of, checked_edges


def oracle(
    tokens: NDArray[np.integer[Any]], rule: Callable[[NDArray[np.integer[Any]]], ArrayLike]
) -> NDArray[np.float64]:
    """Score inputs by a rule: ``rule(tokens)`` gives ``(n,)`` scores for ``(n, length)`` tokens.

    Raises
    ------
    InputError
        The rule gives another number of scores, or one outside [0, 1].
    """
    scores = np.asarray(rule(tokens), dtype=np.float64)
    if scores.shape != (len(tokens),) or not ((scores >= 0) & (scores <= 1)).all():
        raise InputError(f"the oracle must give one score from 0 to 1 for each of {len(tokens)} inputs")
    return scores


@dataclass(frozen=True)
class Agreement:
    """How far annotations agree with what a model finds likely, over one range of D (Equations 8, 9).

    Attributes
    ----------
    precision
        Share of good inputs among those in the range.
    recall
        Good inputs in the range for each good input of the model over all of `edges`; proportional to Equation 9, whose
        denominator is the constant number of good inputs in X.
    n
        Scored inputs in the range.
    """

    precision: float
    recall: float
    n: int


def agreement(direction: Direction, edges: ArrayLike, scores: ArrayLike, where: tuple[float, float]) -> Agreement:
    """Compute precision and recall of the inputs with D in a range, from scores bin by bin.

    Parameters
    ----------
    direction
        Of one model's inputs.
    edges
        ``(k + 1,)`` of D: r(D) is the mean score of a bin's inputs, each with its weight, and the bin counts with the
        weight of all its inputs.
    scores
        ``(n,)`` score of each input, NaN where it was not scored. Which are scored must not depend on their weights.
    where
        The range of D that is summed over; bins whose middle lies in it count. D < 0 on A's inputs is PD_A->B.

    Raises
    ------
    InputError
        A bin that has inputs in it has no scored input of positive weight, so that its mean is not known.
    """
    edges = checked_edges(edges)
    given = np.asarray(scores, dtype=np.float64)
    if given.shape != direction.difference.shape:
        raise InputError(f"scores must hold one for each of {len(direction.difference)} inputs, or NaN")
    scored = np.flatnonzero(np.isfinite(given) & (direction.weight > 0))
    n_bins = len(edges) - 1
    place = bin_of(direction.difference, edges)
    mass = np.bincount(place[place >= 0], direction.weight[place >= 0], minlength=n_bins)
    own = place[scored]
    middle = (edges[1:] + edges[:-1]) / 2
    inside = (middle >= where[0]) & (middle <= where[1]) & (mass > 0)
    if not inside.any():
        raise InputError(f"no input lies in a bin of D between {where[0]:g} and {where[1]:g}; take another range")
    means = np.zeros(n_bins)
    for k in range(n_bins):
        rows = scored[own == k]
        if len(rows):
            weight = direction.weight[rows]
            means[k] = (given[rows] * weight).sum() / weight.sum()
        elif mass[k] > 0:
            raise InputError(
                f"no input with D in [{edges[k]:g}, {edges[k + 1]:g}] is scored; score some, or take wider bins"
            )
    good = means * mass
    total = good.sum()
    recall = good[inside].sum() / total if total > 0 else 0.0
    n = int(np.isin(own, np.flatnonzero(inside)).sum())
    return Agreement(float(good[inside].sum() / mass[inside].sum()), float(recall), n)
