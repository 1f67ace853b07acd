"""Descent: whether a model is the ancestor of another, or only their common ancestor is, which nobody gave.

The clock says which of two models is the *later* one. That is true of siblings too. A model p is an ancestor of c if p
itself lies on the path of the weights to c: then p trained nothing that is its own alone. Two models can never show
that. If p and c parted at a model q that is not here, all that is seen is c - p, which is as well (c - q) - (p - q).

A third model x that is earlier than p decides it, since steps can be counted along paths. Each step multiplies a row
that no training reached by one number and rounds it, with an error that is even between plus and minus half a unit in
the last place. Those errors are independent from step to step, and their variance is 1/12. So with e for what is left
of p when a multiple of x is taken off, and f for the same of c and p, both in units of the last place,

    12 mean(e^2) = steps between x and p,        -12 mean(e f) = steps that p made for itself alone,

for p's own errors are in e with one sign and in f with the other. If p lies on the path from x to c there are none, and
since p is no ancestor of the earlier x, it is one of c. The standard error of a mean of products is known.

Steps without weight decay leave these rows alone and are not counted, and trainings that begin with the same rates
round alike. So more must not speak against it: rows that p alone trained (`Rows.excluded`), and changes of other
weights that c undoes, since it never had them. `ALIKE` bounds the cosine of x - p and c - p, which sees changes of a
whole part; `undone` looks along the strongest directions of c - p, which sees an adapter; and `repeated` sees that p
lost numbers that c has, as a copy of c's parent does that was quantised or thinned. A copy of the parent with a little
noise, or one put together of parts of c's ancestors, stands where the parent does: no weights tell them apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from provlab.forest.rows import LEAST
from provlab.measured import quoted

#: most of p's steps since x, at 95% confidence, that may be its own alone; and least, as a mean of models has fewer
#: than none. The second was settled after a look at such a mean, from seed 302
OWN = 0.1
#: how often "descends" was wrong, in words, on the lists of ``benchmarks/families.py``: seeds that nobody had looked at
ERRORS = quoted("descends").says()
#: one-sided 95% of a normal distribution
SURE = 1.645
#: standard errors by which the estimate itself may lie from 0. Below, p is a mean of an ancestor of c and a model
#: nearer to c: with a share s of the second, which made n steps since, the estimate is -s (1 - s) n
NEAR_ZERO = 2.5
#: least share of different numbers in the rows: where values repeat, as in codes that were read back, errors do too
DIFFERENT = 0.5
#: least units in the last place by which a row moves a step: with fewer, errors of steps repeat themselves
MOVES = 4.0
#: steps: errors of fewer than these repeat where two trainings begin with the same rates
FEWEST = 10.0
#: largest cosine of x - p and c - p, over each block, over MLPs and over the rest. Settled after a look at families
#: that are counted nowhere: over all matrices 95% of 639 were below .17 where p is the parent; where it trained without
#: decay on the child's own texts none below .154. Part by part since a look at seed 90211: where the MLPs alone were
#: another model's it was .10 and .15 over all and .17 and .35 over the likest kind, of five true parents .05 at most
ALIKE = 0.15
#: largest share of c - p, along its strongest directions, that takes back p - x. Settled after a look as well: six of
#: true parents were below .07, that of an adapter's sibling was .36
UNDONE = 0.2
DIRECTIONS = 2
#: by how much the share of a matrix's numbers that repeat may be larger in p than in c. Settled after a look at seeds
#: 40117 and 51966, where three answers named a copy whose matrices have 15 values a row, or are zero for one half
LOST = 0.02
#: runs and numbers of each, all over a matrix, that are looked at for it: codes have one scale for numbers side by side
_RUNS, _RUN = 16, 256


@dataclass(frozen=True)
class Path:
    """The steps of p and the later c, as a third, earlier model x sees them.

    Attributes
    ----------
    witness
        Number of x.
    steps
        Roundings between x and p.
    own, low, high
        Share of p's steps since x that are not in c: estimate, and its one-sided 95% bounds.
    cosine
        Largest cosine of x - p and c - p over parts; NaN where no tensor has one shape in all three.
    shown
        Whether p is an ancestor of c.
    parted
        Whether p is none, nor a part of a merge that became c: it has steps of its own, and x and c share rows that p
        trained. A merge with p lacks a share of its steps too, but keeps no such row.
    """

    witness: int
    steps: float
    own: float
    low: float
    high: float
    cosine: float
    shown: bool
    parted: bool = False


def path(
    witness: int, three: Sequence[NDArray[np.float64]], spacing: float, *, excluded: bool, cosine: float
) -> Path | None:
    """Count steps of p and c as an earlier model x sees them; None where they cannot be counted.

    Parameters
    ----------
    witness
        Number of x, which is known not to descend from p.
    three
        Rows of x, p and c that all of them kept, ``(rows, width)`` each.
    spacing
        Spacing of their files; see `provlab.forest.measure.SPACINGS`.
    excluded
        Whether rows say that p does not lie between x and c.
    cosine
        Largest cosine of x - p and c - p over parts of the other weights.
    """
    x, p, c = three
    if len(x) < LEAST or any(len(np.unique(np.abs(rows))) < DIFFERENT * rows.size for rows in (x, p)):
        return None
    left, moves = [], []
    for a, b in ((x, p), (p, c)):
        factor = np.vdot(a, b) / np.vdot(a, a)
        units = spacing * np.exp2(np.frexp(np.where(b, b, 1.0))[1] - 1.0)
        left.append((b - factor * a) / units)
        moves.append(abs(np.log(factor)) / spacing)
    steps = [float(12 * np.square(rest).mean()) for rest in left]
    if steps[0] < FEWEST:  # p is all but x, and any child of x looks like one of p
        return Path(witness, steps[0], 0.0, 0.0, 1.0, cosine, shown=False) if steps[0] >= 1 else None
    if steps[1] < FEWEST or min(move / count for move, count in zip(moves, steps, strict=True)) < MOVES:
        return None
    products = -12 * left[0] * left[1]
    own, error = float(products.mean()), float(products.std() / np.sqrt(products.size))
    low, high = (float((own + way * SURE * error) / steps[0]) for way in (-1, 1))
    near = abs(own) <= NEAR_ZERO * error and low >= -OWN and high <= OWN
    quiet = near and not excluded and cosine <= ALIKE
    return Path(witness, steps[0], own / steps[0], low, high, cosine, bool(quiet), excluded and low > OWN)


def descends(paths: Iterable[Path | None]) -> tuple[Path | None, bool]:
    """The path that speaks most against descent, or else the strongest, and whether descent is shown.

    All that can be read must agree with it: one earlier model that sees p's own steps is enough against it.
    """
    read = sorted((known for known in paths if known is not None), key=lambda known: known.high)
    if not read:
        return None, False
    if any(known.low > 0 or known.steps < FEWEST for known in read if not known.shown):
        return max(read, key=lambda known: (known.parted, known.low)), False
    unlike = all(known.cosine <= ALIKE for known in read)
    return read[0], read[0].shown and unlike


def undone(changes: Iterable[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> float:
    """Share of c - p, along its strongest directions, that takes back p - x.

    Parameters
    ----------
    changes
        For each matrix ``(m, n)`` the change p - x and the change c - p.

    Returns
    -------
    float
        1 where c - p is minus p - x along them, 0 where the two are at right angles.
    """
    back = own = 0.0
    for before, after in changes:
        left, right = _strongest(after)
        along = np.einsum("mk,mn,kn->k", left, after, right)  # (k,)
        back -= float(along @ np.einsum("mk,mn,kn->k", left, before, right))
        own += float(along @ along)  # (k,) @ (k,)
    return back / own if own else float("nan")


def repeated(matrix: NDArray[np.floating]) -> float:
    """Share of a matrix's numbers, of runs of them, that stand there more than once, whatever their sign."""
    values = matrix.ravel()
    if values.size > _RUNS * _RUN:
        starts = np.linspace(0, values.size - _RUN, _RUNS).astype(int)
        values = values[starts[:, None] + np.arange(_RUN)]  # (runs, numbers)
    return 1 - len(np.unique(np.abs(values))) / values.size


def _strongest(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First singular vectors of a matrix, ``(m, k)`` and ``(k, n)``, by subspace iteration."""
    k = min(DIRECTIONS + 4, *matrix.shape)
    basis = np.random.default_rng(0).normal(size=(matrix.shape[1], k))
    for _ in range(8):
        basis = np.linalg.qr(matrix.T @ (matrix @ basis))[0]  # (n, m) @ ((m, n) @ (n, k))
    left, _, right = np.linalg.svd(matrix @ basis, full_matrices=False)  # (m, k), (k,), (k, k)
    return left[:, :DIRECTIONS], (right @ basis.T)[:DIRECTIONS]  # (k, k) @ (k, n)
