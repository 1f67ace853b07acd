"""The verdict on one pair in sentences: one list of findings, which a card and a paragraph show in the same words.

A finding is a label and a sentence of `words.toml`. It is said where all facts that it names are there, so that few
conditions stand beside the table.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from provlab import statistics as registry
from provlab.engine.table import PairRecord
from provlab.errors import one_line
from provlab.inference import power
from provlab.measured import quoted
from provlab.plots.numbers import format_log10_p
from provlab.reading.files.dtypes import UNITS
from provlab.reading.forms import CHOSEN
from provlab.report.card import joined
from provlab.report.decide import (
    EQUAL,
    IDENTICAL,
    NOT_REJECTED,
    ORDER,
    OUTCOMES,
    REJECTED,
    ROWS,
    SAME,
    UNTESTED,
    Test,
    seen,
)
from provlab.report.family import LEVEL, FamilyOfTests, why_none
from provlab.report.outcome import ALIKE, PLACES, RELATED_STREAM, PairEvidence, reads_text
from provlab.report.words import Finding, Words
from provlab.statistics import flaws
from provlab.statistics.base import BY_THEOREM, UNCALIBRATED
from provlab.statistics.results import Outcome

#: outcome -> its key in the table of words
KEYS = dict(
    zip(OUTCOMES, ("identical", "equal", "same", "rejected", "rows", "order", "not_rejected", "untested"), strict=True)
)
NAMES = {key: outcome for outcome, key in KEYS.items()}
_WORDS = Words(Path(__file__).with_name("words.toml"), NAMES)
WORDS, say = _WORDS.table, _WORDS.say
#: labels of a card, in their order; its first line and its table say what [answer] and [tested] do
LABELS = tuple(label for label in WORDS if label not in ("answer", "tested"))
#: agreeing units of related models of the zoo write this share of the output of either, and more
LEAST_OF_KIN: float = quoted("joined").numbers["least"]
#: scores of related and of independent pairs of the zoo, in words
STREAMS = quoted("streams").says()

_PLACES = 3  # of unread tensors that are named
Reason = TypeVar("Reason", bound=Hashable)


def answer(outcome: str) -> str:
    """Return what an outcome means, in a few words."""
    return say("answer", KEYS[outcome])[0][1]


class Verdict:
    """What the tests of one pair say.

    Attributes
    ----------
    outcome : str
        One of `provlab.report.decide.OUTCOMES`.
    answer : str
        What that means, in a few words.
    findings : list of (str, str)
        A label and a sentence, in the order of the table of words.
    pair : PairEvidence
        What they were read from.
    """

    def __init__(
        self, records: Sequence[PairRecord], models: Sequence[Mapping[str, Any]], family: FamilyOfTests
    ) -> None:
        self.pair = pair = PairEvidence.of(records, models, family, range(len(records)))
        self._records, self._models, self._family = records, models, family
        self._tested = [test.name for test in pair.tests]
        self._able = [test for test in pair.tests if test.able]
        self._hits = [test.name for test in pair.decision.hits]
        self._proved = [name for name in self._hits if registry.get(name).warrant == BY_THEOREM]
        self._p = {name: o.log10_p for name, o in pair.outcomes.items() if o.log10_p is not None}
        #: outside the family, and read at the level as they stand
        self._small = [
            name
            for name in self._p.keys() - {*self._tested}
            if self._p[name] <= np.log10(LEVEL) and registry.get(name).warrant != UNCALIBRATED
        ]
        self.outcome = pair.decision.outcome
        self._weak = self.outcome in (ORDER, ROWS)
        self._fooling = self._find_fooling()
        self.answer = self._find_answer()
        self.findings = self._find()

    @property
    def text(self) -> str:
        """The findings as one paragraph."""
        opened = any(label == "tested" for label, _ in self.findings)
        return joined([*[f"The two models are {self.answer}."] * (not opened), *(words for _, words in self.findings)])

    def labelled(self) -> list[tuple[str, list[str]]]:
        """Return the findings by label, as a card shows them."""
        found = {label: [words for of, words in self.findings if of == label] for label in LABELS}
        return [(label, sentences) for label, sentences in found.items() if sentences]

    def _find_answer(self) -> str:
        qualified = {
            REJECTED: say("answer", "calibrated", not self._proved),
            NOT_REJECTED: say("answer", "small", small=self._small) or self._priced("answer"),
        }
        return [*(words for _, words in qualified.get(self.outcome, [])), answer(self.outcome)][0]

    def _find_fooling(self) -> list[tuple[flaws.Flaw, list[str]]]:
        """What would fool the tests: of those that reject, framings; of those that do not, disguises."""
        pair = self.pair
        hidden = [(flaw, [test.name for test in self._able if not seen(flaw, test)]) for flaw in pair.disguises]
        framed = [(flaw, [name for name in self._hits if name in flaw.fooled]) for flaw in flaws.FRAMINGS]
        fooled = {
            UNTESTED: [] if pair.decision.through else hidden,
            NOT_REJECTED: [(flaw, [name for name in self._tested if name in flaw.fooled]) for flaw in flaws.DISGUISES],
            ORDER: framed,
            ROWS: framed,
        }
        return flaws.hiding(fooled.get(self.outcome, []))

    def _priced(self, label: str) -> list[Finding]:
        """What it would have cost to hide a common origin from exactly what ran, where nothing was found."""
        if self.outcome != NOT_REJECTED:
            return []
        flaw, ran = self.pair.cheapest, self.pair.ran
        if flaw is None:
            return say(label, "unknown", ran=ran)
        facts = {"what": flaw.what, "price": flaw.price.words() if flaw.price else ""}
        return say(label, "priced", ran=ran, **facts) or say(label, "unpriced", ran=ran, **facts)

    def _find(self) -> list[Finding]:
        if self.outcome == IDENTICAL:
            return _noted(self._models)
        if self.outcome == EQUAL:
            return self._equal()
        return [
            *self._opening(),
            *self._why(),
            *self._priced("to hide one"),
            *self._rarity(),
            *self._beside(),
            *self._could_see(),
            *self._causes(),
            *self._advice(),
            *self._missing(),
            *self._looked(),
            *self._mind(),
            *self._hiding(),
        ]

    # What the tests say ---------------------------------------------------------------------------------------------

    def _opening(self) -> list[Finding]:
        tests = {
            "tested": self._tested,
            "hits": self._hits,
            "by_rows": self._by("rows"),
            "family": self._family.words(),
        }
        if self.outcome != SAME:
            return say("tested", KEYS[self.outcome], answer=self.answer, **tests) or say("tested", "none")
        outputs = self.pair.outcomes["phi_jsd"]
        unit = outputs.detail.needed("unit")
        same = {
            "n": f"{outputs.detail.needed('n'):,.0f}",
            "value": f"{outputs.value:.1e}",
            "rounding": f"{outputs.detail.needed('rounding'):.1e}",
            "dtype": next(name for name, of in UNITS.items() if of >= unit),
        }
        return say("tested", "same", **same) + (say("tested", "hit", **tests) or say("tested", "no_hit", **tests))

    def _equal(self) -> list[Finding]:
        """What else than the files differs between two models of the same tensors."""
        configs = {model.get("config") for model in self._models}
        return [*say("mind", "configs", len(configs) > 1), *of_models(self._models)]

    def _why(self) -> list[Finding]:
        """Why nothing is said, where nothing rejects."""
        if self.outcome != UNTESTED:
            return []
        pair, kin = self.pair, self.pair.kin
        stream, bound = _figure(pair.outcomes.get("stream_score")), f"{RELATED_STREAM:g}"
        outputs, share, most = _figure(pair.outputs), f"{pair.share_of_spread:.2g}", f"{ALIKE:g}"
        unread = {name: [f"{loss:.2f}" for loss in losses] for name, losses in pair.unread.items()}
        return [
            *say("why", "unable", not self._able),
            *say("why", "stream_score", "stream_score" in kin, value=stream, bound=bound),
            *say("why", "phi_jsd", "phi_jsd" in kin, value=outputs, share=share, bound=most),
            *_all(say("why", "unread", name=name, losses=losses) for name, losses in unread.items()),
            *_all(say("why", "lent", not losses, name=name) for name, losses in unread.items()),
            *_all(say("why", "parts", **self._unlooked(name, of)) for name, of in pair.unlooked.items()),
            *say("why", "hiding", ways="; ".join(self._ways())),
            *_all(say("why", "closed", closed=flaw.closed) for flaw, _ in self._fooling),
        ]

    def _rarity(self) -> list[Finding]:
        """Put the smallest p-value into words; of those that rest on a theorem, where there are any."""
        if not self._hits:
            return []
        telling = {ROWS: self._by("rows")}.get(self.outcome, self._proved)
        name = min(telling or self._hits, key=self._p.__getitem__)
        paper = self.pair.outcomes[name].detail.paper_log10_p
        return [
            *say("how rare", registry.get(name).warrant, name=name, p=_power(self._p[name])),
            *say("how rare", "order", self.outcome == ORDER),
            *say("how rare", "paper", p=_power(paper)),
        ]

    def _beside(self) -> list[Finding]:
        """What tests of units in any order say beside those that reject, and an order beside rows."""
        able = [test.name for test in self._able if test.evidence == "units"]
        described = [test.name for test in self.pair.beside if test.rejects]
        ordered = self._by("order")
        return [
            *say("beside it", "borne_out", bool(ordered), units=[*self._by("units"), *described]),
            *say("beside it", "rows_and_order", self.outcome == ROWS, ordered=ordered),
            *say("beside it", "nothing", self._weak, able=able),
            *say("beside it", "not_made", self._weak and not able),
        ]

    def _could_see(self) -> list[Finding]:
        """How much two models must have in common to be rejected: figures for these two, in any place and in place."""
        if self.outcome != NOT_REJECTED:
            return []
        still = [flaw for flaw in self.pair.disguises if flaw.spoils != PLACES]
        in_place = [test for test in self._able if all(seen(flaw, test) for flaw in still)]
        (anywhere, name), (here, who) = map(self._least_share, (self.pair.decision.through, in_place))
        often = f"{power.POWER:.0%}"
        return [
            *say("could see", "share", share=f"{anywhere:.0%}", power=often, name=name),
            *say("could see", "in_place", here < anywhere, share=f"{here:.0%}", power=often, name=who),
        ]

    def _least_share(self, tests: Iterable[Test]) -> tuple[float, str]:
        """The smallest share of units that a test would have found, and which test; no name where none is known."""
        units = [test.name for test in tests if test.evidence == "units"]
        shares = {name: share_seen(self.pair.outcomes[name], self._family.bar) for name in units}
        return min(((share, name) for name, share in shares.items() if share is not None), default=(1.0, ""))

    def _causes(self) -> list[Finding]:
        """Causes between which no test chooses, those that cost nothing first, and what framers do at a cost."""
        words, named = WORDS["may be"], KEYS[self.outcome]
        rejecting = {*self._hits, *self._small}
        fooled = [flaw for flaw in flaws.FRAMINGS if rejecting <= flaw.fooled]
        framed = [what for flaw in fooled for _, what in say("may be", "framing", what=flaw.what, cost=flaw.cost)]
        likely: list[str] = [*[words[key] for key in ("order", "rows") if key == named], *words["causes"]]
        *causes, last = [*(cause for _, cause in say("may be", "which", cause=likely[0])), *likely[1:], *framed]
        return [("may be", cause) for cause in [*causes, f"{last}."] if self._hits]

    def _advice(self) -> list[Finding]:
        """Statistics that were not asked, can read these models, and see what fools those that ran; two at most."""
        a, b = self._models
        lacks = {
            "gates": not all(model.get("gated", True) for model in self._models),
            "one MLP": any(model.get("experts", False) for model in self._models),
            "one width": a.get("width") != b.get("width"),
            "one depth": a.get("blocks") != b.get("blocks"),
        }
        names = [
            name
            for name in flaws.applicable([need for need, lacking in lacks.items() if lacking])
            if name not in self._family.statistics and all(name in flaw.withstand for flaw, _ in self._fooling)
        ]
        return say("ask too", "advice", self.outcome not in (SAME, REJECTED), advice=names[:2])

    def _hiding(self) -> list[Finding]:
        """What would hide a common origin from the tests that ran."""
        if self.outcome != NOT_REJECTED:
            return []
        by_text = [name for name in self._tested if reads_text(name)]
        return [
            *say("fooled by", "ways", ways="; ".join(self._ways())),
            *say("fooled by", "tokenizer", not self.pair.losses, names=by_text),
            *say("fooled by", "private", names=by_text),
        ]

    def _ways(self) -> list[str]:
        """Each disguise, from which tests it hides, and what it costs."""
        told = [
            say("fooled by", "costly", what=flaw.what, names=names, cost=flaw.cost)
            or say("fooled by", "way", what=flaw.what, names=names)
            for flaw, names in self._fooling
        ]
        return [way for _, way in _all(told)]

    def _by(self, evidence: str) -> list[str]:
        """Tests that reject by this evidence."""
        return [test.name for test in self.pair.decision.hits if test.evidence == evidence]

    # What qualifies it ----------------------------------------------------------------------------------------------

    def _missing(self) -> list[Finding]:
        """Tests that were not run or give no p-value, and why; statistics of one reason together.

        A silent block keeps its valid p: where a test rejects, only a block that was left out is named.
        """
        outcomes = self.pair.outcomes
        said: dict[str, list[tuple[str, str]]] = {"in_part": [], "of_the_rest": []}
        for name in self._p:
            blocks, rejects = outcomes[name].blocks, name in self._hits
            if some := Counter(block.why for block in blocks if block.why and (block.left_out or not rejects)):
                reason = f"{some.total()} of {len(blocks)} blocks: {self._with_names(some.most_common(1)[0][0])}"
                said["of_the_rest" if rejects else "in_part"].append((name, reason))
        said |= {
            "no_p": [(name, self._with_names(why)) for name, o in outcomes.items() if (why := why_none(o))],
            "refused": [(r.statistic, r.error.removeprefix(f"{r.statistic} ")) for r in self._records if r.error],
        }
        return _all(
            say("not run", key, names=names, reason=reason)
            for key, pairs in said.items()
            for reason, names in _by_reason(pairs).items()
        )

    def _unlooked(self, name: str, hidden: Mapping[str, int]) -> dict[str, str | list[str]]:
        """Facts on hidden units that no test reads, those of most numbers first."""
        numbers = next(model["coverage"]["numbers"] for model in self._models if model.get("name") == name)
        places = sorted(hidden, key=hidden.__getitem__, reverse=True)
        more = [f"{len(places) - _PLACES} more"] * (len(places) > _PLACES)
        return {"name": name, "share": _share(sum(hidden.values()) / numbers), "places": [*places[:_PLACES], *more]}

    @property
    def coverage(self) -> list[dict[str, Any]]:
        """For each model: share of its weights that each test which could have rejected compared, and that none did.

        Keys: ``compared``, by test; ``unlooked``, by what the weights are.
        """
        told: list[dict[str, Any]] = []
        for model in self._models:
            of, depth = model.get("coverage") or {"numbers": 0, "roles": {}, "unnamed": {}}, model.get("blocks") or 0
            shares = {test.name: self._compared(test.name, of["roles"], depth) for test in self._able}
            left: Counter[str] = Counter()
            for role, size in of["roles"].items():
                left[_kind(role)] += round(size - max((each.get(role, 0.0) for each in shares.values()), default=0.0))
            left["no role"] = sum(of["unnamed"].values())
            numbers = max(of["numbers"], 1)
            told.append(
                {
                    "compared": {name: round(sum(each.values()) / numbers, 4) for name, each in shares.items()},
                    "unlooked": {kind: round(size / numbers, 4) for kind, size in left.most_common() if size > 0},
                }
            )
        return told

    def _looked(self) -> list[Finding]:
        """What share of the weights each test that could have rejected compared, and what none of them did."""
        said: dict[tuple[str, ...], list[str]] = {}
        for model, of in zip(self._models, self.coverage, strict=True):
            tests, parts = ([f"{name} {_share(share)}" for name, share in of[key].items()] for key in of)
            facts = ", ".join(tests) or "none", _share(sum(of["unlooked"].values())), ", ".join(parts)
            said.setdefault(facts, []).append(str(model.get("name")))
        return _all(
            say("looked at", "read", name=" and ".join(names), tests=tests, share=share, parts=parts)
            for (tests, share, parts), names in said.items()
        )

    def _compared(self, name: str, roles: Mapping[str, int], depth: int) -> dict[str, float]:
        """How many numbers of each role a test compared: of those that it looks at, in the blocks that it read."""
        outcome = self.pair.outcomes[name]
        kinds = flaws.LOOKS.get(name) or [role.partition(".")[0] for role in registry.get(name).roles or ()]
        in_place = outcome.detail.all_blocks is None and any(block.block is not None for block in outcome.blocks)
        read = sum(not block.left_out for block in outcome.blocks) / depth if in_place and depth else 1.0
        whole = kinds == ["blocks"]
        return {
            role: size * min(read, 1.0)
            for role, size in roles.items()
            if role in kinds or (whole and _kind(role) not in ("embedding", "head"))
        }

    def _with_names(self, reason: str) -> str:
        """Put the models' names into a reason that speaks of the first and the second."""
        for which, model in zip(("the first", "the second"), self._models, strict=True):
            for verb in ("by", "has"):
                reason = reason.replace(f"{which} {verb}", f"{model['name']} {verb}")
        return reason

    def _mind(self) -> list[Finding]:
        """Add how much was read of the models, and how, and what the units that agree do."""
        details = [outcome.detail for outcome in self.pair.outcomes.values()]
        remarks = [text for text in (*(d.said for d in details), *(d.zeros for d in details)) if isinstance(text, str)]
        return [
            *say("mind", "small", self.outcome in (UNTESTED, NOT_REJECTED), small=self._small),
            *self._written(),
            *self._blocks_read(),
            *self._dropped(),
            *(("mind", remark) for remark in remarks),
            *of_models(self._models, self.pair.forms),
            *(("mind", remark) for remark in self._family.remarks()),
            *self._described(),
        ]

    def _written(self) -> list[Finding]:
        """How much of the MLPs' output the agreeing units write: nearly all in a copy, little where one was framed.

        No bar on the share decides, since copies may write more at a higher price: what looks like this is named.
        """
        shares = {
            name: float(np.mean(some))
            for name in self._hits
            if (some := [min(b.detail.written) for b in self.pair.outcomes[name].blocks if b.detail.written])
        }
        name = next(iter(shares), "")
        share = min(shares.get(name, 1.0), 1.0)  # units that cancel each other write more one by one than together
        return [
            *say("mind", "written", name=name, share=f"{share:.0%}"),
            *say("mind", "few", share < LEAST_OF_KIN, joined=quoted("joined").says()),
        ]

    def _blocks_read(self) -> list[Finding]:
        """Which blocks were read, where these are not all."""
        depth = max((model.get("blocks", 0) for model in self._models), default=0)
        in_place = [o.blocks for o in self.pair.outcomes.values() if o.detail.said is None]
        read = next((blocks for blocks in in_place if blocks and blocks[0].block is not None), ())
        numbers = [str(block.block) for block in read]
        return say("mind", "blocks", len(read) < depth, blocks=numbers, n=str(len(read)), depth=str(depth))

    def _dropped(self) -> list[Finding]:
        """How many hidden units of either model were left out of the matchings, as they do nothing of their own."""
        dropped = {
            name: [block.detail.dropped for block in outcome.blocks if block.detail.dropped]
            for name, outcome in self.pair.outcomes.items()
        }
        counts = [(name, tuple(np.sum(each, axis=0).tolist())) for name, each in dropped.items() if each]
        a, b = (str(model.get("name")) for model in self._models)
        return _all(
            say("mind", "dropped", first=str(first), second=str(second), a=a, b=b, names=names)
            for (first, second), names in _by_reason(counts).items()
        )

    def _described(self) -> list[Finding]:
        """Figures that are no tests."""
        outcomes, untested = self.pair.outcomes, self.outcome == UNTESTED
        figures = [f"{name} {_figure(o)}" for name, o in outcomes.items() if name not in self._p and not why_none(o)]
        return [
            *say("mind", "described", untested, figures=figures),
            *say("mind", "stream_score", untested, value=_figure(outcomes.get("stream_score")), zoo=STREAMS),
        ]


