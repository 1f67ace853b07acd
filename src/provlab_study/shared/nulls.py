"""Null plots: what p-values of independent pairs look like, and what two groups of raw values do."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled
from provlab_study.shared import calibration

# the two groups of every separation: colour, marker and word
GROUPS = {"dependent": (style.DEPENDENT, "D"), "independent": (style.INDEPENDENT, "o")}


@styled
def null_quantiles(
    log10_p: Mapping[str, ArrayLike],
    *,
    caption_extra: str = "",
) -> Figure:
    """Draw expected against observed -log10 p under the null, with a simultaneous band and a histogram.

    Parameters
    ----------
    log10_p
        For each label (a statistic), the log10 p-values of pairs known to be independent.
    caption_extra
        Put before the Kolmogorov-Smirnov values.

    Raises
    ------
    InputError
        If a series is empty or holds anything but finite values at or below 0.
    """
    series = {label: _log10_p(label, values) for label, values in log10_p.items()}
    require(series, "log10_p: no series")
    # all points lie inside with a probability of 95%, if the p-values are uniform and independent
    bands = {n: calibration.simultaneous_band(n, 0.95) for n in {len(values) for values in series.values()}}
    figure = style.canvas(3.1)
    axes, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    largest = 0.0
    for band in bands.values():
        axes.fill_between(band.expected, band.lower, band.upper, color=style.GRID, linewidth=0)
        largest = max(largest, float(band.expected[0]))
    words = []
    for i, (label, values) in enumerate(series.items()):
        ordered, band = np.sort(values), bands[len(values)]
        axes.plot(
            band.expected, -ordered, style.MARKERS[i], color=style.SERIES[i % 5], markersize=3.2,
            markerfacecolor="none", markeredgewidth=0.8, label=style.symbol(label),
        )  # fmt: skip
        largest = max(largest, float(-ordered[0]))
        inside = bool(((-ordered >= band.lower - 1e-12) & (-ordered <= band.upper + 1e-12)).all())
        p = calibration.ks_uniform(values).p
        where = "all inside the band" if inside else "leaves the band"
        words.append(f"{style.word(label)}: n = {len(values)}, KS p = {p:.2g}, {where}")
    top = largest * 1.08
    axes.plot([0, top], [0, top], color=style.MUTED, linewidth=0.8)
    axes.set(xlim=(0, top), ylim=(0, top), xlabel=r"expected  $-\log_{10}\,p$", ylabel=r"observed  $-\log_{10}\,p$")
    axes.set_aspect("equal", adjustable="box")
    axes.legend(loc="upper left", handletextpad=0.2)
    _histogram(bars, series)
    text = "Uniform p-values give points along the line, inside the grey 95% simultaneous band."
    ks = "; ".join(words) + "."
    caption = f"{text} {caption_extra} {ks}".replace("  ", " ")
    return Figure(figure, caption, f"Quantile plot and histogram of null p-values. {ks}")


def _log10_p(label: str, values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=float).ravel()
    require(array.size, f"{label}: no p-values")
    require(np.isfinite(array).all() and (array <= 1e-9).all(), f"{label}: log10 p must be finite and at most 0")
    return np.minimum(array, 0.0)


def _histogram(axes: Axes, series: Mapping[str, NDArray[np.float64]]) -> None:
    edges = np.linspace(0, 1, 11)
    for i, values in enumerate(series.values()):
        share, _ = np.histogram(10.0**values, edges)
        axes.stairs(
            share / len(values) * 10, edges, color=style.SERIES[i % 5], linestyle=style.LINES[i % 4], linewidth=1.2
        )
    axes.axhline(1.0, color=style.MUTED, linewidth=0.8)
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="p", ylabel="density", box_aspect=0.9)


@styled
def separation(groups: Mapping[str, ArrayLike], *, xlabel: str, caption: str = "") -> Figure:
    """Draw both groups on one axis, to see whether their values overlap.

    Parameters
    ----------
    groups
        Values under the keys "dependent" and "independent".
    """
    values = _two_groups(groups)
    figure = style.canvas(1.7)
    _strips(figure.add_subplot(), values, xlabel)
    text = _overlap(values)
    text = text[0].upper() + text[1:]
    alt = f"Strip plot of {xlabel} for dependent and independent pairs. {text}"
    return Figure(figure, f"{caption} {text}".strip(), alt)


@styled
def raw_against_permtest(
    raw: Mapping[str, ArrayLike],
    log10_p: Mapping[str, ArrayLike],
    *,
    xlabel: str,
    n_permutations: int,
    caption: str = "",
) -> Figure:
    """Draw what PERMTEST adds: the raw distance of both groups beside its log10 p.

    Parameters
    ----------
    raw, log10_p
        Values under the keys "dependent" and "independent".
    xlabel
        Name of the raw distance.
    n_permutations
        T of PERMTEST, for the line at 1 / (T + 1), the smallest p-value it can give.
    """
    before, after = _two_groups(raw), _two_groups(log10_p)
    figure = style.canvas(2.0)
    left, right = figure.subplots(1, 2, sharey=True)
    _strips(left, before, xlabel)
    _strips(right, {group: -values for group, values in after.items()}, r"PERMTEST:  $-\log_{10}\,p$")
    right.axvline(np.log10(n_permutations + 1), color=style.MUTED, linewidth=0.8, linestyle=":", zorder=0)
    text = (
        f"Raw distance: {_overlap(before)} PERMTEST p-value: {_overlap(after)} "
        f"The dotted line is the smallest p-value of T = {n_permutations} permutations."
    )
    return Figure(figure, f"{caption} {text}".strip(), f"Two strip plots of dependent and independent pairs. {text}")


def _two_groups(groups: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.float64]]:
    require(
        set(groups) == set(GROUPS),
        f"groups must be {' and '.join(GROUPS)}, not {', '.join(groups) or 'none'}",
    )
    values = {group: np.asarray(groups[group], dtype=float).ravel() for group in GROUPS}
    for group, array in values.items():
        require(array.size and np.isfinite(array).all(), f"{group}: values must be finite and at least one")
    return values


def _strips(axes: Axes, values: Mapping[str, NDArray[np.float64]], xlabel: str) -> None:
    rng = np.random.default_rng(0)  # jitter only
    for row, (group, array) in enumerate(values.items()):
        color, marker = GROUPS[group]
        height = row + rng.uniform(-0.25, 0.25, array.size)
        axes.plot(
            array, height, marker, color=color, markersize=4, markerfacecolor="none", markeredgewidth=0.9, alpha=0.8
        )
    axes.set_yticks(range(len(values)), [f"{group}\n(n = {array.size})" for group, array in values.items()])
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xlabel(style.symbol(xlabel))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    style.value_grid(axes, "x")


def _overlap(values: Mapping[str, NDArray[np.float64]]) -> str:
    dependent, independent = values["dependent"], values["independent"]
    if dependent.max() < independent.min() or dependent.min() > independent.max():
        return "the groups do not overlap."
    low, high = max(dependent.min(), independent.min()), min(dependent.max(), independent.max())
    within = int(((dependent >= low) & (dependent <= high)).sum())
    return f"the groups overlap: {within} of {dependent.size} dependent values lie among the independent ones."
