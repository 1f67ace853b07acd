"""Whether a leak derives from its base, and other models of that shape do not."""

from itertools import combinations

import numpy as np

from provlab.chapters.miqu.measure import Roles
from provlab.inference import pvalues
from provlab.publishing.evidence import FAILS, NOT_RUN, Bar, Evidence, Verdict, judge, log10_words


def derives_from(evidence: Evidence, measurement: str, statistic: str, log10_p: float, level: float) -> Verdict:
    """A model below `log10_p` against the base it is said to come from; Holm at `level` rejects no pair of a control.

    The roles are named by the measurement and not read from known origins, as nobody vouches for a leak's.
    """
    roles = Roles(**evidence.measurement(measurement))
    rows = evidence.pairs[evidence.pairs["statistic"] == statistic]
    found = {frozenset((row["a"], row["b"])): float(row["log10_p"]) for _, row in rows.iterrows() if not row["error"]}
    # the first pair is base and leak, each other has a control
    wanted = [frozenset(pair) for pair in combinations(roles.models, 2)]
    if not roles.controls or not set(roles.models) <= set(rows["a"]) | set(rows["b"]):
        return Verdict(NOT_RUN, "", "the leak, its base and a control were not compared")
    if failed := sum(pair not in found for pair in wanted):
        return Verdict(FAILS, f"{len(found)} pairs compared", f"{failed} pairs could not be compared")
    values = np.array([found[pair] for pair in wanted])
    controls = float(pvalues.holm(values)[1:].min())
    ours = (
        f"{roles.leak} against {roles.base}: {log10_words(values[0])}; "
        f"{len(values) - 1} pairs with {' or '.join(roles.controls)}: smallest {log10_words(values[1:].min())}"
    )
    bars = [
        Bar("the leak and its base", [float(values[0])], log10_p),
        Bar("smallest pair with a control, by Holm", [controls], float(np.log10(level)), above=True),
    ]
    return judge(ours, f"the leak is below {log10_p:g}, and Holm at {level} rejects no pair with a control", bars=bars)