def share_seen(outcome: Outcome, bar: float) -> float | None:
    """Smallest share of common units of each block that would be rejected; None where it is not known."""
    told = [block for block in outcome.blocks if block.detail.n]
    pairs = 0.0  # log10 of the pairs of blocks, over which p and reach are corrected: one of them speaks for all
    if (everywhere := outcome.detail.all_blocks) is not None:
        told, pairs = told[:1], float(np.log10(np.prod(everywhere["shape"])))
    if not told or told[0].detail.experts:
        return None
    counted = [power.units_that_count(block.reach - pairs) for block in told]
    return power.smallest_share([block.detail.needed("n") for block in told], counted, bar - pairs)


def of_models(models: Sequence[Mapping[str, Any]], read: Mapping[str, str] | None = None) -> list[Finding]:
    """How the files of models qualify any answer about them, be it of a pair, of a study, of a tree or of a shelf.

    They were not verified, are stored as codes, merged, or read in part; another program makes another model of them;
    a text was not read in each form in which the models' users give them one.

    Parameters
    ----------
    models
        What is known of them, as `provlab.report.described` says it.
    read
        Name -> the form in which a model read the text, where that is known.
    """
    unverified = [model for model in models if model.get("not_verified")]
    by_commit = {which: [str(m["source"]) for m in unverified if bool(m.get("commit")) == which] for which in (1, 0)}
    stored = {str(model["source"]): model.get("stored") or () for model in models}
    codes = {source: ", ".join(code for code in codes if code != "LoRA") for source, codes in stored.items()}
    lent = [model for model in models if model.get("lent_ids")]
    ids = "the ids of the other's tokens" if len(lent) < len(models) else "random ids"
    of = [
        {name: one_line(str(value), 200) if (value := model.get(name)) else "" for name in _SAID_OF_MODELS}
        for model in models
    ]
    return [
        *say("mind", "fetched", sources=by_commit[1]),
        *say("mind", "in_part", sources=by_commit[0]),
        *_all(say("mind", "rival", source=about["source"], rival=about["rival"]) for about in of),
        *_noted(models),
        *say("mind", "lent", name=" and ".join(str(model["name"]) for model in lent), ids=ids),
        *say("mind", "codes", sources=" and ".join(f"{source} ({used})" for source, used in codes.items() if used)),
        *say("mind", "lora", sources=" and ".join(source for source, used in stored.items() if "LoRA" in used)),
        *_all(say("mind", "read_as", **about) for about in of),
        *_all(say("mind", "language_part", **about) for about in of),
        *_formed(models, read or {}),
    ]


