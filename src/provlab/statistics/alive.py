"""Which hidden units of a block are alive: those that a matching can be asked of.

A unit whose row is zero on one side has no direction, and a unit that writes nothing, or only with others, may be
anything: adding such units to a model changes no output. They are therefore removed from each model
(`provlab.reading.canonical` finds them), and the others are matched, the smaller side into the larger. That costs no
validity: which units go is decided by the model's own rows, wherever they stand, so that the units that stay are in as
random an order as before (Theorem 2 holds of them), and partners are ranked among those of the other side that stay.

A block of which fewer than two units are alive is left out by itself (`NoUnitsError`), in every statistic that goes
block by block: that, too, is decided by one model alone, so the p-value of the other blocks stays what it is.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import NoUnitsError
from provlab.inference.matching import UnitRows, unit_rows

_FEW_ZEROS = 0.01  # share of zeros below which no model was pruned
_SCORE = 6.0  # standard deviations of chance beyond which zeros are said to be shared


def alive(*kinds: NDArray[Any], name: str) -> NDArray[np.bool_]:
    """Which units are alive, ``(h,)``: all of their rows differ from zero.

    Only zero counts, however small a row is: the scale of a row is free, as the down projection can take it back.

    Parameters
    ----------
    kinds
        ``(h, columns)`` each: what is known of each unit, such as gate and up activations.
    name
        What an error calls them.

    Raises
    ------
    NoUnitsError
        If fewer than two units are alive: no order can be read off one.
    """
    kept = np.logical_and.reduce([rows.any(axis=1) for rows in kinds])
    if kept.sum() < 2:
        raise NoUnitsError(
            f"{name} has {kept.sum()} rows that are not zero, and a matching needs two; leave the block out"
        )
    return kept


def living_rows(*kinds: NDArray[Any], name: str) -> tuple[UnitRows, ...]:
    """Prepare for matching the rows of those units that are alive, of each kind."""
    kept = alive(*kinds, name=name)
    return tuple(unit_rows(rows, name=name, keep=kept) for rows in kinds)


def zeros_alike(a: UnitRows, b: UnitRows) -> list[int]:
    """Count the entries that are zero in both: row beside row, and, as chance has it, each row beside the next one.

    Returns
    -------
    list
        Zeros of `a`, those of them that `b` has in the same row, those that it has in the next one; and the sum of the
        squared differences between the last two over rows. Empty where shapes differ, or one side has under 1% zeros.
    """
    first, second = (side.rows == 0 for side in (a, b))
    if first.shape != second.shape or min(first.mean(), second.mean()) < _FEW_ZEROS:
        return []
    beside, next_to = ((first & other).sum(axis=1) for other in (second, np.roll(second, 1, axis=0)))
    return [int(n.sum()) for n in (first, beside, next_to, (beside - next_to) ** 2)]


def shared_zeros(counts: Sequence[Sequence[int]]) -> str:
    """Say that the zeros of two models stand at like places, from `zeros_alike` of their blocks; "" by chance alone."""
    if not all(counts) or not counts:
        return ""
    zeros, beside, next_to, squares = np.sum(counts, axis=0)
    if beside - next_to <= _SCORE * squares**0.5:
        return ""
    return (
        f"{beside / zeros:.0%} of the zeros in the up projections of one model are zero in the other, "
        f"{next_to / zeros:.0%} by chance: a mask that both share does that as a common ancestor does."
    )
