"""Retrained MLPs: a suspect, the two models that its blocks are compared with, and tables of what is found."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize

from provlab.inference import pvalues
from provlab.inference.matching import UnitRows, unit_rows
from provlab.statistics.options import Options
from provlab.statistics.phi_match import GateAndUp
from provlab.statistics.results import BlockResult
from provlab.statistics.two_views import Views
from provlab_study.publishing.published import published_table
from provlab_study.shared import retraining
from provlab_study.shared.retraining import Retrained
from provlab_study.shared.students import Student

BAR = -12.0  # log10 p in the paper's form that the claim asks of every retrained block
TABLE_8 = "independence_table8_mlp_retraining"
PAPER_UNITS = 11_008  # hidden units of an MLP in the paper's models


@dataclass(frozen=True)
class Trial:
    """A model whose blocks are retrained one at a time, and the two that its blocks are compared with."""

    suspect: Retrained
    base: GateAndUp = field(repr=False)
    stranger: GateAndUp = field(repr=False)

    @classmethod
    def open(cls, base: str, tuned: str, stranger: str, options: Options, *, allow_pickle: bool) -> "Trial":
        """Open three sources and run each once over the text of the options."""
        return cls(
            Retrained.open(tuned, options, allow_pickle=allow_pickle),
            retraining.reference(base, options, allow_pickle=allow_pickle),
            retraining.reference(stranger, options, allow_pickle=allow_pickle),
        )

    def views(self, other: GateAndUp, at: int, block: int, student: Student) -> tuple[Views, Views]:
        """Return both sides of a comparison of the block `at` of another model with a retrained block.

        A student's activations are linear in what enters it, ``X = Q R`` with Q ``(positions, width)``: the part of
        another model's unit outside the columns of Q enters no cosine but by its length. So the cosines over positions
        are those over ``width + 1`` numbers for each unit, at a fraction of the cost.
        """
        basis, triangle = np.linalg.qr(self.suspect.inputs[block])
        triangle = np.vstack([triangle, np.zeros_like(triangle[:1])])
        theirs = other.block(at)
        ours = retraining.as_views(student.activations(triangle), self.suspect.places)
        return theirs._replace(gate=_along(theirs.gate, basis), up=_along(theirs.up, basis)), ours

    def up_cosines(self, block: int, student: Student, unsigned: BlockResult) -> NDArray[np.float64]:
        """Cosine of the up activations of each unit with its partner's, where both unsigned matchings name that one."""
        assert unsigned.matching is not None
        by_gate, by_up = unsigned.matching
        agree = np.flatnonzero(by_gate == by_up)
        theirs = self.base.block(block)[1].unit[agree]  # (units, positions), of length 1
        ours = self.suspect.views(block, student)[1].unit[by_gate[agree]]
        cosines: NDArray[np.float64] = (theirs * ours).sum(axis=1)
        return cosines


def _along(rows: UnitRows, basis: NDArray[np.float32]) -> UnitRows:
    """Unit rows by their coordinates in an orthonormal basis, and the length of the rest: ``(h, width + 1)``."""
    along = rows.unit @ basis
    rest = np.sqrt(np.clip(1 - np.square(along).sum(axis=1, keepdims=True), 0, None))
    return replace(unit_rows(np.hstack([along, rest])), left_out=rows.left_out)


def paper_log10_p_of_share(share: float, n: int) -> float:
    """Return phi_MATCH's log10 p by the paper's two-sided t tail, where the two matchings agree on a share of n units.

    They are random on the others: Spearman's correlation is then that share, up to chance.
    """
    distance = 2 * round((1 - share) * (n * (n * n - 1) // 6) / 2)  # Spearman's, which is even, nearest to the share
    return pvalues.log10_p_t(distance, n)


def share_of_log10_p(log10_p: float, n: int) -> float:
    """Return the share of n units whose agreement gives a published p: the inverse of `paper_log10_p_of_share`."""
    return float(optimize.bisect(lambda share: paper_log10_p_of_share(share, n) - log10_p, 0.0, 1.0, xtol=1e-6))


def published() -> pd.DataFrame:
    """Table 8: mlp, loss and log10_p as published, and the share of `PAPER_UNITS` that must agree to give this p."""
    rows = published_table(TABLE_8)
    frame = pd.DataFrame({name: [row[name] for row in rows] for name in ("mlp", "loss")})
    frame["log10_p"] = [float(row["log10_p_match"]) for row in rows]
    return frame.assign(share=[share_of_log10_p(p, PAPER_UNITS) for p in frame["log10_p"]])


def frontier_table(points: pd.DataFrame) -> pd.DataFrame:
    """Return for each block the error at which it is found, and the share of the MLP's worth lost at that error."""
    rows = []
    for block, group in points.groupby("block"):
        row = {"block": block, "the MLP is worth, nats": group["worth"].iloc[0]}
        for name, statistic, space in (("phi_MATCH", "phi_match", ""), ("unsigned", "phi_match_unsigned", " ")):
            first = _first_passing(group, statistic)
            row[f"{name} from error"] = None if first is None else float(first["relative"])
            row[f"of the MLP lost{space}"] = None if first is None else float(first["harm"] / first["worth"])
        row["strangers, smallest log10 p"] = min(group["a stranger"].min(), group["a stranger, unsigned"].min())
        rows.append(row)
    return pd.DataFrame(rows)


def _first_passing(points: pd.DataFrame, statistic: str) -> "pd.Series[Any] | None":
    """Return the point of the largest error at and below which all points of a block are below `BAR`, if any."""
    ordered = points.sort_values("relative")
    passing = ordered[(ordered[statistic] < BAR).cummin()]
    return passing.iloc[-1] if len(passing) else None
