"""What the page on retrained MLPs measures: what phi_MATCH finds of each block, and at which error and cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.chapters.shared import retraining
from provlab.chapters.shared.retraining import Retrained
from provlab.chapters.shared.students import Settings, Student, relative_error
from provlab.inference import pvalues
from provlab.inference.matching import UnitRows, unit_rows
from provlab.publishing.published import published_table
from provlab.statistics.base import BlockResult, Options
from provlab.statistics.phi_match import GateAndUp

BAR = -12.0  # log10 p that the claim asks of every retrained block
_LEVEL = -2.0  # log10 of the level at which blocks are called found
TABLE_8 = "independence_table8_mlp_retraining"


@dataclass(frozen=True)
class Judged:
    """Both statistics of one retrained block, by name: against the base's block, and against the stranger's."""

    own: Mapping[str, BlockResult]
    strange: Mapping[str, BlockResult]

    def log10_p(self) -> dict[str, Any]:
        """Return log10 p under the names that records have."""
        return {
            "log10_p": self.own["phi_match"].log10_p,
            "log10_p_unsigned": self.own["phi_match_unsigned"].log10_p,
            "log10_p_stranger": self.strange["phi_match"].log10_p,
            "log10_p_stranger_unsigned": self.strange["phi_match_unsigned"].log10_p,
        }


@dataclass(frozen=True)
class Trial:
    """A model whose blocks are retrained one at a time, and the two that its blocks are compared with."""

    model: Retrained
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

    @property
    def n_blocks(self) -> int:
        """Blocks of the model."""
        return self.model.model.anatomy.n_blocks

    @property
    def n_units(self) -> int:
        """Hidden units of each MLP, before retraining."""
        return self.model.model.anatomy.mlp_width

    def judge(self, block: int, student: Student) -> Judged:
        """Compare a retrained block with the same block of the base and of the stranger."""
        own, strange = (self.compare(other, block, block, student) for other in (self.base, self.stranger))
        return Judged(own, strange)

    def compare(self, other: GateAndUp, at: int, block: int, student: Student) -> dict[str, BlockResult]:
        """Compare a retrained block with the block `at` of another model by both statistics, by name.

        A student's activations are linear in what enters it, ``X = Q R`` with Q ``(positions, width)``: what another
        model's unit has beside the columns of Q enters no cosine but by its length. So the cosines over positions are
        those over ``width + 1`` numbers for each unit, at a fraction of the cost.
        """
        basis, triangle = np.linalg.qr(self.model.inputs[block])
        triangle = np.vstack([triangle, np.zeros_like(triangle[:1])])
        gate, up, tokens = other.block(at)
        views = retraining.as_views(student.activations(triangle), self.model.spelt)
        return retraining.compare((_along(gate, basis), _along(up, basis), tokens), views, at, self.model.options)


def _along(rows: UnitRows, basis: NDArray[np.float32]) -> UnitRows:
    """Unit rows by their coordinates in an orthonormal basis, and the length of what is left: ``(h, width + 1)``."""
    along = rows.unit @ basis
    beside = np.sqrt(np.clip(1 - np.square(along).sum(axis=1, keepdims=True), 0, None))
    return replace(unit_rows(np.hstack([along, beside])), left_out=rows.left_out)


# Every block ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockRecord:
    """One retrained block.

    Attributes
    ----------
    seed
        Of the fresh weights and their inputs.
    block
        Its index.
    loss, relative
        Squared error of the student on held-out noise, and the same over the mean square of the outputs.
    relative_text
        Relative error on held-out text.
    log10_p, log10_p_unsigned
        phi_MATCH against the base's block, as published and without regard to signs.
    log10_p_stranger, log10_p_stranger_unsigned
        The same against the stranger's block; None if there was none.
    """

    seed: int
    block: int
    loss: float
    relative: float
    relative_text: float
    log10_p: float
    log10_p_unsigned: float
    log10_p_stranger: float | None
    log10_p_stranger_unsigned: float | None


def block_records(trial: Trial, students: Sequence[Student], judged: Sequence[Judged], seed: int) -> list[BlockRecord]:
    """Put errors and p-values of each retrained block together."""
    return [
        BlockRecord(
            seed=seed,
            block=block,
            loss=student.loss,
            relative=student.relative,
            relative_text=relative_error(student, trial.model.mlp(block), trial.model.inputs[block]),
            **one.log10_p(),
        )
        for block, (student, one) in enumerate(zip(students, judged, strict=True))
    ]


def again(trial: Trial, settings: Settings, seeds: Sequence[int], device: str) -> list[BlockRecord]:
    """Retrain and judge every block with each of some seeds; what the students were on the way is not kept."""
    records = []
    for seed in seeds:
        other = replace(settings, snapshots=(), seed=seed)
        students = [trial.model.student(block, other, device=device) for block in range(trial.n_blocks)]
        judged = [trial.judge(block, student) for block, student in enumerate(students)]
        records += block_records(trial, students, judged, seed)
    return records


def by_seed(records: Sequence[BlockRecord]) -> pd.DataFrame:
    """Return the weakest and the strongest block of each retraining, and the stranger's smallest value."""
    frame = pd.DataFrame(records)
    weakest = frame.loc[frame.groupby("seed")["log10_p"].idxmax()].set_index("seed")
    grouped = frame.groupby("seed")
    return pd.DataFrame(
        {
            "weakest block": weakest["block"],
            "its log10 p": weakest["log10_p"],
            "strongest log10 p": grouped["log10_p"].min(),
            "unsigned, weakest": grouped["log10_p_unsigned"].max(),
            "a stranger, smallest": grouped["log10_p_stranger"].min(),
            "relative error, largest": grouped["relative"].max(),
        }
    ).reset_index()


