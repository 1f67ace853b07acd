"""What the page on exchangeability measures: PERMTEST on networks trained in the run."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from provlab.chapters.shared import calibration
from provlab.chapters.shared.example_one import PairTests
from provlab.inference.permtest import p_value
from provlab.plots import format_interval

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ExampleOne:
    """PERMTEST on the networks of Example 1: what claim I1 is judged from.

    Attributes
    ----------
    independent, dependent
        p-values of independent pairs, and of fine-tunes.
    n_permutations
        T.
    """

    independent: ArrayLike
    dependent: ArrayLike
    n_permutations: int


def shown_levels(n_permutations: int) -> Floats:
    """Levels k / (T + 1), few enough to be told apart in a picture."""
    grid = np.arange(1, n_permutations + 1) / (n_permutations + 1)
    return np.asarray(grid[np.unique(np.linspace(0, n_permutations - 1, 25).astype(int))])


def excess(p: Floats, levels: Floats) -> pd.DataFrame:
    """Share of p-values up to each level minus the level (x, y, low, high); the intervals hold together at 95%."""
    counts = (p[:, None] <= levels + 1e-12).sum(axis=0)
    intervals = [calibration.size_interval(int(k), p.size, 1 - 0.05 / len(levels)) for k in counts]
    values = np.column_stack([counts / p.size, np.array(intervals)]) - levels[:, None]
    return pd.DataFrame(values, columns=["y", "low", "high"]).assign(x=levels)


def n_outside(measured: pd.DataFrame) -> int:
    """Count the levels whose interval does not hold zero."""
    return int(((measured["low"] > 0) | (measured["high"] < 0)).sum())


def beside_the_theorem(null: PairTests, tuned: PairTests, n_permutations: int) -> pd.DataFrame:
    """What Theorem 1 says of PERMTEST, beside what these pairs show."""
    check = calibration.discrete_uniform_excess(null.p, n_permutations)
    n = len(null.p)
    small = int((null.p <= 0.05 + 1e-12).sum())
    expected = np.floor(0.05 * (n_permutations + 1) + 1e-9) / (n_permutations + 1)
    share = format_interval(small / n, *calibration.size_interval(small, n))
    return pd.DataFrame(
        {
            "paper (Theorem 1)": [f"{expected:.2f}", "uniform", f"{1 / (n_permutations + 1):.2f}"],
            "ours": [
                f"{share}, n = {n:,}",
                f"as far from uniform by chance: p = {check.p_two_sided:.2f}",
                f"{tuned.p.max():.2f} at most, n = {len(tuned.p)}",
            ],
        },
        index=["independent: share with p ≤ 0.05", "independent: distribution on the grid", "fine-tunes: p"],
    )


@dataclass(frozen=True, eq=False)
class AsPrinted:
    """The same pairs by PERMTEST and by the paper's Algorithm 1 as printed, with T = `few`.

    Attributes
    ----------
    few
        T.
    correct, printed
        p-values of the independent pairs, and 1 - q of the algorithm as printed.
    opposite
        q of the fine-tunes.
    """

    few: int
    correct: Floats
    printed: Floats
    opposite: Floats

    def __str__(self) -> str:
        """Return how often each rejects at its smallest level."""
        step = 1 / (self.few + 1)
        small = [np.mean(p <= 1.01 * step) for p in (self.correct, self.printed)]  # room for rounding
        return (
            f"independent pairs up to {step:.2f}, PERMTEST:   {small[0]:.3f}\n"
            f"independent pairs up to {step:.2f}, as printed: {small[1]:.3f}\n"
            f"independent pairs at exactly zero, as printed: {(self.printed == 0).sum()}\n"
            f"fine-tunes, with q as the p-value: all at {self.opposite.min():.2f} or above"
        )


def as_printed(null: PairTests, tuned: PairTests, few: int) -> AsPrinted:
    """Read the first `few` copies of each pair by PERMTEST and by the algorithm as printed."""
    copies = null.permuted[:, :few]
    return AsPrinted(
        few,
        np.asarray(p_value(null.observed, copies)),
        (copies > null.observed[:, None]).sum(axis=1) / (few + 1),
        np.asarray(p_value(-tuned.observed, -tuned.permuted[:, :few])),
    )
