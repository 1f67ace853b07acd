"""Steps of the page on the toy that the library has no use for: a grid of losses, ranges, draws without weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from provlab.kept import ArrayCache
from provlab.modeldiff import pipeline
from provlab.modeldiff.comparison import TERMS, BothDirections, total_variation
from provlab.modeldiff.diagnostics import NotConverged, converged
from provlab.modeldiff.pipeline import SequenceModel
from provlab.modeldiff.report import ratio_text
from provlab.modeldiff.representative import Direction, Draws, within
from provlab.modeldiff.sampler import Samples
from provlab.zoo.toy import DIGITS, LENGTH, MODULUS, is_valid
from provlab_study.publishing.published import published_table, scalar

WIDTH = 0.01  # of a bin of NLL (nats per token); ranges begin and end at multiples of it
TAILS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)  # quantile rules for Z
SHIFTS = (-0.2, -0.1, 0.1, 0.2)  # of the rule's range, in its widths
_BINS = 24  # of D, over all but the last thousandths
_APART = 10**16  # between the seeds of stretches: more than any seed of a page in any draw
Range = tuple[float, float]
T = TypeVar("T")


def on_grid(bound: float) -> float:
    """Round a bound (nats) to the grid."""
    return round(round(bound / WIDTH) * WIDTH, 10)


def range_by_rule(nll: NDArray[np.floating[Any]], shares: Sequence[float]) -> Range:
    """Return Z: two quantiles of the losses of valid inputs, rounded up to the grid."""
    low, high = np.quantile(nll, shares, method="inverted_cdf")
    return tuple(on_grid((np.floor(float(end) / WIDTH) + 1) * WIDTH) for end in (low, high))  # type: ignore[return-value]


def other_ranges(nll: NDArray[np.floating[Any]], z: Range) -> list[tuple[float | None, Range]]:
    """Quantile rules, each once, and the rule's range moved (None): the share left out at either end, and the range."""
    ranges: list[tuple[float | None, Range]] = []
    for tail in TAILS:
        other = range_by_rule(nll, [tail, 1 - tail])
        if other[0] < other[1] and other not in [known for _, known in ranges]:
            ranges.append((tail, other))
    width = z[1] - z[0]
    return ranges + [(None, (on_grid(z[0] + s * width), on_grid(z[1] + s * width))) for s in SHIFTS]


def valid_at(draws: Draws, temperature: float) -> float:
    """Probability that a sequence drawn by Equation 4 at a temperature is valid, from weighted draws of the model."""
    log_weight = draws.log_weight - draws.nll / temperature
    return float(np.average(is_valid(draws.tokens), weights=np.exp(log_weight - log_weight.max())))


def bins_of_difference(exact: BothDirections) -> NDArray[np.float64]:
    """Edges of bins of D over nearly all inputs of both models; 0 is an edge."""
    span = np.array([side.quantile([0.001, 0.999]) for side in (exact.a, exact.b)])
    width = (span.max() - span.min()) / _BINS
    return np.arange(np.floor(span.min() / width), np.ceil(span.max() / width) + 1) * width


def distances(compared: BothDirections, rho: Sequence[NDArray[np.float64]], edges: NDArray[np.float64]) -> list[float]:
    """Total variation distance of a comparison's rho(D) to the given ones ``(k,)``, for A's inputs and for B's."""
    return [
        total_variation(np.histogram(side.difference, edges, weights=side.weight)[0], exact)
        for side, exact in zip((compared.a, compared.b), rho, strict=True)
    ]


def by_loss(compared: BothDirections) -> BothDirections:
    """The same inputs with their own loss in the place of D: its rho is rho(z), which Figure 7 shows."""
    a, b = (replace(side, difference=side.draws.nll) if side.draws else side for side in (compared.a, compared.b))
    return BothDirections(a, b, compared.z)


