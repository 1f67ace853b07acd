"""The family tree of models, drawn from parent relations."""

from collections.abc import Mapping
from html import escape

from matplotlib.axes import Axes

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled

ROW = 0.27  # inches for one model
CHARACTER = 0.075  # inches for one character of a name


@styled
def lineage_tree(
    parents: Mapping[str, str | None],
    families: Mapping[str, str],
    edge_labels: Mapping[str, str],
) -> Figure:
    """Draw who was made from whom: bases on the left, each edge labelled by what was done; on a phone, a nested list.

    Parameters
    ----------
    parents
        Parent of each model, None for one trained from random initialisation. The order of the mapping is
        kept among siblings.
    families
        Family of each model, for the colours.
    edge_labels
        For a child, what was done to its parent ("chat tune", "LoRA, merged", "pruned").

    Raises
    ------
    InputError
        If a parent is not a model of the tree, or the relations run in a circle.
    """
    require(parents, "parents: there is no model to draw")
    depth = {name: _depth(name, parents) for name in parents}
    order = _in_tree_order(parents)
    columns = _columns(order, depth, edge_labels)
    extent = max(columns[depth[name]] + 0.3 + CHARACTER * len(name) for name in order)
    figure = style.canvas(0.35 + ROW * len(order), min(style.WIDTH, max(style.HALF_WIDTH, extent)))
    axes = figure.add_subplot()
    axes.set_axis_off()
    colors = style.family_colors(families)
    rows = {name: float(i) for i, name in enumerate(order)}
    for name in order:
        parent = parents[name]
        color = colors[families[name]]
        x, y = columns[depth[name]], rows[name]
        if parent is not None:
            _edge(axes, columns[depth[parent]], rows[parent], x, y, color, edge_labels.get(name, ""))
        marker = "s" if parent is None else "o"
        axes.plot(x, y, marker, color=color, markersize=6, markeredgecolor=style.ink(color), zorder=3)
        axes.text(
            x + 0.1,
            y,
            name,
            va="center",
            color=style.ink(color),
            fontweight="bold" if parent is None else "normal",
        )
    axes.set_xlim(-0.1, max(style.HALF_WIDTH, extent))
    axes.set_ylim(len(order) - 0.4, -0.6)
    n_bases = sum(parent is None for parent in parents.values())
    text = (
        f"{len(order)} models descend from {n_bases} bases (in bold); "
        "each of the others was made from the one its line comes from, and beside it stands how."
    )
    roots = [name for name, parent in parents.items() if parent is None]
    return Figure(figure, text, _alt(order, parents, edge_labels), narrow=_list(roots, parents, edge_labels))


def _list(names: list[str], parents: Mapping[str, str | None], labels: Mapping[str, str]) -> str:
    """Models, each with its descendants below it, as text of the page's own size."""
    rows = []
    for name in names:
        how = f" <span>{escape(labels[name])}</span>" if labels.get(name) else ""
        called = escape(name) if parents[name] else f"<strong>{escape(name)}</strong>"
        children = [child for child, parent in parents.items() if parent == name]
        rows.append(f"<li>{called}{how}{_list(children, parents, labels)}</li>")
    return f"<ul>{''.join(rows)}</ul>" if rows else ""


def _depth(name: str, parents: Mapping[str, str | None]) -> int:
    depth, current = 0, parents[name]
    while current is not None:
        require(current in parents, f"{current} is named as a parent but is not in the tree")
        depth, current = depth + 1, parents[current]
        require(depth <= len(parents), f"the parents of {name} run in a circle")
    return depth


def _in_tree_order(parents: Mapping[str, str | None]) -> list[str]:
    """Each model followed by its descendants."""
    order: list[str] = []
    waiting = [name for name, parent in parents.items() if parent is None][::-1]
    while waiting:
        name = waiting.pop()
        order.append(name)
        waiting.extend([child for child, parent in parents.items() if parent == name][::-1])
    return order


def _columns(order: list[str], depth: Mapping[str, int], labels: Mapping[str, str]) -> list[float]:
    """Return the x of each generation in inches: room for the labels of the edges that lead to it."""
    columns = [0.0]
    for level in range(1, max(depth.values()) + 1):
        longest = max((len(labels.get(n, "")) for n in order if depth[n] == level), default=0)
        columns.append(columns[-1] + 0.45 + 0.062 * longest)
    return columns


def _edge(axes: Axes, x0: float, y0: float, x1: float, y1: float, color: str, label: str) -> None:
    """Go down from the parent, then right to the child; the label stands on the horizontal part."""
    axes.plot([x0, x0, x1], [y0, y1, y1], color=color, linewidth=1.2, solid_joinstyle="round", zorder=1)
    axes.text(x0 + 0.1, y1 - 0.08, label, fontsize=style.SMALL, color=style.MUTED, va="bottom")


def _alt(order: list[str], parents: Mapping[str, str | None], labels: Mapping[str, str]) -> str:
    told = [
        f"{name} is a base" if parents[name] is None else f"{name} from {parents[name]}"
        + (f" ({labels[name]})" if labels.get(name) else "")
        for name in order
    ]  # fmt: skip
    return "Family tree: " + "; ".join(told) + "."
