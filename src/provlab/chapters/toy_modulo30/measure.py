"""What the page on the toy measures: samples of a space whose every input is known, compared with all of it.

Models are given by their places: A and B are compared, and C with A in the last section.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from provlab.chapters.toy_modulo30 import annotation
from provlab.chapters.toy_modulo30.enumeration import Enumeration, TableNll
from provlab.chapters.toy_modulo30.joint import WIDTH, on_grid
from provlab.chapters.toy_modulo30.moves import MultiSite, SumPreserving
from provlab.chapters.toy_modulo30.records import (
    BiasRecord,
    GenerationRecord,
    NaiveRecord,
    NormalisationRecord,
    OracleRecord,
    RangeRecord,
    RunRecord,
    SamplingRecord,
    SpaceRecord,
    ThroughReferenceRecord,
)
from provlab.kept import Kept
from provlab.modeldiff import pipeline, reweighting
from provlab.modeldiff.comparison import Comparison, Ratio, from_enumeration, total_variation
from provlab.modeldiff.diagnostics import Convergence, NotConverged, converged
from provlab.modeldiff.ladder import Ladder, tune_ladder
from provlab.modeldiff.moves import Mixture, SingleSite
from provlab.modeldiff.representative import Direction, Draws, Side, bin_of, within
from provlab.modeldiff.sampler import Samples, replica_exchange
from provlab.zoo.toy import LENGTH, MODULUS, is_valid

A, B, C = range(3)
SIDES: tuple[Side, Side] = ("A", "B")
Range = tuple[float, float]

_CHECKED = 500  # inputs whose enumerated loss is compared with a plain forward pass
_BINS = 24  # of D, over all but the last thousandths
_TEMPERATURES = (0.01, 0.02, 0.1, 1 / (LENGTH - 1), 0.3, 1.0)  # of the exact bias, besides that of the samples
_FIRST = (1 / 8, 1 / 4, 1 / 2)  # of a long run's draws, for the error by their number
_TAILS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)  # quantile rules for Z
_SHIFTS = (-0.2, -0.1, 0.1, 0.2)  # of the rule's range, in its widths
_UNEVEN = (40_000, 200_000)  # draws of A and of B where the normalisation is tried
# single tokens reach every input; those that keep the sum step from one valid input to another, and use the rule
_MOVES = Mixture((SingleSite(), MultiSite(2), SumPreserving(2, MODULUS), SumPreserving(4, MODULUS)))
BLIND = Mixture((SingleSite(), MultiSite(2), MultiSite(4)))  # these know nothing of it


# Every input ------------------------------------------------------------------------------------------------


def space_record(found: Enumeration) -> SpaceRecord:
    """Return the size of the space, in inputs and in prefixes."""
    return SpaceRecord(found.space.size, found.joint(A, B).only(label=True).size, found.space.prefixes)


def largest_error(found: Enumeration, models: Sequence[pipeline.Model], *, seed: int) -> dict[str, float]:
    """Largest difference (nats) between enumerated losses and plain forward passes, on random inputs."""
    some = np.random.default_rng(seed).integers(0, found.space.size, _CHECKED)
    tokens = found.space.tokens(some)
    errors = [np.abs(model.nll(tokens) - found.nll(k)[some]).max() for k, model in enumerate(models)]
    return {"inputs": len(some), "largest": float(max(errors))}


def generations(
    found: Enumeration, models: Sequence[pipeline.Model], kept: Kept, n: int, temperature: float, *, seed: int
) -> list[GenerationRecord]:
    """Share of valid sequences among what A and B generate: by plain sampling and by Equation 4 at a temperature."""
    joint = found.joint(A, B)
    least = min(joint.density(side)[0][0] for side in SIDES)  # taken off before exp

    def by_equation_4(side: Side) -> float:
        weights = []
        for label in (False, True):
            edges, counts = joint.only(label=label).density(side)
            weights.append((counts * np.exp((least - edges[:-1]) / temperature)).sum())
        return float(weights[1] / sum(weights))

    records = []
    for k in (A, B):
        written = pipeline.generated(models[k], pipeline.Generation(n, LENGTH, seed=seed + k), kept)
        mass = found.totals[k, :, 2]  # probability of all invalid and of all valid inputs
        valid, exact = int(is_valid(written.tokens).sum()), float(mass[1] / mass.sum())
        records.append(
            GenerationRecord(found.names[k], len(written), valid, exact, by_equation_4(SIDES[k]), temperature)
        )
    return records


def range_by_rule(found: Enumeration, shares: Sequence[float]) -> Range:
    """Return Z: two quantiles of A's loss over the valid inputs, on the grid."""
    low, high = (on_grid(bound) for bound in found.joint(A, B).only(label=True).quantiles("A", shares))
    return low, high


