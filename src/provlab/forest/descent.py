"""Descent: whether a model is the ancestor of another, or only their common ancestor is, which nobody gave.

The clock says which of two models is the *later* one. That is true of siblings too. A model p is an ancestor of c if p
itself lies on the path of the weights to c: then p trained nothing that is its own alone. Two models can never show
that. If p and c parted at a model q that is not here, all that is seen is c - p, which is as well (c - q) - (p - q).

A third model x that is earlier than p decides it, since steps can be counted along paths. Rows that no training reached
are rounded at each step, and the errors count the steps between two models up to where they parted and down again
(`provlab.forest.measure.roundings`). With S for the number of steps between two of them,

    own(p) = (S(x, p) + S(p, c) - S(x, c)) / 2

is how many steps p made for itself alone (the Gromov product at p). If p lies on the path from x to c it is 0, and
since p is no ancestor of the earlier x, it is one of c. Errors of separate steps are independent, so that `own` has a
standard error that depends on nothing but the count of numbers.

Steps without weight decay leave these rows alone and are not counted, so two more things must not speak against it:
rows that p alone trained (`Rows.excluded`), and the changes of all other weights: where x - p and c - p point the same
way, p has changes of its own, which both are seen without. `ALIKE` bounds their cosine.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from provlab.forest.rows import LEAST, Rows

#: most of p's steps since x, at 95% confidence, that may be its own alone
OWN = 0.1
#: how often "descends" was wrong, in words; counted on fresh families
ERRORS = "TODO"
#: one-sided 95% of a normal distribution
SURE = 1.645
#: standard errors by which the estimate itself may differ from 0
NEAR_ZERO = 2.5
#: least units in the last place by which a row moves a step: with fewer, errors of steps repeat themselves
MOVES = 4.0
#: largest cosine of x - p and c - p over all matrices. Settled after a look at families that are counted nowhere: where
#: p is the parent 95% of 639 were below .17; where it trained without decay on the child's own texts none below .154
ALIKE = 0.15


@dataclass(frozen=True)
class Path:
    """What a third, earlier model x tells of p and the later c.

    Attributes
    ----------
    witness
        Number of x.
    steps
        Roundings between x and p.
    own, low, high
        Share of p's steps since x that are not in c: estimate, and its one-sided 95% bounds.
    cosine
        Of x - p and c - p; NaN where no tensor has one shape in all three.
    shown
        Whether p is an ancestor of c.
    """

    witness: int
    steps: float
    own: float
    low: float
    high: float
    cosine: float
    shown: bool


def path(rows: Rows, cosine: Callable[[int, int, int], float], x: int, p: int, c: int) -> Path | None:
    """What x tells of p and c; None where steps cannot be counted.

    Parameters
    ----------
    rows
        Of the family.
    cosine
        Of x - p and c - p, for x, p and c.
    x, p, c
        Three models; x is known not to descend from p.
    """
    pairs = [(x, p), (p, c), (x, c)]
    kept = [int(np.bitwise_count(rows.kept[pair]).sum()) for pair in pairs]
    if min(kept) < LEAST or not all(rows.readable[pair] for pair in pairs) or not rows.roundings[x, p]:
        return None
    if len({rows.spacing[pair] for pair in pairs}) > 1:  # one of the files was rounded to fewer bits
        return None
    moved = [abs(rows.factor[pair]) / max(rows.roundings[pair], 1.0) / rows.spacing[pair] for pair in pairs[:2]]
    if min(moved) < MOVES:
        return None
    steps = np.array([rows.roundings[pair] for pair in pairs])
    own = (steps[0] + steps[1] - steps[2]) / 2
    # the mean of n squares of about normal errors has the relative variance 2 / n
    error = np.sqrt(sum(2 / rows.numbers[pair] * s**2 for pair, s in zip(pairs, steps, strict=True))) / 2
    low, high = (float((own + way * SURE * error) / steps[0]) for way in (-1, 1))
    alike = cosine(x, p, c)
    quiet = own <= NEAR_ZERO * error and high <= OWN and not rows.excluded(x, c)[p] and alike <= ALIKE
    return Path(x, float(steps[0]), float(own / steps[0]), low, high, alike, bool(quiet))


def descends(paths: Iterable[Path | None]) -> tuple[Path | None, bool]:
    """The path that speaks most against descent, or else the strongest, and whether descent is shown.

    All that can be read must agree with it: one earlier model that sees p's own steps is enough against it.
    """
    read = sorted((known for known in paths if known is not None), key=lambda known: known.high)
    if not read:
        return None, False
    if any(known.low > 0 for known in read if not known.shown):
        return max(read, key=lambda known: known.low), False
    unlike = all(known.cosine <= ALIKE for known in read)
    return read[0], read[0].shown and unlike
