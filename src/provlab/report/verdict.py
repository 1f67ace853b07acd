"""The verdict on one pair in sentences: what was tested and what was not, what else may be the cause, what fools it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from provlab import statistics as registry
from provlab.engine.table import PairRecord
from provlab.errors import one_line
from provlab.inference import power
from provlab.measured import quoted
from provlab.models.formats.dtypes import UNITS
from provlab.plots.numbers import format_log10_p
from provlab.report.family import LEVEL, FamilyOfTests
from provlab.report.outcome import (
    ALIKE,
    IDENTICAL,
    NOT_REJECTED,
    ORDER,
    REJECTED,
    RELATED_STREAM,
    ROWS,
    SAME,
    UNTESTED,
    Evidence,
    ignores_order,
)
from provlab.statistics import flaws
from provlab.statistics.base import BY_THEOREM, UNCALIBRATED, Options
from provlab.statistics.results import Outcome

#: what each outcome means, in a few words
_ANSWERS = {
    IDENTICAL: "identical: configuration and weight files are the same, byte for byte",
    SAME: "the same function, whatever the weights: one was made from the other, or both from a third",
    REJECTED: "not independent",
    ROWS: "rows of one origin; nothing is said of the rest of the weights",
    ORDER: "alike by order alone, which is weaker than a rejection: an order costs nothing",
    NOT_REJECTED: "not rejected: the tests saw nothing that independent models would not show",
    UNTESTED: "could not be tested; this is no acquittal",
}
_CAUSES = ("a common ancestor", "a common initial draw", "a mask, noise or any choice that both share")
_ORDER = "hidden units of one put into the other's order, or those of both by one rule"
_COPIED = "rows copied from one model into the other, which costs nothing"
#: agreeing units of related models of the zoo write this share of the output of either, and more
LEAST_OF_KIN: float = quoted("joined").numbers["least"]
_FEW = f"{quoted('joined').says()}."
UNABLE = "Independence could not be tested: "
_NO_DESCENT = "A common origin is not descent: the test does not say which cause it was, nor which model came first."
_SCORE = "near 1 for related models of our zoo, disguised or not, and near 0 for independent ones"


class Verdict:
    """What the tests of one pair say.

    Attributes
    ----------
    outcome : str
        One of `provlab.report.outcome.OUTCOMES`, by the rule there.
    text : str
        The same in sentences.
    """

    def __init__(
        self,
        records: Sequence[PairRecord],
        models: Sequence[Mapping[str, Any]],
        options: Options,
        family: FamilyOfTests,
    ) -> None:
        self._records, self._models, self._options, self._family = records, models, options, family
        self._evidence = Evidence.of(records, models, family, range(len(records)))
        self._outcomes = self._evidence.outcomes
        self._p = {name: o.log10_p for name, o in self._outcomes.items() if o.log10_p is not None}
        self._tested, self._rejecting = list(self._evidence.tested), list(self._evidence.rejecting)
        #: outside the family, and read at the level as they stand
        self._small = [
            name
            for name, p in self._p.items()
            if p <= np.log10(LEVEL) and name not in self._tested and registry.get(name).warrant != UNCALIBRATED
        ]
        self.outcome = self._evidence.outcome
        self.text = " ".join(self._sentences())

    # In one screen --------------------------------------------------------------------------------------------------

    @property
    def answer(self) -> str:
        """What the outcome means, in a few words."""
        if self.outcome == REJECTED and not any(registry.get(n).warrant == BY_THEOREM for n in self._rejecting):
            return "more alike than the independent models on which the tests were calibrated"
        if self.outcome == NOT_REJECTED and self._small:
            return f"not rejected, but {_names(self._small)}, not corrected, would reject"
        return _ANSWERS[self.outcome]

    def qualified(self) -> list[tuple[str, list[str]]]:
        """A label, and the sentences that stand under it; a label without sentences is left out."""
        if self.outcome == IDENTICAL:
            return []
        strongest = min(self._rejecting, key=lambda name: self._p[name]) if self._rejecting else None
        could_see = [
            f"{share:.0%} of the units in common, {power.POWER:.0%} of the time, by {name}; fewer look like this"
            for name, share in self._strongest_share()
            if self.outcome == NOT_REJECTED
        ]
        first = {ORDER: [_ORDER], ROWS: [_COPIED]}
        which = "no test says which" + ", nor which was first" * (self.outcome not in first)
        likeliest, *others = [*first.get(self.outcome, []), *_CAUSES]
        why = [self._no_test()[0].removeprefix(UNABLE)] if self.outcome == UNTESTED else []
        hiding = [flaw.what for flaw in flaws.hiding(self._tested)] if self.outcome == NOT_REJECTED else []
        hiding += self._other_inputs_and_places() if self.outcome == NOT_REJECTED else []
        small = [self._not_corrected()] if self._small and self.outcome == UNTESTED else []
        labelled = [
            ("why", why),
            ("how rare", [f"p about {_power(self._p[strongest])} by {strongest}"] if strongest else []),
            ("beside it", self._of_any_order()[:1] if self.outcome in (ORDER, ROWS) else []),
            ("could see", could_see),
            ("may be", [f"{which}: {likeliest}", *others] if strongest else []),
            ("ask too", [_names(advice)] if (advice := self._advice()) else []),
            ("not run", self._missing()),
            ("mind", [*small, *self._joined(), *self._read(), *_of_models(self._models), *self._family.remarks()]),
            ("fooled by", hiding),
        ]
        return [(label, sentences) for label, sentences in labelled if sentences]

    def _sentences(self) -> list[str]:
        if self.outcome == IDENTICAL:
            return [f"The two models are {_ANSWERS[IDENTICAL]}."]
        opening = {
            SAME: self._same_function,
            REJECTED: self._rejection,
            ROWS: self._rows,
            ORDER: self._by_order,
            NOT_REJECTED: self._no_rejection,
            UNTESTED: self._no_test,
        }[self.outcome]()
        hiding = self._hiding() if self.outcome == NOT_REJECTED else []
        return [*opening, *self._read(), *_of_models(self._models), *self._family.remarks(), *self._missing(), *hiding]

    # What the tests say ---------------------------------------------------------------------------------------------

    def _same_function(self) -> list[str]:
        outputs = self._evidence.divergence
        assert outputs is not None
        dtype = next(name for name, unit in UNITS.items() if unit >= outputs["unit"])
        opening = (
            f"The two compute the same function, whatever their weights: over {outputs['n']:,.0f} positions of the "
            f"text their next-token distributions differ by {outputs['value']:.1e} nats, and one of them by "
            f"{outputs['rounding']:.1e} where its numbers are rounded as {dtype} rounds them. Independent models do "
            "not come to that: one was made from the other, or both from a third."
        )
        if not self._rejecting:
            words = f"No test of the weights rejects ({self._family.words()}): they were rewritten."
            return [opening, *[words] * bool(self._tested), _NO_DESCENT]
        tests = f"Independent training is rejected by {_names(self._rejecting)} ({self._family.words()})."
        return [opening, tests, *self._written(), _NO_DESCENT]

    def _rejection(self) -> list[str]:
        judged = [*self._rejecting, *self._evidence.agreeing]
        by_theorem = [name for name in self._rejecting if registry.get(name).warrant == BY_THEOREM]
        strongest = min(by_theorem or self._rejecting, key=lambda name: self._p[name])
        words = "the weights of the two are not independent"
        if not by_theorem:
            whom = "it was" if len(self._rejecting) == 1 else "these tests were"
            words = f"the two agree more than the independent models that {whom} calibrated on"
        opening = f"Independent training is rejected by {_names(self._rejecting)} ({self._family.words()}): {words}."
        framings = _framings({*self._rejecting, *self._small})
        causes = f"Possible causes: {'; '.join([*_CAUSES, *framings])}. {_NO_DESCENT}"
        sentences = [opening, self._how_rarely(strongest), *self._written(), causes]
        if flaws.ORDERED.intersection(judged):
            agreeing = [name for name in judged if ignores_order(name)]
            sentences.append(f"{_ignoring(agreeing)} the order of units, so that order alone is not the cause.")
        return sentences

    def _rows(self) -> list[str]:
        """Rows of the embedding agree, and nothing else does but, perhaps, an order."""
        rows = [name for name in self._rejecting if name in flaws.ROWS]
        ordered = [name for name in self._rejecting if name not in flaws.ROWS]
        strongest = min(rows, key=lambda name: self._p[name])
        which = "of tokens that neither was trained on " if rows == ["phi_unseen"] else ""
        sentences = [
            f"These rows have one origin: {_names(rows)} ({self._family.words()}) rejects that the embedding rows "
            f"{which}were drawn apart.",
            self._how_rarely(strongest),
            *[f"{_names(ordered)} reject too, by order alone, which changes no output."] * bool(ordered),
            "Nothing is said of the rest of the weights.",
            f"Possible causes: {_COPIED} where no text has these tokens, and which either side could have done; "
            f"{'; '.join(_CAUSES)}. {_NO_DESCENT}",
        ]
        return sentences + self._of_any_order()

    def _by_order(self) -> list[str]:
        strongest = min(self._rejecting, key=lambda name: self._p[name])
        sentences = [
            f"Independent training is rejected by order alone, by {_names(self._rejecting)} ({self._family.words()}): "
            "hidden units, or dimensions, of like rank are alike.",
            self._how_rarely(strongest),
            f"Possible causes: {'; '.join([_ORDER, *_CAUSES, *_framings(set(self._rejecting))])}. An order changes no "
            f"output, and a sort by a rule that the check does not know is not found. {_NO_DESCENT}",
        ]
        return sentences + self._of_any_order()

    def _of_any_order(self) -> list[str]:
        """What the tests of units in any order say where they do not bear out the others, and which one may."""
        free = [name for name in self._tested if ignores_order(name)]
        able = [name for name in free if name in self._evidence.able]
        sentences = []
        if able:
            sentences.append(f"{_ignoring(able)} the order of units, and nothing is rejected by that.")
        elif free:
            sentences.append(f"{_ignoring(free)} the order of units, and could not have rejected.")
        else:
            sentences.append("No test that ignores the order of units gave a p-value.")
        if advice := self._advice():
            sentences.append(f"Not asked for, and may strengthen it: {_names(advice)}.")
        return sentences

    def _how_rarely(self, name: str) -> str:
        """Put the p-value of one statistic into words."""
        outcome = self._outcomes[name]
        if outcome.detail.until_settled is not None:
            return f"By {name} the inverse of the e-value is {_power(self._p[name])}: a bound on p, not a probability."
        paper = outcome.detail.paper_log10_p
        in_paper = f" ({_power(paper)} by the paper's two-sided form)" if paper is not None else ""
        whom = "independent weights" if registry.get(name).warrant == BY_THEOREM else "such models"
        if self.outcome == ORDER:
            whom = "independent weights, one of them in the order that training left,"
        return f"By {name} {whom} would agree as closely with a probability of about {_power(self._p[name])}{in_paper}."

    def _written(self) -> list[str]:
        """How much of the MLPs' output the agreeing units write: nearly all in a copy, little where one was framed.

        No bar on the share decides, since copies may write more at a higher price: what looks like this is named.
        """
        for name in self._rejecting:
            details = [block.detail for block in self._outcomes[name].blocks]
            shares = [min(detail.written) for detail in details if detail.written]
            if shares:
                share = float(np.mean(shares))
                words = f"The units that agree by {name} write {share:.0%} of the output of the MLPs."
                return [words, *[_FEW] * (share < LEAST_OF_KIN)]
        return []

    def _joined(self) -> list[str]:
        """Where the units that agree write little: how much, and what looks like this."""
        return written if len(written := self._written()) > 1 else []

    def _no_rejection(self) -> list[str]:
        ours = [name for name in flaws.ORDER_FREE if name in self._family.statistics]
        left = [name for name in ours if name not in self._evidence.able]
        but = f", and {_names(left)} could not be tested" if left else ""
        how = "this is how independent models agree. That is no proof of independence."
        if self._small:
            how = f"but {_names(self._small)}, not corrected, would reject; independent models seldom agree so closely."
        opening = f"Independent training is not rejected by {_names(self._tested)} ({self._family.words()}){but}: {how}"
        return [opening, *self._could_have_seen()]

    def _could_have_seen(self) -> list[str]:
        """How much two models must have in common for the strongest test that ran to reject: a figure for these two."""
        return [
            f"{name} would have rejected, {power.POWER:.0%} of the time, if {share:.0%} of the units of each "
            "block were the other's and still found their counterparts; a copy that keeps fewer would look like this."
            for name, share in self._strongest_share()
        ]

    def _strongest_share(self) -> list[tuple[str, float]]:
        """The test that would have seen the smallest share of common units, and that share; empty if none is known."""
        shares = [
            (name, share)
            for name in flaws.STANDING
            if name in self._evidence.able and (share := _smallest_share(self._outcomes[name], self._family.bar))
        ]
        return [min(shares, key=lambda named: named[1])] if shares else []

    def _no_test(self) -> list[str]:
        sentences = []
        tests, words = _names(self._tested), self._family.words()
        if not self._tested:
            which = f"{self._family.primary}, declared the one to judge by," if self._family.primary else "no statistic"
            counts = " that counts" * (self._family.primary in (None, *self._p) and bool(self._p))
            gives = f"gave no p-value{counts}" if self._family.primary else f"gave a p-value{counts}"
            more = [f"Not asked for, and may test it: {_names(advice)}."] if (advice := self._advice()) else []
            return [f"{UNABLE}{which} {gives}.", *more, *self._described()]
        if alike := self._evidence.alike:
            figures = [self._figure(name) for name in alike]
            sentences.append(
                f"{UNABLE}{' and '.join(figures)}, as for related models, and no test "
                f"rejects: {tests} ({words}). These figures are descriptive: they accuse nobody, and where they stand "
                "nobody is acquitted."
            )
        if unread := self._evidence.unread:
            sentences.append(
                f"{'Moreover, nothing' if alike else f'{UNABLE}nothing'} shows that "
                f"{' and '.join(unread)} read a text. {_nonsense(unread)} A copy whose tokens were numbered otherwise, "
                "and whose tokenizer was left out or is another model's, looks like this; put its own tokenizer into "
                f"its folder, or give a text that {'both know' if len(unread) > 1 else 'it knows'} (--text)."
            )
        if self._evidence.in_place:
            doing = "do not reject, and each pairs" if len(self._tested) > 1 else "does not reject, and pairs"
            sentences.append(
                f"{'Moreover, each test pairs' if sentences else f'{UNABLE}{tests} ({words}) {doing}'} blocks of one "
                "index alone: a copy whose blocks were moved, some left out and empty ones put in, looks like this. "
                "Compare all blocks with all (--all-blocks), or ask stream_score too, which reads the embeddings."
            )
        if self._evidence.silent:
            several = len(self._tested) > 1
            does = f"{UNABLE}{tests} ({words}) {'do' if several else 'does'} not reject, and"
            does = "Moreover," if sentences else does
            could = [name for name in self._tested if name in self._evidence.able]
            ways = "; ".join(
                f"{flaw.what} (from {_names([n for n in could if n in flaw.fooled])})"
                for flaw in flaws.hiding(could, free=True)
            )
            unable = [n for n in flaws.ORDER_FREE if n in self._family.statistics and n not in could]
            sentences += [
                f"{does} disguises that cost nothing hide a copy from all that could have rejected: {ways}."
                if ways
                else f"{does} {'none of them' if several else 'it'} could {'not ' * (not several)}have.",
                *[f"Asked for, and could not have rejected: {_names(unable)}."] * bool(unable),
            ]
        if self._small:
            sentences.append(self._not_corrected())
        if advice := self._advice():
            sentences.append(f"Not asked for, and may test it: {_names(advice)}.")
        return [*sentences, *self._described()]

    def _not_corrected(self) -> str:
        return f"Not corrected, {_names(self._small)} would reject."

    def _figure(self, name: str) -> str:
        """A figure that is no test, beside the one that related models stay beyond."""
        if name == "stream_score":
            return f"the stream score is {self._outcomes[name].value:.3g} ({RELATED_STREAM:g} and more)"
        outputs = self._evidence.divergence
        assert outputs is not None
        return (
            f"outputs differ by {outputs['value']:.2g} nats, {outputs['value'] / outputs['spread']:.2g} of what they "
            f"differ by from one position to the next (at most {ALIKE:g})"
        )

    def _described(self) -> list[str]:
        """Figures that are no tests."""
        values = [
            f"{name} {outcome.value:.3g}" + f" ({_SCORE})" * (name == "stream_score")
            for name, outcome in self._outcomes.items()
            if name not in self._p and not outcome.detail.withheld
        ]
        return [f"Descriptive, and no test: {', '.join(values)}."] if values else []

    # What qualifies it ----------------------------------------------------------------------------------------------

    def _read(self) -> list[str]:
        """How much of the models was read, where that is not all."""
        sentences = []
        everywhere = {n: o for n, o in self._outcomes.items() if o.detail.said is None}
        depth = max((model.get("blocks", 0) for model in self._models), default=0)
        by_blocks = [n for n, o in everywhere.items() if o.blocks and o.blocks[0].block is not None]
        few = [name for name in by_blocks if len(everywhere[name].blocks) < depth]
        if few:
            blocks = [str(block.block) for block in everywhere[few[0]].blocks]
            sentences.append(f"Blocks read: {', '.join(blocks)}, which is {len(blocks)} of {depth}.")
        sentences += self._some_units()
        sentences += self._dropped()
        details = [outcome.detail for outcome in self._outcomes.values()]
        messages = [detail.said for detail in details] + [detail.zeros for detail in details]
        return sentences + [text for text in messages if isinstance(text, str)]

    def _some_units(self) -> list[str]:
        """How many hidden units were matched, where these are not all, and what is not seen by so few."""
        of = {
            name: min(whole[-1])
            for name, outcome in self._outcomes.items()
            if (whole := [block.detail.of_units for block in outcome.blocks if block.detail.of_units])
        }
        if not of:
            return []
        on_text = [name for name in of if "text_sha256" in registry.get(name).settings]
        text = f", by {self._options.kept_tokens:,} tokens of text" if on_text else ""
        units = " or ".join(f"{h:,}" for h in dict.fromkeys(of.values()))
        return [
            f"{_names(of)} matched {self._options.units:,} of {units} hidden units of each block of one model among "
            f"all of the other{text}. A copy that keeps few of its units, or changed most of them, may show by all and "
            "not by these: if nothing is rejected, run it without units."
        ]

    def _dropped(self) -> list[str]:
        """How many hidden units of either model were left out of the matchings, as they do nothing of their own."""
        by_counts: dict[tuple[int, ...], list[str]] = {}
        for name, outcome in self._outcomes.items():
            dropped = [block.detail.dropped for block in outcome.blocks if block.detail.dropped]
            if dropped:
                by_counts.setdefault(tuple(np.sum(dropped, axis=0).tolist()), []).append(name)
        return [
            "Hidden units that write nothing, or parts of one unit beside the first, were left out: "
            f"{first} of {self._models[0]['name']} and {second} of {self._models[1]['name']}, by {_names(names)}."
            for (first, second), names in by_counts.items()
        ]

    def _missing(self) -> list[str]:
        """Tests that were not run or give no p-value, and why; statistics of one reason together."""
        refused = _by_reason((r.statistic, r.error.removeprefix(f"{r.statistic} ")) for r in self._records if r.error)
        withheld = _by_reason(
            (n, self._with_names(o.detail.withheld)) for n, o in self._outcomes.items() if o.detail.withheld
        )
        in_part = _by_reason(
            (name, f"{len(silent)} of {len(self._outcomes[name].blocks)}: {self._with_names(silent[0])}")
            for name in self._p
            if (silent := [b.detail.withheld for b in self._outcomes[name].blocks if b.detail.withheld])
        )
        blind = _by_reason(
            (name, f"{len(some)} of {len(self._outcomes[name].blocks)} blocks: {self._with_names(some[0])}")
            for name in self._p
            if name not in self._rejecting
            and (some := [b.detail.blind for b in self._outcomes[name].blocks if b.detail.blind])
        )
        return [
            *(f"A copy may go unseen by {_names(n)} ({reason})." for reason, n in blind.items()),
            *(f"No evidence was taken from some blocks by {_names(n)} ({reason})." for reason, n in in_part.items()),
            *(f"No p-value: {_names(names)} ({reason})." for reason, names in withheld.items()),
            *(f"Not run: {_names(names)} ({reason})." for reason, names in refused.items()),
        ]

    def _with_names(self, reason: str) -> str:
        """Put the models' names into a reason that speaks of the first and the second."""
        for which, model in zip(("the first", "the second"), self._models, strict=True):
            for verb in ("by", "has"):
                reason = reason.replace(f"{which} {verb}", f"{model['name']} {verb}")
        return reason

    def _hiding(self) -> list[str]:
        """What would hide a common origin from the tests that ran, and which other test sees it nevertheless."""
        hiding = flaws.hiding(self._tested)
        ways = [
            *(f"{flaw.what} (from {_names([n for n in self._tested if n in flaw.fooled])})" for flaw in hiding),
            *self._other_inputs_and_places(),
        ]
        tail = (
            f" Not run, and not fooled by any of these: {_names(advice)}."
            if hiding and (advice := self._advice())
            else ""
        )
        return [f"These disguises would hide a common origin: {'; '.join(ways)}.{tail}"] if ways else []

    def _other_inputs_and_places(self) -> list[str]:
        """Say what hides where no loss was measured, and where blocks met those of their index alone."""
        on_text = [name for name in self._tested if "text_sha256" in registry.get(name).settings]
        measured, by_index = bool(self._evidence.losses), self._evidence.by_index
        return [
            *[f"a tokenizer that is not the model's own (from {_names(on_text)}; phi_jsd tells by its loss)"]
            * (bool(on_text) and not measured),
            *[f"blocks moved, some left out and empty ones put in (from {_names(by_index)}; --all-blocks tells)"]
            * bool(by_index),
        ]

    def _advice(self) -> list[str]:
        """Statistics that were not asked and may say more of the two models, by the outcome; two at most."""
        if self.outcome in (ORDER, ROWS):
            names = [*flaws.STANDING, *(name for name in flaws.ORDER_FREE if name not in flaws.ROWS)]
        elif self.outcome == UNTESTED and not (self._tested and self._evidence.unread):
            names = [*flaws.STANDING, *flaws.ORDER_FREE, *(() if self._tested else flaws.ANY_SHAPE)]
            names = ["stream_score", "phi_unseen"] if self._evidence.in_place else names
        elif self.outcome == NOT_REJECTED and (hiding := flaws.hiding(self._tested)):
            names = [name for name in hiding[0].withstand if all(name in flaw.withstand for flaw in hiding)]
        else:
            return []
        fitting = flaws.applicable(
            [name for name in dict.fromkeys(names) if name not in self._family.statistics],
            gated=all(model.get("gated", True) for model in self._models),
            experts=any(model.get("experts", False) for model in self._models),
            wide=len({model.get("width") for model in self._models}) > 1,
            deep=len({model.get("blocks") for model in self._models}) > 1,
        )
        return fitting[:2]


