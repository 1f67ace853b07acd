"""Predicates about where two models disagree: ratios, densities of states, and kinds of inputs.

A comparison's measurement is a `Summary`: PD_AB : PA_AB : PA_BA : PD_BA by the paper's normalisation (``by_r3``) and by
numbers of inputs (``by_count``), each with 95% intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from provlab.modeldiff.comparison import Summary
from provlab.modeldiff.representative import LEAST_EFFECTIVE
from provlab_study.publishing.evidence import HOLDS, NOT_RUN, Bar, ClaimStatus, judge, read

_WAYS = {"by_r3": "by R3", "by_count": "by counts"}

WAYS_APART = 1.5  # joint 95% intervals: of eight numbers one lies further apart by chance in 3 of 100 cases
SHARES_APART = 0.1  # by two ways to draw, interval included
COUNTS_APART = 0.3  # the same of log10 of numbers of inputs: twice as many
OWN_KIND = 0.05  # share by which disputed inputs are more often of their own kind: one input of twenty
REACH = 0.1  # nats per token: over 25 tokens one model finds an input 12 times as likely as the other does
MORE_INPUTS = 1.1  # times
BETTER = 0.02  # nats by which a held-out loss is lower: 2% of the perplexity
TIMES_TYPICAL = 2.0  # repetition of the lowest losses, over that of typical inputs and of text
REACH_TAIL = 0.05  # share of inputs beyond the reach of D
LEAST_BEYOND = 3.0  # equal draws beyond it: with fewer it is the extreme of a sample
VERY_LOW = 0.5  # lowest losses, over the loss at which typical inputs begin
LABELS_RIGHT = 0.8  # share of held-out text: labels that are wrong more often show nothing
ONE_NUMBER = 1e-6  # relative: what two records of one number may differ by
#: pairs of models between which a ratio of two sizes or generations is not to be found
SEEDS, COPY = "two seeds", "near copy"

#: who gave inputs their scores, and how that is asked for
PEOPLE, LABELS = "people", "labels"
ASK_PEOPLE = (
    "Fill in the column score of the file annotations-sizes.csv that the page writes, and judge it by: "
    "provlab run model_diff --profile default -p annotations=annotations-sizes.csv"
)

PD_AB, PA_AB, PA_BA, PD_BA = range(4)
Rows = Sequence[Mapping[str, Any]]
Numbers = Sequence[float]  # three of them are a value and its 95% interval


@dataclass(frozen=True)
class Capability:
    """Two models, their held-out losses, B's loss less A's, and log10 of B's inputs in Z for one of A's.

    Also how many equal draws either model's draws in Z are worth, the name of the comparison, and the loss of a model
    that knows nothing, log of the number of tokens.
    """

    pair: str
    models: Sequence[str]
    uniform: float
    held_out: Numbers
    apart: Numbers
    log10_more: Numbers
    effective: Numbers


@dataclass(frozen=True)
class Ways:
    """One number of one side, A or B, of a comparison, by the models' own generation and by replica exchange."""

    pair: str
    side: str
    what: str
    generation: Numbers
    exchange: Numbers

    @property
    def reach(self) -> float:
        """How far the interval of their difference goes to either side."""
        return float(sum(((row[2] - row[1]) / 2) ** 2 for row in (self.generation, self.exchange)) ** 0.5)

    @property
    def off(self) -> float:
        """Distance of the two."""
        return abs(self.generation[0] - self.exchange[0])

    @property
    def apart(self) -> float:
        """Distance of the two, in units of the reach of both intervals together."""
        return self.off / self.reach if self.reach else (float("inf") if self.off else 0.0)

    @property
    def is_share(self) -> bool:
        """Whether this is a share of disagreement; else it is a number of inputs."""
        return self.what.startswith("share")


@dataclass(frozen=True)
class Control:
    """A comparison of two seeds of one recipe, or of a model and a near copy, in numbers."""

    kind: str
    models: Sequence[str]
    compared: Mapping[str, Any]


@dataclass(frozen=True)
class Reach:
    """How far each model's disagreement goes on the other's inputs, in nats a token, and A's over B's.

    Attributes
    ----------
    of_a, of_b
        What D of all but `REACH_TAIL` of A's inputs reaches below zero, and of B's above: how strongly B disagrees on
        A's inputs, and A on B's.
    times
        The first over the second, with its 95% interval.
    effective
        How many equal draws either model's are worth.
    """

    pair: str
    models: Sequence[str]
    of_a: float
    of_b: float
    times: Numbers
    effective: Numbers


