"""Rates of small p-values of many statistics, each with its exact interval, compared with their levels."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import NullLocator

from provlab.plots import format_interval, style
from provlab.plots.figure import Figure
from provlab.plots.style import styled
from provlab_study.calibration.shipped import SizeRow
from provlab_study.shared import calibration
from provlab_study.shared.calibration.check import Size


@styled
def sizes(
    reports: Mapping[str, calibration.CalibrationReport],
    controls: Mapping[str, calibration.CalibrationReport] | None = None,
    *,
    caption: str = "",
) -> Figure:
    """Draw the share of p-values up to each level, relative to the level, one row a statistic and one panel a level.

    Parameters
    ----------
    reports
        By name, of p-values that should be valid.
    controls
        By name, of p-values that should not be.
    """
    controls = controls or {}
    rows = [(name, report, False) for name, report in reports.items()]
    rows += [(name, report, True) for name, report in controls.items()]
    levels = sorted({size.level for _, report, _ in rows for size in report.sizes}, reverse=True)
    figure = style.canvas(0.9 + 0.24 * len(rows))
    panels = figure.subplots(1, len(levels), sharey=True, squeeze=False)[0]
    above = []
    for axes, level in zip(panels, levels, strict=True):
        axes.axvline(1.0, color=style.MUTED, linewidth=0.9)
        far, near = 1.5, 0.7
        for row, (name, report, control) in enumerate(rows):
            for size in (s for s in report.sizes if s.level == level):
                share, low, high = (value / size.expected for value in (size.share, size.low, size.high))
                color, marker = (style.DEPENDENT, "D") if control else (style.INDEPENDENT, "o")
                drawn = max(share, _LEFT)
                axes.hlines(row, max(low, _LEFT), high, color=color, linewidth=1.2)
                filled = "none" if share < _LEFT else color
                axes.plot(drawn, row, marker, color=color, markersize=4, markerfacecolor=filled)
                far, near = max(far, high), min(near, max(low, _LEFT))
                if low > 1.0 and not control:
                    above.append(f"{style.word(name)} at {level:g}")
        near, far = near / 1.25, far * 1.25
        axes.set(xlim=(near, far), title=f"level {level:g}", xscale="log" if far / near > 4 else "linear")
        if far / near > 4:
            axes.set_xticks([tick for tick in _TICKS if near <= tick <= far])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
        axes.tick_params(axis="y", length=0)
        style.value_grid(axes, "x")
    panels[0].set_yticks(range(len(rows)), [style.symbol(name) for name, _, _ in rows])
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.supxlabel("share of p-values up to the level, in units of what an exact p-value gives", fontsize=9)
    flagged = [name for name, report, control in rows if report.flagged and not control]
    missed = [name for name, report, control in rows if not report.flagged and control]
    text = f"Bars are exact 95% intervals, one by one; at 1 the test keeps its level. n from {_counts(rows)}."
    text += f" Lower end above 1: {', '.join(above) or 'none'}"
    text += f"; flagged by the check as a whole: {', '.join(map(style.word, flagged)) or 'none'}."
    if controls:
        text += f" Diamonds are planted faults: {len(controls) - len(missed)} of {len(controls)} flagged."
    return Figure(figure, f"{caption} {text}".strip(), f"Dots with intervals, one row a statistic. {text}")


_TICKS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_LEFT = 0.1  # no p-value up to the level at all is drawn here, hollow


def _counts(rows: list[tuple[str, calibration.CalibrationReport, bool]]) -> str:
    counts = np.array([size.n for _, report, _ in rows for size in report.sizes])
    return f"{counts.min():,} to {counts.max():,}" if counts.min() < counts.max() else f"{counts.min():,}"


def size_table(rows: Sequence[SizeRow]) -> pd.DataFrame:
    """Sizes of statistics as the page's table."""
    return pd.DataFrame(
        [
            {"statistic": style.word(row.statistic), "weights": row.weights, "solver": row.solver}
            | {"pairs": f"{row.sizes[0].n:,}"}
            | {f"≤ {level:g}": "out of reach" for level in calibration.SIZES}
            | _in_words(row.sizes)
            | {"too many": ", ".join(f"at {level:g}" for level in row.too_many) or "no"}
            for row in rows
        ]
    )


def _in_words(sizes: Iterable[Size]) -> dict[str, str]:
    return {f"≤ {size.level:g}": format_interval(size.share, size.low, size.high, ".4f") for size in sizes}
