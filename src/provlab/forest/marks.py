"""A forest of models: each family from left to right along its edges, drawn by what is known of each edge."""

from collections.abc import Mapping, Sequence
from typing import Literal

from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled

#: of what an edge says: colour, line and width; where the parent is not shown, a hollow place stands on it
LINES: dict[str, tuple[str, Literal["-", "--", "-.", ":"], float]] = {
    "descends": (style.DEPENDENT, "-", 1.8),
    "merge": ("#CC79A7", "-", 1.8),
    "later": (style.INDEPENDENT, "--", 1.1),
    "near": (style.MUTED, ":", 1.1),
    "bridge": (style.INK, "-.", 1.1),
}
HOLLOW = ("later", "near")  # edges whose parent may not be among the models
ROW, COLUMN = 0.19, 0.62  # inches a model, and a step of descent: names are legible on a phone
_NAME = 1.8  # inches for the names of the last column
Edges = Sequence[tuple[str, str, str, bool, bool]]


@styled
def forest(models: Sequence[str], edges: Edges, names: Mapping[str, str]) -> Figure:
    """Draw models as a forest.

    Parameters
    ----------
    models
        In an order in which families stand together.
    edges
        Two models, what the edge says (a key of `LINES`), whether it is an estimate, and whether it has a direction.
    names
        The names of the models, as they are shown.
    """
    require(models, "models: nothing to draw")
    places = _places(models, edges)
    deepest = max(x for x, _ in places.values())
    shown = [relation for relation in LINES if any(edge[2] == relation for edge in edges)]
    legend_rows = -(-len(shown) // 2) + any(relation in HOLLOW for relation in shown)
    figure = style.canvas(ROW * len(models) + 0.2 * legend_rows + 0.2, COLUMN * deepest + _NAME)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set(xlim=(-0.1, deepest + _NAME / COLUMN), ylim=(len(models) - 0.3, -0.7))
    for a, b, relation, estimated, directed in edges:
        (x1, y1), (x2, y2) = places[a], places[b]
        color, line, width = LINES[relation]
        axes.add_patch(
            FancyArrowPatch(
                (x1, y1), (x2, y2), arrowstyle="-|>" if directed else "-", mutation_scale=8, shrinkA=4, shrinkB=4,
                linewidth=width, color=color, linestyle=line, alpha=0.55 if estimated else 1.0,
                connectionstyle="arc3,rad=0" if y1 == y2 else "angle,angleA=90,angleB=0,rad=4",
            )
        )  # fmt: skip
        if relation in HOLLOW:  # where the common parent may stand: on the last, level part of the line
            axes.plot((x1 + x2) / 2, y2, "o", markersize=5, markerfacecolor="white", markeredgecolor=color)
    for model, (x, y) in places.items():
        axes.plot(x, y, "o", color=style.INK, markersize=3)
        axes.annotate(names[model], (x, y), (5, 3), textcoords="offset points", fontsize=style.SMALL, va="bottom")
    words = {relation: relation for relation in LINES} | {"merge": "merge of", "bridge": "stands between families"}
    handles = [
        Line2D([], [], color=color, linestyle=line, linewidth=width, label=words[relation])
        for relation, (color, line, width) in LINES.items()
        if relation in shown
    ]
    if any(relation in HOLLOW for relation in shown):
        hollow = Line2D([], [], marker="o", linestyle="", markerfacecolor="white", markeredgecolor=style.MUTED)
        hollow.set_label("parent may not be given")
        handles.append(hollow)
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=2, fontsize=style.SMALL)
    counts = {relation: sum(edge[2] == relation for edge in edges) for relation in LINES}
    caption = (
        "An arrow points to the later of two models, and a thick one from a parent to its child. A hollow dot stands "
        "where a parent may be missing, and pale edges are estimates."
    )
    text = (
        f"{len(models)} models, {len(edges)} edges: {counts['descends']} of descent and {counts['merge']} into merges "
        f"show a parent; {counts['later']} say which is later and {counts['near']} only that two are near: the parent "
        f"may not be given (hollow). {sum(edge[3] for edge in edges)} edges are estimates (pale)."
    )
    ways = {True: "to", False: "and"}
    listed = "; ".join(f"{names[a]} {ways[way]} {names[b]} {words[relation]}" for a, b, relation, _, way in edges)
    return Figure(figure, f"{caption} {text}", f"A forest of models. {text} Edges: {listed or 'none'}.")


def _places(models: Sequence[str], edges: Edges) -> dict[str, tuple[float, int]]:
    """Column and line of each model: families below each other, each model right of the one it is reached from."""
    near: dict[str, list[str]] = {model: [] for model in models}
    into = {b for *_, b, _, _, directed in edges if directed}
    for a, b, *_ in edges:
        near[a].append(b)
        near[b].append(a)
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
