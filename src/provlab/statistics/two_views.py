"""Hidden units seen twice, as phi_MATCH compares them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.inference.matching import UnitRows
from provlab.models.canonical import applied
from provlab.statistics.alive import living_rows

Numbers = NDArray[np.float64]
AS_THEY_ARE = np.empty((0, 5))  # of `provlab.models.canonical.merged`: no unit is merged or left out


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
        As `provlab.models.canonical.merged` and `shares` give them.
    name
        What an error calls the activations.
    """
    by_gate, by_up = living_rows(applied(units, gate, "gate"), applied(units, up, "up"), name=name)
    return Views(by_gate, by_up, tokens, None if written is None else written[by_gate.places], tied(by_gate, by_up))


def tied(gate: UnitRows, up: UnitRows) -> Numbers:
    """Size of the cosine between each unit's gate and up, ``(h,)``."""
    return np.asarray(np.abs(np.einsum("ij,ij->i", gate.unit, up.unit)), np.float64)
