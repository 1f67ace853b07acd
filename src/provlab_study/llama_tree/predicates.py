"""Predicates about pairs of models of known lineage: found, or left alone, by a statistic."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from provlab.inference import pvalues
from provlab_study.publishing.evidence import HOLDS, NOT_RUN, Bar, ClaimStatus, judge, known, log10_words
from provlab_study.shared import calibration
from provlab_study.shared.groups import area_under_curve, pairs_of_trees

NO_GROUPS = "the models run have no pair of known dependence and independence"
MODELS = 10  # of so many models one may be such that a statistic can compare it with no other


def left_out(pairs: pd.DataFrame, statistic: str) -> tuple[list[str], list[tuple[bool, str]]]:
    """Models that a statistic could compare with no other, and as problems all other pairs without a value.

    A test that is valid for any pair says nothing of those it was not run on. So a model that could not be read for a
    statistic at all, as one whose tokenizer is code, is named and the rest is judged: where it has no relative among
    the models, and at most one model in `MODELS` is such a one. A single pair that failed is a fault, and so is a
    dependent one: the claim is about each of these.
    """
    rows = pairs[pairs["statistic"] == statistic]
    failed = rows[rows["error"].notna()]
    models = set(rows["a"]) | set(rows["b"])
    ran = set(rows.loc[rows["error"].isna(), ["a", "b"]].to_numpy().ravel())
    without = sorted(models - ran) if len(models - ran) * MODELS <= len(models) else []
    inside = failed["a"].isin(without) | failed["b"].isin(without)
    lost = int((~inside | ~failed["dependent"].eq(False)).sum())
    return without, [(lost > 0, f"{lost} pairs could not be compared by {statistic}")]


def not_compared(models: Sequence[str], statistic: str) -> str:
    """Say which models a statistic was not run on; empty if there is none."""
    return f"; {', '.join(models)} could be compared with no other by {statistic}" if models else ""


def others_left_alone(pairs: pd.DataFrame, statistic: str, level: float) -> list[tuple[bool, str]]:
    """As problems: independent pairs that Holm rejects, or too many of them with small p, and pairs without a value.

    Pairs of the same two trees repeat each other, so they count as one group (`groups.pairs_of_trees`). `left_out` says
    which pairs may lack a value.
    """
    dependent, independent, _ = known(pairs, statistic)
    if independent.empty:
        return [(True, f"no independent pair was compared by {statistic}")]
    every = pvalues.holm([*dependent["log10_p"], *independent["log10_p"]])
    n_rejected = int((every[len(dependent) :] <= np.log10(level)).sum())
    trees = pairs_of_trees(independent, dependent)
    return [
        (
            n_rejected > 0,
            f"Holm at {level} rejects {n_rejected} of {len(independent)} independent pairs by {statistic}",
        ),
        *left_out(pairs, statistic)[1],
        *calibration.too_many_small(f"independent pairs by {statistic}", independent["log10_p"], groups=trees),
    ]


def separates(
    pairs: pd.DataFrame, ks_by_symmetry: Mapping[str, Any], *, statistic: str, log10_p: float, level: float, ks: float
) -> ClaimStatus:
    """Every dependent pair below `log10_p`, Holm at `level` rejects exactly these, the others uniform to their tail.

    Uniformity is judged by relabelled copies of the whole table: pairs that share a model depend on each other, so the
    law of independent pairs does not apply. Where there are no such copies, uniformity is not judged.
    """
    dependent, independent, _ = known(pairs, statistic)
    if dependent.empty or independent.empty:
        return ClaimStatus(NOT_RUN, "", NO_GROUPS)
    n_found = int((dependent["log10_p"] < log10_p).sum())
    by_symmetry = ks_by_symmetry.get(statistic)
    bars = [Bar(f"largest {statistic} of a dependent pair", [dependent["log10_p"].max()], log10_p)]
    problems = [
        *others_left_alone(pairs, statistic, level),
    ]
    ours = (
        f"{n_found} of {len(dependent)} below {log10_p:g}, largest {log10_words(dependent['log10_p'].max())}; "
        f"{len(independent)} independent, smallest {log10_words(independent['log10_p'].min())}"
        f"{not_compared(left_out(pairs, statistic)[0], statistic)}"
    )
    if by_symmetry is None:
        without = judge(ours, "", problems, bars)
        untested = "whether the independent pairs are uniform was not tested by relabelling trees"
        return ClaimStatus(NOT_RUN, "", untested) if without.status == HOLDS else without
    naive = calibration.ks_uniform(independent["log10_p"]).p
    ours += f", KS p = {by_symmetry['p']:.2g} ({naive:.2g} were they independent of each other)"
    bars.append(Bar("KS p of the independent pairs", [by_symmetry["p"]], ks, above=True))
    why = (
        f"Holm at {level} rejects exactly the dependent pairs; KS p of the independent ones is above {ks}, all "
        f"{len(independent)} pairs at once, by permuting the hidden units of whole trees"
    )
    return judge(ours, why, problems, bars)


def permtest_at_minimum(
    pairs: pd.DataFrame,
    chain_of_trees: Sequence[tuple[str, str]],
    n_permutations: int,
    *,
    whole: str,
    by_block: str,
    share_of_floor: float,
    level: float,
) -> ClaimStatus:
    """Every dependent pair at p = 1/(T+1) and per block near its floor; independent ones no more than chance.

    Near is `share_of_floor` of the smallest log10 p that any of these pairs could have: footnote 3's bound of 1e-30 is
    that of 99 copies in each of 32 blocks, 10^-30.6, and fewer blocks have another.

    `whole` permutes the whole model, `by_block` each MLP on its own, so that Fisher's method may combine its blocks.
    The size is judged by the pairs `chain_of_trees`, one model of each tree with that of the next, whose
    p-values are independent: how many are at or below `level`, and whether the p-values of their blocks are uniform.
    All independent pairs together must not have too many small p-values either, with pairs of the same two trees as one
    group.
    """
    dependent, independent, _ = known(pairs, whole)
    dependent_by_block, independent_by_block, _ = known(pairs, by_block)
    chain = {frozenset(pair) for pair in chain_of_trees}
    apart, apart_by_block = (
        rows[[frozenset(pair) in chain for pair in zip(rows["a"], rows["b"], strict=True)]]
        for rows in (independent, independent_by_block)
    )
    if dependent.empty or apart.empty or dependent_by_block.empty or apart_by_block.empty:
        return ClaimStatus(NOT_RUN, "", NO_GROUPS)
    trees = pairs_of_trees(independent, dependent)
    minimum = -np.log10(n_permutations + 1)
    n_found = int((dependent["log10_p"] <= minimum + 1e-9).sum())
    weakest = float(dependent_by_block["log10_p"].max())
    floor = float(pairs.loc[pairs["statistic"] == by_block, "floor"].min())
    accused = int((apart["log10_p"] <= np.log10(level) + 1e-9).sum())
    blocks = [value for values in apart_by_block["blocks"] for value in values]
    uniform = calibration.ks_uniform(blocks)
    largest_p = 10 ** float(dependent["log10_p"].max())
    ours = (
        f"T = {n_permutations}: {n_found} of {len(dependent)} at p = {largest_p:.2g}; per block with Fisher at most "
        f"{log10_words(weakest)}, of {floor:.1f} at the least; "
        f"{len(independent)} independent from {10 ** independent['log10_p'].min():.2f} "
        f"to {10 ** independent['log10_p'].max():.2f}; of {len(apart)} pairs that are independent of each other "
        f"{accused} at {level:g}, their {len(blocks)} blocks KS {pvalues.in_words(uniform.p)}"
        f"{not_compared(left_out(pairs, by_block)[0], by_block)}"
    )
    problems = [
        (n_found < len(dependent), f"{len(dependent) - n_found} dependent pairs are above the minimum"),
        *left_out(pairs, whole)[1],
        *left_out(pairs, by_block)[1],
        *calibration.too_many_small(
            "pairs that are independent of each other", apart["log10_p"], n_permutations=n_permutations
        ),
        (uniform.p <= level, f"per block the independent pairs are not uniform (KS {pvalues.in_words(uniform.p)})"),
        *calibration.too_many_small(
            "independent pairs", independent["log10_p"], n_permutations=n_permutations, groups=trees
        ),
        *calibration.too_many_small("blocks of independent pairs", blocks),
    ]
    bars = [
        Bar("share of the smallest log10 p per block with Fisher", [weakest / floor], share_of_floor, above=True),
    ]
    why = (
        f"every dependent pair is closer than all of its {n_permutations} permuted copies, and independent pairs are "
        f"no more often at {level:g} than chance has them"
    )
    return judge(ours, why, problems, bars)


def does_not_separate(pairs: pd.DataFrame, *, statistic: str, most: float) -> ClaimStatus:
    """Values lean to the right side, and not reliably: the area under the curve is above 1/2 and below `most`.

    Both with its interval. A statistic that finds all dependent pairs at 0.01, as the paper's others do, has an area of
    0.99 at least. One that has an area of 1/2 measures nothing, a constant for example, and shows nothing of outputs.
    """
    dependent, independent, _ = known(pairs, statistic)
    if dependent.empty or independent.empty:
        return ClaimStatus(NOT_RUN, "", NO_GROUPS)
    without, lost = left_out(pairs, statistic)
    both = pd.concat([dependent, independent])
    models = list(zip(both["a"], both["b"], strict=True))
    area = area_under_curve(models, both["value"], both["dependent"].astype(bool))
    largest, smallest = dependent["value"].max(), independent["value"].min()
    ours = (
        f"log JSD of a dependent pair up to {np.log(largest):.2f}, of an independent pair down to "
        f"{np.log(smallest):.2f}; a dependent pair is the closer one in {area.value:.1%} of {len(dependent)} x "
        f"{len(independent)} comparisons{not_compared(without, statistic)}"
    )
    way = area.either_way
    bars = [
        Bar("area under the curve", [way.value], most, interval=way.interval),
        Bar("area under the curve", [way.value], 0.5, above=True, interval=way.interval),
    ]
    why = f"it tells more than a coin, and its interval ends below {most:g}"
    return judge(ours, why, lost, bars)


def siblings_found(pairs: pd.DataFrame, *, statistics: Sequence[str], log10_p: float, level: float) -> ClaimStatus:
    """Every pair of siblings below `log10_p` by each statistic, and independent pairs left alone at `level`."""
    words, bars, problems = [], [], []
    for statistic in statistics:
        dependent, _, _ = known(pairs, statistic)
        siblings = dependent[dependent["siblings"].astype(bool)] if len(dependent) else dependent
        if siblings.empty:
            return ClaimStatus(NOT_RUN, "", "the models run hold no siblings")
        n_found, largest = int((siblings["log10_p"] < log10_p).sum()), siblings["log10_p"].max()
        without = not_compared(left_out(pairs, statistic)[0], statistic)
        words.append(
            f"{statistic}: {n_found} of {len(siblings)} sibling pairs, largest {log10_words(largest)}{without}"
        )
        bars.append(Bar(f"largest {statistic} of siblings", [largest], log10_p))
        problems += others_left_alone(pairs, statistic, level)
    why = f"every sibling pair is below {log10_p:g}, and independent pairs are left alone"
    return judge("; ".join(words), why, problems, bars)


def long_training_found(
    pairs: pd.DataFrame,
    long_training: Mapping[str, Any] | None,
    *,
    statistics: Sequence[str],
    log10_p: float,
    share: float,
    level: float,
) -> ClaimStatus:
    """A child trained on for at least `share` of its base's tokens, and its child, both found against the base.

    Independent pairs must be left alone at `level`, and the share must be known.
    """
    chain = long_training
    if not chain or chain["share"] is None:
        return ClaimStatus(NOT_RUN, "", "the models run hold no child that is known to be trained on for so long")
    generations = [{chain["base"], chain["child"]}, {chain["base"], chain["grandchild"]}]
    tokens = f"{chain['share']:.1%} of its base's tokens"
    words, bars, problems = [], [], [(chain["share"] < share, f"the child saw only {tokens}")]
    for statistic in statistics:
        dependent, _, _ = known(pairs, statistic)
        both = dependent[[set(pair) in generations for pair in zip(dependent["a"], dependent["b"], strict=True)]]
        if len(both) < len(generations):
            return ClaimStatus(NOT_RUN, "", "the chain of base, child and grandchild was not compared")
        without = not_compared(left_out(pairs, statistic)[0], statistic)
        words.append(f"{statistic} largest {log10_words(both['log10_p'].max())}{without}")
        bars.append(Bar(f"largest {statistic} of the chain", [both["log10_p"].max()], log10_p))
        problems += others_left_alone(pairs, statistic, level)
    ours = f"{chain['child']} ({tokens}) and {chain['grandchild']}: " + ", ".join(words)
    why = f"both are below {log10_p:g} against {chain['base']}, and independent pairs are left alone"
    return judge(ours, why, problems, bars)
