"""A forest of models: each family from left to right along its edges, drawn by level."""

from collections.abc import Mapping, Sequence
from typing import Literal

from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled

#: colour and line of each level: how the two models were joined decides the line, what directs them the colour
COLORS = {"rows": style.DEPENDENT, "root": "#CC79A7", "estimated": style.INDEPENDENT, None: style.MUTED}
LINES: dict[str, Literal["-", "--"]] = {"families": "-", "rows": "-", "estimated": "--"}
ROW = 0.24  # inches a model
Edges = Sequence[tuple[str, str, str, str | None]]


@styled
def forest(models: Sequence[str], edges: Edges, names: Mapping[str, str]) -> Figure:
    """Draw models as a forest.

    Parameters
    ----------
    models
        In an order in which families stand together.
    edges
        Two models, the level by which they are joined, and the level of the direction from the first to the second.
    names
        The names of the models, as they are shown.
    """
    require(models, "models: nothing to draw")
    places = _places(models, edges)
    deepest = max(x for x, _ in places.values())
    figure = style.canvas(ROW * len(models) + 0.5)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set(xlim=(-0.1, deepest + 1.0), ylim=(len(models) - 0.3, -0.7))
    for a, b, joined, directed in edges:
        (x1, y1), (x2, y2) = places[a], places[b]
        arrow = "-|>" if directed else "-"
        axes.add_patch(
            FancyArrowPatch(
                (x1, y1), (x2, y2), arrowstyle=arrow, mutation_scale=8, shrinkA=4, shrinkB=4, linewidth=1.1,
                color=COLORS[directed], linestyle=LINES[joined],
                connectionstyle="arc3,rad=0" if y1 == y2 else "angle,angleA=90,angleB=0,rad=4",
            )
        )  # fmt: skip
    for model, (x, y) in places.items():
        axes.plot(x, y, "o", color=style.INK, markersize=3)
        axes.annotate(names[model], (x, y), (5, 3), textcoords="offset points", fontsize=style.SMALL, va="bottom")
    levels = {"rows": "direction by rows", "root": "root", "estimated": "estimate", None: "none"}
    handles = [Line2D([], [], color=COLORS[level], label=label) for level, label in levels.items()]
    handles += [Line2D([], [], color=style.INK, linestyle=LINES["estimated"], label="edge estimated")]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=style.SMALL)
    counts = {level: sum(edge[3] == level for edge in edges) for level in levels}
    text = (
        f"{len(models)} models, {len(edges)} edges: {counts['rows']} directed by rows, {counts['root']} by the root, "
        f"{counts['estimated']} by an estimate, {counts[None]} without a direction; "
        f"{sum(edge[2] == 'estimated' for edge in edges)} edges are estimates themselves (dashed)."
    )
    listed = "; ".join(f"{names[a]} {'to' if d else 'and'} {names[b]}" for a, b, _, d in edges)
    return Figure(figure, text, f"A forest of models. {text} Edges: {listed or 'none'}.")


def _places(models: Sequence[str], edges: Edges) -> dict[str, tuple[float, int]]:
    """Column and line of each model: families below each other, each model right of the one it is reached from."""
    near: dict[str, list[str]] = {model: [] for model in models}
    into = {b for _, b, _, directed in edges if directed}
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
