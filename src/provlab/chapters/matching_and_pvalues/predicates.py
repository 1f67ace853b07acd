"""Whether matchings of independent models are uniform, and Spearman's t tail agrees with PERMTEST."""

import numpy as np

from provlab.chapters.matching_and_pvalues.measure import Tail, Uniform, agreement
from provlab.inference import pvalues
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge


def tail_agrees(evidence: Evidence, measurement: str, matchings: str, level: float) -> Verdict:
    """Matchings of independent models look uniform by the t tail, and PERMTEST's counts are binomial with its p.

    Both families of tests are read with Holm's correction. The first is not empty without the second: by symmetry
    PERMTEST and the t tail agree on any permutation, the identity too.
    """
    rows, uniform = evidence.records(measurement, Tail), evidence.records(matchings, Uniform)
    if not rows or not uniform:
        return Verdict(NOT_RUN, "", "no pair of independent models was run through PERMTEST")
    found = agreement(rows)
    adjusted = pvalues.holm(np.log10(np.maximum([row.ks_p for row in uniform], 1e-300)))
    odd = [f"{row.statistic}, {row.over}" for row, p in zip(uniform, adjusted, strict=True) if p <= np.log10(level)]
    finest = len(uniform) / (1 + min(row.n_copies for row in uniform if row.n_copies))
    ours = (
        f"{max(row.n_pairs for row in uniform)} independent pairs: smallest p of {len(uniform)} tests of uniformity "
        f"{10 ** adjusted.min():.2g} by Holm; {len(rows)} matchings, T = {max(row.T for row in rows):,}: largest "
        f"difference in p {found.gap:.3f}"
    )
    problems = [
        (finest > level, f"too few copies for any of {len(uniform)} tests to reject at {level:g}"),
        (bool(odd), f"matchings of independent models are not uniform: {'; '.join(odd)}"),
        (bool((found.adjusted <= np.log10(level)).any()), "PERMTEST and the t tail differ by more than chance"),
    ]
    why = (
        "matchings of independent models are uniform as far as the t tail shows, and each count of exceedances is what "
        "it predicts, within binomial error (Holm)"
    )
    return judge(ours, why, problems)
