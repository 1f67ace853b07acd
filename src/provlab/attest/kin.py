"""Which models one model is kin of, by their fingerprints: the tests, Holm over all of them, and the answer.

Rows of a fingerprint were chosen before another model was seen, so each matching has its own null law:

- *Up rows* is phi_U of the kept hidden units.
- *Both rows* is phi_MATCH by these weights, which asks for no order.
- *Untrained tokens* is phi_UNSEEN in the coordinates that `provlab.attest.fingerprint` keeps. Projections of the rows
  as they stand show which of them were drawn from one seed after training (`phi_unseen.drawn_alike`).

Holm over all tests keeps the family-wise error. A model is kin where *both rows* rejects; else the answer is weaker,
see `Kin.outcomes`. An order and rows of untrained tokens are no kinship even together, as both can be given to any
model and change no output. Which kin may be the nearest ancestor is `provlab.attest.nearest`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from provlab.attest import nearest
from provlab.attest.fingerprint import UNITS, Fingerprint, Rows
from provlab.errors import NotComparableError, ProvlabError
from provlab.inference import pvalues
from provlab.inference.matching import tie_seed, unit_rows
from provlab.plots.numbers import format_log10_p
from provlab.report import views
from provlab.report.card import OPEN, QUIET, RELATED, Card, in_short
from provlab.report.decide import IDENTICAL, ORDER, ROWS
from provlab.report.family import LEVEL
from provlab.report.findings import WORDS
from provlab.statistics import order, phi_unseen
from provlab.statistics.alive import living_rows
from provlab.statistics.options import Options
from provlab.statistics.phi_match import PhiMatch
from provlab.statistics.phi_u import correlation_with_identity
from provlab.statistics.phi_unseen import LEAST, centred
from provlab.statistics.results import BlockResult
from provlab.statistics.two_views import Views, tied

UP, BOTH, UNSEEN = TESTS = ("up rows", "both rows", "untrained tokens")
_SHOWN = 8  # models on a card
KIN, NONE = "kin", "none"  # beside ORDER and ROWS, which are outcomes of a pair
NOT_TESTED = (
    "other blocks than the first, and units beyond the first "
    f"{UNITS}: a model whose units were put in another order, or whose stream was rotated, shows by its untrained "
    "tokens alone",
    "what units of these rows write on text: it is estimated by weights, and rows of untrained tokens can be copied "
    "at no cost; by activations, provlab compare asks how much agreeing units write",
    f"sorts of both models by a rule unlike the keys that were tested: so agreement {ORDER} makes no kin",
    "models that are not on the shelf: none of them says nothing of these; provlab compare reads two models whole",
)


class Found(NamedTuple):
    """What one test of two fingerprints found.

    Attributes
    ----------
    log10_p
        Of the test alone.
    agree, n
        How many rows agree, of how many that were compared: hidden units of block 0, or untrained tokens.
    note
        What qualifies it, in words.
    """

    log10_p: float
    agree: int
    n: int
    note: str = ""

    @classmethod
    def of(cls, result: BlockResult, note: str = "") -> "Found":
        """Take a test's result.

        Raises
        ------
        NotComparableError
            It says why there is none.
        """
        if result.why:
            raise NotComparableError(result.why)
        return cls(float(result.log10_p or 0.0), result.detail.needed("agree"), result.detail.needed("n"), note)


def log10_p(a: Fingerprint, b: Fingerprint, test: str) -> Found:
    """log10 p of one test of two fingerprints, how many rows agree, and what qualifies that, in words.

    Raises
    ------
    ProvlabError
        There is none; the message says why.
    """
    return _by_tokens(a, b) if test == UNSEEN else _by_units(a, b, test)


def _by_units(a: Fingerprint, b: Fingerprint, test: str) -> Found:
    if a.width != b.width:
        raise NotComparableError(f"another width: {a.width} and {b.width}")
    if not (len(a.up) and len(b.up)):
        raise NotComparableError("a model has no up projection that all tokens pass")
    if test == UP:
        findings = [side.sorted_by or {"log10_p": 0.0} for side in (a, b)]
        sorts = [finding["log10_p"] for finding in findings]
        if min(sorts) <= np.log10(order.LEVEL) and max(sorts) <= np.log10(order.BESIDE):
            raise NotComparableError(order.why_withheld(findings))
        first, second = (living_rows(side.up.astype(np.float32), name=test)[0] for side in (a, b))
        return Found.of(correlation_with_identity(first, second, 0, tie_seed(0, test, 0)))
    sides = []
    for side in (a, b):
        up, second = living_rows(side.up.astype(np.float32), side.second.astype(np.float32), name=test)
        written = side.written[up.places].astype(np.float64)
        sides.append(Views(second, up, np.zeros((0, 0), np.int64), written, tied(second, up)))
    return Found.of(PhiMatch().compare_block(sides[0], sides[1], 0, Options()))


def _by_tokens(a: Fingerprint, b: Fingerprint) -> Found:
    tokens, of_a, of_b = np.intersect1d(a.tokens, b.tokens, return_indices=True)
    if len(tokens) < LEAST:
        raise NotComparableError(f"{len(tokens)} tokens look untrained in both, and {LEAST} are needed")
    anchors, in_a, in_b = np.intersect1d(a.anchors, b.anchors, return_indices=True)
    if len(anchors) < LEAST:
        raise NotComparableError(f"the two share {len(anchors)} trained tokens that are kept, and {LEAST} are needed")
    one_width = a.width == b.width
    if one_width:  # else no row of one can be a row of the other as it stands
        streams = phi_unseen.of_the_streams(_sketched(a.anchor_sketch[in_a], b.anchor_sketch[in_b]))
        in_a, in_b = in_a[streams], in_b[streams]
    # in an order of its own, so that nothing that follows the numbers of the tokens looks like agreement
    mixed = np.random.default_rng(tie_seed(0, UNSEEN, "tokens")).permutation(len(tokens))
    of_a, of_b = of_a[mixed], of_b[mixed]
    note, sides = "", ((a, of_a, in_a), (b, of_b, in_b))
    own, others = (centred(side.unseen[ids][:, columns].astype(np.float64)) for side, ids, columns in sides)
    if one_width:
        alike = phi_unseen.drawn_alike(_sketched(a.sketch[of_a], b.sketch[of_b]), phi_unseen.cosines(own, others))
        if alike.any():
            note = phi_unseen.one_seed(UNSEEN, int(alike.sum()), len(alike))
            own, others = own[~alike], others[~alike]
        if len(own) < LEAST:
            raise NotComparableError(note)
    first, second = (unit_rows(centred(side), name=UNSEEN) for side in (own, others))
    return Found.of(correlation_with_identity(first, second, None, tie_seed(0, UNSEEN, None)), note)


def _sketched(first: Rows, second: Rows) -> NDArray[np.float64]:
    return phi_unseen.cosines(first.astype(np.float64), second.astype(np.float64))


@dataclass(frozen=True)
class Kin(views.Report):
    """The models of a shelf that one model is kin of.

    Attributes
    ----------
    source, digest
        The model.
    tests
        For each model of the shelf and each of `TESTS`: ``source``, ``digest``, ``same`` (whether it is this very
        model, by files or by tensors; "" if not), ``test``, ``log10_p``,
        ``adjusted_log10_p`` by Holm, ``agree`` of ``n`` rows (see `Found`), ``note``, what qualifies it, and ``error``,
        why there is none.
    nearest
        The kin among which the nearest ancestor on the shelf is, if any of them is an ancestor; see
        `provlab.attest.nearest`.
    notes
        What qualifies an answer about this model, and about each that it is related to: sentences, each once.
    """

    source: str
    digest: str
    tests: tuple[dict[str, Any], ...]
    nearest: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcomes(self) -> dict[str, str]:
        """For each model of the shelf how it is related.

        "kin" where both rows of hidden units agree in any order; "rows of one origin" where untrained tokens do, be it
        with up rows; "by order alone" where up rows do, and nothing else; else "none".
        """
        rejecting: dict[str, set[str]] = {test["source"]: set() for test in self.tests}
        for test in self.tests:
            if _rejects(test):
                rejecting[test["source"]].add(test["test"])
        return {
            source: KIN if BOTH in by else ROWS if UNSEEN in by else ORDER if UP in by else NONE
            for source, by in rejecting.items()
        }

    def _named(self, outcome: str) -> list[str]:
        return [source for source, reached in self.outcomes.items() if reached == outcome]

    def title(self) -> str:
        """Kin of which, at which level, or none."""
        return f"{self._answer()} ({self._level()})"

    def _answer(self) -> str:
        weaker = "".join(f"; {words}: {', '.join(some)}" for words in (ORDER, ROWS) if (some := self._named(words)))
        return f"{self.source}: kin of {', '.join(self._named(KIN)) or 'none'}{weaker}"

    def _level(self) -> str:
        tested = [test for test in self.tests if test["error"] is None]
        over = f"Holm over {len(tested)} tests on {len(self.tests) // len(TESTS)} models"
        return f"{over}, family-wise error at most {LEVEL}"

    def card(self) -> Card:
        """Which models are kin, each with its smallest p-value, how many are not, and what qualifies that."""
        rows = []
        related = [source for outcome in (KIN, ROWS, ORDER) for source in self._named(outcome)]
        for source in related[:_SHOWN]:
            tests = [test for test in self.tests if test["source"] == source and test["error"] is None]
            least = min(tests, key=lambda test: float(test["adjusted_log10_p"]))
            same = least["same"] or self.outcomes[source]
            rows.append((source, same, format_log10_p(least["adjusted_log10_p"]), least["test"], _counted(least)))
        headings = ("model", "is", "log10 p, corrected", "by", "agree")
        body: list[Any] = [views.Table(headings, rows, right=(2, 4))] * bool(rows)
        beyond = f"; {len(related) - _SHOWN} more: -v" * (len(related) > _SHOWN)
        body.append(f"Found {len(related)} of {len(self.outcomes)} models of the shelf{beyond}.")
        failed = [f"{test['source']}: {test['test']}: {test['error']}" for test in self.tests if test["error"]]
        remarks = [
            ("agree", in_short(self._shares())),
            (
                "nearest",
                in_short(re.split(r"(?<=[.]) (?=[A-Z])", self._ancestry().removeprefix("Nearest ancestor: ")))
                if rows
                else "",
            ),
            (
                "mind",
                in_short([*(words for outcome, words in _WEAKER.items() if self._named(outcome)), *self._notes()]),
            ),
            ("not run", in_short(failed)),
            ("not tested", in_short(NOT_TESTED, 210)),
            ("judged by", self._level()),
        ]
        tone = RELATED if self._named(KIN) else OPEN if related else QUIET
        return Card(f"{self._answer()}.", tone, body, [(label, text) for label, text in remarks if text])

    def _shares(self) -> list[str]:
        """How much agrees, of each model that is related, by each test that says so."""
        shares = [
            f"{test['source']}: {_counted(test)} {AGREE[test['test']]}."
            for test in self.tests
            if _rejects(test) and self.outcomes[test["source"]] != NONE
        ]
        return [*shares, READ] if shares else []

    def _notes(self) -> list[str]:
        return [*self.notes, *(f"{test['source']}: {test['note']}" for test in self.tests if test["note"])]

    def parts(self) -> list[views.Part]:
        """A row for each test, what weaker answers mean, and the ways in which kin stay unseen."""
        values = [test["error"] or format_log10_p(test["adjusted_log10_p"]) for test in self.tests]
        names = [test["source"] + (f" ({test['same']})" if test["same"] else "") for test in self.tests]
        rows = list(zip(names, (test["test"] for test in self.tests), values, map(_counted, self.tests), strict=True))
        headings = ("model of the shelf", "test", "log10 p, corrected", "agree")
        parts: list[views.Part] = [views.Table(headings, rows, right=(3,))]
        parts += self._shares()
        for outcome, words in _WEAKER.items():
            if some := self._named(outcome):
                parts.append(f"{', '.join(some)}: {words}")
        parts += self._notes()
        parts.append(self._ancestry())
        return [*parts, views.Listed("Not tested", NOT_TESTED)]

    def _ancestry(self) -> str:
        """The set that holds the nearest ancestor, in words."""
        if not self.nearest:
            return "Nearest ancestor: none on this shelf, as far as these tests see kin."
        names = ", ".join(self.nearest)
        if how := [test["same"] for test in self.tests if test["same"] and test["source"] in self.nearest]:
            by = "file by file" if IDENTICAL in how else "tensor by tensor, in other files"
            return f"Nearest ancestor: {names} is the same model, {by}."
        return (
            f"Nearest ancestor: among {names}, if any kin is an ancestor: kin may all be siblings and descendants. "
            f"Stated coverage {nearest.COVERAGE:.0%}; {nearest.COUNTED}. No such count is made of larger models."
        )

    def drawn(self) -> None:
        """No picture."""

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        about = {"outcomes": self.outcomes, "level": LEVEL, "not_tested": NOT_TESTED, "coverage": nearest.COVERAGE}
        return {"schema": "provlab.identify/3", **vars(self), **about}


AGREE = {
    UP: "hidden units of block 0 agree in their places",
    BOTH: "hidden units of block 0 agree, in any order",
    UNSEEN: "rows of untrained tokens agree",
}
READ = (
    f"Read were at most {UNITS} hidden units of block 0, and no other block: a stranger that took over this one block "
    "looks alike. provlab compare counts in all blocks."
)
_WEAKER = {
    ORDER: f"hidden units agree {ORDER}, and by no test that ignores it. A common origin does that, and so does "
    "one rule by which both were sorted; provlab compare can tell by activations.",
    ROWS: "the embedding rows of tokens that no text has are of one origin: a common ancestor, a common initial draw, "
    "or copied rows, which change no output, as an order of hidden units does not either. Nothing is said of the other "
    "weights; provlab compare can tell by activations.",
}


def _rejects(test: dict[str, Any]) -> bool:
    return test["error"] is None and bool(test["adjusted_log10_p"] <= np.log10(LEVEL))


def _counted(test: dict[str, Any]) -> str:
    """How many rows agree, of how many."""
    return "" if test["n"] is None else f"{test['agree']} of {test['n']}"


def answer(own: Fingerprint, others: Sequence[Fingerprint]) -> Kin:
    """Say which of the others the model of one fingerprint is kin of."""
    tests: list[dict[str, Any]] = []
    for other, name in product(others, TESTS):
        same = own.same_as(other)
        configs = {own.config, other.config} - {""}
        test: dict[str, Any] = {
            "source": other.source,
            "digest": other.digest,
            "same": same,
            "test": name,
            "log10_p": None,
            "agree": None,
            "n": None,
            "note": WORDS["mind"]["configs"] if same and name == UP and len(configs) > 1 else "",
            "error": None,
        }
        try:
            found = log10_p(own, other, name)
            test |= found._asdict() | {"note": found.note or test["note"]}
        except ProvlabError as error:
            test["error"] = str(error)
        tests.append(test | {"adjusted_log10_p": None})
    tested = [test for test in tests if test["error"] is None]
    for test, value in zip(tested, pvalues.holm(np.array([test["log10_p"] for test in tested])), strict=True):
        test["adjusted_log10_p"] = float(value)
    kin = Kin(own.source, own.digest, tuple(tests))
    outcomes = kin.outcomes
    related = [other for other in others if outcomes[other.source] != NONE]
    notes = dict.fromkeys(note for side in (own, *related) for note in side.notes)
    return replace(kin, nearest=_nearest(own, others, kin), notes=tuple(notes))


def _nearest(own: Fingerprint, others: Sequence[Fingerprint], kin: Kin) -> tuple[str, ...]:
    """Kin that may be the nearest ancestor; one whose units stand elsewhere has no distance, and so may always be."""
    outcomes = kin.outcomes
    related = [other for other in others if outcomes[other.source] == KIN]
    if same := [other.source for other in related if own.same_as(other)]:
        return tuple(same)
    in_place = {test["source"] for test in kin.tests if test["test"] == UP and _rejects(test)}
    placed = [other for other in related if other.source in in_place]
    kept = nearest.candidates(*nearest.distances([(side.up, side.second) for side in (own, *placed)]))
    near = {placed[k - 1].source for k in kept}
    return tuple(other.source for other in related if other.source in near or other.source not in in_place)