def until_converged(run: Callable[..., Samples], n_steps: int, *, seed: int, doublings: int) -> Samples:
    """Let a run of the sampler go on from where it ended, twice as long each time, until its chains have converged.

    What it drew before is left out. A run that has not converged after the last doubling comes back as it is. The
    stretch that comes back was chosen by its convergence: what chains visit rarely and leave slowly counts too little
    in it, though more than where runs that do not converge are thrown away.

    Parameters
    ----------
    run
        `replica_exchange` for a model, all but the steps, the seed and the sequences that chains begin with.
    n_steps
        Steps of the first stretch.
    seed
        Of the first stretch; each further one draws numbers of its own.
    doublings
        How often it goes on, at most.
    """
    samples = run(n_steps=n_steps, seed=seed)
    for stretch in range(1, doublings + 1):
        if converged(samples).ok:
            break
        last = samples.tokens[:, :, -1].reshape(-1, samples.length)  # (temperature * chain, length)
        samples = run(n_steps=2**stretch * n_steps, seed=seed + stretch * _APART, start=last)
    return samples


def repeated(run: Callable[[int], T], n: int, *, least: int = 0) -> tuple[list[T], int]:
    """Results of the first `n` runs that converge among `2 * n`, numbered from 0 on, and how many did not.

    Where more do not converge, fewer than `n` results come back: that is a finding on the models, and no reason to lose
    what else was measured.

    Raises
    ------
    NotConverged
        Fewer than `least` converge; the message is that of the last one that did not.
    """
    results: list[T] = []
    refused: list[NotConverged] = []
    for number in range(2 * n):
        try:
            results.append(run(number))
        except NotConverged as error:
            refused.append(error)
        if len(results) == n:
            break
    if len(results) < least:
        raise refused[-1]
    return results, len(refused)


def covered(repeats: Sequence[Mapping[str, Any]], exact: Any) -> list[str]:
    """In which share of repeats the interval of each term holds the exact value, in words; nothing where none is."""
    held = [(np.array(row["low"]) <= exact) & (exact <= np.array(row["high"])) for row in repeats]
    return [f"{share:.0%}" for share in np.mean(held, axis=0)] if held else [""] * len(TERMS)


def unweighted(samples: Samples, z: Range) -> Draws:
    """The coldest draws in Z, taken as they come: generation by Monte Carlo."""
    nll, tokens = samples.nll[-1], samples.tokens[-1]  # (chain, draw) and (chain, draw, length)
    chain, place = np.nonzero(within(nll, z))
    even = np.zeros(len(chain))
    return Draws(tokens[chain, place], nll[chain, place], even, chain, samples.n_chains, counted=False)


def first_draws(samples: Samples, share: float) -> Samples:
    """The first draws of each chain, such a share of all and one at least."""
    some = np.s_[:, :, : max(1, round(share * samples.nll.shape[2]))]
    return replace(samples, tokens=samples.tokens[some], nll=samples.nll[some], replica=samples.replica[some])


def extents(names: Sequence[str], *differences: NDArray[np.float64]) -> pd.DataFrame:
    """Least and largest D of each model's inputs, published and ours."""
    rows = []
    for line, name, d in zip(published_table("modeldiff_table2"), names, differences, strict=False):
        rows.append(
            {
                "inputs of": line["representative_inputs"],
                "least D, published": line["D_min"],
                "largest D, published": line["D_max"],
                "our model": name,
                "least D, ours": d.min(),
                "largest D, ours": d.max(),
                "inputs in Z, ours": len(d),
            }
        )
    return pd.DataFrame(rows)