@dataclass(frozen=True, eq=False)
class Truth:
    """A and B compared by all inputs with NLL in Z under either.

    Attributes
    ----------
    losses
        ``(n,)`` under A and under B, of the inputs that are either's.
    compared
        The exact comparison.
    edges
        ``(k + 1,)`` bins of D over nearly all inputs of both; 0 is an edge.
    rho
        ``(k,)`` of A's inputs and of B's.
    """

    losses: tuple[NDArray[np.float64], NDArray[np.float64]]
    compared: Comparison
    edges: NDArray[np.float64]
    rho: dict[Side, NDArray[np.float64]]

    @classmethod
    def enumerated(cls, found: Enumeration, z: Range) -> "Truth":
        """Read the losses of all inputs and keep those in Z."""
        both = found.nll(A), found.nll(B)
        likely = np.flatnonzero(within(both[A], z) | within(both[B], z))
        losses = both[A][likely].astype(float), both[B][likely].astype(float)
        compared = from_enumeration(*losses, z)
        span = np.array([one.quantile([0.001, 0.999]) for one in (compared.a, compared.b)])
        width = (span.max() - span.min()) / _BINS
        edges = np.arange(np.floor(span.min() / width), np.ceil(span.max() / width) + 1) * width
        return cls(losses, compared, edges, {side: compared.rho(side, edges)[0] for side in SIDES})

    def distances(self, other: Comparison) -> list[float]:
        """Total variation distance of another comparison's rho(D) to this one's, for A's inputs and for B's."""
        return [
            total_variation(_weights(bin_of(one.difference, self.edges), one.weight, self.edges), self.rho[side])
            for side, one in zip(SIDES, (other.a, other.b), strict=True)
        ]


