"""Pairs of known origin in two groups: how well a value ranks them, and which are independent of one another."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError
from provlab.report.lineage import Lineage

DRAWS = 2000  # of the models, for an interval


@dataclass(frozen=True)
class Groups:
    """Values of independent and of dependent pairs, in the order of the pairs."""

    independent: list[float]
    dependent: list[float]


@dataclass(frozen=True)
class Area:
    """Area under the ROC curve: in how many of all comparisons a dependent pair has the smaller value (ties half).

    Attributes
    ----------
    value
        0.5 for a coin, 1 where some threshold has all dependent pairs below it and no other.
    low, high
        95% interval by the bootstrap over models.
    """

    value: float
    low: float
    high: float

    @property
    def either_way(self) -> "Area":
        """The area with the values turned round if dependent pairs have the larger ones: that tells as much."""
        return self if self.value >= 0.5 else Area(1 - self.value, 1 - self.high, 1 - self.low)

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends."""
        return self.low, self.high


def area_under_curve(pairs: Sequence[tuple[str, str]], values: ArrayLike, dependent: ArrayLike) -> Area:
    """Rank dependent against independent pairs.

    Pairs that share a model repeat each other, so models are drawn with replacement and not pairs: a pair counts as
    often as both its models were drawn together. A model that is in every pair is what all others are compared with,
    and stays.

    Parameters
    ----------
    pairs
        Names of two models each.
    values
        ``(pairs,)``, small where two models are alike.
    dependent
        ``(pairs,)``, whether two models have a common origin.

    Raises
    ------
    InputError
        If one of the groups is empty.
    """
    small, related = np.asarray(values, dtype=float), np.asarray(dependent, dtype=bool)
    if related.all() or not related.any():
        raise InputError("dependent must name pairs of both kinds: the area compares one kind with the other")
    near, far = small[related][:, None], small[~related]
    wins = (near < far) + 0.5 * (near == far)  # (dependent, independent)
    models = sorted({model for pair in pairs for model in pair})
    places = np.array([[models.index(model) for model in pair] for pair in pairs])
    always = np.array([bool((places == i).any(axis=1).all()) for i in range(len(models))])
    rng, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        counts = np.where(always, 1, np.bincount(rng.integers(len(models), size=len(models)), minlength=len(models)))
        weights = counts[places].prod(axis=1)
        if weights[related].any() and weights[~related].any():
            drawn.append(_share(wins, weights[related], weights[~related]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Area(float(wins.mean()), float(low), float(high))


def _share(wins: NDArray[np.float64], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> float:
    return float(rows @ wins @ columns) / float(rows.sum() * columns.sum())


def pairs_of_trees(rows: pd.DataFrame, known: pd.DataFrame) -> list[frozenset[str]]:
    """For each row, the two trees that its models are of, each by the name of one model.

    Fine-tunes of one base repeat each other against the models of another, so pairs of the same two trees are one group
    of tests that may be small together.

    Parameters
    ----------
    rows, known
        Pairs with the columns a and b; `known` names the dependent ones, which make the trees.
    """
    tree = {model: model for model in (*known["a"], *known["b"], *rows["a"], *rows["b"])}
    for a, b in zip(known["a"], known["b"], strict=True):
        old, new = tree[b], tree[a]
        tree = {model: new if name == old else name for model, name in tree.items()}
    return [frozenset((tree[a], tree[b])) for a, b in zip(rows["a"], rows["b"], strict=True)]


def numbered(sources: Sequence[str], n: int) -> list[str]:
    """Sources of models, each with ``{}`` in it replaced by `n` of them, counted from 1: ``zoo:null-{:02d}``, say."""
    return [name for source in sources for name in _counted(str(source), n)]


def _counted(source: str, n: int) -> list[str]:
    return [source.format(i + 1) for i in range(n)] if "{" in source else [source]


def chain_of_trees(lineage: Lineage) -> list[tuple[str, str]]:
    """One model of each tree with that of the next tree: pairs whose p-values are independent of one another.

    Neighbours share a model, but each p-value is uniform whatever that model is: the order of units in one tree, drawn
    at random, says nothing of its order against the next. Pairs that close a circle would not be independent.
    """
    first: dict[str, str] = {}
    for source in lineage.models:
        if (root := lineage.root(source)) is not None:
            first.setdefault(root, source)
    return list(pairwise(first.values()))
