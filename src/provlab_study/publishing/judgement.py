"""A claim as a page judges it: shown beside the numbers that it was judged from, and what a sentence may say of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

from provlab_study.publishing import claims
from provlab_study.publishing.evidence import FAILS, HELD, NOT_RUN, WITHIN_SPREAD, ClaimStatus
from provlab_study.publishing.marks import PARTLY, UNDECIDED
from provlab_study.publishing.scoreboard import SIGNS

ROWS = 5  # rows of a table that a denied sentence names
Row = TypeVar("Row")
SHOWN = 160  # characters of a value in the box of a claim that holds; the whole folds
_TRUTH: dict[str, bool | str | None] = {
    **dict.fromkeys(HELD, True),
    FAILS: False,
    WITHIN_SPREAD: UNDECIDED,
    NOT_RUN: None,
}


@dataclass(frozen=True)
class Judgement:
    """The judgement of one claim.

    Attributes
    ----------
    claim : mapping
        Its row of ``claims.yml``.
    verdict : ClaimStatus
        What its function says of the records, in any profile.
    bars : mapping
        What the function takes beside the records.
    profile : str
        The profile of the run; the claim counts in those that its row names.
    """

    claim: Mapping[str, Any]
    verdict: ClaimStatus
    bars: Mapping[str, Any]
    profile: str

    @property
    def counts(self) -> bool:
        """Whether the claim is judged in this profile."""
        return self.profile in self.claim["profiles"]

    @property
    def holds(self) -> bool | str | None:
        """Whether a sentence holds that says the claim, as `truth` gives it."""
        return truth(self)

    @property
    def refuted(self) -> "Shown":
        """What holds where a sentence says the contrary of the claim."""
        holds = not self.holds if isinstance(self.holds, bool) else self.holds
        return Shown(f"the judgement of {self.claim['id']}", holds, self.seen)

    @property
    def seen(self) -> str:
        """What the records say, for a sentence that they deny: the first two values; the claim's box has all."""
        return "; ".join((self.verdict.ours or self.verdict.why).split("; ")[:2])

    @property
    def rule(self) -> str:
        """The function and its bars, as one would call it."""
        arguments = ", ".join(f"{name}={bar!r}" for name, bar in self.bars.items())
        return (
            f"{self.claim['predicate']['name']}(..., {arguments})"
            if arguments
            else f"{self.claim['predicate']['name']}(...)"
        )

    def _rows(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """The findings, and how they were judged; a claim that fails or was not run folds no finding."""
        verdict = self.verdict
        findings = [("Ours", verdict.ours), ("Margin", verdict.margin), ("Replicates", verdict.replicates)]
        reasons = [("Why", verdict.why), ("Rule", self.rule)]
        if verdict.status in (FAILS, NOT_RUN):
            findings.append(reasons.pop(0))
        elif verdict.status == WITHIN_SPREAD:  # the reason is the margin that decides
            findings[1], reasons[0] = reasons[0], findings[1]
        else:
            whole = findings
            findings = [(name, _beginning(text)) for name, text in whole]
            reasons[:0] = [row for row in whole if row not in findings]
        if not self.counts:
            reasons.append(("Scoreboard", f"not judged in the profile {self.profile}"))
        findings, reasons = ([(name, text) for name, text in rows if text] for rows in (findings, reasons))
        return findings, reasons

    def __repr__(self) -> str:
        """Plain text."""
        head = f"{self.claim['id']} {claims.words(self.verdict.status)}: {self.claim['statement']}"
        findings, reasons = self._rows()
        whole = dict(findings + reasons)
        return "\n".join([head, *(f"{name}: {text}" for name, text in whole.items())])

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        sign, color = SIGNS[self.verdict.status]
        findings, reasons = (
            "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows) for rows in self._rows()
        )
        html = (
            f'<div class="provlab-judgement"><p><strong>{self.claim["id"]} <span style="color:{color}">{sign} '
            f"{claims.words(self.verdict.status)}</span></strong>: {escape(self.claim['statement'])}</p>"
            f"<dl>{findings}</dl><details><summary>How it was judged</summary><dl>{reasons}</dl></details></div>"
        )
        return {"text/html": html, "text/plain": repr(self)}, {"claim": self.claim["id"]}


def _beginning(text: str) -> str:
    """As many parts of a text, divided by semicolons, as fit into some lines, and a mark if there are more."""
    shown, *rest = text.split("; ")
    for part in rest:
        if len(shown) + len(part) > SHOWN:
            return f"{shown}; …"
        shown = f"{shown}; {part}"
    return shown


@dataclass(frozen=True)
class Shown:
    """What a table of the page, or its like, says of a sentence.

    Attributes
    ----------
    table : str
        The beginning of its caption.
    holds : bool, str or None
        Whether the sentence holds, as `truth` gives it; None where the table has no rows.
    seen : str
        What it shows against the sentence.
    """

    table: str
    holds: bool | str | None
    seen: str = ""

    @classmethod
    def of(
        cls,
        table: str,
        rows: Iterable[Row],
        holds: Callable[[Row], Any] = lambda row: True,
        says: Callable[[Row], str] = str,
        *,
        some: bool = False,
    ) -> "Shown":
        """Ask each row whether the sentence holds: all must, or with `some` one; `says` puts a row into words.

        A row may be `UNDECIDED`; where no other row decides, so is the sentence.
        """
        rows = list(rows)
        if not rows:
            return cls(table, None)
        answers = [holds(row) for row in rows]
        agree = [UNDECIDED if isinstance(each, str) and each == UNDECIDED else bool(each) for each in answers]
        if some in agree:  # one row that agrees, or one that does not, is enough
            decided: bool | str = some
        else:
            decided = UNDECIDED if UNDECIDED in agree else not some
        if decided is not False:
            return cls(table, decided)
        against = [says(row) for row, agrees in zip(rows, agree, strict=True) if agrees is False]
        more = f"; and {len(against) - ROWS} more" * (len(against) > ROWS)
        return cls(table, False, f"{table}: {'; '.join(against[:ROWS])}{more}")


#: a sentence rests on a judgement or a table, or on several of which all must hold; a lead, on a condition too. None
#: is not tried
Truth = Judgement | Shown | Sequence["Judgement | Shown | bool | str | None"] | bool | str | None


def truth(support: Truth) -> bool | str | None:
    """Whether a sentence holds: True, False, None or `PARTLY` for what was not tried, `UNDECIDED` within its spread."""
    if isinstance(support, Judgement):
        return _TRUTH[support.verdict.status]
    if isinstance(support, Shown):
        return support.holds
    if isinstance(support, list | tuple):
        parts = [truth(part) for part in support]
        if False in parts:
            return False
        if None in parts:
            return None if all(part is None for part in parts) else PARTLY
        return next((worst for worst in (PARTLY, UNDECIDED) if worst in parts), True)
    return support if support is None or isinstance(support, str) else bool(support)


def seen(support: Truth) -> str:
    """What a run shows against a sentence that it denies; empty where the sentence is not denied."""
    if isinstance(support, list | tuple):
        return "; ".join(filter(None, map(seen, support)))
    return support.seen if isinstance(support, Judgement | Shown) and truth(support) is False else ""


def founded(support: Truth) -> bool:
    """Whether all that a sentence rests on are judgements and tables; None says nothing and needs none."""
    parts = support if isinstance(support, list | tuple) else [support]
    return all(part is None or isinstance(part, Judgement | Shown) for part in parts)
