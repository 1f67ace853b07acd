"""How costs grow: seconds against size for two ways of one thing, hours by what they go to, and tables of both."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, NullLocator

from provlab.chapters.how_it_scales.measure import WAYS, Bill, BytesRead, DiffCost, Estimated
from provlab.planning.matching_speed import Timing
from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.numbers import format_count, format_ratio
from provlab.plots.numbers import format_duration as duration
from provlab.plots.style import require, styled
from provlab.plots.tables import Table, table

# colour, marker and line of ours, and of what it is compared with
_LINES = (("#009E73", "o", "-"), (style.MUTED, "s", "--"))
# what time goes to: a colour and a hatch each
_PARTS = (("#56B4E9", "///"), ("#E69F00", ""), ("#009E73", "..."), ("#CC79A7", "xx"))


@styled
def growth(timings: Sequence[Timing], *, exponents: Mapping[tuple[str, str], float], caption: str = "") -> Figure:
    """Draw seconds against size on logarithmic axes, one panel a kind of rows, one line a way.

    Parameters
    ----------
    timings
        Of both ways.
    exponents
        (kind, way) -> fitted growth, written at the line.
    """
    require(timings, "timings: nothing to draw")
    seconds = [getattr(timing, field) for timing in timings for field in WAYS.values()]
    require(min(seconds) > 0, "timings: seconds must be positive numbers")
    kinds = list(dict.fromkeys(timing.kind for timing in timings))
    figure = style.canvas(2.7)
    panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    ratios = []
    for axes, kind in zip(panels, kinds, strict=True):
        of_kind = sorted((timing for timing in timings if timing.kind == kind), key=lambda timing: timing.rows)
        sizes = [timing.rows for timing in of_kind]
        middle = len(sizes) // 2
        for (way, field), (color, marker, line) in zip(WAYS.items(), _LINES, strict=True):
            values = [getattr(timing, field) for timing in of_kind]
            axes.plot(sizes, values, marker + line, color=color, markersize=4)
            above = field == "reference"  # the slower way is named above its line, ours below
            axes.annotate(
                f"{way}\n$n^{{{exponents[kind, way]:.1f}}}$",
                (sizes[middle], values[middle]),
                xytext=(-6, 5) if above else (6, -5),
                textcoords="offset points",
                ha="right" if above else "left",
                va="bottom" if above else "top",
                color=style.ink(color),
                fontsize=style.SMALL,
            )
        axes.set(xscale="log", yscale="log", xlabel="rows")
        axes.set_title(kind)
        every = 1 if len(sizes) < 4 else 2  # labels, from the largest down
        axes.set_xticks(sizes, [f"{n:,}" if (len(sizes) - 1 - i) % every == 0 else "" for i, n in enumerate(sizes)])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(sizes[0] * 0.55, sizes[-1] * 1.8)
        style.value_grid(axes, "y")
        ratios.append(f"{format_ratio(of_kind[-1].ratio)} at {sizes[-1]:,} {kind} rows")
    panels[0].set_ylim(min(seconds) / 6, max(seconds) * 6)
    panels[0].set_ylabel("CPU seconds")
    ours, reference = WAYS
    text = f"{reference} over {ours}: {', '.join(ratios)}."
    return Figure(
        figure,
        f"{caption} {text}".strip(),
        f"CPU seconds against the number of rows, {len(kinds)} panels ({', '.join(kinds)}). {text}",
    )


def timing_table(timings: Sequence[Timing], *, caption: str) -> Table:
    """Both ways side by side."""
    rows = [
        {
            "rows": f"{timing.kind}, {timing.rows:,}",
            "provlab": f"{timing.ours:.3f} s",
            "reference": f"{timing.reference:.3f} s",
            "ratio": format_ratio(timing.ratio),
            "certified": "yes" if timing.certified else "no",
            "gap per row": f"{timing.error:.0e}".replace("-", "\N{NON-BREAKING HYPHEN}"),
        }
        for timing in timings
    ]
    return table(pd.DataFrame(rows), caption=caption)


def byte_table(read: BytesRead, *, caption: str) -> Table:
    """Bytes read by each way, and how many times each byte that is needed."""
    rows = [
        {"way": way, "bytes of tensors": format_count(n), "times what is needed": f"{n / read.needed:.2f}"}
        for way, n in read.record().items()
    ]
    return table(pd.DataFrame(rows), caption=caption)


def estimate_table(checks: Sequence[Estimated], *, caption: str) -> Table:
    """Estimates beside measurements."""
    rows = [
        {
            "what": check.what,
            "estimated": " to ".join(map(duration, check.estimated)),
            "measured": duration(check.measured),
            "measured / estimated": " to ".join(f"{check.measured / s:.2f}" for s in reversed(check.estimated)),
        }
        for check in checks
    ]
    return table(pd.DataFrame(rows), caption=caption)


@styled
def bills(rows: Sequence[Bill], *, caption: str = "") -> Figure:
    """Draw hours as stacked bars, one a machine."""
    require(rows, "rows: nothing to draw")
    parts = list(dict.fromkeys(part for row in rows for part in row.seconds))
    require(len(parts) <= len(_PARTS), f"rows: at most {len(_PARTS)} parts can be told apart")
    figure = style.canvas(0.45 * len(rows) + 1.15)
    axes = figure.add_subplot()
    heights = np.arange(len(rows))
    left = np.zeros(len(rows))
    for part, (color, hatch) in zip(parts, _PARTS, strict=False):
        hours = np.array([row.seconds.get(part, 0.0) for row in rows]) / 3600
        axes.barh(heights, hours, left=left, height=0.6, color=color, hatch=hatch, edgecolor="white", label=part)
        left += hours
    worst = np.array([row.at_most for row in rows]) / 3600
    axes.hlines(heights, left, worst, color=style.INK, linewidth=1.0)
    axes.vlines(worst, heights - 0.12, heights + 0.12, color=style.INK, linewidth=1.0)
    for height, total, most in zip(heights, left, worst, strict=True):
        axes.annotate(
            _hours(total, most),
            (most, height),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=style.SMALL,
        )
    axes.set_yticks(heights, [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, worst.max() * 1.45)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_xlabel("hours by the clock")
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=len(parts), handlelength=1.4)
    text = "; ".join(
        f"{' '.join(row.label.split())}: {_hours(total, most)}"
        for row, total, most in zip(rows, left, worst, strict=True)
    )
    return Figure(figure, f"{caption} {text}.".strip(), f"Stacked bars of hours by {', '.join(parts)}. {text}.")


def _hours(low: float, high: float) -> str:
    """Format an interval of hours for which two digits are enough."""
    texts = [f"{hours:,.0f}" if hours >= 9.95 else f"{hours:.1f}" for hours in (low, high)]
    return f"{texts[0]} h" if texts[0] == texts[1] else f"{texts[0]} to {texts[1]} h"


def diff_table(costs: Sequence[DiffCost], *, caption: str) -> Table:
    """Model-diff's cost by model and length."""

    def speed(value: float | None) -> str:
        return "" if value is None else f"{value:,.0f}"

    return table(
        pd.DataFrame(
            {
                "model": cost.model,
                "parameters": f"{cost.planned.parameters:,}",
                "vocabulary": f"{cost.vocabulary:,}",
                "length": cost.length,
                "judged, tokens/s": speed(cost.judged),
                "written": speed(cost.written),
                "bare passes": speed(cost.bare),
                "planned": speed(cost.planned.tokens / cost.planned.cpu_seconds),
                "tokens in all": f"{cost.planned.tokens:,}",
                "GB": f"{(cost.planned.weights + cost.planned.held) / 1e9:.2g}",
                "one core": duration(cost.planned.cpu_seconds),
                "one GPU": duration(cost.planned.gpu_seconds),
            }
            for cost in costs
        ),
        caption=caption,
    )
