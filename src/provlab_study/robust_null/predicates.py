"""Predicates about phi_MATCH between strangers, where no theorem makes its values p-values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from provlab.inference import pvalues
from provlab_study.publishing.evidence import FAILS, HOLDS, NOT_RUN, WITHIN_SPREAD, ClaimStatus, judge, read
from provlab_study.shared.calibration import too_few_copies

PER = {"block": "per block", "pair": "aggregated"}


@dataclass(frozen=True)
class Uniformity:
    """p-values of the independent pairs of one collection on one text: claim I17 is judged from these.

    Attributes
    ----------
    text, models, per
        On which text, of which collection, and p-values of each "block" or of each "pair".
    n_pairs
        Pairs of models.
    smallest
        The smallest p-value, log10.
    ks_p, n_copies
        p-value of the Kolmogorov-Smirnov distance from the uniform among so many joint copies, in which gate and up
        are relabelled independently.
    level, size, low, high
        Nominal levels; the actual size at each, and its 95% interval.
    """

    text: str
    models: str
    per: str
    n_pairs: int
    smallest: float
    ks_p: float
    n_copies: int
    level: list[float]
    size: list[float]
    low: list[float]
    high: list[float]


def behaves_like_pvalue(
    uniformity: Sequence[Mapping[str, Any]],
    allowance_power: Sequence[Mapping[str, Any]],
    *,
    texts: int,
    level: float,
    at_most: float,
    at_least: float,
    min_pairs: int,
) -> ClaimStatus:
    """At no level phi_MATCH rejects independent pairs over `at_most` times too often, and no test of uniformity does.

    Nor is it dead, which rejects no independent pair either: at the largest level no interval of an actual size lies
    below `at_least` times the level, the smallest p-value of a collection is as small as chance has it, and no smaller,
    and of the kin in `allowance_power` the first, a fine-tune without disguise or noise, is found at `level`.

    There is a `Uniformity` for each text, for bases and for the tree, per block and aggregated. The actual
    size at each of its levels is judged with its interval: one that lies above the bar fails, and one that reaches
    the bar is within its spread. The estimate alone does not decide, since of so many sizes at 0.001 some are
    above twice the level by chance. Intervals above the level itself are named. The tests of uniformity compare with
    copies in which gate and up are relabelled independently, and are read together with Holm's correction, at `level`.
    With fewer copies than any of them needs to reject, what does not fail is left open.
    """
    rows = read(Uniformity, uniformity)
    bases = [row for row in rows if row.models == "bases"]
    if not bases:
        return ClaimStatus(NOT_RUN, "", "no pair of bases was run")
    kin = [row for row in allowance_power if row["statistic"] == "phi_match"]
    if not kin:
        return ClaimStatus(NOT_RUN, "", "no related pair was run: a test that finds nothing is no test")
    n_texts, fewest = len({row.text for row in rows}), min(row.n_pairs for row in bases)
    few = too_few_copies(min(row.n_copies for row in rows), len(rows), level, "n_copies")
    adjusted = pvalues.holm(np.log10([row.ks_p for row in rows]))
    rejected = [_named(row) for row, p in zip(rows, adjusted, strict=True) if p <= np.log10(level)]
    columns = ["place", "level", "actual", "low", "high"]
    sizes = pd.DataFrame(
        [(_named(row), *values) for row in rows for values in zip(row.level, row.size, row.low, row.high, strict=True)],
        columns=columns,
    )
    sizes["times"] = sizes["actual"] / sizes["level"]
    largest = [_size(s) for s in sizes.loc[sizes.groupby("level")["times"].idxmax()].itertuples()]
    above = [_size(s) for s in sizes[sizes["low"] > sizes["level"]].itertuples()]
    near = [_size(s) for s in sizes[sizes["high"] >= at_most * sizes["level"]].itertuples()]
    too_large = [_size(s) for s in sizes[sizes["low"] > at_most * sizes["level"]].itertuples()]
    largest_level = sizes["level"].max()
    idle = [
        _size(s)
        for s in sizes[(sizes["level"] == largest_level) & (sizes["high"] < at_least * largest_level)].itertuples()
    ]
    odd = [
        f"{_named(row)} (log10 p {row.smallest:.2f} of {row.n_pairs} pairs)"
        for row in rows
        if row.n_pairs * np.log1p(-min(10.0**row.smallest, 1 - 1e-12)) < np.log(level / len(rows))  # all so large
        or (row.per == "pair" and row.smallest + np.log10(row.n_pairs * len(rows)) <= np.log10(level))
    ]
    ours = (
        f"largest actual sizes: {'; '.join(largest)}; the interval is above the level itself in {len(above)} of "
        f"{len(sizes)} cases{': ' * bool(above)}{'; '.join(above)}; smallest p of {len(rows)} tests of uniformity "
        f"{min(row.ks_p for row in rows):.2g}, {10 ** adjusted.min():.2g} by Holm"
    )
    problems = [
        (n_texts < texts, f"only {n_texts} texts, fewer than {texts}"),
        (bool(rejected), f"not uniform: {', '.join(rejected)}"),
        (bool(too_large), f"actual size over {at_most:g} times its level: {'; '.join(too_large)}"),
        (bool(idle), f"actual size below {at_least:g} times its level, as of a dead test: {'; '.join(idle)}"),
        (bool(odd), f"the smallest p-value is none that chance gives: {'; '.join(odd)}"),
        (
            not kin[0]["paper"] <= np.log10(level),
            f"a related pair, {kin[0]['pair']}, is not found: log10 p {kin[0]['paper']:.1f}, {kin[0]['agree']} of "
            f"{kin[0]['n']} units agree",
        ),
    ]
    why = f"no actual size is above {at_most:g} times its level, and none of {len(rows)} tests of uniformity rejects"
    worst = _size(sizes.loc[sizes["times"].idxmax()])
    verdict = replace(judge(ours, why, problems), margin=f"largest for its level: {worst}; bar {at_most:g} times")
    if few and verdict.status != FAILS:
        return ClaimStatus(NOT_RUN, "", few)
    if verdict.status == HOLDS and fewest < min_pairs:
        return ClaimStatus(NOT_RUN, "", f"only {fewest} pairs of bases, fewer than {min_pairs}")
    if verdict.status == HOLDS and near:
        why = f"intervals of actual sizes reach {at_most:g} times the level: {'; '.join(near)}"
        return replace(verdict, status=WITHIN_SPREAD, why=why)
    return verdict


def _size(row: Any) -> str:
    return f"{row.actual:.4f} [{row.low:.4f}, {row.high:.4f}] at {row.level:g} ({row.place})"


def _named(row: Uniformity) -> str:
    return f"{row.text}: {row.models}, {PER[row.per]}"
