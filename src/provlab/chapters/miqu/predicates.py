"""Whether a leak derives from its base, and other models of that shape do not."""

from itertools import combinations

from provlab.chapters.miqu.measure import Roles
from provlab.chapters.shared.controls import found_alone
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge


def derives_from(
    evidence: Evidence, measurement: str, statistic: str, log10_p: float, level: float, controls: int
) -> Verdict:
    """A model below `log10_p` against the base it is said to come from, and no pair with a control at `level`.

    So many `controls` are asked for, each another model. The roles are named by the measurement, as nobody vouches for
    a leak's origin; known origins must not contradict them (`found_alone`).
    """
    roles = evidence.record(measurement, Roles)
    if len(set(roles.controls) - {roles.base, roles.leak}) < max(controls, len(roles.controls)):
        return Verdict(NOT_RUN, "", f"it takes the leak, its base and {controls} controls, all of them different")
    pair, *others = combinations(roles.models, 2)  # the first pair is base and leak, each other has a control
    found = found_alone(evidence, statistic, pair, others, log10_p=log10_p, level=level)
    if isinstance(found, Verdict):
        return found
    words, bars, problems = found
    ours = f"{roles.leak} against {roles.base}, {words}; controls {' and '.join(roles.controls)}"
    why = f"the leak is below {log10_p:g}, and Holm at {level} rejects no pair with a control"
    return judge(ours, why, problems, bars)
