"""Whether a leak derives from its base, and other models of that shape do not."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from provlab_study.publishing.evidence import NOT_RUN, ClaimStatus, judge
from provlab_study.shared.controls import found_alone


def derives_from(
    pairs: pd.DataFrame, roles: Mapping[str, Any], *, statistic: str, log10_p: float, level: float, controls: int
) -> ClaimStatus:
    """A model below `log10_p` against its alleged base, and no pair with a control at `level`.

    At least `controls` controls are needed, each another model. `roles` names them, as nobody vouches for
    a leak's origin; known origins must not contradict them (`found_alone`). Controls may be each other's relatives: as
    in Table 2 only their pairs with base and leak are judged.
    """
    base, leak, others = roles["base"], roles["leak"], roles["controls"]
    if len(set(others) - {base, leak}) < max(controls, len(others)):
        return ClaimStatus(NOT_RUN, "", f"it takes the leak, its base and {controls} controls, all of them different")
    pair, with_controls = (base, leak), [(model, other) for other in others for model in (base, leak)]
    alone = found_alone(pairs, statistic, pair, with_controls, log10_p=log10_p, level=level)
    if isinstance(alone, ClaimStatus):
        return alone
    words, bars, problems = alone
    ours = f"{leak} against {base}, {words}; controls {' and '.join(others)}"
    why = f"the leak is below {log10_p:g}, and Holm at {level} rejects no pair of either with a control"
    return judge(ours, why, problems, bars)
