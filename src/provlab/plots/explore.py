"""Pictures that answer: places of a figure that say in words what they show, to a reader's pointer or slider.

The picture stays what it is, a PNG that print, PDF and a page without scripts show alone. Over it lies an SVG of shapes
that cannot be seen, one a `Spot`, each with its words as a title. A browser shows a title to a mouse; the book's script
(``book/_assets/provlab.js``) adds a slider, which keys and screen readers reach, and a line with the words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PIXELS_PER_INCH = 96  # of CSS

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Spot:
    """A place of a picture and what it shows.

    Attributes
    ----------
    axes
        In which the boxes lie.
    boxes
        Left, right, bottom and top of each rectangle, in data coordinates.
    text
        What the picture shows there: one line, plain text.
    """

    axes: "Axes"
    boxes: tuple[Box, ...]
    text: str


def overlay(figure: "Canvas", spots: Sequence[Spot]) -> str:
    """Return the SVG that lies over a figure which has been drawn, in pixels of CSS.

    It is hidden from screen readers: the slider speaks for it, and the alt text for the picture.
    """
    width, height = figure.get_size_inches() * PIXELS_PER_INCH
    paths = []
    for spot in spots:
        outline = ""
        for left, right, bottom, top in spot.boxes:
            # display pixels run upward at the figure's own resolution, those of the SVG downward
            ends = spot.axes.transData.transform([(left, bottom), (right, top)]) * PIXELS_PER_INCH / figure.dpi
            x, y = ends[:, 0].min(), height - ends[:, 1].max()
            wide, high = abs(ends[1] - ends[0])
            outline += f"M{x:.1f},{y:.1f}h{wide:.1f}v{high:.1f}h{-wide:.1f}z"
        paths.append(f'<path d="{outline}"><title>{escape(spot.text)}</title></path>')
    return (
        f'<svg class="provlab-spots" viewBox="0 0 {width:.1f} {height:.1f}" preserveAspectRatio="none" '
        'fill="transparent" aria-hidden="true" style="position:absolute;inset:0;width:100%;height:100%">'
        f"{''.join(paths)}</svg>"
    )
