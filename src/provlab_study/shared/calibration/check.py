"""One check of a set of null p-values: uniform, not too small where decisions are made, independent between blocks.

Each question is a test of its own with an exact or slightly conservative p-value; the check is their union, with the
level shared among them by Holm's method. So p-values that are what they should be are flagged with a probability of
at most the level, however many questions were asked.
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from provlab.inference import pvalues
from provlab_study.shared.calibration.bands import checked, ks_uniform, size_interval, uniform_on_grid

#: levels at which the share of p-values is looked at
SIZES = (0.05, 0.01, 0.001)
#: level of a test that too many p-values are small
TAIL = 0.01
#: share of p-values above 1/2 from which on a test is dead, where a half is due
DEAD = 0.9


@dataclass(frozen=True)
class Size:
    """How often p-values fell up to a level at which one might decide.

    Attributes
    ----------
    level
        The nominal level.
    expected
        What an exact p-value gives there: the level, or the last step of its grid up to the level.
    k, n
        Number of p-values up to the level, and of all.
    low, high
        Exact (Clopper-Pearson) 95% interval for the rate behind k of n.
    log10_p
        Probability of k or more of n at the rate `expected`: small means too many small p-values.
    """

    level: float
    expected: float
    k: int
    n: int
    low: float
    high: float
    log10_p: float

    @property
    def share(self) -> float:
        """Observed rate, k / n."""
        return self.k / self.n


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """The answers of `check`.

    Attributes
    ----------
    n, n_blocks
        Pairs of models, and p-values of each.
    ks
        p-value of the test of uniformity: Kolmogorov-Smirnov, or the exact test on the grid of PERMTEST.
    sizes
        At each level asked for, over all blocks.
    fisher_ks
        The test of uniformity of Fisher's aggregate over blocks; None with one block.
    correlation
        Largest absolute correlation between p-values of two blocks; None with one block.
    tests
        log10 p of every question, by name, not adjusted.
    reasons
        Questions whose p-value is below the level after Holm's adjustment, in words.
    """

    n: int
    n_blocks: int
    ks: float
    sizes: tuple[Size, ...]
    fisher_ks: float | None
    correlation: float | None
    tests: dict[str, float]
    reasons: tuple[str, ...]

    @property
    def flagged(self) -> bool:
        """Whether some question's p-value is below the level after Holm's adjustment."""
        return bool(self.reasons)


def check(log10_p: ArrayLike, *, n_permutations: int | None = None, level: float = 0.01) -> CalibrationReport:
    """Check p-values of pairs that are known to be independent.

    Parameters
    ----------
    log10_p
        Shape (n,), or (n, L) with one p-value for each of L blocks: log10 p of n pairs of models, no model in two
        pairs. Minus infinity, a p-value of zero, counts as a fault.
    n_permutations
        T, for p-values of PERMTEST, multiples of 1/(T + 1): they are compared with the uniform on that grid. None for
        continuous p-values.
    level
        Probability, at most, that valid and independent p-values are flagged.

    Raises
    ------
    InputError
        If there is no pair, a value is NaN or above 0, or a p-value is off the grid.

    Notes
    -----
    Questions, each once and, with blocks, once more of Fisher's aggregate: uniform (two-sided)? At each of `SIZES`,
    too many (one-sided)? With blocks: is any correlation between two of them too large (each with Student's t,
    Bonferroni over pairs of blocks)? And: is any p-value zero?
    Too few small p-values at a level is no fault of validity; where it is gross, the test of uniformity sees it.
    """
    values = checked(log10_p)
    table = values.reshape(len(values), -1)
    n, n_blocks = table.shape
    zeros = int(np.isneginf(table).sum())
    finite = np.maximum(table, _SMALLEST)
    uniform = uniformity(table[~np.isneginf(table)], n_permutations)
    pooled_sizes = sizes(finite, n_permutations)
    # each question: log10 p, and the reason if it is too small
    questions = {
        "zero": (_SMALLEST if zeros else 0.0, f"{zeros} p-values are 0, which no valid p-value is"),
        "uniform": (_log10(uniform), f"not uniform ({pvalues.in_words(uniform)})"),
    }
    questions |= {
        f"size {s.level:g}": (s.log10_p, f"too many p up to {s.level:g}: {s.k} of {s.n:,}") for s in pooled_sizes
    }
    correlation = fisher_ks = None
    if n_blocks > 1 and n_permutations is None:  # the sum of logarithms on a grid is not quite chi-square
        aggregate = pvalues.fisher(finite, axis=1)
        fisher_ks = ks_uniform(aggregate).p
        words = f"Fisher's aggregate is not uniform ({pvalues.in_words(fisher_ks)})"
        questions["Fisher uniform"] = (_log10(fisher_ks), words)
        questions |= {
            f"Fisher size {s.level:g}": (
                s.log10_p,
                f"too many of Fisher's aggregates up to {s.level:g}: {s.k} of {s.n:,}",
            )
            for s in sizes(aggregate)
        }
    if n_blocks > 1 and n >= 3:
        correlation, log10_p_largest = _between_blocks(10.0**finite)
        questions["blocks"] = (log10_p_largest, f"blocks are correlated (up to {correlation:.2f})")
    tests = {name: value for name, (value, _) in questions.items()}
    adjusted = zip(questions.values(), pvalues.holm(list(tests.values())), strict=True)
    reasons = tuple(words for (_, words), value in adjusted if value <= math.log10(level))
    return CalibrationReport(n, n_blocks, uniform, pooled_sizes, fisher_ks, correlation, tests, reasons)


def sizes(
    log10_p: ArrayLike, n_permutations: int | None = None, groups: Sequence[Hashable] | None = None
) -> tuple[Size, ...]:
    """Count small p-values at each of `SIZES`, and compare the counts with the level.

    Parameters
    ----------
    log10_p
        Any shape: log10 p of independent tests.
    n_permutations
        T, for p-values of PERMTEST; levels that none of them can reach are left out.
    groups
        One for each p-value, where tests of one group may repeat each other: the count is then compared with that of
        groups whose tests are small all together or not at all, which has the heaviest tail. None: all independent.
    """
    values, steps = np.asarray(log10_p), (n_permutations or 0) + 1
    rows = []
    for level in SIZES:
        expected = level if n_permutations is None else math.floor(level * steps + 1e-9) / steps
        if expected > 0.0:
            k = int((values <= math.log10(level) + 1e-12).sum())
            log10_tail = float(stats.binom.logsf(k - 1, values.size, expected)) / pvalues.LN10
            if groups is not None:
                log10_tail = _log10(_tail_of_groups(k, list(Counter(groups).values()), expected))
            low, high = size_interval(k, values.size)
            rows.append(Size(level, expected, k, values.size, low, high, max(log10_tail, _SMALLEST)))
    return tuple(rows)


def _tail_of_groups(k: int, numbers: Sequence[int], level: float) -> float:
    """Probability that groups of these numbers of tests, each small as a whole with this probability, count k."""
    law = np.ones(1)
    for number in numbers:
        law = np.convolve(law, [1.0 - level, *[0.0] * (number - 1), level])
    return min(float(law[k:].sum()), 1.0)


def too_many_small(
    what: str,
    log10_p: ArrayLike,
    *,
    n_permutations: int | None = None,
    groups: Sequence[Hashable] | None = None,
    n_sets: int = 1,
) -> list[tuple[bool, str]]:
    """Say of p-values that ought to be uniform whether too many are at or below 0.01, or 0.001.

    Kolmogorov and Smirnov's distance hardly sees a few extreme values, and Holm's procedure none that are many and not
    extreme; the count sees both. Each of the two levels, of each of `n_sets` sets that are judged together, is tested
    at `TAIL` by the binomial law, so p-values that are uniform are flagged in at most 2% of cases. Sizes of 0.02 where
    0.01 was promised are flagged in 92% of cases with 2,000 p-values, and in 62% with 1,000.

    Parameters
    ----------
    what
        Whose p-values, in words.
    log10_p, n_permutations, groups
        As for `sizes`.
    n_sets
        Number of such sets.

    Returns
    -------
    list
        Problems for `publishing.evidence.judge`.
    """
    if not np.size(log10_p):
        return []
    rows = [row for row in sizes(log10_p, n_permutations, groups) if row.level < max(SIZES)]
    return [
        (
            row.log10_p <= math.log10(TAIL / n_sets),
            f"{row.k} of {row.n} {what} are at p = {row.level:g} or below ({pvalues.in_words(10.0**row.log10_p)})",
        )
        for row in rows
    ]


def too_few_copies(copies: int, n_tests: int, level: float, parameter: str) -> str:
    """Say that so few copies let none of so many tests reject at a level, after Holm's correction; empty where they do.

    With ``n`` copies no p-value is below ``1 / (n + 1)``. Too few leave a claim open, and do not refute it: `parameter`
    sets how many are drawn.
    """
    needed = math.ceil(round(n_tests / level, 6)) - 1
    told = f"{copies} joint copies let none of {n_tests} tests reject at {level:g}: it takes {needed} ({parameter})"
    return told if copies < needed else ""


def too_few_small(what: str, log10_p: ArrayLike, *, groups: Sequence[Hashable] | None = None) -> list[tuple[bool, str]]:
    """Say of p-values that ought to be uniform whether hardly any is at or below 1/2: the test is dead.

    A test that always answers 1 leaves every stranger alone and shows nothing by it. Careful p-values are larger than
    uniform ones, so that only fewer than one in ten, where a half is due, and beyond chance, is called dead.

    Parameters
    ----------
    what
        Whose p-values, in words.
    log10_p, groups
        As for `sizes`.

    Returns
    -------
    list
        Problems for `publishing.evidence.judge`; without a p-value it is one, since nothing was left alone.
    """
    values = np.ravel(log10_p)
    if not values.size:
        return [(True, f"no p-value of {what}")]
    large = int((values > math.log10(0.5)).sum())
    numbers = [1] * values.size if groups is None else list(Counter(groups).values())
    chance = _tail_of_groups(large, numbers, 0.5)
    return [
        (
            large > DEAD * values.size and chance <= TAIL,
            f"{large} of {values.size} {what} are above p = 0.5 ({pvalues.in_words(chance)}): the test is dead there",
        )
    ]


_SMALLEST = -1e9  # stands for the logarithm of zero


def uniformity(log10_p: NDArray[np.float64], n_permutations: int | None) -> float:
    """Test that p-values ``(n,)`` are uniform, by Kolmogorov and Smirnov, or PERMTEST's on the grid of its T: its p."""
    if log10_p.size == 0:
        return 0.0
    if n_permutations is None:
        return ks_uniform(log10_p).p
    return uniform_on_grid(10.0**log10_p, n_permutations)


def _between_blocks(p: NDArray[np.float64]) -> tuple[float, float]:
    """Largest absolute correlation between two columns, and log10 of its p-value over all pairs of columns.

    A column that is the same for every pair has no correlation, and is left out.
    """
    p = p[:, (p != p[0]).any(axis=0)]
    n, n_blocks = p.shape
    if n_blocks < 2:
        return 0.0, 0.0
    correlations = np.asarray(np.corrcoef(p.T)).reshape(n_blocks, n_blocks)
    off = correlations[np.triu_indices(n_blocks, 1)]
    largest = float(min(np.abs(off).max(), 1.0))
    if largest >= 1.0 - 1e-12:
        return largest, _SMALLEST
    return largest, min(math.log10(off.size) + pvalues.log10_p_correlation(largest, n), 0.0)


def _log10(p: float) -> float:
    return math.log10(p) if p > 0.0 else _SMALLEST
