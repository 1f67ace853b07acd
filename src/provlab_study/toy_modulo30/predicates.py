"""Predicates about the toy of Model-diff, where every input was enumerated and so every estimate has a truth.

The dataclasses name the fields of the rows that the page keeps; a ratio is four numbers PD_AB : PA_AB : PA_BA : PD_BA.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from provlab.modeldiff.comparison import TERMS
from provlab_study.publishing.evidence import NOT_RUN, Bar, ClaimStatus, judge, read
from provlab_study.shared.calibration import size_interval

Numbers = Sequence[float]
Rows = Sequence[Mapping[str, Any]]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class CountedInputs:
    """Inputs of the space, how many of them are valid, and prefixes that went through each network."""

    inputs: int
    valid: int
    prefixes: int


@dataclass(frozen=True)
class PlainSampling:
    """A model's sequences by plain sampling, how many are valid, and the share by Equation 4, from weighted draws."""

    model: str
    n: int
    valid: int
    papers: float
    temperature: float


@dataclass(frozen=True)
class SampledRatio:
    """A sampled ratio with its 95% intervals; of long runs also the distance of rho(D) for A's and for B's inputs."""

    ratio: Numbers
    low: Numbers
    high: Numbers
    total_variation: Numbers = ()


@dataclass(frozen=True)
class Bias:
    """Exact distances to the truth of A's and B's inputs drawn by Equation 4 at a temperature, unweighted.

    They are of rho(D), and of rho(z), the distribution of the models' own losses.
    """

    temperature: float
    A: float
    B: float
    z_A: float
    z_B: float


@dataclass(frozen=True)
class Naive:
    """Distance of rho(D) to the truth by draws of a chain, ``(draws, run, 2)``, without weights and with them.

    Also of rho(z), after all draws of a run: ``(run, 2)`` each.
    """

    draws: Sequence[int]
    naive: Sequence[Sequence[Numbers]]
    weighted: Sequence[Sequence[Numbers]]
    naive_z: Sequence[Numbers]
    weighted_z: Sequence[Numbers]
    temperature: float


@dataclass(frozen=True)
class Normalisation:
    """The worked example times four, R3 counted from both sides; ratios: exact, of uneven draws, of their counts."""

    example: Numbers
    common: Sequence[int]
    exact: Numbers
    sampled: Numbers
    unnormalised: Numbers


@dataclass(frozen=True)
class Oracle:
    """Precision and recall of one term in a range `z`: of weighted draws, enumerated, and of draws without weights."""

    term: str
    z: Numbers
    precision: float
    recall: float
    exact_precision: float
    exact_recall: float
    plain_precision: float
    plain_recall: float


@dataclass(frozen=True)
class ThroughReference:
    """Terms of a comparison with A in units of A's inputs (Equations 14 to 17): enumerated, and of each long run."""

    pair: str
    exact: Numbers
    runs: Sequence[Numbers]


def _ratio(values: Iterable[float]) -> str:
    return " : ".join(f"{value:.2f}" for value in values)


def _whole(space: Mapping[str, Any], inputs: int) -> ClaimStatus | None:
    """Without all the inputs asked for there is nothing to judge."""
    enumerated = read(CountedInputs, [space])[0].inputs
    if enumerated < inputs:
        return ClaimStatus(NOT_RUN, "", f"{enumerated:,} inputs were enumerated; {inputs:,} are asked for")
    return None


def _off(values: object, exact: object, tolerance: float, share: float) -> Array:
    """Furthest term of each run, ``(runs,)``: in units of the tolerance, or of a share of the term if that is less."""
    truth = np.asarray(exact, dtype=float)
    allowed = np.minimum(tolerance, share * np.abs(truth))
    return np.asarray(np.abs(np.atleast_2d(np.asarray(values, dtype=float)) - truth) / np.maximum(allowed, 1e-12)).max(
        axis=1
    )


def _distinct(runs: Iterable[Sequence[float]]) -> int:
    """Count runs of which no two gave the same numbers, as one run kept twice would."""
    return len({tuple(run) for run in runs})


