"""How many inputs have which pair of losses: the histogram that an enumeration of a whole space leaves.

Losses fall into bins of one width, and each cell knows besides which of the only two possible bins the difference
D = z_A - z_B lies in. So whatever is asked with bounds on the grid is answered exactly: who is in a range Z, who in
both ranges, the sign of D, the histogram of D. Only bounds off the grid would split a cell.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from provlab.errors import InputError

#: bins of NLL are so wide (nats per token); bounds that are multiples of it are answered exactly
WIDTH = 0.01
_BINS = 1 << 13  # bins of NLL; what lies above the last, at 81.92 nats, would count as in it

Side = Literal["A", "B"]


@dataclass(frozen=True, eq=False)
class Joint:
    """Counts of inputs by NLL under two models and by a label. Make one with `Joint.of`, add them up with `merged`.

    Attributes
    ----------
    key
        ``(cells,)`` int64, ascending: label, bin of A, bin of B and bin of D in one number.
    count
        ``(cells,)`` inputs in each.
    """

    key: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, nll_a: NDArray[np.floating], nll_b: NDArray[np.floating], label: NDArray[np.bool_]) -> "Joint":
        """Count inputs, ``(n,)`` each: their NLLs (nats) under the two models and whether they bear the label."""
        a, b = _bin(nll_a), _bin(nll_b)
        difference = nll_a.astype(np.float64) - nll_b
        upper = difference >= (a - b) * WIDTH
        key = ((label.astype(np.int64) * _BINS + a) * _BINS + b) * 2 + upper
        return cls(*np.unique(key, return_counts=True))

    @classmethod
    def merged(cls, joints: Iterable["Joint"]) -> "Joint":
        """Add histograms of separate inputs."""
        joints = list(joints)
        key, where = np.unique(np.concatenate([joint.key for joint in joints]), return_inverse=True)
        count = np.zeros(len(key), dtype=np.int64)
        np.add.at(count, where, np.concatenate([joint.count for joint in joints]))
        return cls(key, count)

    def __len__(self) -> int:
        return len(self.key)

    @property
    def size(self) -> int:
        """Number of inputs."""
        return int(self.count.sum())

    @property
    def label(self) -> NDArray[np.bool_]:
        """Whether the inputs of each cell bear the label, ``(cells,)``."""
        return self.key >= 2 * _BINS * _BINS

    @property
    def bins(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bin of NLL under A and under B of each cell; bin k is from ``k * WIDTH`` to ``(k + 1) * WIDTH``."""
        return self.key // (2 * _BINS) % _BINS, self.key // 2 % _BINS

    def only(self, *, label: bool) -> "Joint":
        """Keep the inputs that bear the label, or those that do not."""
        kept = self.label == label
        return Joint(self.key[kept], self.count[kept])

    def losses(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return one point for each cell, inside its bins of NLL and of D: ``(z_a, z_b)``, each ``(cells,)``.

        With `count` as weights this goes where the losses of single inputs go
        (`provlab.modeldiff.comparison.from_enumeration`).
        """
        a, b = self.bins
        upper = self.key % 2 == 1
        near = np.where(upper, 0.75, 0.25).astype(np.float64)
        return (a + near) * WIDTH, (b + 1 - near) * WIDTH

    def density(self, side: Side) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return rho(z) of one model: edges ``(k + 1,)`` (nats) over all that occurs, and the inputs in each bin."""
        own = self.bins[0 if side == "A" else 1]
        first, last = own.min(), own.max()
        counts = np.zeros(last - first + 1, dtype=np.int64)
        np.add.at(counts, own - first, self.count)
        return np.arange(first, last + 2) * WIDTH, counts

    def quantiles(self, side: Side, shares: ArrayLike) -> NDArray[np.float64]:
        """Return the grid points nearest above which shares of the inputs have no larger NLL."""
        edges, counts = self.density(side)
        reached = np.cumsum(counts) / counts.sum()
        wanted = np.asarray(shares, dtype=float)
        if not ((wanted > 0) & (wanted <= 1)).all():
            raise InputError(f"shares must be above 0 and at most 1, not {shares!r}")
        return edges[1:][np.searchsorted(reached, wanted - 1e-12)]


def on_grid(bound: float) -> float:
    """Round a bound (nats) to the grid, where a `Joint` answers exactly."""
    return round(round(bound / WIDTH) * WIDTH, 10)


def _bin(nll: NDArray[np.floating]) -> NDArray[Any]:
    bins = np.floor(nll.astype(np.float64) / WIDTH).astype(np.int64)
    if (bins < 0).any():
        raise InputError("an NLL is negative; a mean over log probabilities cannot be")
    return np.minimum(bins, _BINS - 1)
