"""Judged claims: a card, a report with what each rests on, JSON, and JUnit XML for a build machine."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from provlab import provenance
from provlab.claimed import fooling
from provlab.claimed.evidence import Evidence, by
from provlab.claimed.kinds import ERRORS, NOT_TESTABLE, OUTCOMES, REFUTED, Claim, Rung
from provlab.plots.numbers import format_log10_p
from provlab.report import views
from provlab.report.card import OPEN, QUIET, RELATED, Card, cut
from provlab.report.family import LEVEL
from provlab.report.lineage import short_names
from provlab.statistics.options import Options

SCHEMA = "provlab.check/1"
_SHORT = 60  # characters of a claim in a table
#: what no XML may hold; names of folders may
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: outcome -> exit status, the first that occurs; 0 where none does
STATUSES = {REFUTED: 1, NOT_TESTABLE: 3}


@dataclass(frozen=True, eq=False)
class Judged:
    """One claim, the rung of its ladder that holds, over how many questions it was corrected, and what named them."""

    evidence: Evidence
    rung: Rung
    questions: int
    named: str

    @property
    def claim(self) -> Claim:
        """As it was made."""
        return self.evidence.claim

    @property
    def outcome(self) -> str:
        """One of `provlab.claimed.kinds.OUTCOMES`."""
        return self.rung.outcome

    @property
    def error(self) -> str:
        """How often this outcome is wrong."""
        questions = "the 1 question" if self.questions == 1 else f"the {self.questions} questions"
        return ERRORS[self.rung.error].format(level=LEVEL, questions=questions, named=self.named)

    @property
    def because(self) -> str:
        """Why, with the numbers."""
        return f"{self.rung.why}{self._numbers()}"

    def _numbers(self) -> str:
        seen = []
        for base, pair in self.evidence.pairs.items():
            name, log10_p = by(pair)
            if name:
                seen.append(f"{base}: smallest log10 p {format_log10_p(log10_p)} by {name}")
        if self.evidence.answered:
            paired, log10_p, _ = self.evidence.answered
            wrong, right = paired.turned
            p = 10 ** min(0.0, log10_p)
            turned = f"{wrong} turned wrong and {right} right, p {p:.2g}"
            seen.append(f"of {len(paired.items)} answers {paired.other} not known to be the same; {turned}")
        if self.claim.digest:
            seen += [f"{what} {digest[:12]}..." for what, digest in self.evidence.digests.items()]
        return f" ({'; '.join(seen)})" if seen else ""

    @property
    def cheapest(self) -> str:
        """The cheapest way known to have it judged wrongly."""
        pairs = self.evidence.pairs.values()
        if self.claim.kind.fooled == fooling.DISGUISE:
            return "; ".join(dict.fromkeys(map(fooling.to_hide, pairs)))
        if self.claim.kind.fooled != fooling.FRAMING:
            return self.claim.kind.fooled
        # a relation is claimed, which units alone show
        tests = {test.name for pair in pairs for test in pair.tests if test.evidence == "units"}
        hits = {test.name for pair in pairs for test in pair.decision.hits if test.evidence == "units"}
        return fooling.to_frame(hits or tests)

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        pairs = {}
        for base, pair in self.evidence.pairs.items():
            name, log10_p = by(pair)
            pairs[base] = {"outcome": self.evidence.outcomes[base], "log10_p": log10_p, "by": name or None}
        answered = None
        if self.evidence.answered:
            paired, log10_p, _ = self.evidence.answered
            wrong, right = paired.turned
            answered = {
                "items": len(paired.items),
                "other": paired.other,
                "turned_wrong": wrong,
                "turned_right": right,
                "log10_p": log10_p if math.isfinite(log10_p) else None,
            }
        return {
            "model": self.claim.model,
            "claim": self.claim.line,
            "kind": self.claim.kind.name,
            "outcome": self.outcome,
            "fact": self.rung.fact,
            "because": self.because,
            "test": self.claim.kind.test,
            "error": self.error,
            "would_refute": self.claim.kind.refuting,
            "cheapest_way_to_fool": self.cheapest,
            "pairs": pairs,
            "items": answered,
            "digests": self.evidence.digests if self.claim.digest else None,
        }


@dataclass(frozen=True, eq=False)
class Checked(views.Report):
    """All claims of a file, judged; prints as text and shows itself in a notebook.

    Attributes
    ----------
    claims : tuple of Judged
    models : tuple of dict
        See `provlab.report.records.describe`.
    named : str
        What the claims stand in, in words.
    options : Options
        As the tests ran.
    """

    claims: tuple[Judged, ...]
    models: tuple[dict[str, Any], ...]
    named: str
    options: Options

    @property
    def outcomes(self) -> Counter[str]:
        """How many claims came to each outcome."""
        return Counter(one.outcome for one in self.claims)

    @property
    def status(self) -> int:
        """The exit status: 1 if a claim is refuted, 3 if none is and one cannot be tested, else 0."""
        return next((status for outcome, status in STATUSES.items() if self.outcomes[outcome]), 0)

    def title(self) -> str:
        """How many claims, by outcome."""
        counted = ", ".join(f"{self.outcomes[outcome]} {outcome}" for outcome in OUTCOMES if self.outcomes[outcome])
        claims = "1 claim" if len(self.claims) == 1 else f"{len(self.claims)} claims"
        return f"{claims} of {self.named}: {counted}"

    def _rows(self) -> list[tuple[str, str, str]]:
        names = short_names([model["source"] for model in self.models])
        return [(names[one.claim.model], cut(one.claim.line, _SHORT), one.outcome) for one in self.claims]

    def card(self) -> Card:
        """Each claim with its outcome, and what was found of those that are refuted or cannot be tested."""
        table = views.Table(("model", "claim", "outcome"), self._rows())
        said = {one.outcome: one for one in reversed(self.claims)}
        remarks = [
            *((outcome, f"{one.claim.line}: {one.because}") for outcome, one in said.items() if outcome in STATUSES),
            ("mind", self._mind()),
        ]
        tone = RELATED if self.outcomes[REFUTED] else OPEN if self.outcomes[NOT_TESTABLE] else QUIET
        return Card(f"{self.title()}.", tone, [table], remarks)

    def _mind(self) -> str:
        cheapest = next((one for one in self.claims if one.evidence.pairs), self.claims[0])
        return f"The cheapest way known to be judged otherwise on {cheapest.claim.line!r}: {cheapest.cheapest}."

    def parts(self) -> Sequence[views.Part]:
        """The table, and what each claim rests on."""
        parts: list[views.Part] = [views.Table(("model", "claim", "outcome"), self._rows())]
        for one in self.claims:
            parts.append(
                views.Listed(
                    f"{one.claim.model}: {one.claim.line}",
                    [
                        f"{one.outcome}: {one.because}",
                        f"judged by: {one.claim.kind.test}",
                        f"error: {one.error}",
                        f"would refute it: {one.claim.kind.refuting}",
                        f"cheapest way known to fool it: {one.cheapest}",
                    ],
                )
            )
        return parts

    def drawn(self) -> None:
        """No picture."""

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        return {
            "schema": SCHEMA,
            "outcomes": {outcome: self.outcomes[outcome] for outcome in OUTCOMES},
            "level": LEVEL,
            "claims": [one.to_json() for one in self.claims],
            "models": list(self.models),
            "parameters": self.options.as_record(),
            "versions": provenance.versions(),
        }

    def to_junit(self) -> str:
        """JUnit XML: a claim a test case, refuted a failure, what cannot be tested skipped."""
        counts = {"tests": len(self.claims), "failures": self.outcomes[REFUTED], "skipped": self.outcomes[NOT_TESTABLE]}
        suite = ElementTree.Element("testsuite", {"name": "provlab check"} | {k: str(n) for k, n in counts.items()})
        for one in self.claims:
            case = ElementTree.SubElement(suite, "testcase", classname=one.claim.model, name=one.claim.line)
            if kind := {REFUTED: "failure", NOT_TESTABLE: "skipped"}.get(one.outcome):
                ElementTree.SubElement(case, kind, message=one.because)
            ElementTree.SubElement(case, "system-out").text = f"{one.outcome}: {one.because}; {one.error}"
        declared = '<?xml version="1.0" encoding="utf-8"?>\n'
        return declared + _NO_XML.sub("?", ElementTree.tostring(suite, encoding="unicode")) + "\n"