def generates_valid(generation: Rows, *, share: float, n: int) -> ClaimStatus:
    """Each model's generations must be valid by at least `share`, plainly (interval included) and by Equation 4."""
    rows = read(PlainSampling, generation)
    if (n_models := len({row.model for row in rows})) < 2:
        return ClaimStatus(NOT_RUN, "", f"{n_models} models generated; two are asked for")
    words, problems, bars = [], [], []
    for row in rows:
        low, high = size_interval(row.valid, row.n)
        words.append(
            f"{row.model}: {row.valid / row.n:.3%} ({low:.3%} to {high:.3%}) of {row.n:,} plain samples, "
            f"{row.papers:.3%} by Equation 4 at T = {row.temperature:g}"
        )
        problems += [
            (row.n < n, f"{row.model} wrote {row.n:,} sequences only"),
            (not row.papers >= share, f"{row.model} reaches {row.papers:.3%} by Equation 4"),
        ]
        what = f"valid share of what {row.model} writes"
        bars.append(Bar(what, [row.valid / row.n], share, above=True, interval=(low, high)))
    return judge("; ".join(words), f"all are at least {share:.2%}, which rounds to 100.0%", problems, bars)


def sampled_matches_enumeration(
    sampling: Mapping[str, Any],
    space: Mapping[str, Any],
    *,
    min_runs: int,
    tolerance: float,
    total_variation: float,
    coverage: float,
    min_repeats: int,
    inputs: int,
) -> ClaimStatus:
    """Each term of each run near the enumeration's, rho(D) too, and intervals that cover as often as they say.

    One more run, with moves that know nothing of the rule, must come as near. Coverage is asked of all terms together
    and of each, as far as its repeats can tell; and intervals must not cover by being wider than the runs scatter.

    The bar of coverage is held against the mean over repeats with its interval: terms share their unit, and of each
    other have a correlation of 0.3 to 0.8. With 120 repeats of three such normal terms and a bar of 0.9, intervals that
    cover 98%, 95%, 93%, 90% and 87% hold in 100, 91, 53, 7 and 0% of cases, and fail in 0, 5, 31, 83 and 99%, what is
    asked of each term included (4,000 draws each). With 40 repeats, as before, honest intervals of 95% held in 64% and
    intervals of 87% failed in 83% only.
    """
    if missing := _whole(space, inputs):
        return missing
    runs, repeats, (blind,) = (
        read(SampledRatio, rows) for rows in (sampling["runs"], sampling["repeats"], [sampling["blind"]])
    )
    exact = np.array(sampling["exact"])
    n_runs, n_repeats = (_distinct(run.ratio for run in some) for some in (runs, repeats))
    if n_runs < min_runs or n_repeats < min_repeats or not all(len(run.total_variation) == 2 for run in (*runs, blind)):
        return ClaimStatus(
            NOT_RUN,
            "",
            f"{n_runs} runs and {n_repeats} repeats, each its own; {min_runs} and {min_repeats} are asked for",
        )
    ratios, apart = (np.array([getattr(run, name) for run in runs]) for name in ("ratio", "total_variation"))
    drawn, low, high = (np.array([getattr(run, name) for run in repeats]) for name in ("ratio", "low", "high"))
    off = np.abs(ratios - exact)
    free = [k for k in range(4) if TERMS[k] != sampling["reference"]]  # the term that is 1 by definition covers nothing
    held = (low <= exact) & (exact <= high)  # (repeats, 4)
    hits, by_repeat = held.sum(axis=0), held[:, free].mean(axis=1)
    covered = float(by_repeat.mean())
    reach = float(stats.t.ppf(0.95, len(repeats) - 1) * by_repeat.std(ddof=1) / np.sqrt(len(repeats)))
    problems = []
    for k in free:
        scatter = float(np.ptp(np.quantile(drawn[:, k], [0.025, 0.975])))
        width = float(np.median(high[:, k] - low[:, k]))
        few = size_interval(int(hits[k]), len(repeats))[1] < 0.95
        problems += [
            (few, f"the intervals of {TERMS[k]} cover in {hits[k]} repeats only"),
            (
                not width <= 2 * scatter,
                f"the intervals of {TERMS[k]} are {width:.3f} wide where repeats scatter over {scatter:.3f}",
            ),
        ]
    run, term = np.unravel_index(int(off.argmax()), off.shape)
    blind_off, blind_apart = float(np.abs(np.array(blind.ratio) - exact).max()), float(np.max(blind.total_variation))
    ours = (
        f"enumerated {_ratio(exact)}; {len(runs)} runs, mean {_ratio(ratios.mean(axis=0))}, furthest term "
        f"{off.max():.3f} off; total variation of rho(D) at most {apart.max():.4f}; 95% intervals cover in "
        f"{covered:.0%} of {len(repeats)} repeats; moves without the rule: {_ratio(blind.ratio)}, total variation "
        f"{blind_apart:.4f}"
    )
    bars = [
        Bar(f"furthest term ({TERMS[term]} of run {run + 1})", off.max(axis=1).tolist(), tolerance),
        Bar("total variation of rho(D)", apart.max(axis=1).tolist(), total_variation),
        Bar("furthest term by moves without the rule", [blind_off], tolerance),
        Bar("total variation by moves without the rule", [blind_apart], total_variation),
        Bar(
            "coverage of the intervals",
            [covered],
            coverage,
            above=True,
            interval=(covered - reach, min(1.0, covered + reach)),
        ),
    ]
    return judge(ours, f"every term is within {tolerance}, rho(D) within {total_variation}", problems, bars)


