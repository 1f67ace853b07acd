"""What the tests of one pair amount to, in one word: the rule that `compare`, `study` and scripts share.

A test rejects independence, and an adversary or an accident may be what it rejects. So what rejects decides the word:

- A test of units in any order: *rejected*.
- Tests of the embedding's rows, and of these alone: *rows of one origin*. Rows can be copied from one model to another,
  turned into its stream, and change no output.
- Tests that read the order of units alone: *by order alone*. Two models that were sorted by one rule look related to
  them, and the check for sorts knows some rules only.

Where nothing rejects, it counts what could have (`Evidence.silent`), and asks whether both models read one text
(`Evidence.unread`) and whether anything looked beyond blocks of one index (`Evidence.in_place`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from provlab import statistics as registry
from provlab.engine.table import PairRecord
from provlab.report.family import LEVEL, FamilyOfTests
from provlab.statistics import flaws
from provlab.statistics.base import UNCALIBRATED
from provlab.statistics.results import Outcome

IDENTICAL, SAME = "identical", "same function"
REJECTED, ROWS, ORDER = "rejected", "rows of one origin", "by order alone"
NOT_REJECTED, UNTESTED = "not rejected", "could not be tested"
OUTCOMES = (IDENTICAL, SAME, REJECTED, ROWS, ORDER, NOT_REJECTED, UNTESTED)
#: what `--fail-on rejected` stands for: outcomes that no order and no copied row brings about
REJECTIONS = (IDENTICAL, SAME, REJECTED)

#: outputs are equal up to rounding if they differ by no more than so many times a model's own; nine exact disguises
#: of a zoo model differed by 0 to 2 times
ROUNDINGS = 10.0
#: outputs agree as those of related models do below this share of the spread over positions. Independent models of the
#: zoo have 15% and more (15 pairs of roots), those that were tuned from one base 5% and more; a copy whose outputs were
#: kept has less than 1%. Large models of much data agree more closely than the zoo's, so the bound is far below these
ALIKE = 0.01
#: stream scores from here on are those of related models: in the zoo 0.98 and more, 0.21 at most for independent ones
#: (9 and 91 pairs)
RELATED_STREAM = 0.5


@dataclass(frozen=True, eq=False)
class Evidence:
    """The tests of one pair.

    Attributes
    ----------
    outcomes : mapping
        Statistic -> what came out, of those that ran.
    tested, rejecting, able : tuple of str
        Tests that are corrected together; those of them that reject; those that could have.
    agreeing : tuple of str
        Tests that ignore the order of units and are description only, but so small that they bear out the others.
    identical : bool
        The two models are byte for byte the same.
    names : tuple of str
        The two models'.
    lent : tuple of bool
        Whether a model has no tokenizer, and was lent the other's ids, or random ones.
    depth : int
        Blocks of the deeper model; 0 where not known.
    """

    outcomes: Mapping[str, Outcome]
    tested: tuple[str, ...]
    rejecting: tuple[str, ...]
    able: tuple[str, ...]
    agreeing: tuple[str, ...]
    identical: bool
    names: tuple[str, str] = ("", "")
    lent: tuple[bool, bool] = (False, False)
    depth: int = 0

    @classmethod
    def of(
        cls,
        records: Sequence[PairRecord],
        models: Sequence[Mapping[str, Any]],
        family: FamilyOfTests,
        at: Sequence[int],
    ) -> "Evidence":
        """Take the records of one pair, which are those of the family `at` these places."""
        a, b = models
        named = [(records[k].statistic, k) for k in at]
        tested, rejecting, able = (
            tuple(name for name, k in named if which[k]) for which in (family.members, family.rejected, family.able)
        )
        outcomes = {record.statistic: record.outcome for record in (records[k] for k in at) if record.outcome}
        # beside a test that was declared the one to judge by, each of the others at its share of the level
        beside = [
            name
            for name in outcomes
            if name not in tested and ignores_order(name) and registry.get(name).warrant != UNCALIBRATED
        ]
        p = {name: outcomes[name].log10_p for name in beside}
        agreeing = tuple(name for name, value in p.items() if value is not None and value <= _share(len(beside)))
        same = "digest" in a and a["digest"] == b.get("digest")
        called, lent = (a.get("name", ""), b.get("name", "")), (bool(a.get("lent_ids")), bool(b.get("lent_ids")))
        depth = max(a.get("blocks") or 0, b.get("blocks") or 0)
        return cls(outcomes, tested, rejecting, able, agreeing, same, called, lent, depth)

    @cached_property
    def outcome(self) -> str:
        """One of `OUTCOMES`."""
        if self.identical:
            return IDENTICAL
        if self.same_function:
            return SAME
        if self.rejecting:
            if any(ignores_order(name) for name in (*self.rejecting, *self.agreeing)):
                return REJECTED
            return ROWS if flaws.ROWS.intersection(self.rejecting) - flaws.ORDERED else ORDER
        return UNTESTED if self.silent or self.in_place or self.alike or self.unread else NOT_REJECTED

    @property
    def silent(self) -> bool:
        """Whether no test could have rejected that every disguise without a cost leaves standing."""
        return not set(flaws.STANDING) & set(self.able)

    @property
    def by_index(self) -> tuple[str, ...]:
        """Tests that compared blocks of one index alone, where a copy's could stand at other places.

        No block of two can be moved without leaving out half of the model.
        """
        return tuple(
            name
            for name in self.tested
            if (outcome := self.outcomes.get(name)) is not None
            and outcome.detail.all_blocks is None
            and outcome.blocks
            and outcome.blocks[0].block is not None
            and (len(outcome.blocks) > 2 or len(outcome.blocks) < self.depth)
        )

    @property
    def in_place(self) -> bool:
        """Whether tests could have rejected, and none of them if blocks had been moved.

        A copy of many blocks that leaves out two and gets an empty one at either end costs little, and has no block at
        its place. It keeps its embedding, which tests of rows and the stream score read, and is found among all blocks.
        """
        elsewhere = {*flaws.ROWS, *flaws.STANDING}.intersection(self.able).difference(self.by_index)
        return not self.silent and not elsewhere and "stream_score" not in self.outcomes

    @property
    def unread(self) -> Mapping[str, tuple[float, float] | None]:
        """Models of which nothing shows that the ids they were given mean the text to them.

        A copy whose tokens have other numbers reads nonsense where the other reads the text, and no unit of either then
        looks like one of the other's. That costs nothing: its own tokenizer is left out, or kept back and the other's
        put in its place. So the loss of either model must be below that of the tokens' frequencies alone. Where neither
        is, the text tells nothing of the two. A loss that was not measured counts against models that were lent ids.

        Returns
        -------
        mapping
            Name -> its loss and that of the frequencies, in nats a token; None where phi_jsd did not measure them.
        """
        measured: list[tuple[float, float] | None] = [*self.losses] or [None, None]
        return {
            name: losses
            for name, losses, lent in zip(self.names, measured, self.lent, strict=True)
            if (lent if losses is None else losses[0] >= losses[1])
        }

    @property
    def losses(self) -> list[tuple[float, float]]:
        """Either model's loss on the text, and that of the tokens' frequencies; empty where not measured."""
        outputs = self.outcomes.get("phi_jsd")
        if outputs is None or not outputs.detail.losses or not outputs.detail.frequencies:
            return []
        return list(zip(outputs.detail.losses, outputs.detail.frequencies, strict=True))

    @property
    def divergence(self) -> Mapping[str, float] | None:
        """The divergence of outputs, and what it is measured against: None where the outputs were not compared."""
        outputs = self.outcomes.get("phi_jsd")
        if outputs is None or (outputs.detail.spread or 0) <= 0:
            return None
        return {
            "value": outputs.value,
            **{name: outputs.detail.needed(name) for name in ("n", "rounding", "spread", "unit")},
        }

    @property
    def same_function(self) -> bool:
        """Whether outputs on the text are equal up to rounding, and depend on the text."""
        outputs = self.divergence
        return outputs is not None and outputs["value"] <= min(
            ROUNDINGS * outputs["rounding"], ALIKE * outputs["spread"]
        )

    @property
    def alike(self) -> tuple[str, ...]:
        """Figures, no tests, that are those of related models."""
        outputs, stream = self.divergence, self.outcomes.get("stream_score")
        names = ["phi_jsd"] * (outputs is not None and outputs["value"] <= ALIKE * outputs["spread"])
        return (*names, *["stream_score"] * (stream is not None and stream.value >= RELATED_STREAM))


def ignores_order(name: str) -> bool:
    """Whether a test finds related hidden units in any order: no order and no rows of the embedding decide it."""
    return name not in flaws.ROWS and not registry.get(name).reads_order


def _share(tests: int) -> float:
    return float(np.log10(LEVEL / tests))
