"""Predicates about an adversary: what its transformations preserve, hide, and fail to hide."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from provlab.chapters.evasion.measure import Invariant, PreservedRecord
from provlab.chapters.shared import calibration
from provlab.chapters.shared.groups import Groups
from provlab.inference import pvalues
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge, log10_words


def outputs_preserved(evidence: Evidence, measurement: str, tolerance: float, architectures: int) -> Verdict:
    """Each transformation of each architecture leaves every logit within `tolerance`, or is refused with a reason."""
    rows = evidence.records(measurement, PreservedRecord)
    tried = [row.difference for row in rows if row.difference is not None]
    refused = [row for row in rows if row.difference is None]
    named = {row.architecture for row in rows}
    largest = max(tried, default=np.inf)
    ours = (
        f"{len(named)} architectures: largest difference of a logit {largest:.1e} over {len(tried)} transformed "
        f"models; {len(refused)} transformations do not exist there"
    )
    problems = [
        (len(named) < architectures, f"only {len(named)} architectures, fewer than {architectures}"),
        (not largest < tolerance, f"a logit differs by {largest:.1e}"),
        (not all(row.refused for row in refused), "a transformation is missing without a reason"),
    ]
    return judge(
        ours, f"no logit differs by {tolerance:g} or more in float64, and each refusal gives its reason", problems
    )


def evaded_but_found(
    evidence: Evidence,
    evaded: Sequence[str],
    robust: str,
    measurement: str,
    negative: str,
    log10_p: float,
    level: float,
    ks: float,
) -> Verdict:
    """`robust` finds each dependent pair and no other; the p-values of `evaded` are uniform, whatever the pair.

    Uniformity is judged on the pairs that the measurement names, one for each disguised model: what hides a model
    is drawn once for it, so that pairs with one disguised model repeat each other. The measurement `negative`, what
    `robust` finds where the constants of T6 are negative, is reported and not judged: the paper leaves the sign open.
    """
    dependent, independent, failed = evidence.of(robust)
    if dependent.empty or independent.empty:
        return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
    values = np.concatenate([dependent["log10_p"], independent["log10_p"]]).astype(float)
    rejected = pvalues.holm(values) <= np.log10(level)
    n_found = int((dependent["log10_p"] < log10_p).sum())
    words = [
        f"{robust}: {n_found} of {len(dependent)} below {log10_p:g}, largest {log10_words(dependent['log10_p'].max())}"
    ]
    problems = [
        (n_found < len(dependent), f"{robust} has {len(dependent) - n_found} dependent pairs above {log10_p:g}"),
        (not rejected[: len(dependent)].all(), f"Holm at {level} leaves a dependent pair by {robust}"),
        (bool(rejected[len(dependent) :].any()), f"Holm at {level} rejects an independent pair by {robust}"),
        (failed > 0, f"{failed} pairs could not be compared"),
    ]
    chosen = {frozenset(pair) for pair in evidence.measurement(measurement)}
    for statistic in evaded:
        rows = evidence.pairs[evidence.pairs["statistic"] == statistic]
        blocks = [
            value
            for a, b, blocks in zip(rows["a"], rows["b"], rows["blocks"], strict=True)
            if frozenset((a, b)) in chosen
            for value in blocks
        ]
        hidden = rows[rows["dependent"].eq(True)]["log10_p"]
        if not blocks:
            return Verdict(NOT_RUN, "", f"{statistic} was not run on the disguised pairs")
        uniform = calibration.ks_uniform(blocks)
        words.append(
            f"{statistic}: smallest of a dependent pair {log10_words(hidden.min())}, "
            f"KS {pvalues.in_words(uniform.p)} (n = {uniform.n})"
        )
        problems.append(
            (uniform.p <= ks, f"{statistic} is not uniform on disguised pairs (KS {pvalues.in_words(uniform.p)})")
        )
    why = f"Holm at {level} rejects exactly the dependent pairs by {robust}; the others find no pair related"
    turned = np.array(evidence.measurement(negative))
    words.append(
        f"with negative constants in T6 {robust} finds {int((turned < np.log10(level)).sum())} of {len(turned)}"
    )
    return judge("; ".join(words), why, problems)


def invariants_break(evidence: Evidence, measurement: str) -> Verdict:
    """Before the transformation some threshold on each cosine separates the groups; after it none does."""
    words, problems = [], []
    invariants = {name: Invariant(**groups) for name, groups in evidence.measurement(measurement).items()}
    if not invariants:
        return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
    for name, found in invariants.items():
        plain, hidden, independent = map(np.array, (found.dependent, found.disguised, found.independent))
        words.append(
            f"{name}: dependent from {plain.min():.2f}, disguised up to {hidden.max():.2f}, "
            f"independent up to {independent.max():.2f}"
        )
        problems += [
            (plain.min() <= independent.max(), f"{name} does not separate even undisguised pairs"),
            (hidden.min() > independent.max(), f"{name} still separates the disguised pairs"),
        ]
    return judge(
        "; ".join(words), "each separates the groups before the norms are replaced, and none afterwards", problems
    )


def overlaps(evidence: Evidence, measurement: str, exception: str) -> Verdict:
    """No threshold on any of the measured values separates the groups; an `exception` is reported and not judged."""
    words, problems = [], []
    for name, groups in evidence.measurement(measurement).items():
        dependent, independent = _arrays(groups)
        if not (dependent.size and independent.size):
            return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
        words.append(f"{name}: dependent {_range(dependent)}, independent {_range(independent)}")
        problems.append((_apart(dependent, independent), f"{name} separates the groups"))
    for name, groups in evidence.measurement(exception).items():
        dependent, independent = _arrays(groups)
        told = "separates the groups" if _apart(dependent, independent) else "does not separate the groups"
        words.append(f"{name} (not judged) {told}: dependent {_range(dependent)}, independent {_range(independent)}")
    return judge("; ".join(words), "the residuals of the best map of both groups overlap", problems)


def separates_without_null(evidence: Evidence, measurement: str, ks: float) -> Verdict:
    """A threshold separates the groups, and the values of independent pairs are no p-values."""
    dependent, independent = _arrays(evidence.measurement(measurement))
    if not (dependent.size and independent.size):
        return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
    uniform = calibration.ks_uniform(np.log10(np.clip(independent, 1e-300, 1.0)))
    ours = (
        f"{len(dependent)} dependent {_range(dependent)}, {len(independent)} independent {_range(independent)}; "
        f"read as p-values, KS {pvalues.in_words(uniform.p)}"
    )
    problems = [
        (not _apart(dependent, independent), "the groups overlap"),
        (uniform.p > ks, "its values under independence could pass for p-values"),
    ]
    return judge(ours, "the groups do not overlap, and values of independent pairs are far from uniform", problems)


def _arrays(groups: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Values of dependent and of independent pairs."""
    found = Groups(**groups)
    return np.array(found.dependent), np.array(found.independent)


def _apart(first: np.ndarray, second: np.ndarray) -> bool:
    return bool(first.max() < second.min() or second.max() < first.min())


def _range(values: np.ndarray) -> str:
    return f"{values.min():.2f} to {values.max():.2f}"