def by_statistic(records: Sequence[BlockRecord]) -> pd.DataFrame:
    """Return log10 p of each block, with a column for each series that figures draw."""
    names = {"log10_p": "phi_match", "log10_p_unsigned": "phi_match_unsigned", "log10_p_stranger": "a stranger"}
    return pd.DataFrame(records).rename(columns=names)[["block", *names.values()]]


def table_8(records: Sequence[BlockRecord]) -> pd.DataFrame:
    """Table 8 beside our blocks, as many of its rows as we have blocks."""
    published = pd.DataFrame(published_table(TABLE_8)).reindex(range(len(records)))
    ours = pd.DataFrame(records)
    return pd.DataFrame(
        {
            "block, ours": ours["block"],
            "MLP, published": published["mlp"],
            "train loss, published": published["loss"],
            "log10 p, published": published["log10_p_match"].astype(float),
            "loss, ours": ours["loss"],
            "relative error, ours": ours["relative"],
            "on text, ours": ours["relative_text"],
            "log10 p, ours": ours["log10_p"],
            "log10 p unsigned, ours": ours["log10_p_unsigned"],
            "log10 p, stranger": ours["log10_p_stranger"],
        }
    )


def block_findings(records: Sequence[BlockRecord]) -> str:
    """How many blocks are found by Holm's correction over all tests, and how errors on text compare, in Markdown."""
    n = len(records)
    adjusted = pvalues.holm(np.array([one.log10_p for one in records] + [one.log10_p_stranger for one in records]))
    on_text = sum(one.relative_text < one.relative for one in records)
    return (
        f"With Holm's correction over these {len(adjusted)} tests at the level 0.01, "
        f"**{int((adjusted[:n] <= _LEVEL).sum())} of {n}** retrained blocks are found, and "
        f"**{int((adjusted[n:] <= _LEVEL).sum())} of {n}** of the unrelated model's are called related. The relative "
        f"error on text is smaller than that on noise in {on_text} of {n} blocks."
    )


@dataclass(frozen=True)
class CrossRecord:
    """A retrained block (`block`) compared with a block (`other`) of "base" or "stranger" that it was not made from."""

    against: str
    block: int
    other: int
    statistic: str
    log10_p: float | None


def crossed(trial: Trial, students: Sequence[Student]) -> list[CrossRecord]:
    """Compare each retrained block with every block that it has nothing to do with, by both statistics."""
    records = []
    for block, student in enumerate(students):
        for name, model in (("base", trial.base), ("stranger", trial.stranger)):
            for other in range(trial.n_blocks):
                if (name, block) != ("base", other):
                    results = trial.compare(model, other, block, student)
                    records += [CrossRecord(name, block, other, key, one.log10_p) for key, one in results.items()]
    return records