@dataclass(frozen=True)
class Repetition:
    """Mean share of repeated pairs of tokens in a model's inputs.

    Attributes
    ----------
    lowest, nll
        For the 30 distinct inputs of lowest loss that were drawn, each counted once, and their mean loss.
    counted, counted_nll
        Over all inputs in the lowest bin of loss whose draws carry a mean, and where that is; None if there is none.
    in_z, text
        Over all inputs in Z, and of held-out text.
    """

    model: str
    nll: float
    lowest: float
    counted: float | None
    counted_nll: float | None
    in_z: float
    text: float


@dataclass(frozen=True)
class Scored:
    """Precision and recall of one of the four terms, by scores of its inputs, with 95% intervals."""

    term: str
    scored: float
    precision: float
    low: float
    high: float
    recall: float
    recall_low: float
    recall_high: float


@dataclass(frozen=True)
class Domains:
    """Share of code among the quarter of inputs that the model tuned on code prefers most, and the one on prose.

    Also their difference, by how much each one's own kind is more frequent there than in its other inputs, and the
    share of held-out pieces that the labels get right.
    """

    code_side: float
    prose_side: float
    gap: Numbers
    code_rise: Numbers
    prose_rise: Numbers
    accuracy: float


def _ratios(measured: Summary) -> dict[str, dict[str, Any]]:
    """The ways in which a ratio relative to PD_AB came out."""
    ways = {"by_r3": measured.by_r3, "by_count": measured.by_count}
    return {way: ratio for way, ratio in ways.items() if ratio.get("reference") == "PD_AB"}


def _words(measured: Summary) -> str:
    ratios = [
        f"{' : '.join(f'{v:.2f}' for v in ratio['value'])} {_WAYS[way]}" for way, ratio in _ratios(measured).items()
    ]
    extent = f"D of 98% of A's inputs {_span(measured.extent_a)}, of B's {_span(measured.extent_b)}"
    return f"{'; '.join(ratios) or 'no ratio relative to PD of A'}; {extent}"


def _span(extent: Sequence[float | None]) -> str:
    return " to ".join("unknown" if end is None else f"{end:.2f}" for end in extent)


def _bar(measured: Summary, term: int, name: str, at: float, *, above: bool) -> Bar:
    """One term of the ratio against a bar, with its interval; an end without a bound is at infinity."""
    ratios = _ratios(measured)
    ratio = ratios.get("by_count", ratios.get("by_r3", {}))
    low, value, high = (ratio[end][term] for end in ("low", "value", "high"))
    ends = (-np.inf if low is None else low, np.inf if high is None else high)
    return Bar(f"{name} for one of PD_AB", [value], at, above=above, interval=ends)


def _cannot_be_judged(measured: Summary) -> ClaimStatus | None:
    """Without a ratio, or with a few draws, there is nothing to judge."""
    if not _ratios(measured):
        return ClaimStatus(NOT_RUN, "", "no ratio came out: " + str(measured.by_count.get("error")))
    return _too_few(measured.effective)


def _too_few(effective: Numbers) -> ClaimStatus | None:
    if (worth := min(effective)) >= LEAST_EFFECTIVE:
        return None
    what = f"a model's draws in Z are worth {worth:.0f} equal, independent ones; {LEAST_EFFECTIVE:.0f} are asked for"
    return ClaimStatus(NOT_RUN, "", what)


