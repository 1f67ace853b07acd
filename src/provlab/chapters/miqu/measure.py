"""A fine-tune stored in ever fewer bits, and whether phi_U still ties it to its base."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.inference.matching import unit_rows
from provlab.models import anatomy
from provlab.models.checkpoint import Checkpoint
from provlab.publishing.published import published_table
from provlab.statistics.base import Options
from provlab.statistics.phi_u import PhiU
from provlab.zoo.quantise import bits_per_weight, group_signs, quantised

Matrix = NDArray[np.float32]
SIGNS = "signs"  # scheme that keeps one sign for each group of neighbours
BASE, STRANGER = "log10 p, its base", "log10 p, a stranger"


@dataclass(frozen=True)
class Roles:
    """Whose place each model takes: the leak, the base that it is said to derive from, and others of that shape."""

    base: str
    leak: str
    controls: list[str]

    @property
    def models(self) -> list[str]:
        """All of them, base and leak first."""
        return [self.base, self.leak, *self.controls]


def up_projections(source: str, *, allow_pickle: bool = False) -> list[Matrix]:
    """Up projection of every block, ``(hidden units, width)`` each."""
    checkpoint = Checkpoint.open(source, allow_pickle=allow_pickle)
    parts = anatomy.of(checkpoint)
    return [parts.read(checkpoint, "up", block) for block in range(parts.n_blocks)]


def one_block_of_weights(weights: Matrix) -> dict[str, pd.DataFrame]:
    """The first 32 weights in order of size, as trained and as read back from 4 and from 2 bits: x is the rank."""
    order = np.argsort(weights.ravel()[:32])
    stored = {"as trained": weights, **{f"{bits} bits": quantised(weights, bits) for bits in (4, 2)}}
    return {name: pd.DataFrame({"x": np.arange(1, 33), "y": copy.ravel()[:32][order]}) for name, copy in stored.items()}


def table2(frame: pd.DataFrame, roles: Roles, statistics: Sequence[str]) -> pd.DataFrame:
    """Rows of the paper's Table 2 with log10 p of the models that stand in their places."""
    ours = {
        (frozenset((row.a, row.b)), row.statistic): f"{row.paper_log10_p:,.1f}"
        for row in frame.itertuples()
        if pd.isna(row.error)
    }
    return pd.DataFrame(
        {
            "published model": line["theta_2"],
            "p of phi_U, published": line["p_U"],
            "our model": other,
            **{f"{name}: ours, log10 p": ours.get((frozenset((roles.base, other)), name), "") for name in statistics},
        }
        for line, other in zip(published_table("independence_table2"), roles.models[1:], strict=False)
    )


def phi_u(first: Sequence[Matrix], second: Sequence[Matrix], *, seed: int) -> float:
    """log10 p of phi_U over all blocks; ties among the rows, many of which become equal, are broken at random."""
    statistic, options = PhiU(), Options(seed=seed)
    pairs = enumerate(zip(first, second, strict=True))
    found = statistic.aggregate(
        [statistic.compare_block(unit_rows(a), unit_rows(b), block, options) for block, (a, b) in pairs]
    )
    assert found.log10_p is not None
    return found.log10_p


def relative_error(copies: Sequence[Matrix], original: Sequence[Matrix]) -> float:
    """||copy - original|| / ||original||, all blocks together."""
    lost = sum(float(((copy - weights) ** 2).sum()) for copy, weights in zip(copies, original, strict=True))
    return float(np.sqrt(lost / sum(float((weights**2).sum()) for weights in original)))


@dataclass(frozen=True)
class Scheme:
    """One way to store a matrix.

    Attributes
    ----------
    name : str
        "blocks of 32", or `SIGNS`.
    stored : float
        Bits a weight, scales and minima included.
    bits : int
        Of one weight in its block, or signs of one row.
    store : callable
        Matrix to what is read back.
    """

    name: str
    stored: float
    bits: int
    store: Callable[[Matrix], Matrix]


def schemes(block_sizes: Sequence[int], width: int) -> Iterator[Scheme]:
    """Blocks of each size with 8 down to 1 bits, then one sign for each group, up to one for a whole row."""
    for size in block_sizes:
        for bits in range(8, 0, -1):
            store = partial(quantised, bits=bits, block=size)
            yield Scheme(f"blocks of {size}", bits_per_weight(bits, size), bits, store)
    for group in range(1, width + 1):
        if width % group == 0:
            yield Scheme(SIGNS, 1 / group, width // group, partial(group_signs, group=group))


def sweep(
    original: Sequence[Matrix], base: Sequence[Matrix], stranger: Sequence[Matrix], sizes: Sequence[int], *, seed: int
) -> list[dict[str, Any]]:
    """Store a model by every scheme, and compare each copy with its base and with a stranger by phi_U.

    Returns
    -------
    list of dict
        Keys: scheme, bits a weight, bits, relative error (None for signs, which have no scale), `BASE`, `STRANGER`.
    """
    points = []
    for scheme in schemes(sizes, original[0].shape[1]):
        copies = [scheme.store(weights) for weights in original]
        points.append(
            {
                "scheme": scheme.name,
                "bits a weight": scheme.stored,
                "bits": scheme.bits,
                "relative error": None if scheme.name == SIGNS else relative_error(copies, original),
                BASE: phi_u(base, copies, seed=seed),
                STRANGER: phi_u(stranger, copies, seed=seed),
            }
        )
    return points


def where_lost(points: pd.DataFrame) -> str:
    """Name the largest size, in a sentence, at which the copy is not found at level 0.01."""
    missed = points[points[BASE] > -2].sort_values("bits a weight")
    if missed.empty:
        return "At each size tried log10 p against the base is below -2."
    most = missed.iloc[-1]
    if most["scheme"] == SIGNS:
        stored = f"{most['bits']:.0f} signs for a row of {most['bits'] / most['bits a weight']:.0f} weights"
    else:
        stored = f"{most['bits']:.0f} bits in {most['scheme']} weights"
    return f"The largest size at which the base is not found: {most['bits a weight']:.3g} bits a weight, {stored}."
