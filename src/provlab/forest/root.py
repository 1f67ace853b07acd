"""Level 3: which model may be the first of its family, if families grow in a named way.

Under uniform attachment (each new model descends from one drawn evenly among those that are there) and under linear
preferential attachment, all orders in which a given tree can have grown are equally likely (Crane and Xu 2020). So the
probability that u was first is proportional to the number of orders that begin with u, which is
n! / prod_v |T_v|, with |T_v| the number of models on v's side of the tree rooted at u.

Families that grow as chains are not like that: the set then lies around the middle, and the first model at an end.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

COVERAGE = 0.95
GROWTH = "uniform or linear preferential attachment (Crane and Xu 2020)"
Edge = tuple[int, int]
Some = NDArray[np.bool_]


def side(n: int, edges: Sequence[Edge], edge: Edge) -> Some:
    """Which of n models lie on the side of the second end of an edge: ``(n,)``."""
    others = np.array([other for other in edges if set(other) != set(edge)], dtype=int).reshape(-1, 2)
    graph = coo_array((np.ones(len(others)), others.T), shape=(n, n))
    group = connected_components(graph, directed=False)[1]
    return np.asarray(group == group[edge[1]])


def posterior(n: int, edges: Sequence[Edge]) -> NDArray[np.float64]:
    """Probability that each of n models was first, ``(n,)``."""
    logs = np.zeros(n)
    for edge in edges:
        beyond = side(n, edges, edge)
        size = int(beyond.sum())
        logs -= np.log(np.where(beyond, n - size, size))  # of the end that is farther from the first model
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def root_set(n: int, edges: Sequence[Edge], allowed: Some) -> list[int]:
    """Fewest models, the likeliest first, that hold the first one with `COVERAGE`, among those `allowed`.

    If models are equally likely, none is left out for its place in the list.
    """
    probability = np.where(allowed, posterior(n, edges), 0.0)
    probability /= probability.sum()
    order = np.argsort(-probability, kind="stable")
    last = order[np.searchsorted(np.cumsum(probability[order]), COVERAGE - 1e-12)]
    chosen: list[int] = order[probability[order] >= probability[last] * (1 - 1e-9)].tolist()
    return chosen


def is_chain(edges: Sequence[Edge]) -> bool:
    """Whether no model has more than two neighbours, so that the root set is worthless."""
    return bool(np.bincount(np.ravel(edges)).max() <= 2)