def disagreement_far_above(
    compared: Mapping[str, Any], ways: Rows, controls: Rows, *, pair: str, most: float
) -> ClaimStatus:
    """Agreement at most a share `most` of disagreement, interval included, in both directions, by both ways to draw.

    Both agreements in units of A's disagreement, as the paper has them, and B's in units of its own as well. The
    differences D must reach `REACH` on either side: models that hardly differ disagree by name alone. `ways`
    holds numbers of inputs and shares by generation and by replica exchange, which must agree within their intervals,
    and be known well enough to say so: to `SHARES_APART` or `COUNTS_APART`, interval included. Each share must be that
    of a disagreement so far above agreement, by either way. The ratio must be of the same comparison as these numbers.

    Two seeds of one recipe, and a model and its near copy, are `controls` of which it must not hold: what any two
    models say of each other is nothing of their sizes or generations.
    """
    (measured,) = read(Summary, [compared])
    if nothing := _cannot_be_judged(measured):
        return nothing
    both = [row for row in read(Ways, ways) if row.pair == pair]
    if len({(row.side, row.is_share) for row in both}) < 4:
        return ClaimStatus(NOT_RUN, "", f"{len(both)} numbers by replica exchange; four are asked for")
    beside = read(Control, controls)
    if not {SEEDS, COPY} <= {row.kind for row in beside}:
        return ClaimStatus(NOT_RUN, "", f"no control by {SEEDS} and by a {COPY}")
    far = max(both, key=lambda row: row.apart)
    problems = [
        (
            not row.apart <= WAYS_APART,
            f"the two ways to draw differ in {row.what} of {row.pair} by {row.apart:.1f} joint intervals",
        )
        for row in both
    ]
    problems += [
        (list(row.generation) == list(row.exchange), f"{row.what} of {row.pair} is one way to draw, kept twice")
        for row in both
    ]
    problems += [(True, why) for why in _of_another(measured, both)]
    for control in beside:
        (other,) = read(Summary, [control.compared])
        holds = bool(_ratios(other)) and all(bar.status == HOLDS for bar in _far_above(other, most))
        problems.append(
            (
                holds,
                f"{control.kind} ({' and '.join(control.models)}) do as much, {_words(other)}: that is said of any two "
                "models so far apart",
            )
        )
    bars = [*_far_above(measured, most), *_reaching(measured)]
    for row in both:
        ends, at = (row.off - row.reach, row.off + row.reach), SHARES_APART if row.is_share else COUNTS_APART
        bars.append(Bar(f"distance of two ways to draw, {row.what}", [row.off], at, interval=ends))
        for way, (value, low, high) in ("generation", row.generation), ("replica exchange", row.exchange):
            if row.is_share:
                bar = Bar(f"{row.what}, by {way}", [value], round(1 / (1 + most), 3), above=True, interval=(low, high))
                bars.append(bar)
    ours = f"{_words(measured)}; by replica exchange within {far.apart:.2f} joint intervals"
    return judge(ours, f"agreement is below {most:g} of disagreement in both directions", problems, bars)


def _far_above(measured: Summary, most: float) -> list[Bar]:
    """Agreement of either model in units of A's disagreement, and B's in units of its own."""
    bars = [_bar(measured, term, name, most, above=False) for term, name in ((PA_AB, "PA_AB"), (PA_BA, "PA_BA"))]
    agree, differ = (_bar(measured, term, "", most, above=False) for term in (PA_BA, PD_BA))
    (a_low, a_high), (d_low, d_high) = agree.interval or (0, 0), differ.interval or (0, 0)

    def share(agreeing: float, differing: float) -> float:
        return agreeing / differing if differing > 0 else np.inf

    ends = share(a_low, d_high), share(a_high, d_low)  # wider than the interval of the quotient
    own = share(agree.values[0], differ.values[0])
    return [*bars, Bar("PA_BA for one of PD_BA", [own], most, interval=ends)]


def _of_another(measured: Summary, both: Sequence[Ways]) -> list[str]:
    """Where a ratio and the numbers by generation are not of one comparison: each follows from the other."""
    known = {(row.side, row.is_share): row.generation[0] for row in both}
    inputs = [known[side, False] for side in "AB"]
    shares = {"A": measured.below_a[0], "B": 1 - measured.below_b[0]}  # D = 0 is no disagreement
    problems = [
        f"the number of {side}'s inputs is {number:.4f} where the comparison has {counted}"
        for side, number, counted in zip("AB", inputs, measured.log10_inputs, strict=True)
        if counted is None or not _one(number, counted)
    ]
    problems += [
        f"{side} disagrees on {known[side, True]:.4f} where the comparison has {share:.4f}"
        for side, share in shares.items()
        if not known[side, True] <= share + ONE_NUMBER or (side == "A" and not _one(known[side, True], share))
    ]
    for way, ratio in _ratios(measured).items():
        one, pa_ab, pa_ba, pd_ba = ratio["value"]
        for name, agreeing, differing, side in (("PA_AB", pa_ab, one, "A"), ("PA_BA", pa_ba, pd_ba, "B")):
            most = (1 - known[side, True]) * differing / max(known[side, True], 1e-300)
            if agreeing > most + ONE_NUMBER:
                problems.append(f"{name} {_WAYS[way]} is {agreeing:.4f}, more than the share of agreement gives")
        told = known["B", True] / known["A", True] * 10 ** (inputs[1] - inputs[0])
        if way == "by_count" and not _one(pd_ba, told):
            problems.append(f"PD_BA {_WAYS[way]} is {pd_ba:.4f} where numbers and shares of inputs give {told:.4f}")
    return problems


