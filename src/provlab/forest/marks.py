"""A forest of models: each family from left to right along its edges, drawn by what is known of each edge."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled

#: of what an edge says: colour, line and width; where the parent is not shown, a hollow place stands on it
LINES: dict[str, tuple[str, Literal["-", "--", "-.", ":"], float]] = {
    "descends": (style.DEPENDENT, "-", 1.8),
    "merge": ("#CC79A7", "-", 1.8),
    "combination": ("#CC79A7", ":", 1.8),
    "identical": (style.INK, "-", 1.8),
    "equal": (style.INK, "-", 0.8),
    "later": (style.INDEPENDENT, "--", 1.1),
    "near": (style.MUTED, ":", 1.1),
    "bridge": (style.INK, "-.", 1.1),
}
#: what is known of the parent -> its mark, where that may not be, or is not, among the models
PLACES = {"may not be given": ("o", "parent may not be given"), "not given": ("X", "parent was not given")}
HOLLOW = ("later", "near")  # edges that have such a mark
BESIDE = ("merge", "combination", "bridge")  # edges that leave the tree: their lines have lanes of their own
END = 0.08  # of a column: where a line ends beside a dot
LANE = 0.16  # columns beside a model's own, where a line would run through another one's dot
ROW, COLUMN = 0.19, 0.62  # inches a model, and a step of descent: names are legible on a phone
_NAME = 1.8  # inches for the names of the last column
Edges = Sequence[tuple[str, str, str, bool, bool, str]]


@styled
def forest(models: Sequence[str], edges: Edges, names: Mapping[str, str]) -> Figure:
    """Draw models as a forest.

    Parameters
    ----------
    models
        In an order in which families stand together.
    edges
        Two models, what the edge says (a key of `LINES`), whether it is an estimate, whether it has a direction, and
        what is known of the parent (a key of `PLACES`, or another word).
    names
        The names of the models, as they are shown.
    """
    require(models, "models: nothing to draw")
    places = _places(models, edges)
    deepest = max(x for x, _ in places.values())
    shown = [relation for relation in LINES if any(edge[2] == relation for edge in edges)]
    missing = [parent for parent in PLACES if any(edge[2] in HOLLOW and edge[5] == parent for edge in edges)]
    legend_rows = -(-(len(shown) + len(missing)) // 2)
    figure = style.canvas(ROW * len(models) + 0.2 * legend_rows + 0.2, COLUMN * deepest + _NAME)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set(xlim=(-0.3, deepest + _NAME / COLUMN), ylim=(len(models) - 0.3, -0.7))
    lanes: Counter[float] = Counter()  # lines beside each column
    for a, b, relation, estimated, directed, parent in edges:
        (x1, y1), (x2, y2) = places[a], places[b]
        color, line, width = LINES[relation]
        lane = x1
        crossed = any(x == x1 and min(y1, y2) < y < max(y1, y2) for x, y in places.values())
        if crossed or relation in BESIDE:
            lanes[x1] += 1
            lane = x1 + LANE * lanes[x1] * np.sign(y2 - y1)  # names stand to the right of their dots, and above
        down, right = np.sign(y2 - y1), np.sign(x2 - lane)
        beside = [(lane, y1 + 0.5 * down)] * bool(lane != x1)
        last = [(lane, y2), (x2 - END * right, y2)] if right else [(x2, y2 - 2 * END * down)]
        patch: dict[str, Any] = {"path": Path([(x1, y1), *beside, *last])}
        if y1 == y2:
            patch = {"posA": (x1, y1), "posB": (x2, y2)}
        axes.add_patch(
            FancyArrowPatch(
                **patch, arrowstyle="-|>" if directed else "-", mutation_scale=8, shrinkA=4, shrinkB=4,
                linewidth=width, color=color, linestyle=line, alpha=0.55 if estimated else 1.0,
            )
        )  # fmt: skip
        if relation in HOLLOW and parent in PLACES:  # where it may stand: on the last, level part of the line
            at = (lane + x2) / 2, y2
            axes.plot(*at, PLACES[parent][0], markersize=5, markerfacecolor="white", markeredgecolor=color)
    for model, (x, y) in places.items():
        axes.plot(x, y, "o", color=style.INK, markersize=3)
        axes.annotate(names[model], (x, y), (5, 3), textcoords="offset points", fontsize=style.SMALL, va="bottom")
    words = {relation: relation for relation in LINES} | {
        "merge": "merge of", "bridge": "stands between families", "combination": "one is made of the others"
    }  # fmt: skip
    handles = [
        Line2D([], [], color=color, linestyle=line, linewidth=width, label=words[relation])
        for relation, (color, line, width) in LINES.items()
        if relation in shown
    ]
    for parent in missing:
        mark, label = PLACES[parent]
        hollow = Line2D([], [], marker=mark, linestyle="", markerfacecolor="white", markeredgecolor=style.MUTED)
        hollow.set_label(label)
        handles.append(hollow)
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=2, fontsize=style.SMALL)
    counts = {relation: sum(edge[2] == relation for edge in edges) for relation in LINES}
    caption = (
        "An arrow points to the later of two models, and a thick one from a parent to its child. A hollow dot stands "
        "where a parent may be missing, a cross where it is, and pale edges are estimates."
    )
    text = (
        f"{len(models)} models, {len(edges)} edges: {counts['descends']} of descent and {counts['merge']} into merges "
        f"show a parent; {counts['later']} say which is later and {counts['near']} only that two are near: the parent "
        f"may not be given (hollow). {sum(edge[3] for edge in edges)} edges are estimates (pale)."
    )
    ways = {True: "to", False: "and"}
    listed = "; ".join(f"{names[a]} {ways[way]} {names[b]} {words[relation]}" for a, b, relation, _, way, _ in edges)
    return Figure(figure, f"{caption} {text}", f"A forest of models. {text} Edges: {listed or 'none'}.")


def _places(models: Sequence[str], edges: Edges) -> dict[str, tuple[float, int]]:
    """Column and line of each model: families below each other, each model right of the one it is reached from."""
    near: dict[str, list[str]] = {model: [] for model in models}  # that an edge leads to
    into = {edge[1] for edge in edges if edge[4]}
    for a, b, _, _, directed, _ in edges:
        near[a].append(b)
        near[b] += [] if directed else [a]
    places: dict[str, tuple[float, int]] = {}

    def put(model: str, x: int) -> None:
        places[model] = (float(x), len(places))
        for other in near[model]:
            if other not in places:
                put(other, x + 1)

    for model in sorted(models, key=lambda model: model in into):  # models that nothing points into come first
        if model not in places:
            put(model, 0)
    return places
