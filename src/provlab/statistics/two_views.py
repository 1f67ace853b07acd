"""Hidden units seen twice, as phi_MATCH compares them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.arrays import There
from provlab.inference.matching import UnitRows
from provlab.reading.canonical import AS_THEY_ARE, SEEN, applied, near_pairs
from provlab.statistics.alive import living_rows

Numbers = NDArray[np.float64]
#: a gate stands in a group if another one differs from it by at most this share of the longer, by what they give on the
#: text, constants apart. In ten models of the zoo units in groups write 0 to 35% of an MLP's output, in one 99%
GROUPED = 0.6


class Views(NamedTuple):
    """A block's units, twice.

    Attributes
    ----------
    gate, up
        Activations, or other rows by which units are matched.
    tokens
        At which both were seen.
    written
        ``(units,)``: what share of the block's output each writes; None where that is unknown, and asked of none.
    tied
        ``(units,)``: the size of the cosine between each unit's own gate and up; None where these are no such pair.
    """

    gate: UnitRows
    up: UnitRows
    tokens: NDArray[np.int64]
    written: Numbers | None = None
    tied: Numbers | None = None

    @property
    def shares(self) -> Numbers:
        """As `written`; NaN where that is unknown: then no condition on shares holds."""
        return np.full(len(self.gate), np.nan) if self.written is None else self.written

    def may_count(self, most: float) -> NDArray[np.bool_]:
        """Which units are not `tied` by more than `most`, ``(units,)``: all, where there is no such pair."""
        return np.ones(len(self.gate), bool) if self.tied is None else self.tied <= most

    def mean_tied(self, units: NDArray[np.int64] | None = None) -> float:
        """Mean of `tied` over some units, or over all by what they write; NaN where there is no such pair."""
        if self.tied is None:
            return float("nan")
        if units is not None:
            return float(self.tied[units].mean())
        return float(np.average(self.tied, weights=self.written if np.any(self.written) else None))

    def fewest(self, share: float) -> int:
        """How few units write this share of what all write; all of them, where that is unknown or nothing."""
        if not (self.shares.sum() > 0):
            return len(self.gate)
        upward = np.sort(self.shares)[::-1].cumsum()
        return int(np.searchsorted(upward, share * upward[-1])) + 1


def viewed(
    gate: NDArray[np.float32],
    up: NDArray[np.float32],
    tokens: NDArray[np.int64],
    units: Numbers = AS_THEY_ARE,
    written: Numbers | None = None,
    *,
    name: str = "the activations of one side",
) -> Views:
    """Gate and up activations ``(h, tokens)`` of the units that there really are, ready to be matched.

    Parameters
    ----------
    units, written
        As `provlab.reading.canonical.merged` and `shares` give them.
    name
        What an error calls the activations.
    """
    by_gate, by_up = living_rows(applied(units, gate, "gate"), applied(units, up, "up"), name=name)
    return Views(by_gate, by_up, tokens, None if written is None else written[by_gate.places], tied(by_gate, by_up))


def known(numbers: Numbers) -> list[float] | None:
    """Numbers to four places for a record; None where they are unknown."""
    return None if np.isnan(numbers).any() else numbers.round(4).tolist()


def grouped(gate: NDArray[Any], there: There) -> NDArray[np.bool_]:
    """Whether the gate of each unit has another one near it, of activations ``(h, tokens)``: ``(h,)``.

    `there` takes some tokens of them to where they are compared (`provlab.arrays.on`).
    """
    some = np.linspace(0, gate.shape[1] - 1, min(gate.shape[1], SEEN)).astype(np.int64)
    rows = gate[:, some].astype(np.float32)
    spread = np.linalg.norm(rows - rows.mean(axis=1, keepdims=True), axis=1).astype(np.float64)
    result = np.zeros(len(rows), bool)
    for pair in near_pairs(there(rows), spread, GROUPED, np.random.default_rng(len(rows))):
        result[[*pair[:2]]] = True
    return result


def tied(gate: UnitRows, up: UnitRows) -> Numbers:
    """Size of the cosine between each unit's gate and up, ``(h,)``."""
    # (h, tokens) with (h, tokens) -> (h,)
    return np.asarray(np.abs(np.einsum("ij,ij->i", gate.unit, up.unit)), np.float64)