def _one(first: float, second: float) -> bool:
    """Whether two records are of one number."""
    return bool(abs(first - second) <= ONE_NUMBER * max(1.0, abs(first), abs(second)))


def _reaching(measured: Summary) -> list[Bar]:
    """How far D of either model's inputs reaches to its own side: models that hardly differ disagree by name alone."""
    sides = ("A", -(measured.extent_a[0] or 0.0)), ("B", measured.extent_b[1] or 0.0)
    return [
        Bar(f"nats that D of 98% of {whose}'s inputs reaches to its side", [reach], REACH, above=True)
        for whose, reach in sides
    ]


def larger_disagrees_more(compared: Mapping[str, Any], *, least: float) -> ClaimStatus:
    """PD_BA above `least` times PD_AB, interval included: A disagrees on so many more of B's inputs, by `REACH`."""
    (measured,) = read(Summary, [compared])
    if nothing := _cannot_be_judged(measured):
        return nothing
    bar = _bar(measured, PD_BA, "PD_BA", least, above=True)
    return judge(_words(measured), f"PD_BA is more than {least:g} times PD_AB", bars=[bar, *_reaching(measured)])


def larger_disagrees_more_strongly(reach: Rows, *, comparisons: Sequence[str], least: float) -> ClaimStatus:
    """In each of `comparisons`, D of A's inputs reaches more than `least` times as far as that of B's.

    Interval included; B is the larger model. The paper compares the least D of A's inputs with the largest of B's;
    extremes widen with the number of draws, so that `REACH_TAIL` of the inputs are left out. Of two seeds of one recipe
    neither may reach so much farther, and every reach must be one (`REACH`).
    """
    rows = {row.pair: row for row in read(Reach, reach)}
    if missing := {*comparisons, SEEDS} - rows.keys():
        return ClaimStatus(NOT_RUN, "", f"no inputs of {', '.join(sorted(missing))}")
    bars, words = [], []
    for name in comparisons:
        row = rows[name]
        if (beyond := REACH_TAIL * min(row.effective)) < LEAST_BEYOND:
            what = f"beyond the reach of {name} lie {beyond:.1f} equal draws; {LEAST_BEYOND:g} are asked for"
            return ClaimStatus(NOT_RUN, "", what)
        (smaller, larger), (value, low, high) = row.models, row.times
        words.append(
            f"{larger} disagrees by {row.of_a:.2f} nats on {smaller}'s inputs, {smaller} by {row.of_b:.2f} on its"
        )
        bars.append(Bar(f"reach of {larger}'s disagreement over {smaller}'s", [value], least, True, (low, high)))
        bars += [Bar(f"nats that D of {name} reaches", [side], REACH, above=True) for side in (row.of_a, row.of_b)]
        if not _one(value, row.of_a / row.of_b if row.of_b > 0 else np.inf):
            return ClaimStatus(NOT_RUN, "", f"{name}: {value:.3g} is not the quotient of its reaches")
    seeds = rows[SEEDS]
    value, low, high = seeds.times
    turned = [1 / end if end > 0 else np.inf for end in (value, high, low)]
    either = [Bar("", [v], least, True, (lo, hi)).status == HOLDS for v, lo, hi in ((value, low, high), turned)]
    problem = f"of two seeds ({' and '.join(seeds.models)}) one reaches {max(value, turned[0]):.2f} times as far, too"
    why = f"the larger model's disagreement reaches more than {least:g} times as far"
    return judge("; ".join(words), why, [(any(either), problem)], bars)


