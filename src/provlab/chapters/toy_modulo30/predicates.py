"""Predicates about the toy of Model-diff, where every input was enumerated and so every estimate has a truth."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from provlab.chapters.shared.calibration import size_interval
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
from provlab.publishing.evidence import NOT_RUN, Bar, Evidence, Verdict, judge

TERMS = ("PD_AB", "PA_AB", "PA_BA", "PD_BA")


def _ratio(values: Iterable[float]) -> str:
    return " : ".join(f"{value:.2f}" for value in values)


def _whole(evidence: Evidence, inputs: int) -> Verdict | None:
    """Without all the inputs asked for there is nothing to judge."""
    found = evidence.record("space", SpaceRecord).inputs
    if found < inputs:
        return Verdict(NOT_RUN, "", f"{found:,} inputs were enumerated; {inputs:,} are asked for")
    return None


def _distinct(runs: Iterable[Sequence[float]]) -> int:
    """Count runs of which no two gave the same numbers, as one run kept twice would."""
    return len({tuple(run) for run in runs})


def generates_valid(evidence: Evidence, measurement: str, share: float, n: int, inputs: int) -> Verdict:
    """Each model's generations must be valid by at least `share`, drawn plainly and by the papers' law.

    Plain generation is judged by the samples and by the enumeration, of which the samples are a noisy view.
    """
    if missing := _whole(evidence, inputs):
        return missing
    space = evidence.record("space", SpaceRecord)
    rows = evidence.records(measurement, GenerationRecord)
    if (n_models := len({row.model for row in rows})) < 2:
        return Verdict(NOT_RUN, "", f"{n_models} models generated; two are asked for")
    problems = [(space.valid >= space.inputs, "every input of the space is valid, so nothing is shown")]
    words = []
    for row in rows:
        plain = row.valid / row.n
        words.append(
            f"{row.model}: {plain:.2%} of {row.n:,} plain samples ({row.exact:.3%} of all by enumeration), "
            f"{row.papers:.3%} by Equation 4 at T = {row.temperature:g}"
        )
        problems += [
            (row.n < n, f"{row.model} wrote {row.n:,} sequences only"),
            (not plain >= share, f"{row.model} reaches {plain:.2%} in plain samples"),
            (not row.papers >= share, f"{row.model} reaches {row.papers:.3%} by Equation 4"),
        ]
    bars = [Bar(f"valid share of {row.model} by enumeration", [row.exact], share, above=True) for row in rows]
    return judge("; ".join(words), f"all are at least {share:.2%}, which rounds to 100.0%", problems, bars)


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
    """Each term of each run near the enumeration's, rho(D) too, and intervals that cover as often as they say.

    One more run, with moves that know nothing of the rule, must come as near. Coverage is asked of all terms together
    and of each, as far as its repeats can tell; and intervals must not cover by being wider than the runs scatter.
    """
    if missing := _whole(evidence, inputs):
        return missing
    found = SamplingRecord.read(evidence.measurement(measurement))
    runs, repeats, exact = found.runs, found.repeats, np.array(found.exact)
    least = min_repeats.get(evidence.profile, max(min_repeats.values()))
    n_runs, n_repeats = (_distinct(run.ratio for run in some) for some in (runs, repeats))
    if n_runs < min_runs or n_repeats < least or not all(len(run.total_variation) == 2 for run in (*runs, found.blind)):
        return Verdict(
            NOT_RUN, "", f"{n_runs} runs and {n_repeats} repeats, each its own; {min_runs} and {least} are asked for"
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
        (not covered >= coverage, f"the intervals cover in {covered:.0%} of cases only"),
    ]
    drawn, low, high = (np.array([getattr(one, name) for one in repeats]) for name in ("ratio", "low", "high"))
    for k in free:
        hits = round(found.coverage[k] * len(repeats))
        scatter = float(np.ptp(np.quantile(drawn[:, k], [0.025, 0.975])))
        width = float(np.median(high[:, k] - low[:, k]))
        problems += [
            (size_interval(hits, len(repeats))[1] < 0.95, f"the intervals of {TERMS[k]} cover in {hits} repeats only"),
            (
                not width <= 2 * scatter,
                f"the intervals of {TERMS[k]} are {width:.3f} wide where repeats scatter over {scatter:.3f}",
            ),
        ]
    blind = float(np.abs(np.array(found.blind.ratio) - exact).max())
    ours += (
        f"; moves without the rule: {_ratio(found.blind.ratio)}, total variation {max(found.blind.total_variation):.4f}"
    )
    bars = [
        Bar(f"furthest term ({TERMS[term]} of run {run + 1})", off.max(axis=1).tolist(), tolerance),
        Bar("total variation of rho(D)", apart.max(axis=1).tolist(), total_variation),
        Bar("furthest term by moves without the rule", [blind], tolerance),
        Bar("total variation by moves without the rule", [float(np.max(found.blind.total_variation))], total_variation),
    ]
    return judge(ours, f"every term is within {tolerance}, rho(D) within {total_variation}", problems, bars)


def naive_misses(
    evidence: Evidence,
    measurement: str,
    bias: str,
    temperatures: Sequence[float],
    tolerance: float,
    min_runs: int,
    inputs: int,
) -> Verdict:
    """At every temperature draws without weights converge to a law further from the truth than `tolerance`.

    Their bias is exact (`bias`), on either model's inputs: no run is long enough to remove it or to blur it. Ten times
    the error of weighted draws would be reached at any temperature by drawing longer. Weighted draws, and the
    coldest ones without weights, must come out as they should within the tolerance.
    """
    if missing := _whole(evidence, inputs):
        return missing
    found = evidence.record(measurement, NaiveRecord)
    rows = evidence.records(bias, BiasRecord)
    exact = [next((row for row in rows if np.isclose(row.temperature, t, rtol=1e-3)), None) for t in temperatures]
    drawn = next((row for row in rows if row.temperature == found.temperature), None)
    n_runs = _distinct([tuple(run) for run in found.naive[-1]]) if found.naive else 0
    if n_runs < min_runs or None in exact or drawn is None:
        return Verdict(
            NOT_RUN, "", f"{n_runs} runs, each its own; {min_runs} are asked for, and the bias at each temperature"
        )
    naive, weighted = (np.mean(runs[-1], axis=0) for runs in (found.naive, found.weighted))  # (2,): A's inputs, B's
    known = [row for row in exact if row is not None]
    ours = (
        "bias without weights "
        + ", ".join(f"{(row.A + row.B) / 2:.4f} at T = {row.temperature:.3g}" for row in known)
        + f"; with weights {weighted.mean():.4f} off after {found.draws[-1]:,} draws of a chain, without "
        f"{naive.mean():.4f} at T = {found.temperature:.3g}"
    )
    problems = [
        problem
        for k, side in enumerate("AB")
        for problem in (
            (not weighted[k] < tolerance, f"weighted draws of {side} are {weighted[k]:.4f} off too: run more steps"),
            (
                not abs(naive[k] - getattr(drawn, side)) < tolerance,
                f"the draws of {side} without weights are {naive[k]:.4f} off and not what their law is: "
                f"{getattr(drawn, side):.4f}",
            ),
        )
    ]
    bars = [
        Bar(f"bias on {side}'s inputs at T = {row.temperature:.3g}", [getattr(row, side)], tolerance, above=True)
        for row in known
        for side in "AB"
    ]
    why = f"at every temperature the bias is above {tolerance}, and weighted draws are within it"
    return judge(ours, why, problems, bars)


def normalisation_holds(evidence: Evidence, measurement: str, example: Sequence[float], tolerance: float) -> Verdict:
    """The worked example to the digit, R3 the same from both sides, and Equations 12 and 13 on uneven samples."""
    found = evidence.record(measurement, NormalisationRecord)
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
        (not min(common) > 0, "R3 is empty: there is nothing to divide by"),
        (not crude > tolerance, "without the normalisation the terms come out as well, so nothing is shown"),
    ]
    bars = [Bar("furthest term of the uneven samples", [off], tolerance)]
    return judge(
        ours, "the example is exact, and the normalised terms do not depend on how much was drawn", problems, bars
    )


def oracle_agrees(evidence: Evidence, measurement: str, tolerance: float) -> Verdict:
    """Precision and recall of each term from weighted samples and the oracle, against the enumeration's.

    The ranges must be such that weights matter: without them some precision must come out wrong.
    """
    rows = evidence.records(measurement, OracleRecord)
    found = {(row.term, tuple(row.z)) for row in rows}
    ranges = sorted({z for _, z in found})
    if not ranges or found != {(term, z) for term in TERMS for z in ranges}:
        return Verdict(
            NOT_RUN, "", f"{len(found)} terms have precision and recall; {len(TERMS)} are asked for in each Z"
        )
    words = "; ".join(
        f"Z = {low:.2f} to {high:.2f}: "
        + ", ".join(f"{row.term} {row.precision:.3f} / {row.recall:.3f}" for row in rows if tuple(row.z) == (low, high))
        for low, high in ranges
    )
    off = np.array([(row.precision - row.exact_precision, row.recall - row.exact_recall) for row in rows])
    off = np.abs(off).max(axis=1)  # (rows,): NaN where one is
    plain = float(np.abs([row.plain_precision - row.exact_precision for row in rows]).max())
    worst = int(off.argmax())  # a NaN, if there is one
    return judge(
        f"precision / recall, {words}; at most {off[worst]:.3f} off the enumeration, precision without weights up to "
        f"{plain:.3f}",
        f"all are within {tolerance} of the enumeration's",
        [(not plain > tolerance, "without weights precision comes out as well, so nothing is shown")],
        [Bar(f"furthest precision or recall ({rows[worst].term})", [float(off[worst])], tolerance)],
    )


def three_models_agree(evidence: Evidence, measurement: str, tolerance: float, min_runs: int) -> Verdict:
    """The terms of both comparisons in units of the reference's inputs (Equations 14 to 17), against enumeration."""
    found = evidence.records(measurement, ThroughReferenceRecord)
    if len({pair.pair for pair in found}) < 2 or any(_distinct(pair.runs) < min_runs for pair in found):
        return Verdict(NOT_RUN, "", f"two pairs with {min_runs} runs each, each its own, are asked for")
    words, bars, problems = (
        [],
        [],
        [(_distinct(pair.exact for pair in found) < 2, "both pairs have the same terms: one model twice")],
    )
    for pair in found:
        off = np.abs(np.array(pair.runs) - pair.exact).max(axis=1).tolist()
        mean = np.mean(pair.runs, axis=0)
        words.append(f"{pair.pair}: {_ratio(mean)} sampled, {_ratio(pair.exact)} enumerated")
        problems.append((not max(pair.exact) > tolerance, f"no term of {pair.pair} is larger than what may be off"))
        bars.append(Bar(f"furthest term of {pair.pair}", off, tolerance))
    ours = "; ".join(words) + ", in units of the reference's inputs"
    return judge(ours, f"every term of every run is within {tolerance}", problems, bars)
