"""Which hidden units of a block are alive: those that a matching can be asked of.

A unit whose row is zero on one side has no direction, and a unit that writes nothing, or only with others, may be
anything: adding such units to a model changes no output. They are therefore removed from each model
(`provlab.models.canonical` finds them), and the others are matched, the smaller side into the larger. That costs no
validity: which units go is decided by the model's own rows, wherever they stand, so that the units that stay are in as
random an order as before (Theorem 2 holds of them), and partners are ranked among those of the other side that stay.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.inference.matching import UnitRows, unit_rows


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
    InputError
        If fewer than two units are alive: no order can be read off one.
    """
    kept = np.logical_and.reduce([rows.any(axis=1) for rows in kinds])
    if kept.sum() < 2:
        raise InputError(
            f"{name} has {kept.sum()} rows that are not zero, and a matching needs two; leave the block out"
        )
    return kept


def living_rows(*kinds: NDArray[Any], name: str) -> tuple[UnitRows, ...]:
    """Prepare for matching the rows of those units that are alive, of each kind."""
    kept = alive(*kinds, name=name)
    return tuple(unit_rows(rows, name=name, keep=kept) for rows in kinds)