def people_agree_more(annotations: Rows, scored_by: str) -> ClaimStatus:
    """Precision and recall of B's disagreeing inputs above those of A's, by scores of people, intervals included.

    B is the larger model. Precision is the mean score of a term's inputs (Equation 8), recall the term's part of its
    model's good inputs (Equation 9).
    """
    if scored_by != PEOPLE:
        return ClaimStatus(NOT_RUN, "", f"nobody has scored inputs here. {ASK_PEOPLE}")
    rows = {row.term: row for row in read(Scored, annotations)}
    if missing := {"PD_AB", "PD_BA"} - rows.keys():
        return ClaimStatus(NOT_RUN, "", f"no scores of inputs of {', '.join(sorted(missing))}")
    of_a, of_b, bars = rows["PD_AB"], rows["PD_BA"], []
    for what, (a, a_low, a_high), (b, b_low, b_high) in (
        ("precision", (of_a.precision, of_a.low, of_a.high), (of_b.precision, of_b.low, of_b.high)),
        ("recall", (of_a.recall, of_a.recall_low, of_a.recall_high), (of_b.recall, of_b.recall_low, of_b.recall_high)),
    ):
        ends = b - a - float(np.hypot(b - b_low, a_high - a)), b - a + float(np.hypot(b_high - b, a - a_low))
        bars.append(Bar(f"{what} of the larger model's inputs less the smaller's", [b - a], 0.0, True, ends))
    ours = (
        f"precision {of_b.precision:.2f} and {of_a.precision:.2f}, recall {of_b.recall:.2f} and {of_a.recall:.2f} "
        f"(larger, smaller model), by {min(of_a.scored, of_b.scored):.0f} scores a term or more"
    )
    few = f"fewer than {LEAST_EFFECTIVE:.0f} scores of a term"
    problems = [(min(of_a.scored, of_b.scored) < LEAST_EFFECTIVE, few)]
    return judge(ours, "people score the larger model's inputs higher", problems, bars)


def maps_more_inputs(capability: Rows, ways: Rows) -> ClaimStatus:
    """In each pair, the model of lower held-out loss has more inputs in Z, both by an effect beyond their intervals.

    At least `MORE_INPUTS` times the inputs, and a loss lower by `BETTER`. Losses are means: below that of a model that
    knows nothing. `ways` holds numbers of inputs by generation, which give the same, and by replica exchange, which
    must agree within their intervals.
    """
    words, problems, bars = [], [], []
    pairs, numbers = read(Capability, capability), [row for row in read(Ways, ways) if not row.is_share]
    if not pairs or len({frozenset(pair.models) for pair in pairs}) < len(pairs):
        return ClaimStatus(NOT_RUN, "", f"{len(pairs)} pairs; it takes one or more, each once")
    for pair in pairs:
        if nothing := _too_few(pair.effective):
            return nothing
        sides = {row.side: row for row in numbers if row.pair == pair.pair}
        if sides.keys() != {"A", "B"}:
            return ClaimStatus(NOT_RUN, "", f"{len(sides)} numbers of inputs of {pair.pair}; two are asked for")
        problems += _badly_counted(pair, sides["A"], sides["B"])
        better, worse = (0, 1) if pair.held_out[0] < pair.held_out[1] else (1, 0)
        names, more = pair.models, pair.log10_more  # of the second over the first, with its interval
        sign = 1 if better else -1
        value, ends = sign * more[0], sorted(sign * end for end in more[1:])
        words.append(f"{names[better]} has {10**value:.2f} times the inputs of {names[worse]} in Z")
        what = f"log10 of the inputs of {names[better]}, of lower loss, for one of {names[worse]}"
        bars.append(Bar(what, [value], round(np.log10(MORE_INPUTS), 3), above=True, interval=(ends[0], ends[1])))
        lower = sorted(-sign * end for end in pair.apart[1:])
        what = f"nats by which {names[better]} has the lower held-out loss"
        bars.append(Bar(what, [-sign * pair.apart[0]], BETTER, above=True, interval=(lower[0], lower[1])))
    why = "the model of lower held-out loss has more inputs in Z in every pair"
    return judge("; ".join(words), why, problems, bars)


