"""Whether each statistic finds a derived pair and leaves strangers alone."""

from collections.abc import Sequence

from provlab.chapters.encoders_and_fused.measure import Roles
from provlab.chapters.shared.controls import found_alone
from provlab.publishing.evidence import NOT_RUN, Bar, Evidence, Verdict, judge


def found_by_each(
    evidence: Evidence, measurement: str, statistics: Sequence[str], log10_p: float, level: float
) -> Verdict:
    """A child below `log10_p` against its base by each statistic, and no pair with a stranger at `level`.

    The measurement names base, child and strangers; strangers may be each other's relatives, so only their pairs with
    base and child are controls (`found_alone`).
    """
    roles = evidence.record(measurement, Roles)
    if {roles.base, roles.child} & set(roles.strangers) or len(set(roles.strangers)) < len(roles.strangers):
        return Verdict(NOT_RUN, "", "base, child and strangers must be different models")
    controls = [(one, stranger) for stranger in roles.strangers for one in (roles.base, roles.child)]
    words: list[str] = []
    bars: list[Bar] = []
    problems: list[tuple[bool, str]] = []
    for name in statistics:
        found = found_alone(evidence, name, (roles.base, roles.child), controls, log10_p=log10_p, level=level)
        if isinstance(found, Verdict):
            return found
        words.append(found[0])
        bars += found[1]
        problems += found[2]
    ours = f"{roles.base} and {roles.child}, " + "; ".join(words)
    why = f"each is below {log10_p:g}, and Holm at {level} rejects no pair with a stranger"
    return judge(ours, why, problems, bars)
