"""What the page on noisy copies measures: on which side two models disagree, and the p-values of the same pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm

from provlab.chapters.plagiarism.records import SidesRecord, SweepRecord, criterion_right, one_sided_losses
from provlab.kept import Kept
from provlab.modeldiff import pipeline
from provlab.modeldiff.comparison import Comparison
from provlab.modeldiff.held_out import Range
from provlab.modeldiff.pipeline import Generation, Model
from provlab.modeldiff.representative import Direction, Draws, Side, effective
from provlab.models import symmetry
from provlab.models.checkpoint import Checkpoint, register_scheme

_HALF_WIDTH = 0.1  # of a range of loss; narrow, since the number of inputs rises steeply with the loss
_LOSSES = np.linspace(0.02, 0.98, 13)  # quantiles of the losses drawn, in the middle of the ranges
_SCHEME = "noisy"
_SIDES: tuple[Side, Side] = ("A", "B")
LEAST_EFFECTIVE = 30.0  # equal draws that those of a range are worth; ranges with fewer are left out


@dataclass(frozen=True)
class Suspect:
    """A model compared with the base: its source, and its kind (noise, tune or stranger)."""

    source: str
    kind: str


def suspects(
    base: Checkpoint,
    folder: Path,
    noises: Sequence[float],
    n_copies: int,
    tune: str,
    others: Sequence[str],
    *,
    seed: int,
) -> dict[str, Suspect]:
    """Noisy copies of a base, made when they are opened, a fine-tune of it unless that is empty, and strangers.

    Parameters
    ----------
    base
        What is copied.
    folder
        Where copies are kept.
    noises
        Standard deviations of the Gaussian noise on every weight, `n_copies` of each.
    tune, others
        Sources.
    seed
        Of the noise.
    """

    def noisy_copy(name: str) -> Path:
        """Folder of a copy; `name` is its standard deviation and a number."""
        sd, number = float(name.partition("/")[0]), int(name.partition("/")[2])
        copy = folder / f"{base.digest[:16]}-{sd:g}-{seed}-{number}"
        if not copy.is_dir():
            generator = torch.Generator().manual_seed(1000 * seed + number)
            weights = {
                tensor: base.tensor(tensor) + sd * torch.randn(base.shape(tensor), generator=generator)
                for tensor in base.tensor_names
            }
            symmetry.save(weights, base, copy)
        return copy

    register_scheme(_SCHEME, noisy_copy)
    made = {
        f"noise {sd:g}, {k + 1}": Suspect(f"{_SCHEME}:{sd:g}/{k}", "noise") for sd in noises for k in range(n_copies)
    }
    made |= {f"fine-tune {tune.rpartition(':')[2]}": Suspect(tune, "tune")} if tune else {}
    return made | {f"stranger {one.rpartition(':')[2]}": Suspect(one, "stranger") for one in others}


def one_of_each(found: Mapping[str, Suspect]) -> dict[str, Suspect]:
    """Suspects without further copies of the same noise."""
    return {name: one for name, one in found.items() if one.kind != "noise" or name.endswith(", 1")}


def compare_all(
    base: Model, models: Mapping[str, Model], z: Range, settings: Generation, kept: Kept
) -> dict[str, Comparison]:
    """Compare the base with each suspect, by name.

    Each suspect draws with a seed of its own: two nearly equal models that share their random numbers would write
    nearly equal texts.
    """
    drawn = pipeline.generated(base, settings, kept)
    compared = {}
    for k, (name, suspect) in enumerate(models.items()):
        own = Generation(settings.n, settings.length, n_chains=settings.n_chains, seed=settings.seed + 1 + k)
        theirs = pipeline.generated(suspect, own, kept)
        compared[name] = Comparison(
            pipeline.judged_inputs(drawn, "A", z, suspect, kept), pipeline.judged_inputs(theirs, "B", z, base, kept), z
        )
    return compared


def sides(compared: Mapping[str, Comparison], found: Mapping[str, Suspect], *, seed: int) -> list[SidesRecord]:
    """Summaries of the comparisons, as they are kept."""
    return [
        SidesRecord(**vars(one.summary(seed=seed)), pair=name, kind=found[name].kind) for name, one in compared.items()
    ]


def sides_table(records: Sequence[SidesRecord], compared: Mapping[str, Comparison]) -> pd.DataFrame:
    """Shares of inputs with D < 0, and how large D is."""
    rows = []
    for row in records:
        one = compared[row.pair]
        value, low, high = row.below_a
        other, other_low, other_high = row.below_b
        rows.append(
            {
                "suspect": row.pair,
                "base's inputs with D < 0": f"{value:.0%} ({low:.0%} to {high:.0%})",
                "suspect's inputs with D < 0": f"{other:.0%} ({other_low:.0%} to {other_high:.0%})",
                "median of D, base's inputs": f"{float(one.a.quantile(0.5)):+.1e}",
                "suspect's inputs": f"{float(one.b.quantile(0.5)):+.1e}",
                "spread of D": f"{float(np.ptp(one.a.quantile([0.16, 0.84]))) / 2:.1e}",
            }
        )
    return pd.DataFrame(rows)


def sides_finding(records: Sequence[SidesRecord]) -> str:
    """Say which suspects look one-sided, from the records."""
    one_sided = [row.pair for row in records if row.below_a[1] > 0.5 and row.below_b[1] > 0.5]
    mirrored = [row.pair for row in records if row.below_a[1] > 0.5 and row.below_b[2] < 0.5]
    open_ = [row.pair for row in records if row.pair not in one_sided + mirrored]
    return (
        f"One-sided beyond the intervals (most inputs of both with D < 0): {', '.join(one_sided) or 'none'}. "
        f"Two-sided beyond them (the base's inputs mostly below zero, the suspect's mostly above): "
        f"{', '.join(mirrored) or 'none'}. Neither: {', '.join(open_) or 'none'}."
    )


def sweep(
    base: Model,
    models: Mapping[str, Model],
    found: Mapping[str, Suspect],
    settings: Generation,
    kept: Kept,
    *,
    seed: int,
) -> list[SweepRecord]:
    """Compare the base with each suspect loss by loss, by draws at several tempers; losses with few are left out.

    Every model draws with a seed of its own.
    """
    drawn = pipeline.generated(base, settings, kept)
    losses = np.quantile(drawn.nll, _LOSSES)
    records = []
    for k, (name, suspect) in enumerate(models.items()):
        theirs = pipeline.generated(suspect, replace(settings, seed=settings.seed + 1 + k), kept)
        for loss in losses:
            z = (loss - _HALF_WIDTH, loss + _HALF_WIDTH)
            some = [draws.within(z) for draws in (drawn, theirs)]
            if min(_worth(one) for one in some) < LEAST_EFFECTIVE:
                continue
            a, b = (
                Direction.from_draws(one, pipeline.judged(judge, one.tokens, kept), side, z)
                for one, judge, side in zip(some, (suspect, base), _SIDES, strict=True)
            )
            mean, variance, slope = shift(a, loss)
            records.append(
                SweepRecord(
                    name,
                    found[name].kind,
                    float(loss),
                    a.share_below(seed=seed),
                    b.share_below(seed=seed),
                    mean,
                    variance,
                    slope,
                    float(norm.cdf((mean - slope * variance) / variance**0.5)) if variance else 0.0,
                )
            )
    return records


def _worth(draws: Draws) -> float:
    return effective(np.exp(draws.log_weight - draws.log_weight.max())) if len(draws) else 0.0


def shift(direction: Direction, loss: float) -> tuple[float, float, float]:
    """Mean and variance of NLL_B - NLL_A over A's inputs at a loss, and the slope of the log of their number.

    The slope is from the two halves of the range: if the number grows as exp(s z), they differ by exp(s h), h the width
    of one.
    """
    assert direction.draws is not None
    rise = -direction.difference
    mean = float(np.average(rise, weights=direction.weight))
    variance = float(np.average((rise - mean) ** 2, weights=direction.weight))
    upper = direction.draws.nll > loss
    slope = np.log(direction.weight[upper].sum() / direction.weight[~upper].sum()) / _HALF_WIDTH
    return mean, variance, float(slope)


def sweep_table(records: Sequence[SweepRecord]) -> pd.DataFrame:
    """How many suspects of each kind lie on one side, loss by loss."""
    groups = dict.fromkeys(row.group for row in records)
    rows = []
    for loss in sorted({row.loss for row in records}):
        here = [row for row in records if row.loss == loss]
        cells = {}
        for group in groups:
            sides_ = [row.side for row in here if row.group == group]
            cells[group] = f"{sides_.count(1)} below, {sides_.count(-1)} above, of {len(sides_)}" if sides_ else ""
        rows.append({"loss": f"{loss:.2f}", "slope s": f"{np.mean([row.slope for row in here]):.0f}", **cells})
    return pd.DataFrame(rows)


def sweep_curves(records: Sequence[SweepRecord], pair: str) -> dict[str, pd.DataFrame]:
    """Share of inputs with D < 0 by loss for one suspect: of either model, and of the suspect as predicted."""
    rows = [row for row in records if row.pair == pair]

    def frame(shares: Sequence[Sequence[float]]) -> pd.DataFrame:
        columns = dict(zip(("y", "low", "high"), np.array(shares).T, strict=True))
        return pd.DataFrame({"x": [row.loss for row in rows], **columns})

    return {
        "base's inputs": frame([row.below_a for row in rows]),
        "suspect's inputs": frame([row.below_b for row in rows]),
        "suspect's, predicted": frame([[row.predicted_b] * 3 for row in rows]),
    }


def sweep_finding(records: Sequence[SweepRecord]) -> str:
    """Say where the copies lie on one side and other pairs do not, and how well mu > s v says so; from the records."""
    words = []
    for group in dict.fromkeys(row.group for row in records if row.kind == "noise"):
        sides_ = [row.side for row in records if row.group == group]
        whole = ", ".join(f"{loss:.1f}" for loss in one_sided_losses(records, group)) or "none"
        words.append(
            f"{group}: both models' inputs lie mostly below zero, beyond their intervals, in {sides_.count(1)} of "
            f"{len(sides_)} cases (one copy at one loss) and mostly above it in {sides_.count(-1)}; losses at which "
            f"every copy lies below it, and no other pair: {whole}."
        )
    right, sure = criterion_right(records)
    off = float(np.median([abs(row.predicted_b - row.below_b[0]) for row in records])) if records else 0.0
    return (
        " ".join(words) + f" Of the {sure} cases in which the side of the suspect's inputs is beyond its interval, "
        f"$\\mu > s\\,v$ says the right one in {right}; the share that it gives is {off:.3f} off in the median."
    )


def p_values(
    frame: pd.DataFrame, base: str, found: Mapping[str, Suspect], statistics: Sequence[str]
) -> dict[str, list[float]]:
    """log10 p of the base and each suspect by statistic, NaN where a pair could not be compared."""
    values: dict[str, list[float]] = {}
    for statistic in statistics:
        rows = frame[(frame["statistic"] == statistic) & frame["error"].isna()]
        by_pair = {frozenset((row.a, row.b)): float(row.log10_p) for row in rows.itertuples()}
        values[statistic] = [by_pair.get(frozenset((base, one.source)), float("nan")) for one in found.values()]
    return values
