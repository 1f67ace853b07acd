"""Predicates about the toy of Model-diff, where every input was enumerated and so every estimate has a truth."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from provlab.chapters.toy_modulo30.records import (
    BiasRecord,
    GenerationRecord,
    NaiveRecord,
    NormalisationRecord,
    OracleRecord,
    SamplingRecord,
    SpaceRecord,
    ThroughReferenceRecord,
)
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict, judge

TERMS = ("PD_AB", "PA_AB", "PA_BA", "PD_BA")


def _ratio(values: Iterable[float]) -> str:
    return " : ".join(f"{value:.2f}" for value in values)


def _whole(evidence: Evidence, inputs: int) -> Verdict | None:
    """Without all the inputs asked for there is nothing to judge."""
    found = SpaceRecord(**evidence.measurement("space")).inputs
    if found < inputs:
        return Verdict(NOT_RUN, "", f"{found:,} inputs were enumerated; {inputs:,} are asked for")
    return None


def generates_valid(evidence: Evidence, measurement: str, share: float, n: int, inputs: int) -> Verdict:
    """Each model's generations must be valid by at least `share`, drawn plainly and by the papers' law."""
    if missing := _whole(evidence, inputs):
        return missing
    problems: list[tuple[bool, str]] = []
    words = []
    for row in evidence.records(measurement, GenerationRecord):
        plain = row.valid / row.n
        words.append(
            f"{row.model}: {plain:.2%} of {row.n:,} plain samples ({row.exact:.3%} of all by enumeration), "
            f"{row.papers:.3%} by Equation 4 at T = {row.temperature:g}"
        )
        problems += [
            (row.n < n, f"{row.model} wrote {row.n:,} sequences only"),
            (plain < share, f"{row.model} reaches {plain:.2%} in plain samples"),
            (row.papers < share, f"{row.model} reaches {row.papers:.3%} by Equation 4"),
        ]
    return judge("; ".join(words), f"all are at least {share:.2%}, which rounds to 100.0%", problems)


def sampled_matches_enumeration(
    evidence: Evidence,
    measurement: str,
    min_runs: int,
    tolerance: float,
    total_variation: float,
    coverage: float,
    min_repeats: Mapping[str, int],
    inputs: int,
) -> Verdict:
    """Each term of each run near the enumeration's, rho(D) too, and intervals that cover as often as they say."""
    if missing := _whole(evidence, inputs):
        return missing
    found = SamplingRecord.read(evidence.measurement(measurement))
    runs, repeats, exact = found.runs, found.repeats, np.array(found.exact)
    least = min_repeats.get(evidence.profile, max(min_repeats.values()))
    if len(runs) < min_runs or len(repeats) < least:
        return Verdict(
            NOT_RUN, "", f"{len(runs)} runs and {len(repeats)} repeats; {min_runs} and {least} are asked for"
        )
    ratios = np.array([run.ratio for run in runs])
    off = np.abs(ratios - exact)
    apart = np.array([run.total_variation for run in runs])
    free = [k for k in range(4) if TERMS[k] != found.reference]  # the term that is 1 by definition covers nothing
    covered = float(np.mean([found.coverage[k] for k in free]))
    ours = (
        f"enumerated {_ratio(exact)}; {len(runs)} runs, mean {_ratio(ratios.mean(axis=0))}, furthest term "
        f"{off.max():.3f} off; total variation of rho(D) at most {apart.max():.4f}; 95% intervals cover in "
        f"{covered:.0%} of {len(repeats)} repeats"
    )
    run, term = np.unravel_index(int(off.argmax()), off.shape)
    problems = [
        (bool(off.max() > tolerance), f"{TERMS[term]} of run {run + 1} is {off.max():.3f} off; {tolerance} is allowed"),
        (bool(apart.max() >= total_variation), f"rho(D) of a run is {apart.max():.3f} off in total variation"),
        (covered < coverage, f"the intervals cover in {covered:.0%} of cases only"),
    ]
    return judge(ours, f"every term is within {tolerance}, rho(D) within {total_variation}", problems)


