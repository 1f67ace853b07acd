"""Whether matchings of independent models are uniform, and Spearman's t tail agrees with PERMTEST."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from provlab.inference import pvalues
from provlab_study.matching_and_pvalues.measure import log10_p_of_counts
from provlab_study.publishing.evidence import FAILS, NOT_RUN, OLD, Bar, ClaimStatus, OldRecordsError, judge
from provlab_study.shared import calibration

Rows = Sequence[Mapping[str, Any]]


def tail_agrees(tail: Rows, uniform: Rows, *, level: float) -> ClaimStatus:
    """Matchings of independent models look uniform by the t tail, and PERMTEST's counts are binomial with its p.

    Both families of tests are read with Holm's correction. The second does not imply the first: by symmetry PERMTEST
    and the t tail agree on any permutation, the identity too. And no test of uniformity sees a few extreme values: no
    pair may be rejected, by Holm over all pairs of a statistic, and not too many may be small. With fewer copies than
    any test of uniformity needs to reject, what does not fail is left open.
    """
    counts, tests = pd.DataFrame(tail), pd.DataFrame(uniform)
    if counts.empty or tests.empty:
        return ClaimStatus(NOT_RUN, "", "no pair of independent models was run through PERMTEST")
    if "log10_p" not in tests:
        raise OldRecordsError(OLD)
    gap = (10.0 ** counts["log10_p_permtest"] - 10.0 ** counts["log10_p_t"]).abs().max()
    adjusted = pvalues.holm(np.log10(np.maximum(tests["ks_p"], 1e-300)))
    odd = tests[adjusted <= np.log10(level)]
    copies = tests.loc[tests["n_copies"] > 0, "n_copies"].min()
    few = calibration.too_few_copies(copies, len(tests), level, "n_joint")
    ours = (
        f"{tests['n_pairs'].max()} independent pairs: smallest p of {len(tests)} tests of uniformity "
        f"{10 ** adjusted.min():.2g} by Holm; {len(counts)} matchings, T = {counts['T'].max():,}: largest "
        f"difference in p {gap:.3f}"
    )
    lists = [row for row in tests.itertuples() if row.log10_p]
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
        (
            not odd.empty,
            f"matchings of independent models are not uniform: {'; '.join(odd['statistic'] + ', ' + odd['over'])}",
        ),
        (
            bool((log10_p_of_counts(counts) <= np.log10(level)).any()),
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
    verdict = judge(ours, why, problems, [bar])
    if few and verdict.status != FAILS:
        return ClaimStatus(NOT_RUN, "", few)
    return verdict
