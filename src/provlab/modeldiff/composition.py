"""What the inputs at each difference are: shares, examples, and the mean of labels, bin by bin of D."""

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
    """What is in one bin of D.

    Attributes
    ----------
    low, high
        Its edges.
    share
        Of the model's inputs, by weight.
    n
        Rows drawn that lie in it.
    examples
        Row numbers of a few inputs, drawn by weight, none twice.
    labels
        For each label given, its weighted mean over the bin; None if the bin is empty.
    """

    low: float
    high: float
    share: float
    n: int
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
    """Describe the inputs in each bin of D: how many, which, and the mean of labels such as "is code".

    Parameters
    ----------
    direction
        Of one model's inputs.
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
    columns = {name: np.asarray(values, dtype=float) for name, values in labels.items()}
    for name, values in columns.items():
        if values.shape != direction.difference.shape:
            raise InputError(f"label {name} must hold one number for each of {len(direction.difference)} inputs")
    found = []
    for k, (low, high) in enumerate(pairwise(edges)):
        rows = np.flatnonzero(place == k)
        weight = direction.weight[rows]
        total = weight.sum()
        means = {n: float(weight @ v[rows] / total) if total > 0 else None for n, v in columns.items()}
        chosen = _draw(rows, weight, distinct, n_examples, rng)
        found.append(Bin(float(low), float(high), float(total / direction.weight.sum()), len(rows), chosen, means))
    return found


def label_share(
    direction: Direction, label: ArrayLike, rows: NDArray[np.bool_], *, seed: int = 0
) -> NDArray[np.float64]:
    """Return the weighted mean of a label over some rows, and after it what resampled chains would have given.

    Parameters
    ----------
    direction
        Of one model's inputs.
    label
        ``(n,)`` a number for each row.
    rows
        ``(n,)`` bool: which are meant.

    Returns
    -------
    ndarray
        ``(1 + resamples,)``, NaN where a resample has none of the rows.
    """
    values = np.asarray(label, dtype=float)
    if values.shape != direction.difference.shape or not direction.weight[rows].sum() > 0:
        raise InputError(f"label must hold one number for each of {len(direction.difference)} inputs, and rows some")
    drawn = direction.resampled(np.stack([rows * values, rows], axis=1), _RESAMPLES, np.random.default_rng(seed))
    with np.errstate(invalid="ignore"):
        return np.asarray(drawn[:, 0] / drawn[:, 1])


def _draw(
    rows: NDArray[np.int64],
    weight: NDArray[np.float64],
    distinct: Sequence[object],
    n: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Up to `n` of the rows, drawn by weight without replacement (by exponential clocks), each name once."""
    with np.errstate(divide="ignore"):
        order = rows[np.argsort(rng.exponential(size=len(rows)) / weight, kind="stable")]
    chosen: list[int] = []
    seen: set[object] = set()
    for row in order:
        if distinct[row] not in seen:
            seen.add(distinct[row])
            chosen.append(int(row))
        if len(chosen) == n:
            break
    return np.array(chosen, dtype=np.int64)
