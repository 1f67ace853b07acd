"""Where two models disagree: over what each writes, then counted over Z; as text, in a notebook, as JSON."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from provlab import provenance
from provlab.errors import InputError
from provlab.modeldiff.bootstrap import percentiles
from provlab.modeldiff.comparison import BothDirections, Summary
from provlab.modeldiff.excess import LEAST_GROUPS, PIECES_A_GROUP, Apart
from provlab.modeldiff.items import Paired
from provlab.modeldiff.pipeline import N_CHAINS
from provlab.modeldiff.representative import LEAST_EFFECTIVE, Direction
from provlab.plots.numbers import format_interval, format_number, format_range
from provlab.report import views
from provlab.report.card import OPEN, QUIET, RELATED, Card, cut, in_short
from provlab.report.items import items_json, items_table, items_words
from provlab.report.outputs import (
    INPUT,
    Example,
    Output,
    by_z_table,
    finite,
    groups_table,
    lines_table,
    loss_words,
    number,
    percent,
)

if TYPE_CHECKING:
    from provlab.plots import Figure
    from provlab.plots.modeldiff import Panel

LEVEL = 0.05  # of the test of `fails`, where no other is asked for
_BINS = 40  # of a panel
_SHOWN, _LONGEST = 4, 50  # lines on a card, and characters of one
_ROWS, _BAR = 14, 34  # of the picture in text: bins of D, and characters of the longest bar
_TERMS = "PD of A : PA of A : PA of B : PD of B"
_FAR = 3.0  # effective draws below which nothing can be said of how many sequences would do


@dataclass(frozen=True, eq=False)
class Difference(views.Report):
    """Two models, each judging what the other finds likely; shows itself in a notebook, prints as text.

    Attributes
    ----------
    models
        The two models, see `provlab.report.views.describe`: A and B.
    z
        The range of loss that makes an input one of a model's.
    inputs
        The inputs of A and those of B, with all draws in Z; empty for a model that wrote too few there.
    outputs
        What A writes and what B writes: where the divergence is.
    apart
        How far B is from A where both read the same, beside references.
    floor
        Largest difference of two losses (nats per token) that rounding alone makes, measured on these models: of what
        each wrote token by token, read again all at once. A smaller D counts as 0.
    parameters
        As run.
    words
        How Z was chosen, which tokens inputs are made of, and what stands before them.
    text_loss
        Mean loss of the held-out text under A, under B, and B's less A's with its interval; None if no text was read.
    examples
        Inputs of A and of B in Z, from both ends of D.
    exchange
        The same by replica exchange, or why that gives no number; None if it was not asked for.
    items
        Questions with answers under both; None if none were given.
    """

    models: tuple[dict[str, Any], dict[str, Any]]
    z: tuple[float, float]
    inputs: tuple[Direction, Direction]
    outputs: tuple[Output, Output]
    apart: Apart
    floor: float
    parameters: dict[str, Any]
    words: dict[str, str]
    text_loss: Sequence[Any] | None
    examples: tuple[tuple[Example, ...], tuple[Example, ...]]
    exchange: Summary | str | None = None
    items: Paired | None = None

    @property
    def seed(self) -> int:
        """Seed of all draws."""
        return int(self.parameters["seed"])

    @cached_property
    def compared(self) -> BothDirections | None:
        """Both sides; None where a model has too few inputs in Z."""
        a, b = self.inputs
        return BothDirections(a, b, self.z, joint=self.parameters["mixed"]) if a and b else None

    @cached_property
    def summary(self) -> Summary | None:
        """The numbers of the comparison."""
        return self.compared.summary(seed=self.seed) if self.compared else None

    @cached_property
    def sides(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Numbers of A's inputs and of B's: estimates as value, low, high of the 95% interval."""
        first, second = (self._side(k) for k in range(2))
        return first, second

    def _side(self, k: int) -> dict[str, Any]:
        inputs, output = self.inputs[k], self.outputs[k]
        side = {
            "model": self.models[k]["name"],
            "text_loss": self.text_loss[k] if self.text_loss else None,
            "written": self.parameters["n"],
            "worth": output.worth,  # equally weighted draws behind them
            **{name: getattr(output, name) for name in ("divergence", "less_likely", "if_normal", "half", "by_z")},
            "in_z": len(inputs.difference) if inputs else 0,
            "effective": inputs.effective if inputs else 0.0,
        }
        names = ("log10_inputs", "common", "disagreement", "agreement", "quantiles")
        if not side["effective"] >= LEAST_EFFECTIVE:
            return side | dict.fromkeys(names)
        numbers = inputs.log10_numbers(np.random.default_rng(self.seed))
        values = (
            [float(numbers[0]), *map(float, percentiles(numbers[1:], inputs.n_chains))],
            list(inputs.share(inputs.common, seed=self.seed)),
            list(inputs.share(inputs.disagreement, seed=self.seed)),
            list(inputs.share(~inputs.disagreement & (inputs.difference != 0), seed=self.seed)),
            [float(value) for value in inputs.quantile([0.05, 0.5, 0.95])],
        )
        return side | dict(zip(names, values, strict=True))

    @property
    def carried(self) -> bool:
        """Whether the draws of both models in Z are worth enough for a number."""
        return self.compared is not None and all(side["effective"] >= LEAST_EFFECTIVE for side in self.sides)

    @property
    def equal(self) -> bool:
        """Whether no draw tells the two models apart beyond rounding."""
        return all(output.half is None for output in self.outputs)

    def fails(self, above: float, level: float = LEVEL) -> bool:
        """Whether the excess (`Apart.excess`) is above a number of nats per token, by a test of a level.

        Parameters
        ----------
        above
            The number.
        level
            The chance of a wrong answer if the excess is no larger: over seeds where there are references
            (`provlab.modeldiff.excess.AmongSeeds.p`, a rank), else over pieces of what was read.

        Raises
        ------
        InputError
            The level is none, or nothing that was given can answer at it.
        """
        check_limit(above, level, len(self.apart.references))
        if not self.apart.seeds and not self.apart.has_interval:
            raise InputError(f"{self.apart.where} is too short for a test: {self._too_short()}")
        return not self.equal and self.apart.p(above) <= level

    def test_words(self, above: float, level: float) -> str:
        """The test of `fails` in words, with its p-value."""
        p = self.apart.p(above)
        return f"{self.excess_words()}; above {above:g} with p = {p:.2g}, level {level:g}"

    def excess_words(self) -> str:
        """The excess in words."""
        k = len(self.apart.references)
        of = f"excess over another seed ({k} reference{'s' * (k > 1)})" if k else "distance of A and B"
        return f"{of} is {number(self.apart.excess)} nats per token"

    def decision(self) -> dict[str, Any]:
        """What a reader decides by, each part with its interval; `sentence` holds all of it, `answer` its first part.

        Keys: equal (up to rounding), larger_than_another_seed (True, False, None where references are none or too few),
        excess, rank_p, concentration and place (in words), text_costs.
        """
        result, parts = self._decided()
        first, *rest = (f"{words}." for words in parts.values())
        return result | {"answer": first, "sentence": " ".join([first, *rest])}

    def _decided(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The decision without its sentence, and the parts of the sentence under the labels that a card gives them."""
        a, b = (self.models[k]["name"] for k in range(2))
        result: dict[str, Any] = {
            "equal": self.equal,
            "larger_than_another_seed": None,
            "excess": self.apart.seeds and self.apart.seeds.excess,
            "rank_p": self.apart.seeds and self.apart.seeds.p(0.0),
            "concentration": "",
            "place": "",
            "text_costs": self.text_loss and finite(self.text_loss[2]),
        }
        if self.equal:
            n = 2 * self.parameters["n"]
            words = (
                f"A and B are equal up to rounding: none of {n:,} outputs tells them apart by more than "
                f"{self.floor:.1e} nats per token"
            )
            return result, {"equal": words}
        parts = {}
        if self.apart.seeds:
            p, least = self.apart.seeds.p(0.0), self.apart.seeds.least
            among = f"its rank among {len(self.apart.seeds.distances)} models, p = {p:.2g}"
            result["larger_than_another_seed"] = p <= LEVEL if p > least or least <= LEVEL else None
            if p <= LEVEL:
                larger = f"is larger than another seed's ({among})"
            elif p == least:
                n = len(self.apart.seeds.distances)
                larger = (
                    f"may be larger than another seed's (the farthest among {n} models, as one of {n} is by chance)"
                )
            else:
                larger = f"is not shown to be larger than another seed's ({among})"
            parts["seeds"] = f"On {self.apart.where} the change from {a} to {b} {larger}. The {self.excess_words()}"
        result |= {"concentration": self.outputs[1].concentration("B"), "place": self.outputs[1].place("B")}
        parts["apart"] = (
            f"B's outputs cost A {number(self.outputs[1].divergence)} nats per token more than they cost B. This "
            f"distance, KL(B || A), is {result['concentration']}"
        )
        if place := result["place"]:
            parts["where"] = place[:1].upper() + place[1:]
        if self.text_loss:
            parts["text"] = f"On {self.apart.where} B's loss is {loss_words(self.text_loss[2])}"
        if self.items:
            parts["answers"] = result["items"] = items_words(self.items)
        if not self.apart.seeds:
            parts["seeds"] = (
                "Would another seed change as much? No reference was given, so this is not known (--reference MODEL, "
                "of A's recipe with another seed)"
            )
        return result, parts

    def finding(self) -> list[str]:
        """How far the two are apart, where, and which has more inputs in Z."""
        if self.equal:
            return [self.decision()["sentence"]]
        forth, back = (number(output.divergence) for output in self.outputs)
        sentences = [
            f"KL(A || B), over what A writes, is {forth} nats per token and {self.outputs[0].concentration('A')}. "
            f"KL(B || A), over what B writes, is {back} and {self.outputs[1].concentration('B')}."
        ]
        if self.apart.references:
            sentences.append(
                f"A and B are {number(self.apart.both)} nats per token apart on {self.apart.where} (mean of both "
                f"divergences). The {self.excess_words()}."
            )
        if self.carried:
            assert self.compared is not None
            more, low, high = self.compared.log10_more(seed=self.seed)
            open_ = " (the interval includes equality)" if low <= 0 <= high else ""
            sentences.append(
                f"For each of A's inputs in Z, B has {_factor(more)} ({_factor(low)} to {_factor(high)}){open_}."
            )
        return sentences

    def remedies(self) -> list[str]:
        """What the draws do not carry, and what to change."""
        sentences = []
        for name, side in zip("AB", self.sides, strict=True):
            if not side["in_z"]:
                sentences.append(f"{name} has no number in Z: {self.words[f'empty {name}']}.")
            elif side["effective"] < LEAST_EFFECTIVE:
                sentences.append(
                    f"{name}'s {side['in_z']} draws in Z are worth {side['effective']:.1f} equally weighted ones, and "
                    f"{LEAST_EFFECTIVE:.0f} are needed: no number of {name}'s inputs in Z is given. "
                    f"{self._more(side['effective'])}, or move Z to losses that both models write often."
                )
        if self.text_loss and not self.apart.has_interval:
            sentences.append(f"{self.apart.where} gives means without intervals: {self._too_short()}.")
        if self.carried and self.summary and not self.equal:
            if "error" in self.summary.by_r3:
                sentences.append(f"No ratio by R3: {self.summary.by_r3['error']}. The ratio by counts needs no R3.")
            if "error" in self.summary.by_count:
                sentences.append(f"No ratio by counts: {self.summary.by_count['error']}.")
        if isinstance(self.exchange, str):
            sentences.append(f"Replica exchange gives no number: {self.exchange}.")
        return sentences

    def _more(self, worth: float) -> str:
        n = self.parameters["n"]
        if worth < _FAR:
            return f"Write far more than {n * LEAST_EFFECTIVE / _FAR:,.0f} sequences (--sequences, n)"
        need = 1.2 * n * LEAST_EFFECTIVE / worth  # draws are worth about their number
        step = 10 ** (math.floor(math.log10(need)) - 1)
        return f"About {math.ceil(need / step) * step:,} sequences would do (--sequences, n; now {n:,})"

    def _too_short(self) -> str:
        pieces, least = len(self.apart.each), LEAST_GROUPS * PIECES_A_GROUP
        return (
            f"it holds {pieces} pieces of {self.parameters['length']} tokens that do not overlap, and {least} are "
            f"needed; give a text of {least * self.parameters['length']:,} tokens or more"
        )

    def assumptions(self) -> list[str]:
        """What the numbers rest on."""
        low, high = self.z
        sentences = [
            f"An input is a sequence of {self.parameters['length']} tokens. {self.words['tokens']} "
            f"{self.words['start']}",
            "A divergence over what a model writes counts each output as often as the model writes it, at temperature "
            "1. It is the mean of the divergences of the laws of the next token, which never are negative; the nats of "
            "an output are their sum over it.",
            f"Z is {format_range(low, high)} nats per token, {self.words['z']}. Numbers of inputs are of those in Z, "
            "each counted once, and nearly all of these lie at its upper end; another Z gives others.",
            "Each model wrote its inputs with known probability, so that weights are numbers of inputs and nothing has "
            f"to converge; 95% intervals are by resampling {N_CHAINS} groups of draws."
            + " Draws of both models are weighted as one sample of their mixture."
            * self.parameters["mixed"],
            "D = NLL of A - NLL of B says what the two disagree about, and neither which of them is right nor where "
            f"they come from. Rounding alone moves it by up to {self.floor:.1e} nats per token here (losses of what "
            "was written, token by token and read at once); a smaller D counts as 0.",
        ]
        if self.apart.references:
            sentences.append(
                "A reference is a model of A's recipe with another seed. If B were one more of them, all models would "
                "be exchangeable, so that the rank is exact. The interval of the excess is Student's: it takes "
                "distances as normal, and seeds that lie far out make it too narrow. Both are for the text or draws "
                "that were read."
            )
        return sentences

    def written_rows(self) -> list[tuple[str, str, str]]:
        """Name, A's and B's entry of each line of the table about what the models write."""

        def both(name: str, write: Callable[[dict[str, Any]], str], needs: str) -> tuple[str, str, str]:
            a, b = (write(side) if side[needs] is not None else "–" for side in self.sides)
            return name, a, b

        rows = []
        if self.text_loss:
            rows.append(both("loss of the held-out text", lambda s: f"{s['text_loss']:.3f}", "text_loss"))
            rows.append(("  B's minus A's", "", number(self.text_loss[2])))
        return [
            *rows,
            both("distance of the other from it (nats per token)", lambda s: number(s["divergence"]), "divergence"),
            both("share of its outputs that carries half of that", lambda s: percent(s["half"]), "half"),
            both("share that the other finds less likely", lambda s: percent(s["less_likely"]), "half"),
            both("  expected of any two models so far apart", lambda s: f"{s['if_normal']:.1%}", "half"),
        ]

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, A's and B's entry of each line of the table of counts over Z."""

        def both(name: str, write: Callable[[dict[str, Any]], str], needs: str = "quantiles") -> tuple[str, str, str]:
            a, b = (write(side) if side[needs] is not None else "–" for side in self.sides)
            return name, a, b

        whose = "draws of both models" if self.parameters["mixed"] else "its draws"
        return [
            both(f"sequences it wrote; {whose} in Z", lambda s: f"{s['written']:,}; {s['in_z']:,}", "written"),
            both("worth equal draws", lambda s: f"{s['effective']:,.0f}", "written"),
            both("log10 of its inputs in Z", lambda s: _interval(s["log10_inputs"])),
            both("of them in Z for the other too", lambda s: percent(s["common"])),
            both("PD: the other finds them less likely", lambda s: percent(s["disagreement"])),
            both("D at 5%, 50%, 95%", lambda s: ", ".join(format_number(value, "+.3g") for value in s["quantiles"])),
        ]

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
        """The ratio of Equation 7 by each normalisation, and by replica exchange."""
        ratios = []
        if self.carried and self.summary:
            ratios = [("by R3", self.summary.by_r3), ("by counts", self.summary.by_count)]
        if isinstance(self.exchange, Summary):
            ratios += [("by R3, exchange", self.exchange.by_r3), ("by counts, exchange", self.exchange.by_count)]
        return [(name, ratio_text(ratio)) for name, ratio in ratios]

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
        beside = [views.Listed("Assumed", self.assumptions())]
        if self.remedies():
            beside.insert(0, views.Listed("Not to be relied on", self.remedies()))
        if self.equal:
            return [self.decision()["sentence"], views.Table(["", "A", "B"], self.written_rows()), *beside]
        inputs = [
            (side, format_number(example.difference, "+.3f"), example.marked())
            for side, examples in zip("AB", self.examples, strict=True)
            for example in examples
        ]
        header = views.Marked.of(f"input {INPUT}", f"input {INPUT.html}")
        return [
            self.decision()["sentence"],
            *([items_table(self.items)] if self.items else []),
            views.Table(["over what each model writes", "A", "B"], self.written_rows()),
            views.Folded("Lines that the other model disputes most", [lines_table(self.outputs)]),
            views.Folded("Groups of disputed outputs", [groups_table(self.outputs)]),
            views.Folded(
                "The distance by range of loss, and on one text", [by_z_table(self.outputs), self.distances()]
            ),
            views.Folded(
                "Counts of inputs, the paper's question",
                [
                    "Each input in Z counts once, however rarely a model writes it.",
                    *self.finding()[-1:] * self.carried,
                    views.Table(["over inputs in Z", "A", "B"], self.rows()),
                    *([views.Table(["", _TERMS], self.ratios()), self.picture()] if self.carried else []),
                    *[views.Table(["inputs of", "D, both ends", header], inputs, right=(1,))] * bool(inputs),
                ],
            ),
            *beside,
        ]

    def card(self) -> Card:
        """The decision part by part, first what could be decided, and the lines that the other disputes most."""
        result, parts = self._decided()
        larger = result["larger_than_another_seed"]
        answer = parts.pop("equal" if self.equal else "seeds" if self.apart.seeds else "apart")
        lines = sorted(
            ((side, line) for side, output in zip("AB", self.outputs, strict=True) for line in output.lines),
            key=lambda pair: -pair[1].nats,
        )
        rows = [(side, f"{line.nats:.1f}", cut(line.example.text, _LONGEST)) for side, line in lines[:_SHOWN]]
        table = views.Table(("written by", "nats", "what the other disputes most"), rows, right=(1,))
        remarks = [*((label, f"{words}.") for label, words in parts.items()), ("mind", in_short(self.remedies(), 210))]
        a, b = (model["source"] for model in self.models)
        tone = RELATED if larger else OPEN if larger is None and not self.equal else QUIET
        body = [table] * bool(rows and not self.equal)
        return Card(f"{a} (A) and {b} (B): {answer}.", tone, body, [(label, text) for label, text in remarks if text])

    def drawn(self) -> "Figure | None":
        """Both histograms of D over the same bins; None where one side has too few inputs."""
        from provlab.plots.modeldiff import differences

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
            "schema": "provlab.diff/2",
            "models": list(self.models),
            "parameters": self.parameters,
            "seed": self.seed,
            "versions": provenance.versions(),
            "z": list(self.z),
            "z_chosen": self.words["z"],
            "rounding": self.floor,
            "decision": self.decision(),
            "sides": list(self.sides),
            "lines": [[asdict(line) for line in output.lines] for output in self.outputs],
            "groups": [[asdict(group) for group in output.groups] for output in self.outputs],
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
    from provlab.plots.modeldiff import Panel

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


def check_limit(above: float, level: float, references: int) -> None:
    """Raise InputError unless a limit and a level make a test with so many references."""
    if not above >= 0:
        raise InputError(f"the limit is a number of nats per token, at least 0, not {above}")
    if not 0 < level < 0.5:
        raise InputError(f"a level is a chance of a wrong answer, above 0 and below 0.5, not {level}")
    if references and level < 1 / (references + 2):
        n = references + 2
        raise InputError(
            f"{references} reference{'s' * (references > 1)} cannot reach the level {level:g}: one more seed is the "
            f"farthest of {n} models one time in {n}; give {math.ceil(1 / level - 1e-9) - 2} references, --level "
            f"{math.ceil(1000 / n) / 1000:g}, or no reference and a limit of your own"
        )
    if not references and above == 0:
        raise InputError(
            "with no reference any two models are farther apart than 0; give references (--reference MODEL), or a "
            "limit above 0"
        )


def _factor(log10: float) -> str:
    return f"{10**log10:.3g}" if abs(log10) < 4 else f"10^{log10:.1f}"


def _interval(values: list[float]) -> str:
    value, low, high = values
    return format_interval(value, low, high, ".2f")
