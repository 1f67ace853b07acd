"""Whether matchings of independent models are uniform, and Spearman's t tail agrees with PERMTEST."""

import numpy as np
import pandas as pd

from provlab.inference import pvalues
from provlab_study.matching_and_pvalues.measure import log10_p_of_counts
from provlab_study.publishing.evidence import NOT_RUN, Bar, Evidence, OldRecordsError, Verdict, judge
from provlab_study.shared import calibration


def tail_agrees(evidence: Evidence, measurement: str, matchings: str, level: float) -> Verdict:
    """Matchings of independent models look uniform by the t tail, and PERMTEST's counts are binomial with its p.

    Both families of tests are read with Holm's correction. The second does not imply the first: by symmetry PERMTEST
    and the t tail agree on any permutation, the identity too. And no test of uniformity sees a few extreme values: no
    pair may be rejected, by Holm over all pairs of a statistic, and not too many may be small.
    """
    tail, uniform = (pd.DataFrame(evidence.measurement(name)) for name in (measurement, matchings))
    if tail.empty or uniform.empty:
        return Verdict(NOT_RUN, "", "no pair of independent models was run through PERMTEST")
    if "log10_p" not in uniform:
        raise OldRecordsError("its records hold no single p-values: provlab run matching_and_pvalues")
    gap = (10.0 ** tail["log10_p_permtest"] - 10.0 ** tail["log10_p_t"]).abs().max()
    adjusted = pvalues.holm(np.log10(np.maximum(uniform["ks_p"], 1e-300)))
    odd = uniform[adjusted <= np.log10(level)]
    finest = len(uniform) / (1 + uniform.loc[uniform["n_copies"] > 0, "n_copies"].min())
    ours = (
        f"{uniform['n_pairs'].max()} independent pairs: smallest p of {len(uniform)} tests of uniformity "
        f"{10 ** adjusted.min():.2g} by Holm; {len(tail)} matchings, T = {tail['T'].max():,}: largest "
        f"difference in p {gap:.3f}"
    )
    lists = [row for row in uniform.itertuples() if row.log10_p]
    smallest = {f"{row.statistic}, {row.over}": float(pvalues.holm(row.log10_p).min()) for row in lists}
    rejections = [name for name, least in smallest.items() if least <= np.log10(level)]
    problems = [
        (
            bool(rejections),
            f"Holm at {level:g} rejects single matchings of independent models: {'; '.join(rejections)}",
        ),
        *(
            problem
            for row in lists
            for problem in calibration.too_many_small(
                f"{row.statistic}, {row.over}", row.log10_p, groups=row.repeats, n_sets=len(lists)
            )
        ),
        (finest > level, f"too few copies for any of {len(uniform)} tests to reject at {level:g}"),
        (
            not odd.empty,
            f"matchings of independent models are not uniform: {'; '.join(odd['statistic'] + ', ' + odd['over'])}",
        ),
        (
            bool((log10_p_of_counts(tail) <= np.log10(level)).any()),
            "PERMTEST and the t tail differ by more than chance",
        ),
    ]
    bar = Bar(
        "smallest p of single matchings, by Holm, log10", [min(smallest.values())], float(np.log10(level)), above=True
    )
    why = (
        "matchings of independent models are uniform as far as the t tail shows, and each count of exceedances is what "
        "it predicts, within binomial error (Holm)"
    )
    return judge(ours, why, problems, [bar])
