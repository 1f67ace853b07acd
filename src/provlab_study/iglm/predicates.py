"""Predicate on weights by others: two sizes of one language model of antibodies share their likely inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

from provlab_study.iglm.records import TwoSizes
from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge


def shared_inputs(compared: Sequence[Mapping[str, Any]], *, length: int, share: float, least: float) -> ClaimStatus:
    """More than `share` of either model's inputs of that length are in Z for the other as well, after each prompt.

    Each side must rest on at least `least` effective draws.
    """
    rows = [row for row in (TwoSizes(**pair) for pair in compared) if row.length == length]
    if not rows:
        return ClaimStatus(NOT_RUN, "", "needs two models of a package: provlab run iglm -p fetch=true")
    worth = min(min(row.summary["effective"]) for row in rows)
    if worth < least:
        return ClaimStatus(NOT_RUN, "", f"a side rests on {worth:,.0f} effective draws, fewer than {least:g}")
    words, bars = [], []
    for row in rows:
        below = [row.summary[f"below_{side}"][0] for side in "ab"]
        words.append(
            f"{row.prompt}: {row.common[0][0]:.0%} of the smaller's inputs and {row.common[1][0]:.0%} of the larger's "
            f"are common, D < 0 in {below[0]:.0%} and {below[1]:.0%}"
        )
        for side, (value, low, high) in zip(("smaller", "larger"), row.common, strict=True):
            what = f"share of the {side} model's inputs after {row.prompt} that both find likely"
            bars.append(Bar(what, [value], share, above=True, interval=(low, high)))
    return judge("; ".join(words), "either model's likely inputs are mostly likely for both", bars=bars)