def generations_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Shares of valid sequences, beside the published one."""
    return pd.DataFrame(
        {
            "model": row["model"],
            "sequences": row["n"],
            "valid": f"{row['valid'] / row['n']:.2%}",
            f"valid at T = {row['temperature']:g}": f"{row['papers']:.3%}",
            "published": scalar("generated sequences that satisfy the objective", "modeldiff_scalars"),
        }
        for row in rows
    )


def n_valid() -> int:
    """How many valid sequences there are, of all: digits that add up to a multiple of the modulus."""
    sums = np.ones(1, dtype=np.int64)  # sequences by their sum
    for _ in range(LENGTH):
        sums = np.convolve(sums, np.ones(DIGITS, dtype=np.int64))
    return int(sums[::MODULUS].sum())


def surely_valid(
    models: Sequence[SequenceModel], written: Sequence[Draws], kept: ArrayCache, shares: Sequence[float], *, seed: int
) -> pd.DataFrame:
    """Compare two models that write hardly anything but valid sequences, by what they wrote.

    Z runs between two quantiles of the loss of A's valid sequences. What draws say of the number of valid inputs stands
    beside the known one, `n_valid`.

    Parameters
    ----------
    models, written
        A and B, and the draws of each.
    kept
        Where losses are kept.
    shares
        The two quantiles.
    seed
        Of the bootstrap over chains.
    """
    of_a = written[0]
    low, high = np.quantile(of_a.nll[is_valid(of_a.tokens)], shares)
    z = (float(low), float(np.nextafter(max(high, low), np.inf)))
    (a, b), (of_a, of_b) = models, (draws.within(z) for draws in written)
    sides = (
        Direction.from_draws(of_a, pipeline.judged(b, of_a.tokens, kept), "A", z),
        Direction.from_draws(of_b, pipeline.judged(a, of_b.tokens, kept), "B", z),
    )
    compared = BothDirections(sides[0], sides[1], z)
    found = compared.summary(seed=seed)
    rows = []
    for model, draws, side, extent, log10 in zip(
        models, written, sides, (found.extent_a, found.extent_b), found.log10_inputs, strict=True
    ):
        valid = is_valid(draws.tokens)
        number = float(np.exp(draws.log_weight[valid]).sum())
        rows.append(
            {
                "inputs of": model.name,
                "valid": f"{valid.mean():.3%}",
                "valid inputs, by its draws": f"{number:,.0f}",
                "NLL, Z": f"{z[0]:.4f} to {z[1]:.4f}",
                "inputs in Z": "none" if log10 is None else f"{10**log10:,.0f}",
                "D, 1% to 99%": " to ".join("unknown" if end is None else f"{end:+.4f}" for end in extent),
                "in R3": f"{side.common_share:.1%}",
            }
        )
    table = pd.DataFrame(rows)
    table["ratio by numbers of inputs"] = [ratio_text(found.by_count), ""]
    return table


def convergence(runs: Sequence[Sequence[Samples]], names: Sequence[str]) -> pd.DataFrame:
    """How well the chains of each run mixed, one row a model."""
    rows = []
    for i, chains in enumerate(runs):
        for name, samples in zip(names, chains, strict=True):
            gate = converged(samples)
            rows.append(
                {
                    "run": i + 1,
                    "model": name,
                    "draws of a chain": samples.nll.shape[2],
                    "largest R-hat": gate.rhat.max(),
                    "fewest effective draws": gate.ess.min(),
                    "lowest swap rate": samples.swap_rate.min(),
                    "round trips a chain": samples.round_trips.mean(),
                    "gate": str(gate),
                }
            )
    return pd.DataFrame(rows)


def published_ratios() -> dict[str, list[str]]:
    """The paper's ratios, term by term."""
    quantities = {"enumerated": "enumerated ratio PD_AB:PA_AB:PA_BA:PD_BA", "sampled": "sampled ratio"}
    return {f"published, {word}": scalar(name, "modeldiff_scalars").split(":") for word, name in quantities.items()}


def precision_recall(direction: Direction, good: NDArray[np.bool_], *, below: bool) -> tuple[float, float]:
    """Precision and recall of the inputs with D < 0, or of the others, for an oracle's scores (Equations 8 and 9).

    Returns
    -------
    tuple
        The share of good inputs among those, and the share of these among the model's good inputs: proportional to
        Equation 9, whose denominator is the constant number of good inputs in X.
    """
    inside = (direction.difference < 0) == below
    hits = direction.weight[inside & good].sum()
    return float(hits / direction.weight[inside].sum()), float(hits / direction.weight[good].sum())


def oracle_rows(
    drawn: Direction, good: NDArray[np.bool_], every: Direction, every_good: NDArray[np.bool_], z: Range
) -> list[dict[str, Any]]:
    """Precision and recall of both terms of a side: of its draws, of all its inputs, of its draws without weights."""
    plain = replace(drawn, weight=np.ones(len(good)))
    rows = []
    for term, below in (
        (("PD_AB", True), ("PA_AB", False)) if drawn.side == "A" else (("PA_BA", True), ("PD_BA", False))
    ):
        row: dict[str, Any] = {"term": term, "z": list(z)}
        for prefix, side, scores in (("", drawn, good), ("exact_", every, every_good), ("plain_", plain, good)):
            row[f"{prefix}precision"], row[f"{prefix}recall"] = precision_recall(side, scores, below=below)
        rows.append(row)
    return rows
