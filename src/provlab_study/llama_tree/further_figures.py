"""The pictures of five further tests: all pairs by each, and the unseen rows of two models."""

import numpy as np
import pandas as pd

from provlab.plots import style
from provlab.plots.figure import Figure
from provlab.plots.style import styled

LEVEL = 0.01  # at which a single test rejects


@styled
def by_test(frame: pd.DataFrame, tests: list[str], *, disguised: bool) -> Figure:
    """Draw log10 p of all pairs, a row for each test: as the models stand and, if asked, in disguise.

    Parameters
    ----------
    frame
        Records of a study with the columns statistic, log10_p, dependent, disguised.
    tests
        Names of the rows, from the top.
    """
    figure = style.canvas(0.62 * len(tests) + 0.9)
    shown = (False, True) if disguised else (False,)
    (left, *_), *_ = drawn = figure.subplots(1, len(shown), sharey=True, squeeze=False)
    for axes, hidden in zip(drawn[0], shown, strict=True):
        axes.axvline(-np.log10(LEVEL), color=style.MUTED, linewidth=0.8)
        axes.set_xscale("symlog", linthresh=10)
        axes.set_xlim(-0.6, 3000)
        axes.set_title("second model in full disguise" if hidden else "as they stand", loc="left")
        axes.set_xlabel(r"$-\log_{10}\,p$")
        style.value_grid(axes, "x")
        for row, test in enumerate(tests):
            own = frame[(frame["statistic"] == test) & (frame["disguised"] == hidden) & frame["log10_p"].notna()]
            for dependent, color, marker, lane in (
                (True, style.DEPENDENT, "o", -0.16),
                (False, style.INDEPENDENT, "x", 0.16),
            ):
                values = -own.loc[own["dependent"].eq(dependent), "log10_p"].to_numpy()
                jitter = np.linspace(-0.1, 0.1, len(values)) if len(values) > 1 else np.zeros(len(values))
                axes.scatter(values, row + lane + jitter, s=14, color=color, marker=marker, linewidths=0.9)
    left.set_yticks(range(len(tests)), [style.symbol(name) for name in tests])
    left.invert_yaxis()
    counts = []
    for test in tests:
        for hidden in shown:
            rows = frame[(frame["statistic"] == test) & (frame["disguised"] == hidden)]
            related, others = (
                rows.loc[rows["dependent"].eq(is_), "log10_p"] <= np.log10(LEVEL) for is_ in (True, False)
            )
            where = "in disguise" if hidden else "as they stand"
            counts.append(
                f"{style.word(test)} {where}: {related.sum()} of {len(related)} related pairs below {LEVEL:g}, "
                f"{others.sum()} of {len(others)} independent ones"
            )
    caption = "Circles, related pairs, belong to the right of the grey line; crosses, independent pairs, to its left."
    return Figure(figure, caption, f"p-values of five tests. {'; '.join(counts)}.")


@styled
def unseen_rows(cosines: dict[str, np.ndarray]) -> Figure:
    """Draw the cosine of each unseen token's two rows, in one stream: of a related pair and of a stranger."""
    figure = style.canvas(2.2)
    axes = figure.add_subplot()
    bins = np.linspace(-1, 1, 61)
    for (name, values), color, hatch in zip(
        cosines.items(), (style.DEPENDENT, style.INDEPENDENT), ("", "////"), strict=False
    ):
        axes.hist(
            values, bins.tolist(), color=color, alpha=0.6, label=name, hatch=hatch, edgecolor="white", linewidth=0.3
        )
    axes.set(xlabel="cosine of a token's row with its own row in the other model", ylabel="unseen tokens")
    axes.legend(loc="upper left")
    medians = "; ".join(
        f"{name}: median {np.median(values):.2f}, {len(values)} tokens" for name, values in cosines.items()
    )
    return Figure(
        figure,
        f"A token that finds itself has a cosine near 1, and a stranger one near 0. {medians}.",
        f"Histogram. {medians}.",
    )
