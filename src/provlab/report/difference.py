"""Where two models disagree: counts, shares, the picture of rho(D), examples; as text, in a notebook, as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from provlab.modeldiff.bootstrap import percentiles
from provlab.modeldiff.comparison import Comparison, Summary
from provlab.plots.numbers import format_interval
from provlab.report import views

if TYPE_CHECKING:
    from provlab.plots import Figure
    from provlab.plots.modeldiff import Panel

_BINS = 40  # of a panel
_ROWS, _BAR = 14, 34  # of the picture in text: bins of D, and characters of the longest bar
_LEAST_EFFECTIVE = 30.0  # draws: with fewer, one heavy draw can move a count by a decade, beyond its interval
_TERMS = "PD of A : PA of A : PA of B : PD of B"
_ENDS = ("D lowest", "D highest")  # where examples are from


@dataclass(frozen=True)
class Example:
    """An input of one model.

    Attributes
    ----------
    end
        At which end of D it lies: one of ``D lowest``, ``D highest``.
    difference, nll
        D, and the loss under the model that it was drawn from (nats per token).
    text
        The input.
    """

    end: str
    difference: float
    nll: float
    text: str


@dataclass(frozen=True, eq=False)
class Difference(views.Report):
    """Two models, each judging what the other finds likely; shows itself in a notebook, prints as text.

    Attributes
    ----------
    models
        The two models, see `provlab.report.views.describe`: A and B.
    compared
        The comparison, with all draws in Z.
    parameters
        As run.
    chosen
        How Z was chosen, in words.
    text_loss
        Mean loss of the held-out text under A and under B; None if no text was read.
    examples
        Inputs of A and of B from both ends of D.
    tokens
        Which tokens the inputs are made of, in words.
    exchange
        The same by replica exchange, or why that gives no number; None if it was not asked for.
    """

    models: tuple[dict[str, Any], dict[str, Any]]
    compared: Comparison
    parameters: dict[str, Any]
    chosen: str
    text_loss: tuple[float, float] | None
    examples: tuple[tuple[Example, ...], tuple[Example, ...]]
    tokens: str
    exchange: Summary | str | None = None

    @property
    def seed(self) -> int:
        """Seed of all draws."""
        return int(self.parameters["seed"])

    @cached_property
    def summary(self) -> Summary:
        """The numbers of the comparison."""
        return self.compared.summary(seed=self.seed)

    @cached_property
    def sides(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Numbers of A's inputs and of B's: estimates as value, low, high of the 95% interval."""
        sides = []
        for k, draws in enumerate((self.compared.a, self.compared.b)):
            numbers = draws.log10_numbers(np.random.default_rng(self.seed))
            sides.append(
                {
                    "model": self.models[k]["name"],
                    "text_loss": self.text_loss[k] if self.text_loss else None,
                    "written": self.parameters["n"],
                    "in_z": len(draws.difference),
                    "effective": draws.effective,
                    "log10_inputs": [float(numbers[0]), *map(float, percentiles(numbers[1:], draws.n_chains))],
                    "common": list(draws.share(draws.common, seed=self.seed)),
                    "disagreement": list(draws.share(draws.disagreement, seed=self.seed)),
                    "agreement": list(draws.share(~draws.disagreement & (draws.difference != 0), seed=self.seed)),
                    "quantiles": [float(value) for value in draws.quantile([0.05, 0.5, 0.95])],
                }
            )
        return sides[0], sides[1]

    def finding(self) -> str:
        """How often each model finds the other's inputs less likely, and which has more inputs in Z."""
        a, b = (_percent(side["disagreement"]) for side in self.sides)
        more, low, high = self.compared.log10_more(seed=self.seed)
        open_ = " (the interval includes equality)" if low <= 0 <= high else ""
        return (
            f"Of the inputs that A finds likely, B finds {a} less likely than A does; of those that B finds likely, A "
            f"finds {b} less likely than B does. For one of A's inputs in Z, B has {_factor(more)} "
            f"({_factor(low)} to {_factor(high)}){open_}."
        )

    def remedies(self) -> list[str]:
        """What the draws do not carry, and what to change."""
        sentences = []
        for name, side in zip("AB", self.sides, strict=True):
            if side["effective"] < _LEAST_EFFECTIVE:
                sentences.append(
                    f"{name}'s {side['in_z']} inputs in Z are worth {side['effective']:.1f} equally weighted draws "
                    f"({_LEAST_EFFECTIVE:.0f} are needed): its numbers may be wrong beyond their intervals. Write more "
                    "sequences, or move Z to losses that both models write often."
                )
        if "error" in self.summary.by_r3:
            sentences.append(f"No ratio by R3: {self.summary.by_r3['error']}. The ratio by counts needs no R3.")
        if "error" in self.summary.by_count:
            sentences.append(f"No ratio by counts: {self.summary.by_count['error']}.")
        if isinstance(self.exchange, str):
            sentences.append(f"Replica exchange gives no number: {self.exchange}.")
        return sentences

    def assumptions(self) -> list[str]:
        """What the numbers rest on."""
        low, high = self.compared.z
        return [
            f"An input is a sequence of {self.parameters['length']} tokens. {self.tokens} There is no start token, and "
            "the first token is not judged.",
            f"Z is {low:.3f} to {high:.3f} nats per token, {self.chosen}. All numbers are of inputs in Z, each counted "
            "once, and nearly all of these lie at its upper end; another Z gives others.",
            "Each model wrote its inputs with known probability, so that weights are numbers of inputs and nothing has "
            f"to converge; 95% intervals are by resampling {self.compared.a.n_chains} groups of draws.",
            "D = NLL of A - NLL of B says what the two disagree about, and neither which of them is right nor where "
            "they come from.",
        ]

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, A's and B's entry of each line of the table."""

        def both(name: str, write: Any) -> tuple[str, str, str]:
            return name, write(self.sides[0]), write(self.sides[1])

        lines = [both("loss of the held-out text", lambda s: f"{s['text_loss']:.3f}")] if self.text_loss else []
        return [
            *lines,
            both("sequences written, and in Z", lambda s: f"{s['written']:,}, {s['in_z']:,}"),
            both("worth equal draws", lambda s: f"{s['effective']:,.0f}"),
            both("log10 of its inputs in Z", lambda s: _interval(s["log10_inputs"])),
            both("of them in Z for the other too", lambda s: _percent(s["common"])),
            both("PD: the other finds them less likely", lambda s: _percent(s["disagreement"])),
            both("PA: more likely", lambda s: _percent(s["agreement"])),
            both("D at 5%, 50%, 95%", lambda s: ", ".join(f"{value:+.3g}" for value in s["quantiles"])),
        ]

    def ratios(self) -> list[tuple[str, str]]:
        """The ratio of Equation 7 by each normalisation, and by replica exchange."""
        ratios = [("by R3", self.summary.by_r3), ("by counts", self.summary.by_count)]
        if isinstance(self.exchange, Summary):
            ratios += [("by R3, exchange", self.exchange.by_r3), ("by counts, exchange", self.exchange.by_count)]
        return [(name, ratio_text(ratio)) for name, ratio in ratios]

    def picture(self) -> views.Table:
        """Both histograms of D in text: bars of each side's share in some bins."""
        bars = panel("", self.compared, tail=0.01, seed=self.seed, bins=_ROWS)
        both = [side[0] / (side[0].sum() or 1.0) for side in (bars.a, bars.b)]  # each of its own inputs
        unit = max(side.max() for side in both) / _BAR or 1.0
        rows = [
            (f"{low:+.3g} to {high:+.3g}", "#" * round(a / unit), "#" * round(b / unit))
            for low, high, a, b in zip(bars.edges[:-1], bars.edges[1:], *both, strict=True)
        ]
        header = ("D, nats per token", "A's inputs".ljust(_BAR), "B's inputs".ljust(_BAR))
        return views.Table(header, rows, right=(0,), in_text_alone=True)

    def title(self) -> str:
        """Both models and the seed."""
        a, b = self.models
        return f"{a['source']} (A)  against  {b['source']} (B), seed {self.seed}"

    def parts(self) -> list[str | views.Table | views.Listed]:
        """Tables, finding, examples, what is not to be relied on, assumptions."""
        inputs = [
            (side, f"{example.difference:+.3f}", example.text)
            for side, examples in zip("AB", self.examples, strict=True)
            for example in examples
        ]
        return [
            views.Table(["", "A", "B"], self.rows()),
            views.Table(["", _TERMS], self.ratios()),
            self.finding(),
            self.picture(),
            views.Table(["inputs of", "D", "input, at both ends of D"], inputs, right=(1,)),
            *[views.Listed("Not to be relied on", self.remedies())] * bool(self.remedies()),
            views.Listed("Assumed", self.assumptions()),
        ]

    def drawn(self) -> "Figure":
        """Return the figure."""
        return self.figure()

    def figure(self) -> "Figure":
        """Both histograms of D over the same bins."""
        from provlab.plots.modeldiff import differences

        return differences(
            [panel("", self.compared, tail=0.001, seed=self.seed)],
            labels=("A's inputs", "B's inputs"),
            xlabel="D = NLL of A - NLL of B (nats per token)",
            caption=f"{self.models[0]['name']} (A) and {self.models[1]['name']} (B): one unit is the number of A's "
            f"inputs, bands are 95% intervals bin by bin. {self.finding()}",
        )

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines (see the README for the keys)."""
        from provlab import provenance

        bars = panel("", self.compared, tail=0.001, seed=self.seed)
        return {
            "schema": "provlab.diff/1",
            "models": list(self.models),
            "parameters": self.parameters,
            "seed": self.seed,
            "versions": provenance.versions(),
            "z": list(self.compared.z),
            "z_chosen": self.chosen,
            "sides": list(self.sides),
            "log10_more": _finite(self.compared.log10_more(seed=self.seed)),
            "summary": asdict(self.summary),
            "exchange": asdict(self.exchange) if isinstance(self.exchange, Summary) else self.exchange,
            "rho": {"edges": _finite(bars.edges), "a": list(map(_finite, bars.a)), "b": list(map(_finite, bars.b))},
            "examples": [[asdict(example) for example in examples] for examples in self.examples],
            "finding": self.finding(),
            "remedies": self.remedies(),
            "assumptions": self.assumptions(),
        }


def examples(compared: Comparison, side: str, texts: Any, *, n: int, tail: float, seed: int) -> tuple[Example, ...]:
    """Inputs of one model from both ends of D, drawn by weight.

    Parameters
    ----------
    compared, side
        Whose inputs.
    texts
        Callable from tokens ``(n, length)`` to texts.
    n, tail
        How many of each end, and the share of the inputs that an end is.
    seed
        Of the choice.
    """
    from provlab.modeldiff.composition import composition

    inputs = compared.a if side == "A" else compared.b
    assert inputs.draws is not None  # only an enumeration has none
    tokens = inputs.draws.tokens
    edges = np.unique(inputs.quantile([0, tail, 1 - tail, 1]))
    if len(edges) < 2:
        return ()
    names = [row.tobytes() for row in tokens]
    bins = composition(inputs, edges, labels={}, distinct=names, n_examples=n, seed=seed)
    chosen = []
    for end, where in zip(_ENDS, (bins[0], bins[-1]), strict=True):
        for row, text in zip(where.examples, texts(tokens[where.examples]), strict=True):
            chosen.append(Example(end, float(inputs.difference[row]), float(inputs.draws.nll[row]), text))
    return tuple(chosen)


def panel(title: str, compared: Comparison, *, tail: float, seed: int, bins: int = _BINS) -> "Panel":
    """Both directions over common bins that hold all but a share `tail` at either end, scaled so that A's sum to 1."""
    from provlab.plots.modeldiff import Panel

    ends = np.concatenate([side.quantile([tail, 1 - tail]) for side in (compared.a, compared.b)])
    reach = 1.05 * np.abs(ends).max() or 1.0
    edges = np.linspace(-reach, reach, bins + 1)
    return Panel(title, edges, *(compared.rho(side, edges, "count", seed=seed) for side in ("A", "B")))


def ratio_text(ratio: Mapping[str, Any]) -> str:
    """Write a ratio with its intervals, or why there is none."""
    if "error" in ratio:
        return "none: R3 holds too few draws" if "R3" in ratio["error"] else str(ratio["error"])
    shown = [
        f"{v:.2f}"
        if low is not None and low == high
        else f"{v:.2f} ({low:.2f} to {'∞' if high is None else f'{high:.2f}'})"
        for v, low, high in zip(ratio["value"], ratio["low"], ratio["high"], strict=True)
    ]
    return " : ".join(shown) + ("" if ratio["reference"] == "PD_AB" else f" relative to {ratio['reference']}")


def _percent(share: Sequence[float]) -> str:
    value, low, high = share
    return f"{value:.1%} ({low:.1%} to {high:.1%})"


def _factor(log10: float) -> str:
    return f"{10**log10:.3g}" if abs(log10) < 4 else f"10^{log10:.1f}"


def _finite(values: Sequence[float] | Any) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _interval(values: list[float]) -> str:
    value, low, high = values
    return format_interval(value, low, high, digits=2)