def naive_misses(
    naive: Mapping[str, Any],
    bias: Rows,
    space: Mapping[str, Any],
    *,
    temperatures: Sequence[float],
    tolerance: float,
    min_runs: int,
    inputs: int,
) -> ClaimStatus:
    """At every temperature draws without weights converge to a rho(z) further from the truth than `tolerance`.

    Rho(z), the distribution of a model's own losses, is what Figure 7 shows; the bias of rho(D) is reported beside it.
    Both are exact (`bias`), on either model's inputs: no run is long enough to remove them or to blur them. Weighted
    draws, and the coldest ones without weights, must come out as they should within the tolerance, in both.
    """
    if missing := _whole(space, inputs):
        return missing
    (record,), rows = read(Naive, [naive]), read(Bias, bias)
    exact = [next((row for row in rows if np.isclose(row.temperature, t, rtol=1e-3)), None) for t in temperatures]
    drawn = next((row for row in rows if row.temperature == record.temperature), None)
    n_runs = _distinct([tuple(run) for run in record.naive[-1]]) if record.naive else 0
    if n_runs < min_runs or None in exact or drawn is None:
        return ClaimStatus(
            NOT_RUN, "", f"{n_runs} runs, each its own; {min_runs} are asked for, and the bias at each temperature"
        )
    known = [row for row in exact if row is not None]
    ours, problems = [], []
    for what, field, of_naive, of_weighted in (
        ("rho(z)", "z_", record.naive_z, record.weighted_z),
        ("rho(D)", "", record.naive[-1], record.weighted[-1]),
    ):
        plain, weighted = (np.mean(runs, axis=0) for runs in (of_naive, of_weighted))  # (2,): A's inputs, B's
        biases = [(getattr(row, f"{field}A") + getattr(row, f"{field}B")) / 2 for row in known]
        ours.append(
            f"{what}: bias without weights "
            + ", ".join(f"{off:.4f} at T = {row.temperature:.3g}" for off, row in zip(biases, known, strict=True))
            + f"; with weights {weighted.mean():.4f} off after {record.draws[-1]:,} draws of a chain"
        )
        for k, side in enumerate("AB"):
            law = getattr(drawn, field + side)
            problems += [
                (
                    not weighted[k] < tolerance,
                    f"weighted draws of {side} are {weighted[k]:.4f} off in {what} too: run more steps",
                ),
                (
                    not abs(plain[k] - law) < tolerance,
                    f"the draws of {side} without weights are {plain[k]:.4f} off in {what} and not what their law is: "
                    f"{law:.4f}",
                ),
            ]
    bars = [
        Bar(
            f"bias of rho(z) on {side}'s inputs at T = {row.temperature:.3g}",
            [getattr(row, f"z_{side}")],
            tolerance,
            above=True,
        )
        for row in known
        for side in "AB"
    ]
    why = f"at every temperature the bias of rho(z) is above {tolerance}, and weighted draws are within it"
    return judge(". ".join(ours), why, problems, bars)