def _formed(models: Sequence[Mapping[str, Any]], read: Mapping[str, str]) -> list[Finding]:
    """In which form models read the text, and in which ones their users may give them a text and they did not."""
    told = {
        str(model.get("name")): (read.get(str(model.get("name")), ""), model.get("forms") or []) for model in models
    }
    alike = _by_reason((name, (form, *forms)) for name, (form, forms) in told.items())
    refused = [str(model["template"]) for model in models if model.get("template")]
    found = _all(say("mind", "form", form in CHOSEN, name=name, form=form) for name, (form, _) in told.items())
    for (form, *forms), names in alike.items():
        facts = {"name": " and ".join(names), "read": form, "others": [each for each in forms if each != form]}
        one_of = len(forms) > 1 and not form
        found += say("mind", "not_in", **facts) or say("mind", "in_one", one_of, name=facts["name"], forms=forms)
    return found + _all(say("mind", "template", template=one_line(why, 300)) for why in refused)


def _noted(models: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """What lies in the models' folders beside what was read."""
    return [("mind", one_line(note, 400)) for model in models for note in model.get("notes", ())]


_SAID_OF_MODELS = ("name", "source", "rival", "architecture", "read_as", "language_part")


def _kind(role: str) -> str:
    """Return what a role is, in a word."""
    if role in ("gate", "up", "down") or role.startswith(("gate_", "up_", "down_")):
        return "MLPs"
    if role.endswith("norm"):
        return "norms"
    attends = ("query", "key", "value", "output")
    return "attention" if role.removeprefix("cross_") in attends else role.replace("_", " ")


def _share(share: float) -> str:
    """Write a share of the weights."""
    return f"{share:.0%}" if share >= 0.01 else "under 1%"


def _by_reason(pairs: Iterable[tuple[str, Reason]]) -> dict[Reason, list[str]]:
    grouped: dict[Reason, list[str]] = {}
    for name, reason in pairs:
        grouped.setdefault(reason, []).append(name)
    return grouped


def _all(findings: Iterable[list[Finding]]) -> list[Finding]:
    return [finding for some in findings for finding in some]


def _figure(outcome: Outcome | None) -> str:
    return f"{outcome.value:.3g}" if outcome else ""


def _power(log10_p: float | None) -> str:
    return "" if log10_p is None else f"10^{format_log10_p(log10_p)}"
