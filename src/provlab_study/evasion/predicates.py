"""Predicates about an adversary: what its transformations preserve, hide, and fail to hide."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from provlab.attacks.disguise import ALL
from provlab.inference import pvalues
from provlab_study.evasion.measure import NOISE, Noisy, PreservedRecord
from provlab_study.evasion.procrustes import Alignment
from provlab_study.publishing.evidence import FAILS, HOLDS, NOT_RUN, Bar, ClaimStatus, judge, known, log10_words, read
from provlab_study.shared import calibration
from provlab_study.shared.groups import area_under_curve, pairs_of_trees

NO_GROUPS = "the models run have no pair of known dependence and independence"


def outputs_preserved(
    preserved: Sequence[Mapping[str, Any]],
    noisy: Sequence[Mapping[str, Any]],
    *,
    tolerance: float,
    architectures: int,
    entire: str,
    exist: float,
) -> ClaimStatus:
    """Each transformation of each architecture leaves every logit within `tolerance`, or is refused with a reason.

    The tolerance is a share of the largest logit: a head of zeros gives the same logits whatever stands before it.
    All six are tried on every model and change its weights, and `entire`, the paper's architecture, refuses none. Each
    exists in a share `exist` of the models. The comparison must be one: no transformation leaves every logit of every
    model to the last bit, since sums are taken in another order, and by the same comparison copies under noise
    (`noisy`) lie beyond the tolerance.
    """
    rows, controls = read(PreservedRecord, preserved), read(Noisy, noisy)
    if {row.architecture for row in controls} != {row.architecture for row in rows}:
        return ClaimStatus(NOT_RUN, "", f"{len(controls)} copies under noise: one of each architecture is asked for")
    tried = [row for row in rows if row.difference is not None]
    refused = [row for row in rows if row.difference is None]
    named = {row.architecture for row in rows}
    kinds = {model: {row.kind for row in rows if row.model == model} for model in sorted({row.model for row in rows})}
    untried = [model for model, own in kinds.items() if own != set(ALL)]
    idle = sorted({row.kind for row in tried if not (row.moved or 0.0) > tolerance})
    same = [kind for kind in ALL if not any(row.difference for row in tried if row.kind == kind)]
    rare = [kind for kind in ALL if sum(row.kind == kind for row in tried) < exist * len(kinds)]
    blind = [row.architecture for row in controls if not row.difference > tolerance * row.scale]
    shares = [(row.difference or 0.0) / row.scale if row.scale else np.inf for row in tried]
    largest, lowest = max(shares, default=np.inf), min((row.scale or 0.0 for row in tried), default=0.0)
    ours = (
        f"{len(named)} architectures: largest difference of a logit {largest:.1e} of the largest logit, which is "
        f"{lowest:.2g} or more, over {len(tried)} transformed models; {len(refused)} transformations do not exist "
        f"there; under noise of {NOISE:g} it is {min(row.difference / row.scale for row in controls):.1e} or more"
    )
    problems = [
        (len(named) < architectures, f"only {len(named)} architectures, fewer than {architectures}"),
        (bool(untried), f"not all of {', '.join(ALL)} were tried on {', '.join(untried)}"),
        (entire not in {row.architecture for row in tried}, f"{entire} was not transformed"),
        (entire in {row.architecture for row in refused}, f"{entire} refuses a transformation"),
        (bool(idle), f"{', '.join(idle)} changes no weight"),
        (bool(same), f"{', '.join(same)} changes no bit of any logit: nothing was compared"),
        (bool(rare), f"{', '.join(rare)} exists in fewer than {exist:.0%} of {len(kinds)} models"),
        (bool(blind), f"the comparison does not see noise in {', '.join(blind)}"),
        (not largest < tolerance, f"a logit differs by {largest:.1e} of the largest"),
        (not all(row.refused for row in refused), "a transformation is missing without a reason"),
    ]
    return judge(
        ours,
        f"no logit differs by {tolerance:g} of the largest or more in float64, and each refusal gives its reason",
        problems,
    )


def evaded_but_found(
    pairs: pd.DataFrame,
    one_each: Sequence[tuple[str, str]],
    negative: Sequence[float],
    *,
    evaded: Sequence[str],
    robust: str,
    log10_p: float,
    level: float,
    ks: float,
) -> ClaimStatus:
    """`robust` finds each dependent pair and no other; `evaded` find none, and their p-values are uniform.

    They find none by Holm over all dependent pairs. Uniformity is judged on the pairs `one_each`, one for
    each disguised model: what hides a model is drawn once for it, so that pairs with one disguised model repeat
    each other. All pairs, dependent ones too, must not have too many small p-values either, with pairs of one disguised
    model and one tree as one group. `negative`, what `robust` finds where the constants of T6 are
    negative, is reported and not judged: the paper leaves the sign open.
    """
    dependent, independent, failed = known(pairs, robust)
    if dependent.empty or independent.empty:
        return ClaimStatus(NOT_RUN, "", NO_GROUPS)
    rejected = pvalues.holm([*dependent["log10_p"], *independent["log10_p"]]) <= np.log10(level)
    n_found = int((dependent["log10_p"] < log10_p).sum())
    words = [
        f"{robust}: {n_found} of {len(dependent)} below {log10_p:g}, largest {log10_words(dependent['log10_p'].max())}"
    ]
    problems = [
        (not rejected[: len(dependent)].all(), f"Holm at {level} leaves a dependent pair by {robust}"),
        (bool(rejected[len(dependent) :].any()), f"Holm at {level} rejects an independent pair by {robust}"),
        (failed > 0, f"{failed} pairs could not be compared"),
        *calibration.too_many_small(
            f"independent pairs by {robust}", independent["log10_p"], groups=pairs_of_trees(independent, dependent)
        ),
    ]
    judged = {frozenset(pair) for pair in one_each}
    for statistic in evaded:
        rows = pairs[pairs["statistic"] == statistic]
        inside = [frozenset(pair) in judged for pair in zip(rows["a"], rows["b"], strict=True)]
        blocks = [log10_p for values in rows.loc[inside, "blocks"] for log10_p in values]
        hidden, _, lost = known(pairs, statistic)
        if not blocks:
            return ClaimStatus(NOT_RUN, "", f"{statistic} was not run on the disguised pairs")
        uniform = calibration.ks_uniform(blocks)
        every = rows[rows["error"].isna()]
        alike = list(zip(pairs_of_trees(every, hidden), every["b"], strict=True))
        still = int((pvalues.holm(hidden["log10_p"].to_numpy(dtype=float)) <= np.log10(level)).sum())
        words.append(
            f"{statistic}: smallest of a dependent pair {log10_words(hidden['log10_p'].min())}, "
            f"KS {pvalues.in_words(uniform.p)} (n = {uniform.n})"
        )
        problems += [
            (uniform.p <= ks, f"{statistic} is not uniform on disguised pairs (KS {pvalues.in_words(uniform.p)})"),
            (still > 0, f"Holm at {level} still finds {still} of {len(hidden)} dependent pairs by {statistic}"),
            (lost > 0, f"{statistic} could not compare {lost} pairs"),
            *calibration.too_many_small(f"pairs by {statistic}", every["log10_p"], groups=alike),
        ]
    why = f"Holm at {level} rejects exactly the dependent pairs by {robust}; the others find no pair related"
    turned = np.array(negative, dtype=float)
    words.append(
        f"with negative constants in T6 {robust} finds {int((turned < np.log10(level)).sum())} of {len(turned)}"
    )
    bar = Bar(f"largest {robust} of a dependent pair", [dependent["log10_p"].max()], log10_p)
    return judge("; ".join(words), why, problems, [bar])


def invariants_break(invariants: Mapping[str, Mapping[str, Sequence[float]]], *, least: float) -> ClaimStatus:
    """A threshold on each cosine separates the groups, until the norms are replaced: then it finds no pair at all.

    The groups must be apart by `least`, and the disguised pairs lie as far below the dependent ones: an invariant that
    hardly tells the groups apart has nothing to lose.

    The threshold lies midway between the smallest cosine of a dependent pair and the largest of an independent one,
    and every disguised pair is below it. Whether a threshold that was chosen after a look would still tell disguised
    from independent pairs is reported and not judged: in the paper's Table 7 one does, of M_b and M_c (0.07 and more
    against 0.04 and less).
    """
    words, problems, bars = [], [], []
    for name, groups in invariants.items():
        plain, hidden, independent = (np.array(groups[key]) for key in ("dependent", "disguised", "independent"))
        words.append(
            f"{name}: dependent from {plain.min():.2f}, disguised up to {hidden.max():.2f}, "
            f"independent up to {independent.max():.2f}"
            + ", all disguised ones a little above"
            * bool(hidden.min() > independent.max())
        )
        problems.append((plain.min() <= independent.max(), f"{name} does not separate even undisguised pairs"))
        midway = float(plain.min() + independent.max()) / 2
        bars += [
            Bar(f"largest {name} of a disguised pair", [hidden.max()], round(midway, 2)),
            Bar(f"{name} by which the groups are apart", [plain.min() - independent.max()], least, above=True),
            Bar(f"{name} that a disguise takes away", [plain.min() - hidden.max()], least, above=True),
        ]
    if not words:
        return ClaimStatus(NOT_RUN, "", NO_GROUPS)
    why = "each separates the groups before the norms are replaced, and afterwards finds no dependent pair"
    return judge("; ".join(words), why, problems, bars)


def aligns_strangers(undone: Sequence[Mapping[str, Any]], *, named: Sequence[str], most: float) -> ClaimStatus:
    """Least squares does not tell dependent from independent pairs by its residual, in any of the things `named`.

    These are what the paper names: weight matrices as they lie in the file, and activations, by however many rows. Each
    must tell little: the area under the curve of its residuals stays below `most`, interval included. Whatever else
    was measured is reported.
    """
    findings: dict[tuple[str, str], list[str]] = {}  # by the thing and the finding: rows for each column, and residuals
    bars = []
    measured = read(Alignment, undone)
    for row in measured:
        residual, related = np.array(row.residual), np.array(row.dependent, dtype=bool)
        if related.all() or not related.any():
            return ClaimStatus(NOT_RUN, "", NO_GROUPS)
        area = area_under_curve([(a, b) for a, b in row.pairs], residual, related).either_way
        what = f"area under the curve, {row.what}, {row.rows:g} rows a column"
        bar = Bar(what, [area.value], most, interval=area.interval)
        finding = {HOLDS: "aligned alike", FAILS: "told apart"}.get(bar.status, "too few to say")
        ranges = f"dependent {_range(residual[related])}, independent {_range(residual[~related])}"
        findings.setdefault((row.what, finding), []).append(f"{row.rows:g} rows a column ({ranges})")
        bars += [bar] * (row.what in named and finding != "told apart")  # that is a problem, in better words
    if not set(named) & {row.what for row in measured}:
        return ClaimStatus(NOT_RUN, "", NO_GROUPS)
    words = [
        f"{what}{' (not judged)' * (what not in named)} {finding} by {' to '.join(dict.fromkeys((rows[0], rows[-1])))}"
        for (what, finding), rows in findings.items()
    ]
    problems = [
        (what in named, f"least squares tells the groups apart by the {what}, from {rows[0]}")
        for (what, finding), rows in findings.items()
        if finding == "told apart"
    ]
    ours = f"{len({base for row in measured for base, _ in row.pairs})} bases; {'; '.join(words)}"
    return judge(ours, f"no residual of the {', '.join(named)} tells the groups apart", problems, bars)


def separates_without_null(
    median_max: Mapping[str, Sequence[float]], *, level: float, apart: float, narrow: float, excess: float
) -> ClaimStatus:
    """A threshold separates the groups, and the values of independent pairs are no p-values.

    Were they p-values, those of a chain of trees would be independent of each other and uniform, and would not all lie
    in a narrow band; and cautious p-values would lie above the uniform, not below. Beside being significant, each must
    be large enough to matter: the groups lie `apart`, the chain spans at most `narrow`, and the share of independent
    pairs below some value exceeds that value by `excess`. The values must be measured: of other pairs of models
    they are other numbers, and constants, one for each group, are looked up.
    """
    dependent, independent, chain = (np.array(median_max[key]) for key in ("dependent", "independent", "chain"))
    if not dependent.size or len(chain) < 2:
        return ClaimStatus(NOT_RUN, "", NO_GROUPS)
    band = float(chain.max() - chain.min())
    p_band = float(stats.beta.cdf(band, len(chain) - 1, 2))  # of the range of uniforms
    small = stats.kstest(np.clip(independent, 0, 1), "uniform", alternative="greater")
    p_small = float(small.pvalue)
    ours = (
        f"{len(dependent)} dependent {_range(dependent)}, {len(independent)} independent {_range(independent)}; "
        f"{len(chain)} that are independent of each other lie within {band:.2g}, {pvalues.in_words(p_band)} if uniform"
    )
    # related pairs may be as near as can be, several at 0
    alike = {name: len(median_max[name]) - len(set(median_max[name])) for name in ("independent", "chain")}
    problems = [
        *(
            (n > 0, f"{n} of {len(median_max[name])} {name} values repeat another: constants separate anything")
            for name, n in alike.items()
        ),
        (
            not np.isin(chain, independent).all(),
            "the chain is not of the independent pairs",
        ),
        (not dependent.max() < independent.min(), "no threshold has all dependent pairs below it and no other"),
        (max(p_band, p_small) > level, "its values under independence could pass for p-values"),
    ]
    bars = [
        Bar("distance of the groups", [float(independent.min() - dependent.max())], apart, above=True),
        Bar("band of values that are independent of each other", [band], narrow),
        Bar("excess of small values under independence", [float(small.statistic)], excess, above=True),
    ]
    return judge(
        ours, "the groups do not overlap, and values of independent pairs are far from uniform", problems, bars
    )


def _range(values: np.ndarray) -> str:
    return f"{values.min():.2f} to {values.max():.2f}"
