"""The verdict on one pair in sentences: what was tested and what was not, what else may be the cause, what fools it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from provlab import statistics as registry
from provlab.engine.ledger import PairRecord
from provlab.errors import one_line
from provlab.plots.numbers import format_log10_p
from provlab.report.family import LEVEL, Family
from provlab.statistics import flaws
from provlab.statistics.base import Options

REJECTED, NOT_REJECTED, UNTESTED, IDENTICAL = "rejected", "not rejected", "could not be tested", "identical"
_CAUSES = ("a common ancestor", "a common initial draw", "a mask, noise or any choice that both share")
_ORDER = "hidden units of one put into the other's order, or those of both by one rule"
_SCORE = "near 1 for related models of our zoo, disguised or not, and near 0 for independent ones"


class Verdict:
    """What the tests of one pair say.

    Attributes
    ----------
    outcome : str
        "identical", "rejected", "not rejected", or "could not be tested": no test rejects, and every test asked that
        finds related units in any order was refused or gave no p-value.
    text : str
        The same in sentences.
    """

    def __init__(
        self, records: Sequence[PairRecord], models: Sequence[Mapping[str, Any]], options: Options, family: Family
    ) -> None:
        self._records, self._models, self._options, self._family = records, models, options, family
        self._outcomes = {record.statistic: record.outcome for record in records if record.outcome}
        self._p = {name: o.log10_p for name, o in self._outcomes.items() if o.log10_p is not None}
        members = zip(family.statistics, family.members, family.rejected, strict=True)
        in_family = [(name, rejected) for name, member, rejected in members if member]
        self._tested = [name for name, _ in in_family]
        self._rejecting = [name for name, rejected in in_family if rejected]
        #: outside the family, and read at the level as they stand
        self._small = [n for n, p in self._p.items() if p <= np.log10(LEVEL) and n not in self._tested]
        self._order_free = [name for name in flaws.ORDER_FREE if name in family.statistics]
        self.outcome = self._reached()
        self.text = " ".join(self._sentences())

    def _reached(self) -> str:
        a, b = self._models
        if "digest" in a and a["digest"] == b["digest"]:
            return IDENTICAL
        if self._rejecting:
            return REJECTED
        silenced = self._order_free and not any(name in self._p for name in self._order_free)
        return UNTESTED if silenced or not self._tested else NOT_REJECTED

    def _sentences(self) -> list[str]:
        if self.outcome == IDENTICAL:
            return ["The two models are identical: configuration and weight files are the same, byte for byte."]
        opening = {REJECTED: self._rejection, NOT_REJECTED: self._no_rejection, UNTESTED: self._no_test}[self.outcome]()
        hiding = self._hiding() if self.outcome == NOT_REJECTED else []
        return [*opening, *self._read(), *_of_models(self._models), *self._family.remarks(), *self._missing(), *hiding]

    # What the tests say ---------------------------------------------------------------------------------------------

    def _rejection(self) -> list[str]:
        by_theorem = [name for name in self._rejecting if registry.get(name).theorem]
        strongest = min(by_theorem or self._rejecting, key=lambda name: self._p[name])
        words = "the weights of the two are not independent"
        if not by_theorem:
            whom = "it was" if len(self._rejecting) == 1 else "these tests were"
            words = f"the two agree more than the independent models that {whom} calibrated on"
        opening = f"Independent training is rejected by {_names(self._rejecting)} ({self._family.words()}): {words}."
        return [opening, self._how_rarely(strongest), *self._written(), *self._causes()]

    def _how_rarely(self, name: str) -> str:
        """Put the p-value of one statistic into words."""
        outcome = self._outcomes[name]
        if "until_settled" in outcome.detail:
            return f"By {name} the inverse of the e-value is {_power(self._p[name])}: a bound on p, not a probability."
        paper = outcome.detail.get("paper_log10_p")
        in_paper = f" ({_power(paper)} by the paper's two-sided form)" if paper is not None else ""
        whom = "independent weights" if registry.get(name).theorem else "such models"
        return f"By {name} {whom} would agree as closely with a probability of about {_power(self._p[name])}{in_paper}."

    def _written(self) -> list[str]:
        """How much of the MLPs' output the agreeing units write: nearly all in a copy, little where one was framed."""
        for name in self._rejecting:
            details = [block.detail for block in self._outcomes[name].blocks]
            shares = [min(detail["written"]) for detail in details if "written" in detail]
            if shares:
                return [f"The units that agree by {name} write {np.mean(shares):.0%} of the output of the MLPs."]
        return []

    def _causes(self) -> list[str]:
        """Name what else may be the cause."""
        rejecting = {*self._rejecting, *self._small}
        by_order = rejecting <= flaws.ORDERED
        framings = [
            f"{flaw.what} (at the cost of {flaw.cost})"
            for flaw in flaws.FRAMINGS
            if rejecting <= flaw.fooled and flaw.cost  # the one without a cost is `_ORDER`
        ]
        causes = "; ".join([*_CAUSES, *[_ORDER] * by_order, *framings])
        sentences = [f"Possible causes: {causes}. The test does not say which, nor which model came first."]
        free = [name for name in self._order_free if name in self._p]
        if agreeing := [name for name in free if name in rejecting]:
            more = [f"{_ignoring(agreeing)} the order of units, so that order alone is not the cause."]
            return sentences + more * bool(rejecting & flaws.ORDERED)
        if by_order and free:
            sentences.append(
                f"{_ignoring(free)} the order of units, and nothing is rejected by that: an order, which changes no "
                "output, may be all that the two have in common."
            )
        elif by_order:
            advice = self._advised(flaws.ORDER_FREE)
            tell = f"; {_names(advice)} can show whether it is the order alone" if advice else ""
            sentences.append(f"No test that ignores the order of units gave a p-value{tell}.")
        return sentences

    def _no_rejection(self) -> list[str]:
        left = [name for name in self._order_free if name not in self._p]
        but = f", and {_names(left)} could not be tested" if left else ""
        how = "this is how independent models agree. That is no proof of independence."
        if self._small:
            how = f"but {_names(self._small)}, not corrected, would reject; independent models seldom agree so closely."
        return [f"Independent training is not rejected by {_names(self._tested)} ({self._family.words()}){but}: {how}"]

    def _no_test(self) -> list[str]:
        if not self._tested:
            which = f"{self._family.primary}, declared the one to judge by," if self._family.primary else "no statistic"
            gives = "gave no p-value" if self._family.primary else "gave a p-value"
            return [f"Independence could not be tested: {which} {gives}.", *self._described()]
        advice = self._advised(flaws.ORDER_FREE)
        return [
            f"Independence could not be tested: {_names(self._order_free)} would find a copy whose hidden units were "
            "re-ordered, and gave no p-value.",
            f"{_names(self._tested)} ({self._family.words()}) do not reject, which says nothing of such a copy.",
            *[f"Not asked for, and may test it: {_names(advice)}."] * bool(advice),
            *self._described(),
        ]

    def _described(self) -> list[str]:
        """Figures that are no tests."""
        values = [
            f"{name} {outcome.value:.3g}" + f" ({_SCORE})" * (name == "stream_score")
            for name, outcome in self._outcomes.items()
            if name not in self._p and not outcome.detail.get("withheld")
        ]
        return [f"Descriptive, and no test: {', '.join(values)}."] if values else []

    # What qualifies it ----------------------------------------------------------------------------------------------

    def _read(self) -> list[str]:
        """How much of the models was read, where that is not all."""
        sentences = []
        everywhere = {n: o for n, o in self._outcomes.items() if "said" not in o.detail}
        depth = max((model.get("blocks", 0) for model in self._models), default=0)
        by_blocks = [n for n, o in everywhere.items() if o.blocks and o.blocks[0].block is not None]
        few = [name for name in by_blocks if len(everywhere[name].blocks) < depth]
        if few:
            blocks = [str(block.block) for block in everywhere[few[0]].blocks]
            sentences.append(f"Blocks read: {', '.join(blocks)}, which is {len(blocks)} of {depth}.")
        for name, outcome in self._outcomes.items():
            whole = [block.detail["of_units"] for block in outcome.blocks if "of_units" in block.detail]
            if whole:
                units = " and ".join(f"{h:,}" for h in dict.fromkeys(whole[-1]))
                sentences.append(
                    f"{name} read the first {self._options.units:,} of {units} hidden units of each block. Where units "
                    "were moved or left out, few of these have their partners among the other's first: if it does not "
                    "reject, run it without units."
                )
        sentences += self._dropped()
        details = [outcome.detail for outcome in self._outcomes.values()]
        return sentences + [detail[key] for key in ("said", "zeros") for detail in details if key in detail]

    def _dropped(self) -> list[str]:
        """How many hidden units of either model were left out of the matchings, as they do nothing of their own."""
        by_counts: dict[tuple[int, ...], list[str]] = {}
        for name, outcome in self._outcomes.items():
            dropped = [block.detail["dropped"] for block in outcome.blocks if "dropped" in block.detail]
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
            (n, self._with_names(o.detail["withheld"])) for n, o in self._outcomes.items() if o.detail.get("withheld")
        )
        in_part = _by_reason(
            (name, f"{len(silent)} of {len(self._outcomes[name].blocks)}: {silent[0]}")
            for name in self._p
            if (silent := [b.detail["withheld"] for b in self._outcomes[name].blocks if "withheld" in b.detail])
        )
        return [
            *(f"No evidence was taken from some blocks by {_names(n)} ({reason})." for reason, n in in_part.items()),
            *(f"No p-value: {_names(names)} ({reason})." for reason, names in withheld.items()),
            *(f"Not run: {_names(names)} ({reason})." for reason, names in refused.items()),
        ]

    def _with_names(self, reason: str) -> str:
        """Put the models' names into a reason that speaks of the first and the second."""
        for which, model in zip(("the first by", "the second by"), self._models, strict=True):
            reason = reason.replace(which, f"{model['name']} by")
        return reason

    def _hiding(self) -> list[str]:
        """What would hide a common origin from the tests that ran, and which other test sees it nevertheless."""
        hiding = flaws.hiding(self._tested)
        if not hiding:
            return []
        ways = "; ".join(
            f"{flaw.what} (from {_names([n for n in self._tested if n in flaw.fooled])})" for flaw in hiding
        )
        advice = self._advised([n for n in hiding[0].withstand if all(n in flaw.withstand for flaw in hiding)])
        tail = f" Not run, and not fooled by any of these: {_names(advice)}." if advice else ""
        return [f"These disguises would hide a common origin: {ways}.{tail}"]

    def _advised(self, names: Iterable[str]) -> list[str]:
        """Statistics among these that were not asked and apply to the two models, two at most."""
        fitting = flaws.applicable(
            [name for name in names if name not in self._family.statistics],
            gated=all(model.get("gated", True) for model in self._models),
            experts=any(model.get("experts", False) for model in self._models),
        )
        return fitting[:2]


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


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _ignoring(names: Sequence[str]) -> str:
    words = " and ".join([*[", ".join(names[:-1])] * (len(names) > 1), names[-1]])
    return f"{words} {'ignore' if len(names) > 1 else 'ignores'}"


def _power(log10_p: float) -> str:
    return f"10^{format_log10_p(log10_p)}"
