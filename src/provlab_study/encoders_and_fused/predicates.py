"""Whether each statistic finds a derived pair and leaves strangers alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge
from provlab_study.shared.controls import found_alone


def found_by_each(
    pairs: pd.DataFrame, roles: Mapping[str, Any], *, statistics: Sequence[str], log10_p: float, level: float
) -> ClaimStatus:
    """A child below `log10_p` against its base by each statistic, and no pair with a stranger at `level`.

    `roles` names base, child and strangers; strangers may be each other's relatives, so only their pairs with
    base and child are controls (`found_alone`).
    """
    pair, strangers = (roles["base"], roles["child"]), roles["strangers"]
    if set(pair) & set(strangers) or len(set(strangers)) < len(strangers):
        return ClaimStatus(NOT_RUN, "", "base, child and strangers must be different models")
    controls = [(model, stranger) for stranger in strangers for model in pair]
    words: list[str] = []
    bars: list[Bar] = []
    problems: list[tuple[bool, str]] = []
    for name in statistics:
        alone = found_alone(pairs, name, pair, controls, log10_p=log10_p, level=level)
        if isinstance(alone, ClaimStatus):
            return alone
        words.append(alone[0])
        bars += alone[1]
        problems += alone[2]
    ours = f"{' and '.join(pair)}, " + "; ".join(words)
    why = f"each is below {log10_p:g}, and Holm at {level} rejects no pair with a stranger"
    return judge(ours, why, problems, bars)