def _framings(rejecting: set[str]) -> list[str]:
    """What an adversary does that makes independent models look so, where it costs something."""
    return [f"{f.what} (at the cost of {f.cost})" for f in flaws.FRAMINGS if rejecting <= f.fooled and f.cost]


def _smallest_share(outcome: Outcome, bar: float) -> float | None:
    """Smallest share of common units of each block that would be rejected; None where it is not known."""
    blocks = [block for block in outcome.blocks if block.block is not None and block.detail.n is not None]
    if not blocks or blocks[0].detail.experts or outcome.detail.until_settled is not None:
        return None
    if outcome.detail.all_blocks is not None:  # one pair of blocks speaks for all
        blocks = blocks[:1]
    counted = [power.units_that_count(block.detail.reach or 0.0) for block in blocks]
    least = [block.detail.least or 0 for block in blocks]
    return power.smallest_share([block.detail.needed("n") for block in blocks], counted, bar, least)


def _of_models(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the files qualify the verdict: not verified, stored as codes, merged, or read in part."""
    sentences = []
    unverified = [(str(model["source"]), model.get("commit")) for model in models if model.get("not_verified")]
    if names := [source for source, commit in unverified if commit]:
        sentences.append(
            f"Tensors of {' and '.join(names)} were fetched one by one, not compared with the SHA-256 of their files; "
            "run it again when the whole model is in the hub's cache (hf download)."
        )
    if names := [source for source, commit in unverified if not commit]:
        sentences.append(f"Files of {' and '.join(names)} were read in part, and their SHA-256 was not computed.")
    sentences += [
        f"Beside the weights of {model['source']} that were read lies {model['rival']}, which holds other numbers."
        for model in models
        if model.get("rival")
    ]
    sentences += [one_line(note, 400) for model in models for note in model.get("notes", ())]
    if lent := [str(model["name"]) for model in models if model.get("lent_ids")]:
        whose = "the ids of the other's tokens" if len(lent) < len(models) else "random ids"
        sentences.append(f"No tokenizer comes with {' and '.join(lent)}: in place of the text it was given {whose}.")
    stored = {str(model["source"]): model.get("stored") or () for model in models}
    codes = {source: [code for code in codes if code != "LoRA"] for source, codes in stored.items()}
    if coded := [f"{source} ({', '.join(used)})" for source, used in codes.items() if used]:
        sentences.append(f"Weights that are stored as codes were de-quantised: those of {' and '.join(coded)}.")
    if merged := [source for source, codes in stored.items() if "LoRA" in codes]:
        sentences.append(f"A LoRA adapter was merged into its base, in float32: {' and '.join(merged)}.")
    sentences += [
        f"{model['name']} has the class {one_line(model['architecture'], 60)}, which the table of architectures lacks: "
        f"it was read by its tensors, as {model['read_as']}, and its computation between them is not known."
        for model in models
        if model.get("read_as")
    ]
    return sentences + [
        f"The language part of {model['name']} ({model['architecture']}) was compared, as {model['language_part']}."
        for model in models
        if model.get("language_part")
    ]


def _by_reason(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, reason in pairs:
        grouped.setdefault(reason, []).append(name)
    return grouped


def _nonsense(unread: Mapping[str, tuple[float, float] | None]) -> str:
    """Say how far models are from knowing the ids that they were lent."""
    measured = [
        f"{losses[0]:.2f} nats a token by {name}, and {losses[1]:.2f} by the frequencies of the tokens alone"
        for name, losses in unread.items()
        if losses
    ]
    if not measured:
        return "phi_jsd would measure by its loss whether the ids mean the same to it, and has not."
    return f"The loss is {'; '.join(measured)}."


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _ignoring(names: Sequence[str]) -> str:
    words = " and ".join([*[", ".join(names[:-1])] * (len(names) > 1), names[-1]])
    return f"{words} {'ignore' if len(names) > 1 else 'ignores'}"


def _power(log10_p: float) -> str:
    return f"10^{format_log10_p(log10_p)}"
