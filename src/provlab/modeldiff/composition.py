"""The inputs at each difference: examples, and the mean of labels, bin by bin of D."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError
from provlab.modeldiff.representative import Direction, bin_of, checked_edges

_RESAMPLES = 1000  # of the chain bootstrap


@dataclass(frozen=True)
class Bin:
    """The inputs in one bin of D.

    Attributes
    ----------
    low, high
        Its edges.
    examples
        Row numbers of a few inputs, drawn by weight, none twice.
    labels
        For each label given, its weighted mean over the bin; None if the bin is empty.
    """

    low: float
    high: float
    examples: NDArray[np.int64]
    labels: dict[str, float | None]


def composition(
    direction: Direction,
    edges: ArrayLike,
    *,
    labels: Mapping[str, ArrayLike],
    distinct: Sequence[object],
    n_examples: int,
    seed: int = 0,
) -> list[Bin]:
    """Describe the inputs in each bin of D by examples and by the mean of labels such as "is code".

    Parameters
    ----------
    direction
        One model's inputs.
    edges
        ``(k + 1,)`` of D.
    labels
        Name to ``(n,)`` numbers, one for each row.
    distinct
        ``(n,)`` hashable names of the rows (their texts): no name is an example twice, since a slow chain gives one
        input many times.
    n_examples, seed
        How many examples a bin, and the seed of their choice.
    """
    edges = checked_edges(edges)
    rng = np.random.default_rng(seed)
    place = bin_of(direction.difference, edges)
    columns = {name: _label(name, values, direction) for name, values in labels.items()}
    bins = []
    for k, (low, high) in enumerate(pairwise(edges)):
        rows = np.flatnonzero(place == k)
        weight = direction.weight[rows]
        total = weight.sum()
        means = {n: float(weight @ v[rows] / total) if total > 0 else None for n, v in columns.items()}
        # drawn by weight without replacement, by exponential clocks
        with np.errstate(divide="ignore"):
            order = rows[np.argsort(rng.exponential(size=len(rows)) / weight, kind="stable")]
        first = {distinct[row]: row for row in reversed(order)}  # of each name, the row that comes first
        chosen = np.array([row for row in order if first[distinct[row]] == row][:n_examples], dtype=np.int64)
        bins.append(Bin(float(low), float(high), chosen, means))
    return bins


def label_share(
    direction: Direction, label: ArrayLike, rows: NDArray[np.bool_], *, seed: int = 0
) -> NDArray[np.float64]:
    """Return the weighted mean of a label over some rows, and after it the means of resampled chains.

    Parameters
    ----------
    direction
        One model's inputs.
    label
        ``(n,)`` a number for each row.
    rows
        ``(n,)`` bool: which are meant.

    Returns
    -------
    ndarray
        ``(1 + resamples,)``, NaN where a resample has none of the rows.
    """
    columns = np.stack([rows * _label("label", label, direction), rows], axis=1)  # (n, 2)
    sums = direction.resampled(columns, _RESAMPLES, np.random.default_rng(seed))
    with np.errstate(invalid="ignore"):
        return np.asarray(sums[:, 0] / sums[:, 1])


def _label(name: str, values: ArrayLike, direction: Direction) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=float)
    if array.shape != direction.difference.shape:
        raise InputError(f"label {name} must hold one number for each of {len(direction.difference)} inputs")
    return array
