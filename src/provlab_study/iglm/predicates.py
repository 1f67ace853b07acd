"""Predicate on weights by others: two sizes of one language model of antibodies share their likely inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from provlab_study.iglm.records import TwoSizes
from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge, read

UNIFORM = float(np.log(20))  # nats a residue of a model that knows nothing of the twenty amino acids


def shared_inputs(compared: Sequence[Mapping[str, Any]], *, length: int, share: float, least: float) -> ClaimStatus:
    """More than `share` of either model's inputs of that length are in Z for the other as well, after each prompt.

    Each side must rest on at least `least` effective draws. Z must be a range that tells: it ends below the loss of a
    model that knows nothing, and less than `share` of the same inputs are in it once their residues are shuffled, or
    once the other model reads them after another prompt.
    """
    rows = [row for row in read(TwoSizes, compared) if row.length == length]
    if not rows:
        return ClaimStatus(NOT_RUN, "", "needs two models of a package: provlab run iglm -p fetch=true")
    worth = min(min(row.summary["effective"]) for row in rows)
    if worth < least:
        return ClaimStatus(NOT_RUN, "", f"a side rests on {worth:,.0f} effective draws, fewer than {least:g}")
    if not all(row.unlike for row in rows):
        return ClaimStatus(NOT_RUN, "", "it takes two prompts: an unlike pair is one model's inputs after the other's")
    words, bars, problems = [], [], []
    for row in rows:
        known = 0 < row.z[0] < row.z[1] < UNIFORM
        problems.append((not known, f"Z after {row.prompt} is {row.z[0]:.2f} to {row.z[1]:.2f}, of {UNIFORM:.2f}"))
        below = [row.summary[f"below_{side}"][0] for side in "ab"]
        words.append(
            f"{row.prompt}: {row.common[0][0]:.0%} of the smaller's inputs and {row.common[1][0]:.0%} of the larger's "
            f"are common, D < 0 in {below[0]:.0%} and {below[1]:.0%}"
        )
        for side, (value, low, high) in zip(("smaller", "larger"), row.common, strict=True):
            what = f"share of the {side} model's inputs after {row.prompt} that both find likely"
            bars.append(Bar(what, [value], share, above=True, interval=(low, high)))
        for what, controls in (("with residues shuffled", row.shuffled), ("read after another prompt", row.unlike)):
            words.append(f"{what} {' and '.join(f'{value:.0%}' for value, *_ in controls)}")
            for value, low, high in controls:
                bars.append(Bar(f"share in Z after {row.prompt}, {what}", [value], share, interval=(low, high)))
    return judge("; ".join(words), "either model's likely inputs are mostly likely for both", problems, bars)
