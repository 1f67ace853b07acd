"""Whether the words of a picture can be read: none leaves the picture or its axes, none lies on another."""

from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase

SLACK = 1.0  # pixels of a picture at 100 dpi by which boxes of text may pass each other: letters do not fill theirs
_SHOWN = 40  # letters of a text that is named


def faults(figure: Canvas) -> list[str]:
    """Name the texts of a drawn figure that cannot be read: cut off, longer than the axis that they name, or covered.

    Texts that stand at a slant are held against the picture alone, since their boxes say little of where letters are.
    """
    figure.draw_without_rendering()  # a file is written at another resolution, which leaves labels at its places
    renderer = (figure.canvas if isinstance(figure.canvas, FigureCanvasAgg) else FigureCanvasAgg(figure)).get_renderer()
    slack = SLACK * figure.dpi / 100
    hidden = set().union(*map(_not_drawn, figure.axes))
    texts = (text for text in figure.findobj(Text) if text not in hidden)
    shown = [text for text in texts if text.get_text().strip() and _drawn(text)]
    boxes = [(text, text.get_window_extent(renderer)) for text in shown]
    found = []
    for text, box in boxes:
        if not _within(box, figure.bbox, slack):
            found.append(f"{_named(text)} leaves the picture")
    for axes in figure.axes:
        along = ((axes.xaxis.label, "x0", "x1"), (axes.yaxis.label, "y0", "y1"))
        for label, low, high in along:
            own = next((box for text, box in boxes if text is label), None)
            if own is not None and getattr(own, high) - getattr(own, low) > _length(axes, low, high) + slack:
                found.append(f"{_named(label)} is longer than its axis")
    straight = [(text, box) for text, box in boxes if text.get_rotation() % 90 == 0]
    for (one, first), (other, second) in combinations(straight, 2):
        if _overlap(first, second) > 2 * slack:
            found.append(f"{_named(one)} and {_named(other)} lie on each other")
    return list(dict.fromkeys(found))


def _drawn(text: Text) -> bool:
    """Whether a text is drawn, with the axes that it is of, and in a colour that can be seen."""
    return text.get_visible() and text.get_alpha() != 0 and (text.axes is None or bool(text.axes.get_visible()))


def _not_drawn(axes: Axes) -> set[Text]:
    """Labels of ticks that lie outside the limits, or of an axis that is not shown."""
    hidden: set[Text] = set()
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        shown = axis.get_visible() and axes.axison
        hidden |= set() if shown else {axis.label}
        inside = [tick for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()) if low <= tick.get_loc() <= high]
        for tick in (*axis.majorTicks, *axis.minorTicks):  # more than there are places, where there were more once
            if not shown or tick not in inside:
                hidden |= {tick.label1, tick.label2}
    return hidden


def _within(box: Bbox, outer: BboxBase, slack: float) -> bool:
    return (
        box.x0 >= outer.x0 - slack
        and box.y0 >= outer.y0 - slack
        and box.x1 <= outer.x1 + slack
        and box.y1 <= outer.y1 + slack
    )


def _length(axes: Axes, low: str, high: str) -> float:
    """Pixels of an axis; a label may name all the panels beside it that share it."""
    shared = axes.get_shared_x_axes() if low == "x0" else axes.get_shared_y_axes()
    boxes = [one.get_window_extent() for one in {axes, *shared.get_siblings(axes)}]
    return float(max(getattr(box, high) for box in boxes) - min(getattr(box, low) for box in boxes))


def _overlap(one: Bbox, other: Bbox) -> float:
    """Pixels by which two boxes lie on each other, in the direction in which it is less; 0 if they do not."""
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(max(0.0, min(wide, high)))


def _named(text: Text) -> str:
    words = " ".join(text.get_text().split())
    return repr(words if len(words) <= _SHOWN else f"{words[: _SHOWN - 1]}…")
