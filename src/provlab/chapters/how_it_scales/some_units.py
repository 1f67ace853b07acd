"""phi_U on K of the h hidden units of a block: how often it is wrong, and what it still sees, by K.

The matching of K rows with K rows has the null distribution of any matching, with K for h, if which rows they are was
settled before they were looked at. What a dependent pair still shows is a matter of partners: of a unit among the K of
one model, is the unit that it was among the K of the other, and in like order?
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.chapters.shared.calibration.bands import size_interval
from provlab.chapters.shared.example_one import train_pairs
from provlab.inference import pvalues
from provlab.inference.matching import tie_seed, unit_rows
from provlab.planning import matching_speed
from provlab.planning.sketch import shapes_of
from provlab.planning.study import plan, whole_bytes
from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_log10_p
from provlab.plots.style import require, styled
from provlab.plots.tables import Table, table
from provlab.statistics.base import Model, Options
from provlab.statistics.phi_u import correlation_with_identity

Matrix = NDArray[np.float32]
Indices = NDArray[np.int64]
FIRST, SCATTERED = "first", "scattered"
LEVELS = (0.05, 0.01, 0.001)
_COLORS = ("#009E73", "#E69F00", "#0072B2", "#CC79A7", style.MUTED)

#: what became of the units of a copy: which unit of the original each of its units is, of h
PARTNERS: Mapping[str, Callable[[int, np.random.Generator], Indices]] = {
    "in place": lambda h, rng: np.arange(h),
    "half left out": lambda h, rng: np.sort(rng.choice(h, h // 2, replace=False)),
    "first half cut off": lambda h, rng: np.arange(h // 2, h),
    "moved": lambda h, rng: rng.permutation(h),
}


@dataclass(frozen=True)
class Seen:
    """What K rows of a copy show.

    Attributes
    ----------
    source, kind, way
        Whose rows, what became of the units (a key of `PARTNERS`, or "independent"), and which rows are taken.
    units, of
        K, and h of the original.
    inside, expected
        Of the K units of the copy, how many have their partner among the K of the original: counted (mean over draws),
        and by the formula.
    log10_p
        Of each draw, one-sided.
    """

    source: str
    kind: str
    way: str
    units: int
    of: int
    inside: float
    expected: float
    log10_p: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median of log10 p."""
        return float(np.median(self.log10_p))

    def power(self, level: float = 0.01) -> float:
        """Share of the draws that reject at this level."""
        return float(np.mean(np.array(self.log10_p) <= np.log10(level)))