def crossed_table(records: Sequence[CrossRecord]) -> pd.DataFrame:
    """Return how often unrelated blocks have a small p-value, a row for each statistic."""
    spread = pd.DataFrame(records).groupby("statistic")["log10_p"]
    return pd.DataFrame(
        {
            "pairs of blocks": spread.size(),
            "share below 0.05": spread.apply(lambda values: float((values < np.log10(0.05)).mean())),
            "smallest log10 p": spread.min(),
            "smallest log10 p, Holm": spread.apply(lambda values: float(pvalues.holm(values.to_numpy()).min())),
        }
    )


# Errors and cost --------------------------------------------------------------------------------------------


def frontier(trial: Trial, students: Sequence[Student], judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Judge each student at its snapshots, with its error and what it costs the whole model; its end is `judged`.

    Returns
    -------
    list of dict
        Keys: block; step; relative (the student's error on noise); worth (nats per token that the model loses without
        this MLP); harm (nats per token that it loses with the student in its place); log10 p of phi_match and
        phi_match_unsigned, and of "a stranger" and "a stranger, unsigned".
    """
    points, intact = [], trial.model.loss()
    for block, (student, at_end) in enumerate(zip(students, judged, strict=True)):
        worth = trial.model.loss(block, lambda rows: 0 * rows) - intact  # the MLP left out
        for step in (*sorted(student.kept), student.curve[-1].step):
            then = student.at(step)
            found = at_end if then is student else trial.judge(block, then)
            points.append(
                {
                    "block": block,
                    "step": step,
                    "relative": then.relative,
                    "worth": worth,
                    "harm": trial.model.loss(block, then) - intact,
                    **{name: result.log10_p for name, result in found.own.items()},
                    "a stranger": found.strange["phi_match"].log10_p,
                    "a stranger, unsigned": found.strange["phi_match_unsigned"].log10_p,
                }
            )
    return points


def frontier_table(points: pd.DataFrame) -> pd.DataFrame:
    """Return for each block the error at which it is found, and the share of the MLP's worth lost at that error."""
    rows = []
    for block, group in points.groupby("block"):
        row = {"block": block, "the MLP is worth, nats": group["worth"].iloc[0]}
        for name, statistic, space in (("phi_MATCH", "phi_match", ""), ("unsigned", "phi_match_unsigned", " ")):
            found = _first_found(group, statistic)
            row[f"{name} from error"] = None if found is None else float(found["relative"])
            row[f"of the MLP lost{space}"] = None if found is None else float(found["harm"] / found["worth"])
        row["strangers, smallest log10 p"] = min(group["a stranger"].min(), group["a stranger, unsigned"].min())
        rows.append(row)
    return pd.DataFrame(rows)


def _first_found(points: pd.DataFrame, statistic: str) -> "pd.Series[Any] | None":
    """Return the point of the largest error at and below which all points of a block are below `BAR`, if any."""
    ordered = points.sort_values("relative")
    kept = ordered[(ordered[statistic] < BAR).cummin()]
    return kept.iloc[-1] if len(kept) else None


def shorter(trial: Trial, student: Student, settings: Settings, device: str) -> list[dict[str, Any]]:
    """Train the first block for half of the steps, and judge what that gives and the `student` of `settings`."""
    half, intact = replace(settings, snapshots=(), steps=settings.steps // 2), trial.model.loss()
    rows = []
    for steps, one in ((half.steps, trial.model.student(0, half, device=device)), (settings.steps, student)):
        judged = trial.judge(0, one)
        rows.append(
            {
                "training": f"{steps:,} steps",
                "relative error": one.relative,
                "added loss, nats": trial.model.loss(0, one) - intact,
                "log10 p": judged.own["phi_match"].log10_p,
                "log10 p unsigned": judged.own["phi_match_unsigned"].log10_p,
                "log10 p, stranger": judged.strange["phi_match"].log10_p,
            }
        )
    return rows