def _badly_counted(pair: Capability, a: Ways, b: Ways) -> list[tuple[bool, str]]:
    """What is wrong where a loss is no mean, or where the numbers of inputs are others by their own records."""
    told = b.generation[0] - a.generation[0]
    apart = Ways(pair.pair, "", "", pair.log10_more, [b.exchange[k] - a.exchange[k] for k in range(3)])
    reach = float(np.hypot(a.reach, b.reach))
    gap = pair.held_out[1] - pair.held_out[0]
    return [
        (
            not max(pair.held_out) < pair.uniform,
            f"a held-out loss of {max(pair.held_out):.4g} is no mean over tokens: one that knows nothing has "
            f"{pair.uniform:.2f}",
        ),
        (
            not _one(gap, pair.apart[0]),
            f"held-out losses are {gap:.4f} apart, and {pair.apart[0]:.4f} by their interval",
        ),
        (
            not _one(told, pair.log10_more[0]),
            f"log10 of B's inputs for one of A's is {pair.log10_more[0]:.4f} where their numbers give {told:.4f}",
        ),
        (
            not apart.off <= WAYS_APART * reach,
            f"by replica exchange log10 of B's inputs for one of A's is {apart.exchange[0]:.3f}",
        ),
    ]


def low_loss_repeats(repetition: Rows, sizes: Mapping[str, Any], *, least: float) -> ClaimStatus:
    """Mean repetition of the inputs seen of lowest loss at least `least`, and far above Z's and text's, in each model.

    Far is `TIMES_TYPICAL`. As the paper's listing does, this speaks of inputs that were drawn: no draws carry a mean
    over all inputs of so low a loss.
    `sizes` is the comparison in whose range Z typical inputs lie; lowest losses must be `VERY_LOW` of its lower end.
    """
    words, problems, bars = [], [], []
    rows = read(Repetition, repetition)
    if not rows:
        return ClaimStatus(NOT_RUN, "", "no model has inputs in Z")
    typical = read(Summary, [sizes])[0].z[0]
    for row in rows:
        unread = [where for where, share in (("in Z", row.in_z), ("in text", row.text)) if not share > 0]
        problems.append((bool(unread), f"{row.model}: repetition {' and '.join(unread)} is 0, which no text has"))
        problems.append((not row.nll > 0, f"{row.model}: a lowest loss of {row.nll:.2f} is none"))
        counted = "" if row.counted is None else f"; over all inputs {row.counted:.2f} at NLL {row.counted_nll:.2f}"
        words.append(
            f"{row.model}: {row.lowest:.2f} of the inputs seen near NLL {row.nll:.2f}{counted}, {row.in_z:.2f} in Z, "
            f"text {row.text:.2f}"
        )
        problems.append((not row.nll < typical, f"{row.model}: its lowest losses, near {row.nll:.2f}, are those of Z"))
        bars.append(
            Bar(
                f"lowest loss of {row.model} over that where Z begins",
                [row.nll / typical if typical > 0 else np.inf],
                VERY_LOW,
            )
        )
        for where, other in (("in Z", row.in_z), ("in text", row.text)):
            little = f"{row.model}: less than {TIMES_TYPICAL:g} times as much repetition at the lowest loss as {where}"
            problems.append((not row.lowest > TIMES_TYPICAL * other, little))
        bars.append(Bar(f"repetition of {row.model} at the lowest loss", [row.lowest], least, above=True))
    return judge("; ".join(words), "the share of repeated pairs of tokens rises as the loss falls", problems, bars)


def composition_tells(domains: Mapping[str, Any], *, least: float) -> ClaimStatus:
    """Share of code among the code model's most disputed inputs above that of the prose model's by `least`.

    Each side must be of its own kind by majority, and more so than its other inputs by `OWN_KIND`, interval included:
    otherwise the two models differ, and D does not tell in what.
    """
    (row,) = read(Domains, [domains])
    gap, low, high = row.gap
    ours = (
        f"code among the most disputed inputs: {row.code_side:.0%} of the code model's, {row.prose_side:.0%} of "
        f"the prose model's (difference {gap:.2f}, {low:.2f} to {high:.2f}); labels right on {row.accuracy:.0%}"
    )
    bars = [
        Bar("difference of the two sides", [gap], least, above=True, interval=(low, high)),
        Bar("labels that are right on held-out text", [row.accuracy], LABELS_RIGHT, above=True),
        Bar("code on the code model's side", [row.code_side], 0.5, above=True),
        Bar("code on the prose model's side", [row.prose_side], 0.5),
    ]
    for side, (rise, low, high) in (("code", row.code_rise), ("prose", row.prose_rise)):
        what = f"share of its own kind among the {side} model's most disputed inputs, less that of its others"
        bars.append(Bar(what, [rise], OWN_KIND, above=True, interval=(low, high)))
    return judge(ours, "each side's disputed inputs are of the kind it was tuned on", bars=bars)
