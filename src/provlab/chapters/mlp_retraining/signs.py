"""Signs of the units of retrained MLPs: what a signed statistic loses, and what the published p-values say of it."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.chapters.mlp_retraining.measure import TABLE_8, Judged, Trial
from provlab.chapters.shared import retraining
from provlab.chapters.shared.students import Student
from provlab.publishing.published import published_table
from provlab.statistics.base import BlockResult

PAPER_UNITS = 11_008  # hidden units of an MLP in the paper's models


def up_cosines(trial: Trial, block: int, student: Student, judged: Judged) -> NDArray[np.float64]:
    """Cosine of the up activations of each unit with its partner's, where both unsigned matchings name that partner."""
    matching = judged.own["phi_match_unsigned"].matching
    assert matching is not None
    by_gate, by_up = matching
    agree = np.flatnonzero(by_gate == by_up)
    theirs = trial.base.block(block)[1].unit[agree]  # (units, positions), of length 1
    ours = trial.model.views(block, student)[1].unit[by_gate[agree]]
    cosines: NDArray[np.float64] = (theirs * ours).sum(axis=1)
    return cosines


def table(judged: Sequence[Judged], cosines: Sequence[NDArray[np.float64]]) -> pd.DataFrame:
    """Return for each block the share of units on which both matchings agree, with and without signs."""
    return pd.DataFrame(
        [
            {
                "block": block,
                "units that agree": _agreement(one.own["phi_match"]),
                "correlation": one.own["phi_match"].value,
                "units that agree, unsigned": _agreement(one.own["phi_match_unsigned"]),
                "correlation, unsigned": one.own["phi_match_unsigned"].value,
                "of these with the opposite sign": float(np.mean(values < 0)) if len(values) else None,
            }
            for block, (one, values) in enumerate(zip(judged, cosines, strict=True))
        ]
    )


def _agreement(result: BlockResult) -> float:
    """Share of units whose partner by gate is their partner by up."""
    assert result.matching is not None
    return float(np.mean(result.matching[0] == result.matching[1]))


def findings(cosines: Sequence[NDArray[np.float64]]) -> str:
    """How many of the recognised units have the opposite sign, in Markdown."""
    pooled = np.concatenate(cosines)
    if not pooled.size:
        return "Both unsigned matchings agree on no unit of any block."
    return (
        f"Without regard to sign, both matchings agree on {pooled.size:,} units over all blocks; "
        f"**{np.mean(pooled < 0):.0%}** of these have the opposite sign."
    )


def published_shares() -> NDArray[np.float64]:
    """Share of units on which the two matchings must agree to give each p-value of Table 8, ``(32,)``."""
    rows = published_table(TABLE_8)
    return np.array([retraining.share_of_log10_p(float(row["log10_p_match"]), PAPER_UNITS) for row in rows])


def published_shares_table(shares: NDArray[np.float64]) -> pd.DataFrame:
    """Published p-values and the shares of units that they imply, beside those of one half and of all units."""
    log10_p = np.array([float(row["log10_p_match"]) for row in published_table(TABLE_8)])
    return pd.DataFrame(
        [
            (f"published, weakest of {log10_p.size}", log10_p.max(), shares.min()),
            ("published, median", np.median(log10_p), np.median(shares)),
            ("published, strongest", log10_p.min(), shares.max()),
            ("half of the units agree", retraining.paper_log10_p_of_share(0.5, PAPER_UNITS), 0.5),
            ("all agree", retraining.paper_log10_p_of_share(1.0, PAPER_UNITS), 1.0),
        ],
        columns=["where", "log10 p", "share of units"],
    )
