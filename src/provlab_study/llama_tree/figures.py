"""The family tree of models, drawn from parent relations."""

from collections.abc import Mapping
from html import escape

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
    """Draw the descent of models: bases on the left, each edge labelled by its training; on a phone, a nested list.

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
        If there is no model, a parent is not a model of the tree, or the relations run in a circle.
    """
    require(parents, "parents: there is no model to draw")
    for parent in parents.values():
        require(parent is None or parent in parents, f"{parent} is named as a parent but is not in the tree")
    bases = [name for name, parent in parents.items() if parent is None]
    depth = _depths(bases, parents)
    circle = next((name for name in parents if name not in depth), None)
    require(circle is None, f"the parents of {circle} run in a circle")
    columns = [0.0]  # x of each generation in inches, with room for the labels of the edges that lead to it
    for level in range(1, max(depth.values()) + 1):
        longest = max(len(edge_labels.get(name, "")) for name in depth if depth[name] == level)
        columns.append(columns[-1] + 0.45 + 0.062 * longest)
    extent = max(columns[depth[name]] + 0.3 + CHARACTER * len(name) for name in depth)
    figure = style.canvas(0.35 + ROW * len(depth), min(style.WIDTH, max(style.HALF_WIDTH, extent)))
    axes = figure.add_subplot()
    axes.set_axis_off()
    colors = style.family_colors(families)
    rows = {name: float(i) for i, name in enumerate(depth)}
    for name, y in rows.items():
        parent, color, x = parents[name], colors[families[name]], columns[depth[name]]
        if parent is not None:  # down from the parent, then right to the child; the label stands on the horizontal part
            x0 = columns[depth[parent]]
            axes.plot([x0, x0, x], [rows[parent], y, y], color=color, linewidth=1.2, solid_joinstyle="round", zorder=1)
            label = edge_labels.get(name, "")
            axes.text(x0 + 0.1, y - 0.08, label, fontsize=style.SMALL, color=style.MUTED, va="bottom")
        marker, weight = ("s", "bold") if parent is None else ("o", "normal")
        axes.plot(x, y, marker, color=color, markersize=6, markeredgecolor=style.ink(color), zorder=3)
        axes.text(x + 0.1, y, name, va="center", color=style.ink(color), fontweight=weight)
    axes.set_xlim(-0.1, max(style.HALF_WIDTH, extent))
    axes.set_ylim(len(depth) - 0.4, -0.6)
    text = (
        f"{len(depth)} models descend from {len(bases)} bases (in bold); "
        "each of the others was made from the one its line comes from, and beside it stands how."
    )
    origins = [
        f"{name} is a base" if parents[name] is None else f"{name} from {parents[name]}"
        + (f" ({edge_labels[name]})" if edge_labels.get(name) else "")
        for name in depth
    ]  # fmt: skip
    return Figure(figure, text, f"Family tree: {'; '.join(origins)}.", narrow=_list(bases, parents, edge_labels))


def _depths(bases: list[str], parents: Mapping[str, str | None]) -> dict[str, int]:
    """Generation of each model, every model followed by its descendants."""
    depth: dict[str, int] = {}
    waiting = [(name, 0) for name in reversed(bases)]
    while waiting:
        name, generation = waiting.pop()
        depth[name] = generation
        waiting.extend([(child, generation + 1) for child, parent in parents.items() if parent == name][::-1])
    return depth


def _list(names: list[str], parents: Mapping[str, str | None], labels: Mapping[str, str]) -> str:
    """Models, each with its descendants below it, as text of the page's own size."""
    rows = []
    for name in names:
        how = f" <span>{escape(labels[name])}</span>" if labels.get(name) else ""
        title = escape(name) if parents[name] else f"<strong>{escape(name)}</strong>"
        children = [child for child, parent in parents.items() if parent == name]
        rows.append(f"<li>{title}{how}{_list(children, parents, labels)}</li>")
    return f"<ul>{''.join(rows)}</ul>" if rows else ""
