"""Where two models disagree: over what each writes, then counted over Z; as text, in a notebook, as JSON."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from provlab import provenance
from provlab.modeldiff import reliance
from provlab.modeldiff.answers import items_json, items_table, items_words
from provlab.modeldiff.comparison import BothDirections, Summary
from provlab.modeldiff.estimands import measured
from provlab.modeldiff.findings import excess_words, findings
from provlab.modeldiff.found import TEXT, Found
from provlab.modeldiff.gates import Decision, decide
from provlab.modeldiff.outputs import (
    INPUT,
    by_z_table,
    concentration,
    finite,
    group_words,
    groups_table,
    less_likely_for,
    lines_of,
    lines_table,
    marked,
    number,
    percent,
)
from provlab.plots.numbers import format_interval, format_number, format_range
from provlab.report import views
from provlab.report.card import OPEN, QUIET, RELATED, Card, cut, in_short

if TYPE_CHECKING:
    from provlab.modeldiff.marks import Panel
    from provlab.plots import Figure

_BINS = 40  # of a panel
SCHEMA = "provlab.diff/3"
_SAID = 3  # findings that are read at first; the others fold
_SHOWN, _LONGEST = 2, 44  # lines on a card, of outputs and of a text, and characters of one
_ROWS, _BAR = 14, 34  # of the picture in text: bins of D, and characters of the longest bar
_TERMS = "PD of A : PA of A : PA of B : PD of B"


@dataclass(frozen=True, eq=False)
class Difference(Found, views.Report):
    """Two models, each judging what the other finds likely; shows itself in a notebook, prints as text.

    Its attributes are those of `provlab.modeldiff.found.Found`.
    """

    @cached_property
    def decided(self) -> Decision:
        """What the gates that were asked come to."""
        return decide(self.gates, self.level, partial(measured, self), equal=self.equal)

    def decision(self) -> dict[str, Any]:
        """What a reader decides by, each part with its interval; `sentence` holds all of it, `answer` its first part.

        Keys: decision, estimand, level, gates (`provlab.modeldiff.gates.Decision`), equal (up to rounding), rounding
        (the way that makes as much), larger_than_references (True, False, None where these are none, too few, or far
        away), excess, rank_p, concentration and place (in words), text_costs.
        """
        among, (lead, output) = self.apart.among, self.lead
        first, *rest = (f"{words}." for _, words in findings(self, self.decided))
        nowhere = self.equal or self.rounding is not None
        return {
            **self.decided.to_json(),
            "equal": self.equal,
            "rounding": self.rounding and self.rounding.way,
            "larger_than_references": None if self.equal or not among or among.small else among.larger(self.level),
            "excess": among and finite(among.excess),
            "rank_p": among and among.p(),
            "concentration": "" if self.equal else concentration(output, lead),
            "place": "" if nowhere else group_words(output),
            "text_costs": self.text_loss and finite(self.text_loss[2]),
            **({"items": items_words(self.items, self.level)} if self.items and not self.equal else {}),
            "answer": first,
            "sentence": " ".join([first, *rest]),
        }

    def finding(self) -> list[str]:
        """How far the two are apart, where, and which has more inputs in Z."""
        if self.equal:
            return [self.decision()["sentence"]]
        forth, back = (
            f"{number(of.divergence)}{{}} and {concentration(of, side)}" for side, of in self.by_side.items()
        )
        sentences = [
            f"KL(A || B), over what A writes, is {forth.format(' nats per token')}. "
            f"KL(B || A), over what B writes, is {back.format('')}."
        ]
        if self.apart.references:
            sentences.append(
                f"A and B are {number(self.apart.both)} nats per token apart on {self.apart.where} (mean of both "
                f"divergences); {excess_words(self)}."
            )
        return sentences + self._more_inputs()

    def _more_inputs(self) -> list[str]:
        """How many of B's inputs in Z there are for each of A's; nothing where the draws do not carry it."""
        if not self.carried or self.compared is None:
            return []
        more, low, high = self.compared.log10_more(seed=self.seed)
        open_ = " (the interval includes equality)" if low <= 0 <= high else ""
        return [f"For each of A's inputs in Z, B has {_factor(more)} ({_factor(low)} to {_factor(high)}){open_}."]

    def remedies(self) -> list[str]:
        """What the draws do not carry, and what to change."""
        return reliance.remedies(self)

    def assumptions(self) -> list[str]:
        """What the numbers rest on."""
        return reliance.assumptions(self)

    def _both(self, name: str, write: Callable[[dict[str, Any]], str], needs: str) -> tuple[str, str, str]:
        """A name, and A's and B's entry beside it; a dash where a side lacks what it needs."""
        a, b = (write(side) if side[needs] is not None else "–" for side in self.sides)
        return name, a, b

    def written_rows(self) -> list[tuple[str, str, str]]:
        """Name, A's and B's entry of each line of the table about what the models write."""
        rows = [
            ("loss of the held-out text", lambda s: f"{s['text_loss']:.3f}", "text_loss"),
            ("distance of the other from it (nats per token)", lambda s: number(s["divergence"]), "divergence"),
            ("share of its outputs that carries half of that", lambda s: percent(s["half"]), "half"),
            ("share that the other finds less likely", lambda s: percent(s["less_likely"]), "half"),
            ("  expected of any two models so far apart", lambda s: f"{s['if_normal']:.1%}", "half"),
        ]
        of_text, *others = (self._both(*row) for row in rows)
        if not self.text_loss:
            return others
        return [of_text, ("  B's minus A's", "", number(self.text_loss[2])), *others]

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, A's and B's entry of each line of the table of counts over Z."""
        whose = "draws of both models" if self.parameters["mixed"] else "its draws"
        rows = [
            (f"sequences it wrote; {whose} in Z", lambda s: f"{s['written']:,}; {s['in_z']:,}", "written"),
            ("worth equal draws", lambda s: f"{s['effective']:,.0f}", "written"),
            ("log10 of its inputs in Z", lambda s: _interval(s["log10_inputs"]), "quantiles"),
            ("of them in Z for the other too", lambda s: percent(s["common"]), "quantiles"),
            ("PD: the other finds them less likely", lambda s: percent(s["disagreement"]), "quantiles"),
            (
                "D at 5%, 50%, 95%",
                lambda s: ", ".join(format_number(value, "+.3g") for value in s["quantiles"]),
                "quantiles",
            ),
        ]
        return [self._both(*row) for row in rows]

    def distances(self) -> views.Table:
        """Divergences where the models read the same, with those of references below them."""
        rows = [("A and B", number(self.apart.forth), number(self.apart.back), "")]
        rows += [
            (f"A and {row.model}", number(row.forth), number(row.back), number(row.farther))
            for row in self.apart.references
        ]
        header = (f"nats per token, on {self.apart.where}", "KL(A || .)", "KL(. || A)", "A and B farther by")
        if not self.apart.references:
            return views.Table(header[:3], [row[:3] for row in rows])
        return views.Table(header, rows)

    def ratios(self) -> list[tuple[str, str]]:
        """The ratio of Equation 7 by each normalisation and by exchange; ways that give one number stand together."""
        ratios = []
        if self.carried and self.summary:
            ratios = [("by R3", self.summary.by_r3), ("by counts", self.summary.by_count)]
        if isinstance(self.exchange, Summary):
            ratios += [("by R3, exchange", self.exchange.by_r3), ("by counts, exchange", self.exchange.by_count)]
        ways: dict[str, list[str]] = {}
        for name, ratio in ratios:
            ways.setdefault(ratio_text(ratio), []).append(name)
        return [(" and ".join(names), text) for text, names in ways.items()]

    def picture(self) -> views.Table:
        """Both histograms of D in text: bars of each side's share in some bins; errors as of `figure`."""
        assert self.compared is not None
        bars = panel("", self.compared, tail=0.01, seed=self.seed, bins=_ROWS)
        both = [side[0] / (side[0].sum() or 1.0) for side in (bars.a, bars.b)]  # each of its own inputs
        unit = max(side.max() for side in both) / _BAR or 1.0
        rows = [
            (format_range(low, high, "+.3g"), "#" * round(a / unit), "#" * round(b / unit))
            for low, high, a, b in zip(bars.edges[:-1], bars.edges[1:], *both, strict=True)
        ]
        header = ("D, nats per token", "A's inputs".ljust(_BAR), "B's inputs".ljust(_BAR))
        return views.Table(header, rows, right=(0,), in_text_alone=True)

    def title(self) -> str:
        """Both models and the seed."""
        a, b = self.models
        return f"{a['source']} (A)  against  {b['source']} (B), seed {self.seed}"

    def parts(self) -> list[views.Part]:
        """The decision, what the models write, counts over Z, what is not to be relied on, assumptions."""
        lists = {"Not to be relied on": self.remedies(), "Assumed": self.assumptions()}
        beside = [views.Listed(title, sentences) for title, sentences in lists.items() if sentences]
        said = [f"{words}." for _, words in findings(self, self.decided)]
        first: list[views.Part] = [" ".join(said[:_SAID])]
        if len(said) > _SAID:
            first.append(views.Listed("More findings", said[_SAID:]))
        if self.copies:
            return first
        items = [items_table(self.items)] if self.items else []
        if self.equal or self.rounding:
            return [*first, *items, views.Table(["", "A", "B"], self.written_rows()), *beside]
        header = views.Marked.of(f"input {INPUT}", f"input {INPUT.html}")
        inputs = [
            (side, format_number(example.difference, "+.3f"), marked(example))
            for side, examples in zip("AB", self.examples, strict=True)
            for example in examples
        ]
        ratios = [views.Table(["", _TERMS], self.ratios()), self.picture()] if self.carried else []
        return [
            *first,
            *items,
            views.Table(["over what each model writes", "A", "B"], self.written_rows()),
            views.Folded("Lines that the other model disputes most", [lines_table(self.by_source)]),
            views.Folded("Groups of disputed outputs", [groups_table(self.by_source)]),
            views.Folded(
                "The distance by range of loss, and on one text", [by_z_table(self.outputs), self.distances()]
            ),
            views.Folded(
                "Counts of inputs, the paper's question",
                [
                    "Each input in Z counts once, however rarely a model writes it.",
                    *self._more_inputs(),
                    views.Table(["over inputs in Z", "A", "B"], self.rows()),
                    *ratios,
                    *[views.Table(["inputs of", "D, both ends", header], inputs, right=(1,))] * bool(inputs),
                ],
            ),
            *beside,
        ]

    def card(self) -> Card:
        """The findings one by one, first what decided, and the lines that are disputed most, written and of a text."""
        (_, answer), *others = findings(self, self.decided)
        rows = [
            (side, less_likely_for(line), f"{line.nats:.1f}", cut(str(marked(line.example)), _LONGEST))
            for some in (self.by_side, {TEXT: self.text} if self.text else {})
            for side, line in ([] if self.rounding else lines_of(some))[:_SHOWN]
        ]
        table = views.Table(("written by", "less likely for", "nats", "what is disputed most"), rows, right=(2,))
        mind = [("mind", in_short(self.remedies(), 210))] if self.remedies() else []
        a, b = (model["source"] for model in self.models)
        tones = {"failed": RELATED, "not decided": OPEN, "passed": QUIET, "equal": QUIET}
        larger = {True: RELATED, None: OPEN, False: QUIET}[self.decision()["larger_than_references"]]
        tone = tones.get(self.decided.word, QUIET if self.rounding else larger)
        remarks = [*((label, f"{words}.") for label, words in others), *mind]
        return Card(f"{a} (A) and {b} (B): {answer}.", tone, [table] * bool(rows), remarks)

    def drawn(self) -> "Figure | None":
        """Both histograms of D over the same bins; None where one side has too few inputs."""
        from provlab.modeldiff.marks import differences

        if not self.carried or self.compared is None or self.equal:
            return None
        return differences(
            [panel("", self.compared, tail=0.001, seed=self.seed)],
            labels=("A's inputs", "B's inputs"),
            xlabel="D = NLL of A - NLL of B (nats per token)",
            caption=f"Left of zero {self.models[1]['name']} (B) finds an input less likely than "
            f"{self.models[0]['name']} (A) does; right of zero B finds it more likely. Heights count inputs, in units "
            "of all of A's, and bands are 95% intervals.",
        )

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines (see the README for the keys)."""
        known = self.compared if self.carried else None
        bars = known and panel("", known, tail=0.001, seed=self.seed)
        rho = bars and {"edges": finite(bars.edges), "a": list(map(finite, bars.a)), "b": list(map(finite, bars.b))}
        return {
            "schema": SCHEMA,
            "models": list(self.models),
            "parameters": self.parameters,
            "seed": self.seed,
            "versions": provenance.versions(),
            "z": self.z and list(self.z),
            "z_chosen": self.words["z"],
            "rounding": self.floor,
            "decision": self.decision(),
            "sides": list(self.sides),
            "lines": {source: [asdict(line) for line in of.lines] for source, of in self.by_source.items()},
            "groups": {source: [asdict(group) for group in of.groups] for source, of in self.by_source.items()},
            "text_changed": self.text and list(self.text.changed),
            "roundings": [asdict(way) for way in self.roundings],
            "text_loss_apart": self.text_loss and finite(self.text_loss[2]),
            "log10_more": known and finite(known.log10_more(seed=self.seed)),
            "apart": self.apart.to_json(),
            "items": self.items and items_json(self.items),
            "summary": asdict(self.summary) if known and self.summary else None,
            "exchange": asdict(self.exchange) if isinstance(self.exchange, Summary) else self.exchange,
            "rho": rho,
            "examples": [[asdict(example) for example in examples] for examples in self.examples],
            "finding": " ".join(self.finding()),
            "remedies": self.remedies(),
            "assumptions": self.assumptions(),
        }


def panel(title: str, compared: BothDirections, *, tail: float, seed: int, bins: int = _BINS) -> "Panel":
    """Both directions over common bins that hold all but a share `tail` at either end, scaled so that A's sum to 1."""
    from provlab.modeldiff.marks import Panel

    ends = np.concatenate([side.quantile([tail, 1 - tail]) for side in (compared.a, compared.b)])
    reach = 1.05 * np.nanmax(np.abs(ends)) or 1.0  # a side without draws has no quantile
    edges = reach * np.arange(-bins, bins + 1, 2) / bins  # 0 itself is an edge
    return Panel(title, edges, *(compared.rho(side, edges, "count", seed=seed) for side in ("A", "B")))


def ratio_text(ratio: Mapping[str, Any]) -> str:
    """Write a ratio with its intervals, or why there is none."""
    if "error" in ratio:
        return "none: R3 holds too few draws" if "R3" in ratio["error"] else str(ratio["error"])
    shown = [
        format_number(v, ".2f")
        if low is not None and low == high
        else format_interval(v, low, math.inf if high is None else high, ".2f").replace("inf", "∞")
        for v, low, high in zip(ratio["value"], ratio["low"], ratio["high"], strict=True)
    ]
    return " : ".join(shown) + ("" if ratio["reference"] == "PD_AB" else f" relative to {ratio['reference']}")


def _factor(log10: float) -> str:
    return f"{10**log10:.3g}" if abs(log10) < 4 else f"10^{log10:.1f}"


def _interval(values: list[float]) -> str:
    value, low, high = values
    return format_interval(value, low, high, ".2f")
