"""Where two models disagree: counts, shares, the picture of rho(D), examples; as text, in a notebook, as JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from provlab.modeldiff.bootstrap import percentiles
from provlab.modeldiff.comparison import Comparison, Summary
from provlab.modeldiff.excess import Apart
from provlab.modeldiff.pipeline import N_CHAINS
from provlab.modeldiff.representative import LEAST_EFFECTIVE, Direction
from provlab.plots.numbers import format_interval
from provlab.report import views

if TYPE_CHECKING:
    from provlab.plots import Figure
    from provlab.plots.modeldiff import Panel

_BINS = 40  # of a panel
_ROWS, _BAR = 14, 34  # of the picture in text: bins of D, and characters of the longest bar
_MARKED, _FULL = 1.0, 6.0  # nats of a token: from the first it is in brackets, divided by the second is its opacity
# tokens less likely for B than for A, and more: a band below the letters, which leaves their contrast as it is
_LESS, _MORE = (f"box-shadow:inset 0 -.25em rgba({color}," for color in ("213,94,0", "0,114,178"))
_INPUT = views.Marked.of(
    "input ([-less likely], [+more likely] for B)",
    f"input (<span style='{_LESS}1)'>less</span>, <span style='{_MORE}1)'>more</span> likely for B)",
)
_LONGEST = 120  # characters of an example in text
_BEYOND = "A's inputs less likely for B than for it"
_TERMS = "PD of A : PA of A : PA of B : PD of B"


@dataclass(frozen=True)
class Example:
    """An input of one model.

    Attributes
    ----------
    end
        Where it is from: ``D lowest``, ``D highest``, or ``group``.
    difference, nll
        D, and the loss under the model whose input it is (nats per token).
    text
        The input.
    tokens
        What each token adds to the text, and D there in nats; None where nothing predicts the token.
    """

    end: str
    difference: float
    nll: float
    text: str
    tokens: tuple[tuple[str, float | None], ...]

    def marked(self) -> views.Marked:
        """The input with the tokens that carry D: in brackets with the sign of D in text, coloured in HTML."""
        plain, coloured = [], []
        for piece, d in self.tokens:
            if d is None:
                plain.append(f"‹{piece}›")
                coloured.append(f"<i title='given'>{escape(piece)}</i>")
                continue
            plain.append(f"[{'-' if d < 0 else '+'}{piece}]" if abs(d) >= _MARKED else piece)
            color = f"{_LESS if d < 0 else _MORE}{min(1.0, abs(d) / _FULL):.2f})"
            coloured.append(f"<span title='D = {d:+.2f}' style='{color}'>{escape(piece)}</span>")
        text = "".join(plain)
        short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
        return views.Marked.of(short, f"<code>{''.join(coloured)}</code>")


@dataclass(frozen=True)
class Cluster:
    """Disputed inputs of one model whose difference lies at the same tokens, see `provlab.modeldiff.where.Group`."""

    tokens: tuple[str, ...]
    share: tuple[float, float, float]
    log10_count: float
    members: tuple[Example, ...]


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
    prices
        What each model's law costs on what the other writes, see `provlab.modeldiff.excess.price`.
    apart
        How far B is from A where both read the same, beside references.
    parameters
        As run.
    words
        How Z was chosen, which tokens inputs are made of, and what stands before them.
    text_loss
        Mean loss of the held-out text under A, under B, and B's less A's with its interval; None if no text was read.
    examples, clusters
        Inputs of A and of B from both ends of D, and groups of those that the other model finds least likely.
    exchange
        The same by replica exchange, or why that gives no number; None if it was not asked for.
    """

    models: tuple[dict[str, Any], dict[str, Any]]
    z: tuple[float, float]
    inputs: tuple[Direction, Direction]
    prices: tuple[dict[str, Any], dict[str, Any]]
    apart: Apart
    parameters: dict[str, Any]
    words: dict[str, str]
    text_loss: Sequence[Any] | None
    examples: tuple[tuple[Example, ...], tuple[Example, ...]]
    clusters: tuple[tuple[Cluster, ...], tuple[Cluster, ...]]
    exchange: Summary | str | None = None

    @property
    def seed(self) -> int:
        """Seed of all draws."""
        return int(self.parameters["seed"])

    @cached_property
    def compared(self) -> Comparison | None:
        """Both sides; None where a model has too few inputs in Z."""
        a, b = self.inputs
        return Comparison(a, b, self.z, joint=self.parameters["mixed"]) if a and b else None

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
        inputs = self.inputs[k]
        side = {
            "model": self.models[k]["name"],
            "text_loss": self.text_loss[k] if self.text_loss else None,
            "written": self.parameters["n"],
            **self.prices[k],
        }
        names = ("log10_inputs", "common", "disagreement", "agreement", "quantiles")
        if not inputs:
            return side | {"in_z": 0, "effective": 0.0} | dict.fromkeys(names)
        numbers = inputs.log10_numbers(np.random.default_rng(self.seed))
        values = (
            [float(numbers[0]), *map(float, percentiles(numbers[1:], inputs.n_chains))],
            list(inputs.share(inputs.common, seed=self.seed)),
            list(inputs.share(inputs.disagreement, seed=self.seed)),
            list(inputs.share(~inputs.disagreement & (inputs.difference != 0), seed=self.seed)),
            [float(value) for value in inputs.quantile([0.05, 0.5, 0.95])],
        )
        return (
            side
            | {"in_z": len(inputs.difference), "effective": inputs.effective}
            | dict(zip(names, values, strict=True))
        )

    def fails(self, above: float) -> bool:
        """Whether the excess (`Apart.excess`) is above a number of nats per token, with its whole 95% interval."""
        return self.apart.excess[1] > above

    def excess_words(self) -> str:
        """The excess in words."""
        k = len(self.apart.references)
        over = f"excess over A and the {'reference' if k == 1 else f'farthest of {k} references'}" if k else "distance"
        return f"{over} is {_number(self.apart.excess)} nats per token"

    def finding(self) -> list[str]:
        """How far the two are apart, what of it is more than a second training, and which has more inputs in Z."""
        costs = " and ".join(
            f"what {of} writes costs {by} {_number(price['extra'])} nats per token more than {of}"
            for of, by, price in zip("AB", "BA", self.prices, strict=True)
        )
        a, b = self.prices
        sentences = [
            f"{costs[0].upper()}{costs[1:]}. That B finds {a['less_likely'][0]:.1%} of what A writes less likely, and "
            f"A {b['less_likely'][0]:.1%} of what B writes, says little more: two laws so far apart give about "
            f"{a['by_gibbs']:.1%} and {b['by_gibbs']:.1%} (Gibbs' inequality)."
        ]
        if self.apart.references:
            sentences.append(
                f"A and B are {_number(self.apart.both)} nats per token apart on {self.apart.where} (mean of both "
                f"divergences). The {self.excess_words()}. If B were one more training of this recipe, it would rank "
                f"so far among them with chance {self.apart.rank_p:.2g}."
            )
        if self.compared:
            more, low, high = self.compared.log10_more(seed=self.seed)
            open_ = " (the interval includes equality)" if low <= 0 <= high else ""
            sentences.append(
                f"For one of A's inputs in Z, B has {_factor(more)} ({_factor(low)} to {_factor(high)}){open_}."
            )
        return sentences

    def remedies(self) -> list[str]:
        """What the draws do not carry, and what to change."""
        sentences = []
        for name, side in zip("AB", self.sides, strict=True):
            if not side["in_z"]:
                sentences.append(f"{name} has no number: {self.words[f'empty {name}']}.")
            elif side["effective"] < LEAST_EFFECTIVE:
                sentences.append(
                    f"{name}'s {side['in_z']} inputs in Z are worth {side['effective']:.1f} equally weighted draws "
                    f"({LEAST_EFFECTIVE:.0f} are needed): its numbers may be wrong beyond their intervals. Write more "
                    "sequences, or move Z to losses that both models write often."
                )
        if self.summary and "error" in self.summary.by_r3:
            sentences.append(f"No ratio by R3: {self.summary.by_r3['error']}. The ratio by counts needs no R3.")
        if self.summary and "error" in self.summary.by_count:
            sentences.append(f"No ratio by counts: {self.summary.by_count['error']}.")
        if isinstance(self.exchange, str):
            sentences.append(f"Replica exchange gives no number: {self.exchange}.")
        return sentences

    def assumptions(self) -> list[str]:
        """What the numbers rest on."""
        low, high = self.z
        sentences = [
            f"An input is a sequence of {self.parameters['length']} tokens. {self.words['tokens']} "
            f"{self.words['start']}",
            f"Z is {low:.3f} to {high:.3f} nats per token, {self.words['z']}. Numbers of inputs are of those in Z, "
            "each counted once, and nearly all of these lie at its upper end; another Z gives others.",
            "Each model wrote its inputs with known probability, so that weights are numbers of inputs and nothing has "
            f"to converge; 95% intervals are by resampling {N_CHAINS} groups of draws."
            + " Draws of both models are weighted as one sample of their mixture."
            * self.parameters["mixed"],
            "D = NLL of A - NLL of B says what the two disagree about, and neither which of them is right nor where "
            "they come from.",
        ]
        if self.apart.references:
            sentences.append(
                "A reference is a model of A's recipe with another seed. An interval of the excess is of the text or "
                "draws that were read, for these models; how seeds differ is in the rank alone."
            )
        return sentences

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, A's and B's entry of each line of the table."""

        def both(name: str, write: Callable[[dict[str, Any]], str], needs: str = "in_z") -> tuple[str, str, str]:
            a, b = (write(side) if side[needs] else "–" for side in self.sides)
            return name, a, b

        losses, whose = [], "draws of both models" if self.parameters["mixed"] else "its draws"
        if self.text_loss:
            losses.append(both("loss of the held-out text", lambda s: f"{s['text_loss']:.3f}", "text_loss"))
            losses.append(("  B's less A's", "", _number(self.text_loss[2])))
        return [
            *losses,
            both("what it writes costs the other (nats per token)", lambda s: _number(s["extra"]), "extra"),
            both("  of it less likely for the other", lambda s: _percent(s["less_likely"]), "extra"),
            both("  two laws so far apart give, if D is normal", lambda s: f"{s['by_gibbs']:.1%}", "extra"),
            both(f"sequences it wrote; {whose} in Z", lambda s: f"{s['written']:,}; {s['in_z']:,}", "written"),
            both("worth equal draws", lambda s: f"{s['effective']:,.0f}", "written"),
            both("log10 of its inputs in Z", lambda s: _interval(s["log10_inputs"])),
            both("of them in Z for the other too", lambda s: _percent(s["common"])),
            both("PD: the other finds them less likely", lambda s: _percent(s["disagreement"])),
            both("D at 5%, 50%, 95%", lambda s: ", ".join(f"{value:+.3g}" for value in s["quantiles"])),
        ]

    def distances(self) -> views.Table:
        """Divergences where the models read the same, with those of references below them."""
        rows = [("A and B", _number(self.apart.forth), _number(self.apart.back), "", "")]
        for row in self.apart.references:
            beyond = _percent(row.beyond) + f", 10^{row.log10_beyond:.1f}" if row.beyond and row.log10_beyond else "–"
            rows.append((f"A and {row.model}", _number(row.forth), _number(row.back), _number(row.excess), beyond))
        header = (f"nats per token, on {self.apart.where}", "KL(A || .)", "KL(. || A)", "A and B farther by", _BEYOND)
        return views.Table(
            header if self.apart.references else header[:3], [r if self.apart.references else r[:3] for r in rows]
        )

    def ratios(self) -> list[tuple[str, str]]:
        """The ratio of Equation 7 by each normalisation, and by replica exchange."""
        ratios = [("by R3", self.summary.by_r3), ("by counts", self.summary.by_count)] if self.summary else []
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
            (side, f"{example.difference:+.3f}", example.marked())
            for side, examples in zip("AB", self.examples, strict=True)
            for example in examples
        ]
        disputed = [
            (
                side if k == 0 else "",
                " | ".join(cluster.tokens) if k == 0 else "",
                _percent(cluster.share) + f", 10^{cluster.log10_count:.1f}" if k == 0 else "",
                example.marked(),
            )
            for side, clusters in zip("AB", self.clusters, strict=True)
            for cluster in clusters
            for k, example in enumerate(cluster.members)
        ]
        groups = ("inputs of", "most at the tokens", "of its inputs in Z, and number", _INPUT)
        return [
            *self.finding(),
            views.Table(["", "A", "B"], self.rows()),
            self.distances(),
            *([views.Table(["", _TERMS], self.ratios()), self.picture()] if self.compared else []),
            views.Table(["inputs of", "D, both ends", _INPUT], inputs, right=(1,)),
            *[views.Table(groups, disputed)] * bool(disputed),
            *[views.Listed("Not to be relied on", self.remedies())] * bool(self.remedies()),
            views.Listed("Assumed", self.assumptions()),
        ]

    def drawn(self) -> "Figure | None":
        """Both histograms of D over the same bins; None where one side has too few inputs."""
        from provlab.plots.modeldiff import differences

        if self.compared is None:
            return None
        return differences(
            [panel("", self.compared, tail=0.001, seed=self.seed)],
            labels=("A's inputs", "B's inputs"),
            xlabel="D = NLL of A - NLL of B (nats per token)",
            caption=f"{self.models[0]['name']} (A) and {self.models[1]['name']} (B): one unit is the number of A's "
            f"inputs, bands are 95% intervals bin by bin. {self.finding()[-1]}",
        )

    def to_json(self) -> dict[str, Any]:
        """Everything, for machines (see the README for the keys)."""
        from provlab import provenance

        bars = self.compared and panel("", self.compared, tail=0.001, seed=self.seed)
        rho = bars and {"edges": _finite(bars.edges), "a": list(map(_finite, bars.a)), "b": list(map(_finite, bars.b))}
        return {
            "schema": "provlab.diff/1",
            "models": list(self.models),
            "parameters": self.parameters,
            "seed": self.seed,
            "versions": provenance.versions(),
            "z": list(self.z),
            "z_chosen": self.words["z"],
            "sides": list(self.sides),
            "text_loss_apart": self.text_loss and self.text_loss[2],
            "log10_more": self.compared and _finite(self.compared.log10_more(seed=self.seed)),
            "apart": asdict(self.apart) | {"excess": self.apart.excess, "rank_p": self.apart.rank_p},
            "summary": self.summary and asdict(self.summary),
            "exchange": asdict(self.exchange) if isinstance(self.exchange, Summary) else self.exchange,
            "rho": rho,
            "examples": [[asdict(example) for example in examples] for examples in self.examples],
            "clusters": [[asdict(cluster) for cluster in clusters] for clusters in self.clusters],
            "finding": " ".join(self.finding()),
            "remedies": self.remedies(),
            "assumptions": self.assumptions(),
        }


def panel(title: str, compared: Comparison, *, tail: float, seed: int, bins: int = _BINS) -> "Panel":
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
        f"{v:.2f}"
        if low is not None and low == high
        else f"{v:.2f} ({low:.2f} to {'∞' if high is None else f'{high:.2f}'})"
        for v, low, high in zip(ratio["value"], ratio["low"], ratio["high"], strict=True)
    ]
    return " : ".join(shown) + ("" if ratio["reference"] == "PD_AB" else f" relative to {ratio['reference']}")


def _percent(share: Sequence[float]) -> str:
    value, low, high = share
    return f"{value:.1%} ({low:.1%} to {high:.1%})"


def _number(values: Sequence[float]) -> str:
    value, low, high = values
    return format_interval(value, low, high)


def _factor(log10: float) -> str:
    return f"{10**log10:.3g}" if abs(log10) < 4 else f"10^{log10:.1f}"


def _finite(values: Sequence[float] | Any) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _interval(values: list[float]) -> str:
    value, low, high = values
    return format_interval(value, low, high, digits=2)
