"""Whether a statistic finds one related pair and none of its controls."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from provlab.inference import pvalues
from provlab_study.publishing.evidence import FAILS, NOT_RUN, Bar, ClaimStatus, log10_words

Pair = tuple[str, str]

DOUBT = 0.05  # p that no independent pair should need


def found_alone(
    pairs: pd.DataFrame, statistic: str, pair: Pair, controls: Sequence[Pair], *, log10_p: float, level: float
) -> tuple[str, list[Bar], list[tuple[bool, str]]] | ClaimStatus:
    """Judge a pair that is said to be related against pairs that are said not to be.

    Controls are judged twice. Holm over them and the pair must reject none. And not every control may be at the level
    by itself: under independence that has a probability of at most `level`, however controls depend on each other,
    while Holm lets any number of values a little above its first step pass. Where every control is at `DOUBT` or below,
    which has at most that probability, controls were left alone by a hair: the claim is within its spread.

    Parameters
    ----------
    pairs
        Rows with the statistic of all these pairs, as `evidence.frame_of` has them.
    statistic
        Its name.
    pair, controls
        Names of models, in any order.
    log10_p
        What the pair must be below.
    level
        The level of the controls.

    Returns
    -------
    tuple or ClaimStatus
        The values in words, the bars, and as problems pairs that are known to be of the other kind; a verdict where
        there is nothing to judge.
    """
    rows = pairs[pairs["statistic"] == statistic]
    by_pair = {frozenset((row["a"], row["b"])): row for _, row in rows.iterrows()}
    keys = [frozenset(members) for members in (pair, *controls)]
    if not controls or not any(key in by_pair for key in keys):
        return ClaimStatus(NOT_RUN, "", f"{statistic} was not run on {pair[0]} and {pair[1]} and on a control")
    problems = []
    for key, (a, b) in zip(keys, (pair, *controls), strict=True):
        if key not in by_pair or by_pair[key]["error"] or not by_pair[key]["log10_p"] <= 0:
            return ClaimStatus(FAILS, f"{len(by_pair)} pairs compared", f"{statistic} has no value for {a} and {b}")
        known = by_pair[key]["dependent"]
        contradiction = f"{a} and {b} are known to be {'related' if known else 'independent'}"
        problems.append((known is not None and known != (key == keys[0]), contradiction))
    values = np.array([by_pair[key]["log10_p"] for key in keys], dtype=float)
    bar = float(np.log10(level))
    largest, doubt = float(values[1:].max()), float(np.log10(DOUBT / level))
    smallest = f"smallest of {len(controls)} controls {values[1:].min():.1f}"
    bars = [
        Bar(f"{statistic} of {pair[0]} and {pair[1]}", [float(values[0])], log10_p),
        Bar(f"smallest {statistic} of a control, by Holm", [float(pvalues.holm(values)[1:].min())], bar, above=True),
        Bar(f"largest {statistic} of a control", [largest], bar, above=True, interval=(largest - doubt, largest)),
    ]
    return f"{statistic}: {log10_words(values[0])}, {smallest}", bars, problems
