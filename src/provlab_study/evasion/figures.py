"""Pairs of models, the second one in disguise, as a heatmap; and what attempts to undo the disguise leave."""

from collections.abc import Mapping, Sequence

import pandas as pd

from provlab import plots
from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import require, styled
from provlab.report.lineage import Lineage, short_names
from provlab_study.evasion.procrustes import Alignment
from provlab_study.shared.nulls import GROUPS


def disguised_pairs(frame: pd.DataFrame, hidden: Mapping[str, str], lineage: Lineage, *, statistic: str) -> Figure:
    """Draw what a statistic says of each pair, and the truth above the diagonal where every origin is known.

    Parameters
    ----------
    frame
        The study of the disguised pairs, as `provlab.StudyReport.to_frame` gives.
    hidden
        Source of each model but the first in disguise.
    lineage
        The lineage of the models as they are.
    """
    sources, names = list(lineage.models), short_names(lineage.models)
    rows = frame[frame["statistic"] == statistic]
    rows = rows.assign(b=rows["b"].map({other: source for source, other in hidden.items()}))

    def square(column: str) -> pd.DataFrame:
        values = rows.pivot(index="a", columns="b", values=column).reindex(index=sources, columns=sources)
        return values.fillna(values.T).rename(index=names, columns=names)

    truth = None
    if all(lineage.root(source) for source in sources):
        related = [[a != b and bool(lineage.dependent(a, b)) for b in sources] for a in sources]
        truth = pd.DataFrame(related, index=list(names.values()), columns=list(names.values()))
    return plots.pair_heatmap(
        square("log10_p"),
        {names[source]: names.get(root, root) for source, root in lineage.families().items()},
        statistic=statistic,
        floor=float(rows["floor"].min()),
        truth=truth,
        adjusted=square("holm_log10_p"),
        caption="The second model of each pair in disguise.",
    )


@styled
def residuals(undone: Sequence[Alignment], *, caption: str) -> Figure:
    """Draw what least squares leaves, one line for each thing that is aligned, both groups of pairs in it.

    Parameters
    ----------
    undone
        Each with a pair of either group at least.
    caption
        Put before what the figure says.
    """
    require(undone, "undone: there is nothing to draw")
    figure = style.canvas(0.65 + 0.3 * len(undone))
    axes = figure.add_subplot()
    apart: list[str] = []
    alike: list[str] = []
    names = [f"{aligned.what}, {aligned.rows:g}" for aligned in undone]
    for row, (name, aligned) in enumerate(zip(names, undone, strict=True)):
        groups: dict[str, list[float]] = {"dependent": [], "independent": []}
        for related, residual in zip(aligned.dependent, aligned.residual, strict=True):
            groups["dependent" if related else "independent"].append(residual)
        for group, offset in (("dependent", -0.14), ("independent", 0.14)):
            values, (color, marker) = groups[group], GROUPS[group]
            require(len(values), f"{name}: no {group} pair")
            axes.plot(
                values, [row + offset] * len(values), marker, color=color, markersize=4.5, markerfacecolor="none",
                markeredgewidth=0.9, alpha=0.8, label=group if row == 0 else None,
            )  # fmt: skip
        (apart if max(groups["dependent"]) < min(groups["independent"]) else alike).append(name)
    axes.set_yticks(range(len(undone)), names)
    axes.set(xlim=(-0.03, 1.03), ylim=(len(undone) - 0.5, -0.5), xlabel="residual of the best map, as a share")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    style.value_grid(axes, "x")
    figure.legend(loc="outside lower center", ncol=2, handletextpad=0.1)
    sentences = (("The groups overlap", alike), ("All dependent pairs lie below all others", apart))
    text = " ".join(f"{words}: {'; '.join(group)}." for words, group in sentences if group)
    return Figure(figure, f"{caption} {text}", f"Strip plots of residuals for dependent and independent pairs. {text}")