def _weights(place: NDArray[np.int64], weight: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the weights ``(n,)`` in each bin, ``(k,)``; `place` is the bin of each, -1 outside."""
    inside = place >= 0
    return np.asarray(np.bincount(place[inside], weight[inside], minlength=len(edges) - 1), dtype=np.float64)


# Samples ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LongRun:
    """Samples of all three models.

    Attributes
    ----------
    gates
        Convergence of each model's chains.
    samples
        Of each model.
    weighted, naive
        A and B compared by reweighted draws, and by the coldest draws as they come.
    third
        A and C compared by reweighted draws.
    """

    gates: dict[int, Convergence]
    samples: dict[int, Samples]
    weighted: Comparison
    naive: Comparison
    third: Comparison


@dataclass(frozen=True, eq=False)
class Sampler:
    """Replica exchange on the tables of losses; it does not know that they are tables.

    Attributes
    ----------
    tables
        The models' losses.
    ladders
        Of temperatures, one for each model.
    n_chains
        Of each run.
    z
        Inputs with NLL in it are compared.
    moves
        How sequences are changed.
    """

    tables: Sequence[TableNll]
    ladders: Sequence[Ladder]
    n_chains: int
    z: Range
    moves: Mixture = _MOVES

    @classmethod
    def tuned(
        cls, found: Enumeration, z: Range, *, coldest: float, n_chains: int, seed: int, moves: Mixture = _MOVES
    ) -> "Sampler":
        """Lay a ladder for each model, from infinity down to a temperature, by pilot runs."""
        tables = [found.table(k) for k in (A, B, C)]
        ladders = [
            tune_ladder(
                table, vocabulary=table.vocabulary, length=table.length, coldest=coldest, moves=moves, seed=seed + k
            )
            for k, table in enumerate(tables)
        ]
        return cls(tables, ladders, n_chains, z, moves)

    def draw(self, model: int, n_steps: int, seed: int) -> Samples:
        """Run the chains of one model."""
        table = self.tables[model]
        return replica_exchange(
            table,
            vocabulary=table.vocabulary,
            length=table.length,
            temperatures=self.ladders[model].temperatures,
            n_chains=self.n_chains,
            n_steps=n_steps,
            moves=self.moves,
            seed=seed,
        )

    def compare(self, draws: Mapping[int, Draws], first: int, second: int) -> Comparison:
        """Compare two models by the draws in Z of each, judged by the other's table."""
        a, b = draws[first], draws[second]
        return Comparison(
            Direction.from_draws(a, self.tables[second](a.tokens), "A", self.z),
            Direction.from_draws(b, self.tables[first](b.tokens), "B", self.z),
            self.z,
        )

    def weighted(self, samples: Mapping[int, Samples]) -> dict[int, Draws]:
        """Reweighted draws in Z of each model."""
        return {k: reweighting.representative(reweighting.reweight(one), self.z) for k, one in samples.items()}

    def unweighted(self, samples: Mapping[int, Samples]) -> dict[int, Draws]:
        """The coldest draws in Z of each model, taken as they come: generation by Monte Carlo."""
        draws = {}
        for k, one in samples.items():
            nll, tokens = one.nll[-1], one.tokens[-1]  # (chain, draw) and (chain, draw, length)
            chain, place = np.nonzero(within(nll, self.z))
            even = np.zeros(len(chain))
            draws[k] = Draws(tokens[chain, place], nll[chain, place], even, chain, one.n_chains, counted=False)
        return draws

    def long_runs(self, n: int, n_steps: int, *, seed: int) -> list[LongRun]:
        """Sample all three models `n` times, each with seeds of its own."""
        runs = []
        for run in tqdm(range(n), desc="long runs", leave=False):
            samples = {k: self.draw(k, n_steps, 1000 * (seed + 1) + 10 * run + k) for k in (A, B, C)}
            draws, naive = self.weighted(samples), self.unweighted(samples)
            runs.append(
                LongRun(
                    {k: converged(one) for k, one in samples.items()},
                    samples,
                    self.compare(draws, A, B),
                    self.compare(naive, A, B),
                    self.compare(draws, A, C),
                )
            )
        return runs

    def short_runs(self, n: int, n_steps: int, *, seed: int) -> list[RunRecord]:
        """Sample A and B `n` times, a fifth as long, for ratios with intervals."""
        records = []
        for run in tqdm(range(n), desc="short runs", leave=False):
            steps = max(500, n_steps // 5)
            samples = {k: self.draw(k, steps, 500_000 * (seed + 1) + 10 * run + k) for k in (A, B)}
            ratio = self.compare(self.weighted(samples), A, B).ratio(seed=seed)
            records.append(_run_record(ratio))
        return records

    def one_run(self, truth: "Truth", n_steps: int, *, seed: int) -> RunRecord:
        """Sample A and B once, and put the result beside the enumeration."""
        samples = {k: self.draw(k, n_steps, 2_000 * (seed + 1) + k) for k in (A, B)}
        compared = self.compare(self.weighted(samples), A, B)
        return _run_record(compared.ratio(seed=seed), truth.distances(compared))


def _run_record(ratio: Ratio, distances: Sequence[float] = ()) -> RunRecord:
    return RunRecord(ratio.value.tolist(), ratio.low.tolist(), ratio.high.tolist(), distances)


def sampling_record(
    truth: Truth, runs: Sequence[LongRun], repeats: Sequence[RunRecord], blind: RunRecord, *, seed: int
) -> SamplingRecord:
    """Put the sampled ratios beside the enumerated one."""
    exact = truth.compared.ratio()
    records = []
    for one in runs:
        ratio = one.weighted.ratio(seed=seed)
        records.append(_run_record(ratio, truth.distances(one.weighted)))
    return SamplingRecord(exact.value.tolist(), exact.reference, records, repeats, blind, truth.edges.tolist())


def naive_record(truth: Truth, sampler: Sampler, runs: Sequence[LongRun], temperature: float) -> NaiveRecord:
    """Distance to the enumeration without weights and with them, by the first draws of each run, more and more.

    Lengths at which some run has not converged are left out: it has no weights there.
    """
    whole = runs[0].samples[A].nll.shape[2]
    draws, naive, weighted = [], [], []
    for n in sorted({max(1, round(whole * share)) for share in _FIRST} | {whole}):
        found = []
        for run in runs:
            first = {k: _first(run.samples[k], n) for k in (A, B)} if n < whole else {}
            try:
                found.append(
                    [
                        truth.distances(sampler.compare(how(first), A, B)) if first else truth.distances(known)
                        for how, known in ((sampler.unweighted, run.naive), (sampler.weighted, run.weighted))
                    ]
                )
            except NotConverged:
                break
        if len(found) == len(runs):
            draws.append(n)
            naive.append([one for one, _ in found])
            weighted.append([one for _, one in found])
    return NaiveRecord(draws, naive, weighted, temperature)


def _first(samples: Samples, n: int) -> Samples:
    """The first draws of each chain."""
    return replace(
        samples, tokens=samples.tokens[:, :, :n], nll=samples.nll[:, :, :n], replica=samples.replica[:, :, :n]
    )


def biases(truth: Truth, temperature: float) -> list[BiasRecord]:
    """Distance to the truth of the law that draws without weights follow: Equation 4 in Z, at several temperatures."""
    z, compared = truth.compared.z, truth.compared
    # of each side's inputs in Z: their losses, and their bins of D
    of = {
        side: (own[within(own, z)], bin_of(one.difference, truth.edges))
        for side, own, one in zip(SIDES, truth.losses, (compared.a, compared.b), strict=True)
    }

    def distance(side: Side, t: float) -> float:
        own, place = of[side]
        return total_variation(_weights(place, np.exp((z[0] - own) / t), truth.edges), truth.rho[side])

    return [BiasRecord(t, distance("A", t), distance("B", t)) for t in sorted((*_TEMPERATURES, temperature))]


def naive_finding(naive: NaiveRecord, bias: Sequence[BiasRecord], z: Range) -> str:
    """Say what draws without weights miss at their own temperature, from the records."""
    exact = next(row for row in bias if row.temperature == naive.temperature)
    left = (exact.A + exact.B) / 2
    without, with_ = float(np.mean(naive.naive[-1])), naive.error
    factor = float(np.exp((z[1] - z[0]) / naive.temperature))
    tenfold = "; ".join(f"{naive.draws_for((row.A + row.B) / 20):,.0f} at $T = {row.temperature:.3g}$" for row in bias)
    return (
        f"At $T = {naive.temperature:g}$ the bias is {left:.4f}, the mean of both directions, however many draws are "
        f"made. The runs above came out {without:.4f} off without weights and {with_:.4f} off with them, after "
        f"{naive.draws[-1]:,} draws of each chain: {without / with_:.1f} times as far. Over this range $\\mathbb Z$ "
        f"the weight $e^{{-z/T}}$ varies by a factor of {factor:.1f} at most; the less it varies, the smaller is the "
        "bias. Since the weighted error falls with the root of the draws, it is a tenth of the bias after so many: "
        f"{tenfold}."
    )


def error_curves(naive: NaiveRecord, bias: Sequence[BiasRecord]) -> dict[str, pd.DataFrame]:
    """Mean distance to the truth by the number of draws, and the exact biases, which no number of draws removes."""
    draws = list(naive.draws)
    curves = {
        "with weights": np.mean(naive.weighted, axis=(1, 2)),
        f"without, T = {naive.temperature:.3g}": np.mean(naive.naive, axis=(1, 2)),
    }
    curves |= {
        f"bias, T = {row.temperature:.2g}": np.full(len(draws), (row.A + row.B) / 2)
        for row in bias
        if row.temperature < 0.2
    }
    return {name: pd.DataFrame({"x": draws, "y": values}) for name, values in curves.items()}


# Normalisation, range, oracle, three models -----------------------------------------------------------------


def worked_example() -> NDArray[np.float64]:
    """Terms of the example of Section 3.3, times four: 3:2:3:3."""

    def direction(side: Side, below: int, above: int, common: int) -> Direction:
        n = below + above
        difference = np.repeat([-1.0, 1.0], [below, above])
        return Direction(side, difference, np.ones(n), np.arange(n) < common, np.zeros(n, dtype=np.int64), n_chains=1)

    return 4 * Comparison(direction("A", 60, 40, 80), direction("B", 150, 150, 200), (2.0, 4.0)).terms()


def normalisation(truth: Truth, *, seed: int) -> NormalisationRecord:
    """Draw from the enumerated inputs of A a fifth as often as from B's, and compare with the enumeration."""
    rng = np.random.default_rng(seed)
    a, b, exact = truth.compared.a, truth.compared.b, truth.compared.terms()

    def thinned(whole: Direction, n: int) -> Direction:
        counts = rng.multinomial(n, whole.weight / whole.weight.sum()).astype(float)
        return Direction(whole.side, whole.difference, counts, whole.common, whole.chain, n_chains=1)

    uneven = Comparison(thinned(a, _UNEVEN[0]), thinned(b, _UNEVEN[1]), truth.compared.z)
    sums = [
        (one.weight[one.difference < 0].sum(), one.weight[one.difference > 0].sum()) for one in (uneven.a, uneven.b)
    ]
    terms = uneven.terms()
    return NormalisationRecord(
        worked_example().tolist(),
        [int(one.weight[one.common].sum()) for one in (a, b)],
        (exact / exact[0]).tolist(),
        (terms / terms[0]).tolist(),
        (np.concatenate(sums) / sums[0][0]).tolist(),
    )


def sweep(found: Enumeration, z: Range) -> list[RangeRecord]:
    """Return the enumerated ratio at other ranges: quantile rules, then the rule's range moved."""
    joint = found.joint(A, B)
    ranges: list[tuple[float | None, Range]] = []
    for tail in _TAILS:
        other = range_by_rule(found, [tail, 1 - tail])
        if other[0] < other[1] and other not in [one for _, one in ranges]:
            ranges.append((tail, other))
    ranges += [(None, (on_grid(z[0] + s * (z[1] - z[0])), on_grid(z[1] + s * (z[1] - z[0])))) for s in _SHIFTS]
    return [
        RangeRecord(tail, *other, from_enumeration(*joint.losses(), other, joint.count).ratio().value.tolist())
        for tail, other in ranges
    ]


def half_valid(found: Enumeration, z: Range) -> Range:
    """Return Z with its upper end moved to where half of A's inputs from its lower end on are valid.

    In Z nearly every input is valid, so that anything would give the right precision there.
    """
    joint = found.joint(A, B)
    edges, everything = joint.density("A")
    valid_edges, counts = joint.only(label=True).density("A")
    valid = np.zeros_like(everything)
    first = round((valid_edges[0] - edges[0]) / WIDTH)
    valid[first : first + len(counts)] = counts
    inside = edges[:-1] >= z[0] - WIDTH / 2
    share = np.cumsum(valid[inside]) / np.maximum(1, np.cumsum(everything[inside]))
    ends = np.flatnonzero(share >= 0.5)
    return z[0], max(z[1], on_grid(edges[1:][inside][ends[-1]]) if len(ends) else z[1])


def oracle_records(found: Enumeration, sampler: Sampler, run: LongRun, ranges: Sequence[Range]) -> list[OracleRecord]:
    """Precision and recall of each term by the rule that makes an input valid, from one run and by enumeration.

    Parameters
    ----------
    found
        Every input.
    sampler, run
        Who drew, and the draws.
    ranges
        Z, on the grid: the terms are asked for in each.
    """
    joint, head = found.joint(A, B), np.array(found.space.head, dtype=int)
    below, above = (-np.inf, 0.0), (0.0, np.inf)
    records = []
    for z in ranges:
        here = replace(sampler, z=z)
        sampled = here.compare(here.weighted({k: run.samples[k] for k in (A, B)}), A, B)
        everything, good = (
            from_enumeration(*joint.losses(), z, count)
            for count in (joint.count, np.where(joint.label, joint.count, 0))
        )
        for term, side, where in (
            ("PD_AB", "a", below),
            ("PA_AB", "a", above),
            ("PA_BA", "b", below),
            ("PD_BA", "b", above),
        ):
            drawn, known, valid = (getattr(one, side) for one in (sampled, everything, good))
            assert drawn.draws is not None
            free = drawn.draws.tokens
            scores = annotation.oracle(np.concatenate([np.tile(head, (len(free), 1)), free], axis=1), is_valid)
            reach = WIDTH * np.ceil(np.abs(drawn.difference).max() / WIDTH)
            weighted, plain = (
                annotation.agreement(one, [-reach, 0.0, reach], scores, where)
                for one in (drawn, replace(drawn, weight=np.ones(len(drawn.weight))))
            )
            in_all, in_valid = ((one.difference > where[0]) & (one.difference < where[1]) for one in (known, valid))
            n_good = valid.weight[in_valid].sum()
            records.append(
                OracleRecord(
                    term,
                    list(z),
                    weighted.precision,
                    weighted.recall,
                    exact_precision=float(n_good / known.weight[in_all].sum()),
                    exact_recall=float(n_good / valid.weight.sum()),
                    plain_precision=plain.precision,
                    plain_recall=plain.recall,
                )
            )
    return records


def through_reference(found: Enumeration, z: Range, runs: Sequence[LongRun]) -> list[ThroughReferenceRecord]:
    """Compare B and C through A, by enumeration and by each long run."""
    records = []
    for name, other, compared in (
        ("B through A", B, [one.weighted for one in runs]),
        ("C through A", C, [one.third for one in runs]),
    ):
        pair = found.joint(A, other)
        known = from_enumeration(*pair.losses(), z, pair.count)
        terms = [one.in_units_of_reference().tolist() for one in compared]
        records.append(ThroughReferenceRecord(name, known.in_units_of_reference().tolist(), terms))
    return records


def exact_record(ratio: Ratio) -> dict[str, NDArray[np.float64]]:
    """Return the enumerated ratio as it is kept."""
    return {"ratio": ratio.value, "terms": ratio.terms, "neither": ratio.neither}
