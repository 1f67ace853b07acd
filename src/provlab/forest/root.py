"""Level 3: which model may be the first of its family, if families grow in a named way.

Under uniform attachment (each new model descends from one drawn evenly among those that are there) and under linear
preferential attachment, all orders in which a given tree can have grown are equally likely (Crane and Xu 2020). So the
probability that u was first is proportional to the number of orders that begin with u, which is
n! / prod_v |T_v|, with |T_v| the number of models on v's side of the tree rooted at u.

Families that grow as chains are not like that: the set then lies around the middle, and the first model at an end.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

COVERAGE = 0.95
GROWTH = "uniform or linear preferential attachment (Crane and Xu 2020)"
Edge = tuple[int, int]


def neighbours(nodes: Collection[int], edges: Sequence[Edge]) -> dict[int, list[int]]:
    """Models next to each one."""
    near: dict[int, list[int]] = {node: [] for node in nodes}
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    return near


def side(near: dict[int, list[int]], start: int, without: int) -> set[int]:
    """Models on the side of `start` of its edge with `without`."""
    reached, left = {without, start}, [start]
    while left:
        new = [node for node in near[left.pop()] if node not in reached]
        reached.update(new)
        left += new
    return reached - {without}


def posterior(nodes: Sequence[int], edges: Sequence[Edge]) -> NDArray[np.float64]:
    """Probability that each model was first, ``(n,)`` in the order of `nodes`.

    Between neighbours u and v the products differ in one factor: |T_u| = n - |T_v| in place of |T_v|.
    """
    near, n = neighbours(nodes, edges), len(nodes)
    logs, left = {nodes[0]: 0.0}, [nodes[0]]
    while left:
        u = left.pop()
        for v in near[u]:
            if v not in logs:
                below = len(side(near, v, u))
                logs[v] = logs[u] + float(np.log(below / (n - below)))
                left.append(v)
    values = np.array([logs[node] for node in nodes])
    weights = np.exp(values - values.max())
    return np.asarray(weights / weights.sum())


def root_set(nodes: Sequence[int], edges: Sequence[Edge], allowed: Collection[int]) -> tuple[int, ...]:
    """Fewest models, the likeliest first, that hold the first one with `COVERAGE`, among those `allowed`."""
    probability = np.where([node in allowed for node in nodes], posterior(nodes, edges), 0.0)
    probability /= probability.sum()
    order = np.argsort(-probability, kind="stable")
    enough = int(np.searchsorted(np.cumsum(probability[order]), COVERAGE - 1e-12)) + 1
    chosen = {nodes[i] for i in order[:enough]}
    # of models that are equally likely none is left out for its place in the list
    least = probability[order[enough - 1]]
    chosen |= {node for node, p in zip(nodes, probability, strict=True) if p >= least * (1 - 1e-9)}
    return tuple(node for node in (nodes[i] for i in order) if node in chosen)


def is_chain(nodes: Sequence[int], edges: Sequence[Edge]) -> bool:
    """Whether no model has more than two neighbours, so that the root set is worthless."""
    return all(len(next_to) <= 2 for next_to in neighbours(nodes, edges).values())
