"""How well the key biases of six models still show their draw."""

from collections.abc import Mapping, Sequence

import numpy as np

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled
from provlab_study.public_cases.one_seed import Seeded


@styled
def fossils(seeded: Sequence[Seeded], others: Mapping[str, Sequence[float]], *, caption: str) -> Figure:
    """Draw a row a model: cosines of its key biases with the draws of all seeds that were tried.

    Parameters
    ----------
    others
        Atom -> cosines with the draws of the other seeds.
    """
    figure = style.canvas(0.33 * len(seeded) + 0.9)
    axes = figure.subplots()
    for i, row in enumerate(seeded):
        values = others[row.atom]
        axes.plot(values, np.full(len(values), i), "|", color=style.INDEPENDENT, markersize=6, alpha=0.5,
                  label="other seeds" if i == 0 else None)  # fmt: skip
        axes.plot(row.cosines, [i] * len(row.cosines), "o", color=style.DEPENDENT, markersize=5,
                  label=f"seed {row.seed}" if i == 0 else None)  # fmt: skip
    axes.set_yticks(range(len(seeded)), [row.atom for row in seeded])
    axes.set(xlabel="cosine of key biases with a replayed draw", xlim=(-0.35, 1.06), ylim=(len(seeded) - 0.5, -0.5))
    style.value_grid(axes, "x")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    words = "; ".join(
        f"{row.atom}: {', '.join(f'{value:.3f}' for value in row.cosines)} with seed {row.seed}, others at most "
        f"{max(others[row.atom]):.3f}"
        for row in seeded
    )
    return Figure(figure, caption, f"Cosines of key biases with replayed draws. {words}.")