def naive_misses(evidence: Evidence, measurement: str, bias: str, times: float, min_runs: int, inputs: int) -> Verdict:
    """Draws without weights must be `times` as far from the truth (total variation) as the same draws with weights.

    `bias` holds what no number of draws would remove: the exact distance, of each direction, at several temperatures.
    """
    if missing := _whole(evidence, inputs):
        return missing
    found = NaiveRecord(**evidence.measurement(measurement))
    if len(found.naive) < min_runs:
        return Verdict(NOT_RUN, "", f"{len(found.naive)} runs; {min_runs} are asked for")
    naive, weighted = np.mean(found.naive), np.mean(found.weighted)
    ours = (
        f"total variation of rho(D) {naive:.4f} without weights at T = {found.temperature:.3g}, {weighted:.4f} "
        f"with: {naive / weighted:.1f} times, over {len(found.naive)} runs and both directions"
    )
    exact = [row for row in evidence.records(bias, BiasRecord) if row.temperature == found.temperature]
    left = np.mean([(row.A, row.B) for row in exact])
    reason = (
        f"only {naive / weighted:.1f} times as far from the truth as with weights: over so narrow a range Z the law "
        f"without weights is {left:.4f} off, however many draws are made"
    )
    return judge(ours, f"at least {times:g} times as far from the truth", [(bool(naive < times * weighted), reason)])


def normalisation_holds(evidence: Evidence, measurement: str, example: Sequence[float], tolerance: float) -> Verdict:
    """The worked example to the digit, R3 the same from both sides, and Equations 12 and 13 on uneven samples."""
    found = NormalisationRecord(**evidence.measurement(measurement))
    off = float(np.abs(np.array(found.sampled) - found.exact).max())
    crude = float(np.abs(np.array(found.unnormalised) - found.exact).max())
    common = found.common
    ours = (
        f"example {':'.join(f'{value:g}' for value in found.example)}; R3 holds {common[0]:,} of A's inputs and "
        f"{common[1]:,} of B's; terms of uneven samples at most {off:.3f} off, {crude:.3f} by the plain totals"
    )
    problems = [
        (list(found.example) != list(example), "the worked example comes out differently"),
        (common[0] != common[1], "R3 has another size from either side"),
        (off > tolerance, f"a term of the uneven samples is {off:.3f} off; {tolerance} is allowed"),
        (crude <= tolerance, "without the normalisation the terms come out as well, so nothing is shown"),
    ]
    return judge(ours, "the example is exact, and the normalised terms do not depend on how much was drawn", problems)


def oracle_agrees(evidence: Evidence, measurement: str, tolerance: float) -> Verdict:
    """Precision and recall of each term from samples and the oracle, against the enumeration's."""
    rows = evidence.records(measurement, OracleRecord)
    if len(rows) < len(TERMS):
        return Verdict(NOT_RUN, "", f"{len(rows)} of {len(TERMS)} terms have precision and recall")
    words = ", ".join(f"{row.term} {row.precision:.3f} / {row.recall:.3f}" for row in rows)
    worst = max(rows, key=_distance)
    return judge(
        f"precision / recall {words}; at most {_distance(worst):.3f} off the enumeration",
        f"all are within {tolerance} of the enumeration's",
        [(_distance(worst) > tolerance, f"{worst.term} is {_distance(worst):.3f} off the enumeration")],
    )


def _distance(row: OracleRecord) -> float:
    return max(abs(row.precision - row.exact_precision), abs(row.recall - row.exact_recall))


def three_models_agree(evidence: Evidence, measurement: str, tolerance: float, min_runs: int) -> Verdict:
    """The terms of both comparisons in units of the reference's inputs (Equations 14 to 17), against enumeration."""
    found = evidence.records(measurement, ThroughReferenceRecord)
    if len(found) < 2 or any(len(pair.runs) < min_runs for pair in found):
        return Verdict(NOT_RUN, "", f"two pairs with {min_runs} runs each are asked for")
    words, problems = [], []
    for pair in found:
        off = float(np.abs(np.array(pair.runs) - pair.exact).max())
        mean = np.mean(pair.runs, axis=0)
        words.append(f"{pair.pair}: {_ratio(mean)} sampled, {_ratio(pair.exact)} enumerated")
        problems.append((off > tolerance, f"a term of {pair.pair} is {off:.3f} off; {tolerance} is allowed"))
    ours = "; ".join(words) + ", in units of the reference's inputs"
    return judge(ours, f"every term of every run is within {tolerance}", problems)
