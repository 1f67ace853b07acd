"""Predicates about pairs of models of known lineage: found, or left alone, by a statistic."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from provlab.chapters.shared import calibration
from provlab.inference import pvalues
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge, log10_words


def separates(evidence: Evidence, statistic: str, log10_p: float, level: float, ks: float) -> Verdict:
    """Every dependent pair below `log10_p`, Holm at `level` rejects exactly these, the others uniform by KS.

    Uniform as relabelled copies of the whole table are: pairs that share a model depend on each other, and the law of
    independent ones is none for them. Where there are no such copies, uniformity is not judged.
    """
    dependent, independent, failed = evidence.of(statistic)
    if dependent.empty or independent.empty:
        return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
    adjusted = pvalues.holm(pd.concat([dependent, independent])["log10_p"].to_numpy(dtype=float))
    rejected = adjusted <= np.log10(level)
    exact = bool(rejected[: len(dependent)].all() and not rejected[len(dependent) :].any())
    found = int((dependent["log10_p"] < log10_p).sum())
    by_symmetry = evidence.experiment["measurements"].get("ks_by_symmetry", {}).get(statistic)
    problems = [
        (found < len(dependent), f"{len(dependent) - found} dependent pairs are above {log10_p:g}"),
        (not exact, f"Holm at {level} rejects {int(rejected.sum())} pairs, not exactly the dependent ones"),
        (failed > 0, f"{failed} pairs could not be compared"),
    ]
    if by_symmetry is None and not any(broken for broken, _ in problems):
        return Verdict(NOT_RUN, "", "whether the independent pairs are uniform was not tested by relabelling trees")
    p_uniform = by_symmetry["p"] if by_symmetry else math.nan
    ours = (
        f"{found} of {len(dependent)} below {log10_p:g}, largest {log10_words(dependent['log10_p'].max())}; "
        f"{len(independent)} independent, smallest {log10_words(independent['log10_p'].min())}, KS p = {p_uniform:.2g}"
    )
    problems.append((p_uniform <= ks, f"the independent pairs are not uniform (KS p = {p_uniform:.2g})"))
    naive = calibration.ks_uniform(independent["log10_p"]).p
    why = (
        f"Holm at {level} rejects exactly the dependent pairs; KS p of the independent ones is above {ks} (of all "
        f"{len(independent)} pairs at once, by permuting the hidden units of whole trees: pairs that share a model are "
        f"not independent, and taking them so gives {naive:.2g})"
    )
    return judge(ours, why, problems)


def permtest_at_minimum(evidence: Evidence, statistic: str, fisher_log10_p: float) -> Verdict:
    """Every dependent pair at p = 1/(T+1), and per block with Fisher below `fisher_log10_p`."""
    dependent, independent, failed = evidence.of(statistic)
    if dependent.empty or independent.empty:
        return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
    unit = evidence.store.get(dependent.iloc[0]["keys"][0])
    assert unit is not None
    n_permutations = unit["parameters"]["n_permutations"]
    minimum = -np.log10(n_permutations + 1)
    found = int((dependent["log10_p"] <= minimum + 1e-9).sum())
    by_block = max(detail["fisher_log10_p"] for detail in dependent["detail"])
    largest_p = 10 ** float(dependent["log10_p"].max())
    ours = (
        f"T = {n_permutations}: {found} of {len(dependent)} at p = {largest_p:.2g}; per block with Fisher at most "
        f"{log10_words(by_block)}; {len(independent)} independent from {10 ** independent['log10_p'].min():.2f} "
        f"to {10 ** independent['log10_p'].max():.2f}"
    )
    problems = [
        (found < len(dependent), f"{len(dependent) - found} dependent pairs are above the minimum"),
        (by_block >= fisher_log10_p, f"per block with Fisher the largest is {log10_words(by_block)}"),
        (failed > 0, f"{failed} pairs could not be compared"),
    ]
    return judge(ours, f"every dependent pair is closer than all of its {n_permutations} permuted copies", problems)


def does_not_separate(evidence: Evidence, statistic: str) -> Verdict:
    """Some dependent pair has a larger value than some independent pair."""
    dependent, independent, failed = evidence.of(statistic)
    if dependent.empty or independent.empty:
        return Verdict(NOT_RUN, "", "the models run have no pair of known dependence and independence")
    largest, smallest = dependent["value"].max(), independent["value"].min()
    above = int((dependent["value"] > smallest).sum())
    ours = (
        f"log JSD of a dependent pair up to {np.log(largest):.2f}, "
        f"of an independent pair down to {np.log(smallest):.2f}; "
        f"{above} of {len(dependent)} dependent pairs lie above the closest independent one"
    )
    problems = [
        (largest <= smallest, "every dependent pair is closer than every independent one"),
        (failed > 0, f"{failed} pairs could not be compared"),
    ]
    return judge(ours, "no threshold on the divergence tells the two groups apart", problems)


def siblings_found(evidence: Evidence, statistics: Sequence[str], log10_p: float) -> Verdict:
    """Every pair of siblings below `log10_p` by each statistic."""
    words, problems = [], []
    for statistic in statistics:
        dependent, _, _ = evidence.of(statistic)
        siblings = dependent[dependent["siblings"].astype(bool)] if len(dependent) else dependent
        if siblings.empty:
            return Verdict(NOT_RUN, "", "the models run hold no siblings")
        found = int((siblings["log10_p"] < log10_p).sum())
        words.append(
            f"{statistic}: {found} of {len(siblings)} sibling pairs, largest {log10_words(siblings['log10_p'].max())}"
        )
        problems.append((found < len(siblings), f"{statistic} misses {len(siblings) - found} sibling pairs"))
    return judge("; ".join(words), f"every sibling pair is below {log10_p:g}", problems)


def long_training_found(
    evidence: Evidence, measurement: str, statistics: Sequence[str], log10_p: float, share: float
) -> Verdict:
    """A child trained on for at least `share` of its base's tokens, and its child, both found against the base."""
    chain = evidence.experiment["measurements"].get(measurement)
    if not chain:
        return Verdict(NOT_RUN, "", "the models run hold no child that was trained on for so long")
    wanted = {frozenset((chain["base"], chain["child"])), frozenset((chain["base"], chain["grandchild"]))}
    words, problems = [], []
    for statistic in statistics:
        dependent, _, _ = evidence.of(statistic)
        both = dependent[[frozenset(pair) in wanted for pair in zip(dependent["a"], dependent["b"], strict=True)]]
        if len(both) < len(wanted):
            return Verdict(NOT_RUN, "", "the chain of base, child and grandchild was not compared")
        words.append(f"{statistic} largest {log10_words(both['log10_p'].max())}")
        problems.append((bool((both["log10_p"] >= log10_p).any()), f"{statistic} loses the chain"))
    if chain["share"] is not None:
        problems.append((chain["share"] < share, f"the child saw only {chain['share']:.1%} of its base's tokens"))
    seen = f" ({chain['share']:.1%} of the base's tokens)" if chain["share"] is not None else ""
    ours = f"{chain['child']}{seen} and {chain['grandchild']}: " + ", ".join(words)
    return judge(ours, f"both are below {log10_p:g} against {chain['base']}", problems)
