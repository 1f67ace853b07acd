"""The style sheet: sizes, type, colours, scales. No other module sets a colour or a font size."""

import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, FuncNorm, Normalize, to_hex, to_rgb
from matplotlib.figure import Figure as Canvas

from provlab import statistics
from provlab.errors import InputError
from provlab.extras import need

WIDTH = 6.5
HALF_WIDTH = 3.2
DPI = 200
SMALL = 7.5

INK = "#222222"
MUTED = "#6b6b6b"
GRID = "#d9d9d9"
UNKNOWN = "#b8b8b8"
# Okabe and Ito's palette; vermillion and blue speak of dependence, so families take them last. Black is a p-value
# at its floor, so the fifth family is a dark brown.
DEPENDENT = "#D55E00"
INDEPENDENT = "#0072B2"
FAMILY_COLORS = ("#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#7A4A3A", "#F0E442", INDEPENDENT, DEPENDENT)
SERIES = (INDEPENDENT, "#009E73", "#CC79A7", "#E69F00", "#000000")  # of lines in one plot
DIRECTIONS = ("#009E73", "#CC79A7")  # of the inputs of the first model and of the second
# a shape for each series, so that colour alone carries nothing
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")

COMPRESS_ABOVE = 50.0

STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: the same picture on every machine
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "hatch.linewidth": 0.7,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "axes.unicode_minus": True,
}

P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Decorate a drawing function so that it runs under the style sheet and leaves no setting behind."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return wrapped


def canvas(height: float, width: float = WIDTH) -> Canvas:
    """Return an empty matplotlib figure (inches) that pyplot does not know, so it is never shown twice."""
    return Canvas(figsize=(width, height))


def family_colors(families: Mapping[str, str]) -> dict[str, str]:
    """Give each family its colour, in order of first appearance.

    Parameters
    ----------
    families
        Family of each model. Pass the whole list of models in every chapter, and a family keeps its colour.

    Returns
    -------
    dict
        Family to hex colour, Okabe-Ito; beyond eight families the palette repeats lighter, then darker.
    """
    names = list(dict.fromkeys(families.values()))
    return {name: _shade(FAMILY_COLORS[i % 8], i // 8) for i, name in enumerate(names)}


def _shade(color: str, round_: int) -> str:
    if round_ == 0:
        return color
    target = 1.0 if round_ % 2 else 0.0
    mixed = 0.5 * np.asarray(to_rgb(color)) + 0.5 * target
    return to_hex(tuple(mixed))


def ink(color: str) -> str:
    """Darken a colour until text in it reads on white (WCAG contrast of at least 4.5)."""
    rgb = np.asarray(to_rgb(color))
    while 1.05 / (_luminance(rgb) + 0.05) < 4.5:
        rgb = rgb * 0.93
    return to_hex(tuple(rgb))


def _luminance(rgb: np.ndarray) -> float:
    linear = np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def mako() -> Colormap:
    """Return the sequential map of -log10 p: pale where there is no evidence, dark where it is strong."""
    colors: Colormap = need("seaborn").color_palette("mako_r", as_cmap=True)  # a second to import
    return colors


def evidence_norm(largest: float) -> Normalize:
    """Scale for -log10 p from 0 to `largest`: linear to 50, logarithmic above, smooth at the joint."""
    if largest <= COMPRESS_ABOVE:
        return Normalize(0.0, max(largest, 1.0))

    def forward(x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, dtype=float)
        above = COMPRESS_ABOVE * (1 + np.log(np.maximum(x, COMPRESS_ABOVE) / COMPRESS_ABOVE))
        return np.where(x > COMPRESS_ABOVE, above, x)

    def inverse(y: np.ndarray) -> np.ndarray:
        y = np.asarray(y, dtype=float)
        above = COMPRESS_ABOVE * np.exp(np.maximum(y, COMPRESS_ABOVE) / COMPRESS_ABOVE - 1)
        return np.where(y > COMPRESS_ABOVE, above, y)

    return FuncNorm((forward, inverse), 0.0, largest)


def evidence_ticks(largest: float) -> list[float]:
    """Return round ticks for `evidence_norm`."""
    if largest <= COMPRESS_ABOVE:
        step = next(s for s in (0.5, 1, 2, 5, 10) if largest / s <= 5)
        return [float(t) for t in np.arange(0.0, largest + step / 100, step)]
    decades = [t for t in (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000) if t <= largest]
    step = max(1, -(-len(decades) // 4))
    return [0.0, 25.0, 50.0, *(float(t) for t in decades[::-1][::step][::-1])]


def value_grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Add the thin grey grid, only where a value is read off."""
    axes.grid(visible=True, axis=axis)


def symbol(label: str) -> str:
    """Write the names of statistics in a label as symbols, for a picture; other words stay as they are."""
    return _rewritten(label, statistics.symbol)


def word(label: str) -> str:
    """Write the names of statistics in a label as plain text, for a caption."""
    return _rewritten(label, statistics.word)


def _rewritten(label: str, how: Callable[[str], str]) -> str:
    """Replace the names of statistics, which may stand as registered or already as words."""
    known = {written: name for name in statistics.REGISTRY for written in (name, statistics.word(name))}
    names = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in known)
    return re.sub(names, lambda match: how(known[match[0]]), label)


def require(condition: object, message: str) -> None:
    """Refuse data that cannot be drawn, in one line."""
    if not condition:
        raise InputError(message)