def normalisation_holds(
    normalisation: Mapping[str, Any], *, example: Sequence[float], tolerance: float, share: float
) -> ClaimStatus:
    """The worked example to the digit, R3 the same from both sides, and Equations 12 and 13 on uneven samples.

    Each term must be within `tolerance`, and within a `share` of itself.
    """
    (record,) = read(Normalisation, [normalisation])
    off = float(np.abs(np.array(record.sampled) - record.exact).max())
    crude = float(np.abs(np.array(record.unnormalised) - record.exact).max())
    common = record.common
    ours = (
        f"example {':'.join(f'{value:g}' for value in record.example)}; R3 holds {common[0]:,} of A's inputs and "
        f"{common[1]:,} of B's; terms of uneven samples at most {off:.3f} off, {crude:.3f} by the plain totals"
    )
    problems = [
        (list(record.example) != list(example), "the worked example comes out differently"),
        (common[0] != common[1], "R3 has another size from either side"),
        (not min(common) > 0, "R3 is empty: there is nothing to divide by"),
        (not crude > tolerance, "without the normalisation the terms come out as well, so nothing is shown"),
    ]
    allowed = _off(record.sampled, record.exact, tolerance, share)
    bars = [Bar("furthest term of the uneven samples, in units of what is allowed", allowed.tolist(), 1.0)]
    return judge(
        ours, "the example is exact, and the normalised terms do not depend on how much was drawn", problems, bars
    )


def oracle_agrees(oracle: Rows, *, tolerance: float, share: float) -> ClaimStatus:
    """Precision and recall of each term from weighted samples and the oracle, against the enumeration's.

    Each must be within `tolerance`, and within a `share` of itself, or of the tolerance where it is less.

    The ranges must be such that weights matter: without them some precision must come out wrong.
    """
    rows = read(Oracle, oracle)
    present = {(row.term, tuple(row.z)) for row in rows}
    ranges = sorted({z for _, z in present})
    if not ranges or present != {(term, z) for term in TERMS for z in ranges}:
        return ClaimStatus(
            NOT_RUN, "", f"{len(present)} terms have precision and recall; {len(TERMS)} are asked for in each Z"
        )
    words = "; ".join(
        f"Z = {low:.2f} to {high:.2f}: "
        + ", ".join(f"{row.term} {row.precision:.3f} / {row.recall:.3f}" for row in rows if tuple(row.z) == (low, high))
        for low, high in ranges
    )
    known = np.array([(row.exact_precision, row.exact_recall) for row in rows])
    apart = np.abs(np.array([(row.precision, row.recall) for row in rows]) - known)
    off = apart.max(axis=1)  # (rows,): NaN where one is
    allowed = np.minimum(tolerance, share * np.maximum(known, tolerance))
    plain = float(np.abs([row.plain_precision - row.exact_precision for row in rows]).max())
    worst = int(off.argmax())  # a NaN, if there is one
    return judge(
        f"precision / recall, {words}; at most {off[worst]:.3f} off the enumeration, precision without weights up to "
        f"{plain:.3f}",
        f"all are within {tolerance} of the enumeration's",
        [(not plain > tolerance, "without weights precision comes out as well, so nothing is shown")],
        [
            Bar(f"furthest precision or recall ({rows[worst].term})", [float(off[worst])], tolerance),
            Bar("the same in units of what is allowed", [float((apart / allowed).max())], 1.0),
        ],
    )


def three_models_agree(three: Rows, *, tolerance: float, share: float, min_runs: int) -> ClaimStatus:
    """The terms of both comparisons in units of the reference's inputs (Equations 14 to 17), against enumeration.

    Each term of each run must be within `tolerance`, and within a `share` of itself: a rare term may not be missed.
    """
    pairs = read(ThroughReference, three)
    if len({pair.pair for pair in pairs}) < 2 or any(_distinct(pair.runs) < min_runs for pair in pairs):
        return ClaimStatus(NOT_RUN, "", f"two pairs with {min_runs} runs each, each its own, are asked for")
    words, bars, problems = (
        [],
        [],
        [(_distinct(pair.exact for pair in pairs) < 2, "both pairs have the same terms: one model twice")],
    )
    for pair in pairs:
        mean = np.mean(pair.runs, axis=0)
        words.append(f"{pair.pair}: {_ratio(mean)} sampled, {_ratio(pair.exact)} enumerated")
        problems.append((not max(pair.exact) > tolerance, f"no term of {pair.pair} is larger than what may be off"))
        off = _off(pair.runs, pair.exact, tolerance, share)
        bars.append(Bar(f"furthest term of {pair.pair}, in units of what is allowed", off.tolist(), 1.0))
    ours = "; ".join(words) + ", in units of the reference's inputs"
    return judge(ours, f"every term of every run is within {tolerance} and {share:.0%} of itself", problems, bars)
