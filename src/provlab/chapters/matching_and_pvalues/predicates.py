"""Whether Spearman's t tail agrees with PERMTEST."""

import numpy as np
import pandas as pd
from scipy import stats

from provlab.inference import pvalues
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge


def tail_agrees(evidence: Evidence, measurement: str, level: float) -> Verdict:
    """PERMTEST's count of exceedances is binomial with the t-tail's p, over all pairs and blocks (Holm)."""
    rows = pd.DataFrame(evidence.measurement(measurement))
    if rows.empty:
        return Verdict(NOT_RUN, "", "no pair was run through PERMTEST")
    t = rows["T"].to_numpy(dtype=int)
    # PERMTEST counts the pair itself: (1 + k) / (T + 1)
    k = np.rint(10.0 ** rows["log10_p_permtest"] * (t + 1)).astype(int) - 1
    tail = 10.0 ** rows["log10_p_t"].to_numpy(dtype=float)
    two_sided = [stats.binomtest(int(a), int(b), float(c)).pvalue for a, b, c in zip(k, t, tail, strict=True)]
    adjusted = pvalues.holm(np.log10(np.maximum(two_sided, 1e-300)))
    gap = float(np.max(np.abs(10.0 ** rows["log10_p_permtest"] - tail)))
    ours = f"{len(rows)} matchings, T = {t.max():,}: largest difference in p {gap:.3f}"
    problems = [(bool((adjusted <= np.log10(level)).any()), "PERMTEST and the t-tail differ by more than chance")]
    return judge(ours, "each count of exceedances is what the t-tail predicts, within binomial error (Holm)", problems)