@dataclass(frozen=True)
class Size:
    """How often independent pairs are rejected.

    Attributes
    ----------
    pairs, way
        What they are, and which rows are taken.
    units, of
        K, and h.
    level
        At which it should be rejected at most so often.
    rejected, n
        Pairs.
    """

    pairs: str
    way: str
    units: int
    of: int
    level: float
    rejected: int
    n: int

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the share."""
        return size_interval(self.rejected, self.n)


def taken(way: str, k: int, h: int, rng: np.random.Generator) -> Indices:
    """Numbers of the rows that are read of either model, ``(k,)``: the first, or as many drawn of `h`."""
    return np.arange(k) if way == FIRST else np.sort(rng.choice(h, k, replace=False))


def expected_inside(kind: str, way: str, k: int, h: int) -> float:
    """Of k units of a copy, how many have their partner among the k of the original, on average."""
    if kind == "in place":
        return float(k)
    if kind == "first half cut off":
        return float(max(0, k - h // 2)) if way == FIRST else 0.0
    if kind == "half left out" and way == FIRST:
        return k / 2
    return k * k / h  # moved anywhere, or drawn from anywhere


def seen(
    source: str, original: Matrix, copy: Matrix, units: Sequence[int], *, draws: int, seed: int, kind: str = ""
) -> Iterator[Seen]:
    """Match K rows of two matrices ``(h, d)``, after each fate of the copy's units, by both ways of taking rows.

    Parameters
    ----------
    source
        What the rows are called.
    original, copy
        Row k of the one is the unit that row k of the other is, unless they are independent.
    units
        Values of K; those that a copy has not are left out, but for h: all units of either.
    draws
        Fates, and rows, that are drawn.
    seed
        Of all draws.
    kind
        Only this of `PARTNERS`, or "independent".
    """
    h = len(original)
    for name, way, k in product([kind] if kind else PARTNERS, (FIRST, SCATTERED), units):
        inside, log10_p = [], []
        for draw in range(draws):
            rng = np.random.default_rng([seed, draw, k])
            order = PARTNERS.get(name, PARTNERS["in place"])(h, rng)
            if k > len(order) and (k < h or way == SCATTERED):
                break
            rows = taken(way, min(k, len(order)), len(order), rng)
            of_original = np.arange(h) if k == h else rows
            inside.append(int(np.isin(order[rows], of_original).sum()))
            seed_of_ties = tie_seed(seed, name, way, k, draw)
            log10_p.append(matched(original[of_original], copy[order][rows], seed_of_ties))
        if log10_p:
            none = name == "independent"
            expected = 0.0 if none else expected_inside(name, way, k, h)
            yield Seen(source, name, way, k, h, 0.0 if none else float(np.mean(inside)), expected, tuple(log10_p))


def matched(a: Matrix, b: Matrix, seed: int) -> float:
    """log10 p of the matching of two matrices, as phi_U has it of a block."""
    found = correlation_with_identity(unit_rows(a), unit_rows(b), None, seed).log10_p
    assert found is not None
    return found


def drawn(h: int, columns: int, units: Sequence[int], *, noise: float, draws: int, seed: int) -> list[Seen]:
    """Drawn rows that share directions: a copy with noise of this size, and an independent pair."""
    a, other = matching_speed.pair("shared directions", h, h, columns, rng=np.random.default_rng([seed, h]))
    noises = np.random.default_rng([seed, h, 1]).standard_normal(a.shape, dtype=np.float32)
    copy = a + np.float32(noise * a.std()) * noises
    name = f"drawn, {h:,} units"
    return [
        *seen(name, a, copy, units, draws=draws, seed=seed),
        *seen(name, a, other, units, draws=draws, seed=seed, kind="independent"),
    ]


def of_models(a: Model, b: Model, units: Sequence[int], *, block: int, draws: int, seed: int, kin: bool) -> list[Seen]:
    """Rows of one block of two models: a model and its descendant, or two strangers."""
    original, copy = (model.anatomy.read(model.checkpoint, "up", block) for model in (a, b))
    name = f"{a.name} and {b.name}"
    return list(seen(name, original, copy, units, draws=draws, seed=seed, kind="" if kin else "independent"))


def sizes(n_pairs: int, *, seed: int) -> list[Size]:
    """Count rejections of independent pairs: networks trained on one task each, and rows that share directions."""
    h = 64
    trained = train_pairs(n_pairs, dependent=False, seed=seed, hidden_units=h)
    rng = np.random.default_rng([seed, 2])
    ways: Mapping[str, tuple[Callable[[int], tuple[Matrix, Matrix]], list[tuple[str, int]]]] = {
        "trained networks": (
            lambda i: (trained.theta1[i].astype(np.float32), trained.theta2[i].astype(np.float32)),
            [(FIRST, 16), (FIRST, 32), (SCATTERED, 16)],
        ),
        "rows that share directions": (
            lambda i: matching_speed.pair("shared directions", h, h, 32, rng=rng),
            [(FIRST, 32)],
        ),
    }
    found = []
    for name, (pair, rows_taken) in ways.items():
        pairs = [pair(i) for i in range(n_pairs)]
        for way, k in rows_taken:
            log10_p = []
            for i, (a, b) in enumerate(pairs):
                rows = taken(way, k, h, np.random.default_rng([seed, i, k]))
                log10_p.append(matched(a[rows], b[rows], tie_seed(seed, name, way, k, i)))
            for level in LEVELS:
                rejected = int((np.array(log10_p) <= np.log10(level)).sum())
                found.append(Size(name, way, k, h, level, rejected, n_pairs))
    return found


@dataclass(frozen=True)
class Bytes:
    """What a pair of this shape is decided from.

    Attributes
    ----------
    blocks
        How many are read.
    units
        Of each, None for all.
    needed, whole
        Bytes of both models: of the rows, and of all weights.
    floor
        The smallest log10 p of one block.
    """

    blocks: int
    units: int | None
    needed: int
    whole: int
    floor: float


def needed(shape: str, units: Sequence[int]) -> list[Bytes]:
    """Bytes that phi_U needs of a pair of this shape, by its schedule: of one block and all, of K units and all."""
    models = shapes_of([f"shape:{shape}*2"]).models
    whole = sum(map(whole_bytes, models.values()))
    first = next(iter(models.values())).anatomy
    found = []
    for blocks, k in product((1, first.n_blocks), (*units, None)):
        laid = plan(models, ["phi_u"], Options(units=k), blocks=range(blocks))
        found.append(Bytes(blocks, k, laid.bytes_to_read, whole, pvalues.log10_floor(k or first.mlp_width)))
    return found


def seen_table(rows: Sequence[Seen], *, caption: str) -> Table:
    """What is seen of each fate, by K."""
    return table(
        pd.DataFrame(
            {
                "rows": row.source,
                "units of the copy": row.kind,
                "taken": f"{row.way} {row.units:,} of {row.of:,}",
                "partners inside": "" if row.kind == "independent" else f"{row.inside:,.1f}",
                "expected": "" if row.kind == "independent" else f"{row.expected:,.1f}",
                "median log10 p": format_log10_p(row.median),
                "floor": format_log10_p(pvalues.log10_floor(row.units)),
                "rejected at 0.01": f"{row.power():.0%} of {len(row.log10_p)}",
            }
            for row in rows
        ),
        caption=caption,
    )


def size_table(rows: Sequence[Size], *, caption: str) -> Table:
    """Shares of independent pairs that are rejected."""
    return table(
        pd.DataFrame(
            {
                "independent pairs": row.pairs,
                "taken": f"{row.way} {row.units} of {row.of}",
                "level": f"{row.level:g}",
                "rejected": f"{row.rejected} of {row.n:,}",
                "share": f"{row.rejected / row.n:.4f}",
                "95% interval": "{:.4f} to {:.4f}".format(*row.interval),
                "level within": "yes" if row.interval[0] <= row.level <= row.interval[1] else "no",
            }
            for row in rows
        ),
        caption=caption,
    )


def byte_table(rows: Sequence[Bytes], *, caption: str) -> Table:
    """Bytes of a pair by blocks and units."""
    return table(
        pd.DataFrame(
            {
                "blocks": row.blocks,
                "units of each": "all" if row.units is None else f"{row.units:,}",
                "MB of both models": f"{row.needed / 1e6:,.1f}",
                "of all bytes": f"{row.needed / row.whole:.3%}",
                "floor of a block, log10 p": format_log10_p(row.floor),
            }
            for row in rows
        ),
        caption=caption,
    )


@styled
def figure(rows: Sequence[Seen], *, caption: str = "") -> Figure:
    """Draw median -log10 p against K, one panel for each source, one line for each fate; rows first, and scattered."""
    require(rows, "rows: nothing to draw")
    sources = list(dict.fromkeys(row.source for row in rows))
    kinds = list(dict.fromkeys(row.kind for row in rows))
    require(len(kinds) <= len(_COLORS), f"rows: at most {len(_COLORS)} fates can be told apart")
    canvas = style.canvas(3.0)
    panels = canvas.subplots(1, len(sources), sharey=True, squeeze=False)[0]
    for axes, source in zip(panels, sources, strict=True):
        of_source = [row for row in rows if row.source == source]
        units = sorted({row.units for row in of_source})
        axes.plot(
            units, [-pvalues.log10_floor(k) for k in units], color=style.MUTED, linewidth=0.8, label="floor, 1/K!"
        )
        for (kind, way), color in zip(product(kinds, (FIRST, SCATTERED)), np.repeat(_COLORS, 2), strict=False):
            line = [row for row in of_source if row.kind == kind and row.way == way]
            x, y = [row.units for row in line], [-row.median for row in line]
            label = kind if way == FIRST else None
            axes.plot(x, y, "o-" if way == FIRST else "s:", color=color, markersize=4, label=label)
        axes.axhline(2, color=style.INK, linewidth=0.6)
        axes.set_xscale("log", base=2)
        axes.set_yscale("symlog", linthresh=2)
        axes.set_xticks(units, [f"{k:,}" for k in units])
        axes.set_xlabel("units that are read, K")
        axes.set_title(source, fontsize=style.SMALL)
    panels[0].set_ylabel("median $-\\log_{10} p$")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper center", ncols=3)
    told = "; ".join(
        f"{row.source}, {row.kind}, {row.way} {row.units:,}: {row.median:.1f}"
        for row in rows
        if row.units == max(other.units for other in rows if other.source == row.source and other.kind == row.kind)
    )
    return Figure(canvas, caption, f"Lines of median log10 p by the number of units read. {told}.")
