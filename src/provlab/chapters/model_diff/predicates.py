"""Predicates about where two models disagree: ratios, densities of states, what inputs are, and noisy copies.

A comparison's measurement is a `Summary`: PD_AB : PA_AB : PA_BA : PD_BA by the paper's normalisation (``by_r3``) and by
numbers of inputs (``by_count``), each with 95% intervals.
"""

from collections.abc import Mapping
from typing import Any

from provlab.chapters.model_diff.records import CapabilityRecord, DomainsRecord, RepetitionRecord
from provlab.modeldiff.comparison import Summary
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge

_WAYS = {"by_r3": "by R3", "by_count": "by counts"}


PD_AB, PA_AB, PA_BA, PD_BA = range(4)


def _ratios(measured: Summary) -> dict[str, dict[str, Any]]:
    """The ways in which a ratio relative to PD_AB came out."""
    ways = {"by_r3": measured.by_r3, "by_count": measured.by_count}
    return {way: ratio for way, ratio in ways.items() if ratio.get("reference") == "PD_AB"}


def _words(measured: Summary) -> str:
    ratios = [
        f"{' : '.join(f'{v:.2f}' for v in ratio['value'])} {_WAYS[way]}" for way, ratio in _ratios(measured).items()
    ]
    extent = f"D of A's inputs {_span(measured.extent_a)}, of B's {_span(measured.extent_b)}"
    return f"{'; '.join(ratios) or 'no ratio relative to PD of A'}; {extent}"


def _span(extent: list[float]) -> str:
    return f"{extent[0]:.2f} to {extent[1]:.2f}"


def _at_most(ratio: Mapping[str, Any], term: int, bound: float) -> bool:
    high = ratio["high"][term]
    return high is not None and high <= bound


def disagreement_far_above(evidence: Evidence, measurement: str, most: float) -> Verdict:
    """Agreement at most a share `most` of A's disagreement, interval included, in both directions."""
    measured = Summary(**evidence.measurement(measurement))
    ratios = _ratios(measured)
    if not ratios:
        return Verdict(NOT_RUN, "", "no ratio came out: " + str(measured.by_count.get("error")))
    ratio = ratios.get("by_count", ratios.get("by_r3", {}))
    problems = [
        (not _at_most(ratio, term, most), f"{name} is not below {most:g} of PD_AB within its interval")
        for term, name in ((PA_AB, "PA_AB"), (PA_BA, "PA_BA"))
    ]
    return judge(_words(measured), f"agreement is below {most:g} of disagreement in both directions", problems)


def larger_disagrees_more(evidence: Evidence, measurement: str, least: float) -> Verdict:
    """PD_BA above `least` times PD_AB, interval included: A disagrees on so many more of B's inputs."""
    measured = Summary(**evidence.measurement(measurement))
    ratios = _ratios(measured)
    if not ratios:
        return Verdict(NOT_RUN, "", "no ratio came out: " + str(measured.by_count.get("error")))
    ratio = ratios.get("by_count", ratios.get("by_r3", {}))
    low, value, high = (ratio[end][PD_BA] for end in ("low", "value", "high"))
    ends = f"({low:.2f} to {high:.2f})" if low is not None and high is not None else "(no bound)"
    said = f"PD_BA is {value:.2f} {ends} times PD_AB"
    problems = [(low is None or low <= least, said)]
    return judge(_words(measured), f"{said}: above {least:g}", problems)


def maps_more_inputs(evidence: Evidence, measurement: str) -> Verdict:
    """In each pair, the model of lower held-out loss has more inputs in Z, interval included."""
    words, problems = [], []
    for pair in evidence.records(measurement, CapabilityRecord):
        better, worse = (0, 1) if pair.held_out[0] < pair.held_out[1] else (1, 0)
        names, more = pair.models, pair.log10_more  # of the second over the first, with its interval
        sign = 1 if better else -1
        value, ends = sign * more[0], sorted(sign * end for end in more[1:])
        words.append(f"{names[better]} has {10**value:.2f} times the inputs of {names[worse]} in Z")
        problems.append(
            (
                ends[0] <= 0,
                f"{names[better]}, of lower loss, has not more inputs in Z than {names[worse]} ({10**value:.2f}x)",
            )
        )
    return judge("; ".join(words), "the model of lower held-out loss has more inputs in Z in every pair", problems)


def low_loss_repeats(evidence: Evidence, measurement: str, least: float) -> Verdict:
    """Mean repetition of the inputs of lowest loss at least `least`, and above that of Z and of text, in each model."""
    words, problems = [], []
    for row in evidence.records(measurement, RepetitionRecord):
        words.append(f"{row.model}: {row.lowest:.2f} at NLL {row.nll:.2f}, {row.in_z:.2f} in Z, text {row.text:.2f}")
        problems.append(
            (row.lowest < least, f"{row.model}: repetition {row.lowest:.2f} at the lowest loss, below {least:g}")
        )
        problems.append((row.lowest <= row.in_z, f"{row.model}: no more repetition at the lowest loss than in Z"))
    return judge("; ".join(words), "the share of repeated pairs of tokens rises as the loss falls", problems)


def composition_tells(evidence: Evidence, measurement: str, least: float) -> Verdict:
    """Share of code among the code model's most disputed inputs above that of the prose model's by `least`."""
    row = DomainsRecord(**evidence.measurement(measurement))
    gap, low, high = row.gap
    ours = (
        f"code among the most disputed inputs: {row.code_side:.0%} of the code model's, {row.prose_side:.0%} of "
        f"the prose model's (difference {gap:.2f}, {low:.2f} to {high:.2f}); labels right on {row.accuracy:.0%}"
    )
    problems = [
        (low <= least, f"the two sides differ by {gap:.2f} only ({low:.2f} to {high:.2f})"),
        (row.accuracy < 0.8, f"the labels themselves are right on {row.accuracy:.0%} of held-out text only"),
    ]
    return judge(ours, "each side's disputed inputs are of the kind it was tuned on", problems)
