"""Level 4: the edges that no row decides, and the directions that nothing above gives. Estimates, each with its count.

The tree joins the models of a family by the pairs between which the fewest other models may lie, then by the fewest
changed rows, then by the distance of weights. The direction is a logistic score of how the two models' weights differ.
It was fitted to small models that AdamW trained for a short time, whose weights still grow. `CALIBRATION` counts it by
the size of the score, on families whose parents are left out too; outside that population (`counted`) it gives no
direction.
Resampling tensors would say nothing of its errors: wrong edges come out the same each time.
"""

from collections.abc import Callable, Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from provlab.measured import quoted
from provlab.reading.anatomy import Anatomy

#: weights of differences, second model less first: of ln squares of weights, ln kurtosis, and distance of gains from 1
SCORE = (14.0, -8.0, 155.0)
#: (least |score|, how many directions were right, of how many): pairs of which one is an ancestor. Below the first many
#: are wrong, and above `MOST_SCORE` there are few pairs: no direction is given there
CALIBRATION: Sequence[tuple[float, int, int]] = quoted("score").numbers["rows"]
MOST_SCORE = 32.0
LEAST_SCORE: float = CALIBRATION[0][0]
#: width and blocks of its models, and up to how many times as wide and deep models count as like them: a choice. A
#: direction by score is given to no others
SHAPE, TIMES = (24, 2), 4
UNCOUNTED = "no population like this one"
#: counted on arms of the chapter without merges and forgers
TRIPLES = quoted("triples").says()
Edge = tuple[int, int]


def spanning(
    n: int,
    between: NDArray[np.int64],
    changed: NDArray[np.int64],
    distance: NDArray[np.float64],
    fixed: Sequence[Edge],
    later: Callable[[int, int], int],
    leaves: Container[int] = (),
) -> list[Edge]:
    """Kruskal's tree over n models by the smallest of (models that may lie between, changed rows, distance).

    A model has one parent, so an edge from a second earlier model to one is passed over as long as others are left.

    Parameters
    ----------
    between, changed, distance
        ``(n, n)`` each, symmetric.
    fixed
        Edges that are known, the child second; taken first.
    later
        For two models, 1 if the second is the later one, -1 if the first is, 0 if that is not known.
    leaves
        Models that no other edges than the fixed ones touch, as merges.
    """
    group, has_parent = list(range(n)), [False] * n

    def find(i: int) -> int:
        while group[i] != i:
            i = group[i]
        return i

    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if i not in leaves and j not in leaves]
    pairs.sort(key=lambda pair: (between[pair], changed[pair], distance[pair]))
    edges = []
    rounds = [(False, fixed), (True, pairs), (False, pairs)]
    for strict, (i, j) in [(strict, pair) for strict, listed in rounds for pair in listed]:
        first, second = find(i), find(j)
        child = j if (i, j) in fixed else {1: j, -1: i}.get(later(i, j))
        if first != second and not (strict and child is not None and has_parent[child]):
            group[second] = first
            edges.append((i, j))
            if child is not None:
                has_parent[child] = True
    return edges


def score(first: dict[str, float], second: dict[str, float]) -> float:
    """Log odds that the second model descends from the first, not the other way round."""
    squares, kurtosis = (float(np.log(second[name] / first[name])) for name in ("squares", "kurtosis"))
    return float(np.dot(SCORE, [squares, kurtosis, second["gains"] - first["gains"]]))


def odd_one_out(three: Sequence[str], apart: Mapping[frozenset[str], tuple[float, ...]]) -> str | None:
    """Name the one of three related models that is outside the closest pair; None if two pairs are equally close."""
    first, second, _ = sorted((apart[frozenset(three) - {odd}], odd) for odd in three)
    return None if first[0] == second[0] else first[1]


def counted(anatomy: Anatomy) -> bool:
    """Whether a model is like those of the population: gated MLPs, and hardly larger."""
    return anatomy.has("gate") and all(
        size <= TIMES * usual for size, usual in zip((anatomy.width, anatomy.n_blocks), SHAPE, strict=True)
    )


def chance(score: float) -> str | None:
    """How often a direction by such a score was right, in words; None where it is not given."""
    known = [row for row in CALIBRATION if row[0] <= abs(score) <= MOST_SCORE]
    if not known:
        return None
    _, right, n = known[-1]
    low, high = beta.ppf([0.025, 0.975], [right, right + 1], [n - right + 1, max(n - right, 1e-9)])
    return quoted("score").says(right=right, n=n, low=low, high=high)
