"""phi_U on K of the h hidden units of a block: how often it is wrong, and what it still sees, by K.

The matching of K rows has the null distribution of any matching, with K for h, if which rows they are was settled
before they were looked at: with the first K of the other, or among all of its rows, as ``--units`` does. A dependent
pair still shows what its partners show: for a unit among the K of one model, is the unit that it was among those that
it is matched with, and in like order?
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.inference import pvalues
from provlab.inference.matching import tie_seed, unit_rows
from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled
from provlab.statistics.base import Model
from provlab.statistics.phi_u import correlation_with_identity
from provlab_study.how_it_scales.measure import pair
from provlab_study.shared.example_one import train_pairs

Matrix = NDArray[np.float32]
Indices = NDArray[np.int64]
Row = dict[str, Any]
FIRST, AMONG = "first", "among all"
LEVELS = (0.05, 0.01, 0.001)
_COLORS = ("#009E73", "#E69F00", "#0072B2", "#CC79A7", style.MUTED)

#: what became of the units of a copy: which unit of the original each of its units is, of h
PARTNERS: Mapping[str, Callable[[int, np.random.Generator], Indices]] = {
    "in place": lambda h, rng: np.arange(h),
    "half left out": lambda h, rng: np.sort(rng.choice(h, h // 2, replace=False)),
    "first half cut off": lambda h, rng: np.arange(h // 2, h),
    "moved": lambda h, rng: rng.permutation(h),
}


def expected_inside(kind: str, way: str, k: int, h: int) -> float:
    """How many of k units of a copy have their partner among those of the original that they meet, on average."""
    if kind == "in place" or way == AMONG:
        return float(k)
    if kind == "first half cut off":
        return float(max(0, k - h // 2))
    return k / 2 if kind == "half left out" else k * k / h


def evidence(
    source: str, original: Matrix, copy: Matrix, units: Sequence[int], *, draws: int, seed: int, kind: str = ""
) -> Iterator[Row]:
    """Match the first K rows of a copy, after each fate of its units, with the first K of the original or among all.

    Matrices are ``(h, d)``. Yields rows with the keys source, kind (of `PARTNERS`, or "independent"), way (first or
    among all), units (K), of (h), inside (of the K units of the copy, how many have their partner among those that they
    meet: mean over draws), expected (by the formula), and log10_p of each draw, one-sided.

    Parameters
    ----------
    source
        What the rows are called.
    original, copy
        Row k of the one is the unit that row k of the other is, unless they are independent.
    units
        Values of K; those that a copy has not are left out, but for h: all units of either.
    draws
        Fates that are drawn.
    seed
        The seed of all draws.
    kind
        Only this of `PARTNERS`, or "independent".
    """
    h = len(original)
    for name, way, k in product([kind] if kind else PARTNERS, (FIRST, AMONG), units):
        inside, log10_p = [], []
        for draw in range(draws):
            rng = np.random.default_rng([seed, draw, k])
            order = PARTNERS.get(name, PARTNERS["in place"])(h, rng)
            if k > len(order) and (k < h or way == AMONG):
                break
            rows = np.arange(min(k, len(order)))
            of_original = np.arange(h) if k == h or way == AMONG else rows
            inside.append(int(np.isin(order[rows], of_original).sum()))
            seed_of_ties = tie_seed(seed, name, way, k, draw)
            log10_p.append(matched(original[of_original], copy[order][rows], seed_of_ties))
        if log10_p:
            none = name == "independent"
            yield {
                "source": source,
                "kind": name,
                "way": way,
                "units": k,
                "of": h,
                "inside": 0.0 if none else float(np.mean(inside)),
                "expected": 0.0 if none else expected_inside(name, way, k, h),
                "log10_p": log10_p,
            }


def matched(a: Matrix, b: Matrix, seed: int) -> float:
    """log10 p of the matching of two matrices, as phi_U has it of a block."""
    log10_p = correlation_with_identity(unit_rows(a), unit_rows(b), None, seed).log10_p
    assert log10_p is not None
    return log10_p


def drawn(h: int, columns: int, units: Sequence[int], *, noise: float, draws: int, seed: int) -> list[Row]:
    """Drawn rows that share directions: a copy with noise of this size, and an independent pair."""
    a, other = pair("shared directions", h, h, columns, rng=np.random.default_rng([seed, h]))
    noises = np.random.default_rng([seed, h, 1]).standard_normal(a.shape, dtype=np.float32)
    copy = a + np.float32(noise * a.std()) * noises
    name = f"drawn, {h:,} units"
    return [
        *evidence(name, a, copy, units, draws=draws, seed=seed),
        *evidence(name, a, other, units, draws=draws, seed=seed, kind="independent"),
    ]


def of_models(a: Model, b: Model, units: Sequence[int], *, block: int, draws: int, seed: int, kin: bool) -> list[Row]:
    """Rows of one block of two models: a model and its descendant, or two strangers."""
    original, copy = (model.anatomy.read(model.checkpoint, "up", block) for model in (a, b))
    name = f"{a.name} and {b.name}"
    return list(evidence(name, original, copy, units, draws=draws, seed=seed, kind="" if kin else "independent"))


def sizes(n_pairs: int, *, seed: int) -> list[Row]:
    """Count rejections of independent pairs: networks trained on one task each, and rows that share directions.

    Rows have the keys pairs, way, units, of, level, rejected and n.
    """
    h = 64
    trained = train_pairs(n_pairs, dependent=False, seed=seed, hidden_units=h)
    rng = np.random.default_rng([seed, 2])
    kinds = {
        "trained networks": (
            [(trained.theta1[i].astype(np.float32), trained.theta2[i].astype(np.float32)) for i in range(n_pairs)],
            [(FIRST, 16), (FIRST, 32), (AMONG, 16)],
        ),
        "rows that share directions": (
            [pair("shared directions", h, h, 32, rng=rng) for _ in range(n_pairs)],
            [(FIRST, 32)],
        ),
    }
    counts = []
    for name, (pairs, ways) in kinds.items():
        for way, k in ways:
            log10_p = []
            for i, (a, b) in enumerate(pairs):
                log10_p.append(matched(a[:k], b[: k if way == FIRST else h], tie_seed(seed, name, way, k, i)))
            for level in LEVELS:
                rejected = int((np.array(log10_p) <= np.log10(level)).sum())
                counts.append(
                    {"pairs": name, "way": way, "units": k, "of": h, "level": level, "rejected": rejected, "n": n_pairs}
                )
    return counts


@styled
def figure(rows: Sequence[Row], *, caption: str = "") -> Figure:
    """Draw median -log10 p against K, one panel for each source, one line for each fate: first rows, and among all."""
    frame = pd.DataFrame(rows).assign(median=lambda data: data["log10_p"].map(np.median))
    kinds = list(frame["kind"].unique())
    canvas = style.canvas(3.0)
    panels = canvas.subplots(1, frame["source"].nunique(), sharey=True, squeeze=False)[0]
    for axes, (source, of_source) in zip(panels, frame.groupby("source", sort=False), strict=True):
        units = sorted(of_source["units"].unique())
        floors = [-pvalues.log10_floor(int(k)) for k in units]
        axes.plot(units, floors, color=style.MUTED, linewidth=0.8, label="floor, 1/K!")
        for (kind, way), color in zip(product(kinds, (FIRST, AMONG)), np.repeat(_COLORS, 2), strict=False):
            line = of_source[(of_source["kind"] == kind) & (of_source["way"] == way)]
            label = kind if way == FIRST else None
            mark = "o-" if way == FIRST else "s:"
            axes.plot(line["units"], -line["median"], mark, color=color, markersize=4, label=label)
        axes.axhline(2, color=style.INK, linewidth=0.6)
        axes.set_xscale("log", base=2)
        axes.set_yscale("symlog", linthresh=2)
        axes.set_xticks(units, [f"{k:,}" for k in units])
        axes.set_xlabel("units that are matched, K")
        axes.set_title(source, fontsize=style.SMALL)
    panels[0].set_ylabel("median $-\\log_{10} p$")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    largest = frame[frame["units"] == frame.groupby(["source", "kind"])["units"].transform("max")]
    words = "; ".join(
        f"{row.source}, {row.kind}, {row.way} {row.units:,}: {row.median:.1f}" for row in largest.itertuples()
    )
    return Figure(canvas, caption, f"Lines of median log10 p by the number of units matched. {words}.")
