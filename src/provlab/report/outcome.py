"""What is known of one pair: its tests, the disguises that it leaves open, and figures as those of related models.

`provlab.report.decide` brings them to an outcome.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from provlab import statistics as registry
from provlab.engine.table import PairRecord
from provlab.report.decide import NOT_REJECTED, Decision, Test, decide, seen
from provlab.report.family import FamilyOfTests
from provlab.statistics import flaws
from provlab.statistics.base import UNCALIBRATED
from provlab.statistics.results import Outcome

TEXT, PLACES, PARTS = flaws.OF_PAIR  # what a disguise of a pair spoils

#: outputs are equal up to rounding if they differ by no more than so many times a model's own; nine exact disguises
#: of a zoo model differed by 0 to 2 times
ROUNDINGS = 10.0
#: outputs agree as those of related models do below this share of the spread over positions. Independent models of the
#: zoo have 15% and more (15 pairs of roots), those that were tuned from one base 5% and more; a copy whose outputs were
#: kept has less than 1%. Large models of much data agree more closely than the zoo's, so the bound is far below these
ALIKE = 0.01
#: stream scores from here on are those of related models: a bound between those of the zoo's related and independent
#: pairs, which `measured.toml` has (streams); large models may agree more closely
RELATED_STREAM = 0.5


@dataclass(frozen=True, eq=False)
class PairEvidence:
    """The tests of one pair, and what is known beside them.

    Attributes
    ----------
    outcomes : mapping
        Statistic -> what came out, of those that ran.
    tests : tuple of Test
        Those that are corrected together, perhaps with those of other pairs.
    beside : tuple of Test
        Description beside a test that was declared the one to judge by: tests of units in any order, each at its share
        of the level.
    models : sequence of mapping
        What is known of the two, as `provlab.report.described` says it.
    """

    outcomes: Mapping[str, Outcome]
    tests: tuple[Test, ...]
    beside: tuple[Test, ...]
    models: Sequence[Mapping[str, Any]]

    @classmethod
    def of(
        cls,
        records: Sequence[PairRecord],
        models: Sequence[Mapping[str, Any]],
        family: FamilyOfTests,
        at: Sequence[int],
    ) -> "PairEvidence":
        """Take the records of one pair, which are those of the family `at` these places."""
        depth = max((model.get("blocks") or 0 for model in models), default=0)
        outcomes = {records[k].statistic: outcome for k in at if (outcome := records[k].outcome)}
        p, reach = family.adjusted_log10_p, family.adjusted_reach
        names = {records[k].statistic: k for k in at if family.members[k]}
        tests = [_test(name, outcomes[name], depth, p[k], reach[k]) for name, k in names.items()]
        described = {
            name: outcome.log10_p
            for name, outcome in outcomes.items()
            if outcome.log10_p is not None and name not in names and _of_units(name)
        }
        share = float(np.log10(max(len(described), 1)))
        beside = [_test(name, outcomes[name], depth, value + share, 0.0) for name, value in described.items()]
        return cls(outcomes, tuple(tests), tuple(beside), models)

    @cached_property
    def decision(self) -> Decision:
        """The outcome, and the tests that it rests on."""
        a, b = self.models
        return decide(
            self.tests,
            self.disguises,
            beside=self.beside,
            kin=self.kin,
            same=self.same_function,
            equal=a.get("content") is not None and a["content"] == b.get("content"),
            identical="digest" in a and a["digest"] == b.get("digest"),
        )

    @cached_property
    def disguises(self) -> list[flaws.Flaw]:
        """Those without a cost that are open here: that blocks were moved is so for tests that met them in place."""
        of_pair = {TEXT: bool(self.unread), PLACES: True, PARTS: bool(self.unlooked)}
        return [*(flaw for what, flaw in flaws.OF_PAIR.items() if of_pair[what] and not flaw.cost), *flaws.FREE]

    @property
    def ran(self) -> list[str]:
        """Tests that could have rejected, and figures that were taken."""
        figures = {"phi_jsd": self.outputs, "stream_score": self.outcomes.get("stream_score")}
        return [*(test.name for test in self.tests if test.able), *(name for name, figure in figures.items() if figure)]

    @property
    def cheapest(self) -> flaws.Flaw | None:
        """The cheapest way known to hide a common origin from all that ran; None where no way hides from all.

        What this pair leaves open costs nothing: it hides from tests that do not see through it, and from figures taken
        on a text that it spoils.
        """
        tests = {test.name: test for test in self.tests}

        def hides(flaw: flaws.Flaw, name: str) -> bool:
            return not seen(flaw, tests[name]) if name in tests else flaw.spoils == TEXT

        free = (flaw for flaw in self.disguises if all(hides(flaw, name) for name in self.ran))
        return next(free, None) or flaws.cheapest(self.ran)

    @property
    def price(self) -> dict[str, Any] | None:
        """The cheapest way known to hide a common origin from what ran; None unless the pair is *not rejected*.

        Keys: ``hides_from``, tests that could have rejected and figures that were taken; ``by``, a disguise in words,
        or None where no row of the table hides from all of them; ``shown_by``, attacks of the attack lab; ``price``,
        its tokens of training, nats a token, parameters and day, or None where it was not measured.
        """
        if self.decision.outcome != NOT_REJECTED:
            return None
        flaw = self.cheapest
        told = {"by": flaw and flaw.what, "shown_by": [*flaw.shown] if flaw else []}
        return {"hides_from": self.ran, **told, "price": asdict(flaw.price) if flaw and flaw.price else None}

    @cached_property
    def unread(self) -> Mapping[str, tuple[float, ...]]:
        """Models of which nothing shows that the ids they were given mean the text to them.

        A copy whose tokens have other numbers reads nonsense where the other reads the text, and no unit of either then
        looks like one of the other's. That costs nothing: its own tokenizer is left out, or kept back and the other's
        put in its place. So the loss of either model must be below that of the tokens' frequencies alone. Where neither
        is, the text tells nothing of the two. A loss that was not measured counts against models that were lent ids.

        Returns
        -------
        mapping
            Name -> its loss and that of the frequencies, in nats a token; none where phi_jsd did not measure them.
        """
        measured: Sequence[tuple[float, ...]] = self.losses or ((), ())
        return {
            str(model.get("name")): losses
            for model, losses in zip(self.models, measured, strict=True)
            if (losses[0] >= losses[-1] if losses else model.get("lent_ids"))
        }

    @cached_property
    def unlooked(self) -> Mapping[str, Mapping[str, int]]:
        """Models with hidden units that no test reads, as many as in a whole block: name -> their numbers by place."""
        counts = {str(model.get("name")): model.get("coverage") or {} for model in self.models}
        return {
            name: of["hidden"]
            for name, of in counts.items()
            if of and sum(of["hidden"].values()) >= max(of["block"], 1)
        }

    @property
    def losses(self) -> list[tuple[float, float]]:
        """Either model's loss on the text, and that of the tokens' frequencies; empty where not measured."""
        outputs = self.outcomes.get("phi_jsd")
        return list(zip(outputs.detail.losses or (), outputs.detail.frequencies or (), strict=True)) if outputs else []

    @property
    def forms(self) -> dict[str, str]:
        """Name -> the form in which a model read the text, as phi_jsd says; none where that did not run."""
        outputs = self.outcomes.get("phi_jsd")
        named = zip(self.models, (outputs and outputs.detail.forms) or (), strict=False)
        return {str(model.get("name")): form for model, form in named}

    @cached_property
    def outputs(self) -> Outcome | None:
        """The divergence of outputs: None where they were not compared, or depend on no input."""
        outputs = self.outcomes.get("phi_jsd")
        return outputs if outputs and (outputs.detail.spread or 0) > 0 else None

    @property
    def share_of_spread(self) -> float:
        """The divergence, as a share of that of one position from the next; NaN where there is none."""
        return self.outputs.value / self.outputs.detail.needed("spread") if self.outputs else np.nan

    @property
    def same_function(self) -> bool:
        """Whether outputs on the text are equal up to rounding, and depend on the text."""
        rounded = self.outputs is not None and self.outputs.value <= ROUNDINGS * self.outputs.detail.needed("rounding")
        return rounded and self.share_of_spread <= ALIKE

    @property
    def kin(self) -> list[str]:
        """Figures, no tests, that are those of related models."""
        stream = self.outcomes.get("stream_score")
        related = {
            "phi_jsd": self.share_of_spread <= ALIKE,
            "stream_score": stream is not None and stream.value >= RELATED_STREAM,
        }
        return [name for name, alike in related.items() if alike]


def _test(name: str, outcome: Outcome, depth: int, log10_p: float, reach: float) -> Test:
    """Say what a test reads that a disguise of the pair may spoil."""
    statistic = registry.get(name)
    in_place = outcome.detail.all_blocks is None and any(block.block is not None for block in outcome.blocks)
    moved = in_place and max(len(outcome.blocks), depth) >= flaws.OF_PAIR[PLACES].blocks
    spoilt = {TEXT: reads_text(name), PLACES: moved, PARTS: True}  # none reads what has no role
    reads = frozenset(what for what, may_be in spoilt.items() if may_be)
    return Test(name, statistic.evidence, reads, float(log10_p), float(reach))


def reads_text(name: str) -> bool:
    """Whether a statistic compares what models do on the text."""
    return "text_sha256" in registry.get(name).settings


def _of_units(name: str) -> bool:
    """Whether a test that counts finds related units in any order."""
    statistic = registry.get(name)
    return statistic.evidence == "units" and statistic.warrant != UNCALIBRATED
