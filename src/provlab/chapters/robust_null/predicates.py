"""Predicates about phi_MATCH between strangers, where no theorem makes its values p-values."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from provlab.inference import pvalues
from provlab.publishing.evidence import HOLDS, NOT_RUN, WITHIN_SPREAD, Bar, Evidence, Verdict, judge

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
    evidence: Evidence,
    measurement: str,
    texts: int,
    level: float,
    at_most: float,
    min_pairs: Mapping[str, int],
) -> Verdict:
    """At `level`, phi_MATCH rejects independent pairs at most `at_most` times too often, and no test finds more wrong.

    The measurement holds a `Uniformity` for each text, for bases and for the tree, per block and aggregated. The actual
    size is judged with its interval. The tests of uniformity compare with copies in which gate and up are relabelled
    independently, and are read together with Holm's correction, at the same level.
    """
    rows = evidence.records(measurement, Uniformity)
    bases = [row for row in rows if row.models == "bases"]
    if not bases:
        return Verdict(NOT_RUN, "", "no pair of bases was run")
    n_texts, fewest = len({row.text for row in rows}), min(row.n_pairs for row in bases)
    enough = min_pairs.get(evidence.profile, max(min_pairs.values()))
    finest = len(rows) / (1 + min(row.n_copies for row in rows))
    adjusted = pvalues.holm(np.log10([row.ks_p for row in rows]))
    rejected = [_named(row) for row, p in zip(rows, adjusted, strict=True) if p <= np.log10(level)]
    sizes = [(row.size[k], row.low[k], row.high[k], row) for row in rows for k in [row.level.index(level)]]
    size, low, high, worst = max(sizes, key=lambda row: row[0])
    bar = Bar(f"largest actual size at {level:g}", [size], at=at_most * level)
    ours = (
        f"actual size at {level:g} at most {size:.4f} [{low:.4f}, {high:.4f}] ({_named(worst)}); smallest p of "
        f"{len(rows)} tests of uniformity {min(row.ks_p for row in rows):.2g}, {10 ** adjusted.min():.2g} by Holm"
    )
    problems = [
        (n_texts < texts, f"only {n_texts} texts, fewer than {texts}"),
        (fewest < enough, f"only {fewest} pairs of bases, fewer than {enough}"),
        (finest > level, f"too few copies for any of {len(rows)} tests to reject at {level:g}"),
        (bool(rejected), f"not uniform: {', '.join(rejected)}"),
        (any(row[1] > bar.at for row in sizes), f"actual size {size:.4f} where {level:g} was promised"),
    ]
    why = f"no actual size at {level:g} is above {bar.at:g}, and none of {len(rows)} tests of uniformity rejects"
    verdict = replace(judge(ours, why, problems), margin=f"{bar.margin}, 95% interval {low:.4f} to {high:.4f}")
    near = [row for row in sizes if row[2] >= bar.at]
    if verdict.status == HOLDS and near:
        named = "; ".join(f"{_named(row)} [{low:.4f}, {high:.4f}]" for _, low, high, row in near)
        return replace(verdict, status=WITHIN_SPREAD, why=f"intervals of actual sizes reach {bar.at:g}: {named}")
    return verdict


def _named(row: Uniformity) -> str:
    return f"{row.text}: {row.models}, {PER[row.per]}"
