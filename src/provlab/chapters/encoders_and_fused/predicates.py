"""Whether each statistic finds a derived pair and leaves strangers alone."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from provlab.chapters.encoders_and_fused.measure import Roles
from provlab.inference import pvalues
from provlab.publishing.evidence import FAILS, NOT_RUN, Bar, Evidence, Verdict, judge, log10_words


def _by_pair(evidence: Evidence, statistic: str) -> dict[tuple[str, str], pd.Series]:
    rows = evidence.pairs[evidence.pairs["statistic"] == statistic]
    return {(row["a"], row["b"]): row for _, row in rows.iterrows() if not row["error"]}


def found_by_each(
    evidence: Evidence, measurement: str, statistics: Sequence[str], log10_p: float, level: float
) -> Verdict:
    """A child below `log10_p` against its base by each statistic; Holm at `level` rejects no pair with a stranger.

    The measurement names base, child and strangers; strangers may be each other's relatives, so only their pairs with
    base and child are controls. Holm runs over these and the pair itself, for each statistic.
    """
    roles = Roles(**evidence.measurement(measurement))
    pair = (roles.base, roles.child)
    controls = [(one, stranger) for stranger in roles.strangers for one in pair]
    words: list[str] = []
    bars: list[Bar] = []
    for name in statistics:
        found = _by_pair(evidence, name)
        if not controls or not found:
            return Verdict(NOT_RUN, "", f"{name} was not run on the pair and a stranger")
        if lost := [one for one in (pair, *controls) if one not in found]:
            return Verdict(FAILS, "; ".join(words), f"{name} has no value for {lost[0][0]} and {lost[0][1]}")
        values = np.array([found[one]["log10_p"] for one in (pair, *controls)], dtype=float)
        words.append(
            f"{name}: {log10_words(values[0])}, {len(controls)} pairs with strangers at least {values[1:].min():.1f}"
        )
        strangers = float(pvalues.holm(values)[1:].min())
        bars += [
            Bar(f"{name} of {pair[0]} and {pair[1]}", [float(values[0])], log10_p),
            Bar(f"smallest {name} with a stranger, by Holm", [strangers], float(np.log10(level)), above=True),
        ]
    ours = f"{pair[0]} and {pair[1]}, " + "; ".join(words)
    return judge(ours, f"each is below {log10_p:g}, and Holm at {level} rejects no pair with a stranger", bars=bars)
