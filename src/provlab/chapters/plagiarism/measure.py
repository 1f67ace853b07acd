"""What the page on noisy copies measures: on which side two models disagree, and the p-values of the same pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from provlab.chapters.plagiarism.records import SidesRecord, SweepRecord
from provlab.kept import Kept
from provlab.modeldiff import pipeline
from provlab.modeldiff.comparison import Comparison
from provlab.modeldiff.held_out import Range
from provlab.modeldiff.pipeline import Generation, Model
from provlab.modeldiff.representative import Side
from provlab.models import symmetry
from provlab.models.checkpoint import Checkpoint, register_scheme

_HALF_WIDTH = 0.1  # of a range of loss; narrow, since the number of inputs rises steeply with the loss
_LOSSES = np.linspace(0.04, 0.96, 10)  # quantiles of the losses drawn, in the middle of the ranges
_SCHEME = "noisy"


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
    base: Model, models: Mapping[str, Model], settings: Generation, kept: Kept, *, seed: int
) -> list[SweepRecord]:
    """Share of the inputs at each loss with D < 0, of the base and of each suspect, by hotter draws."""
    records = []
    for name, suspect in models.items():
        sides_: tuple[tuple[str, Side, Model, Model, int], ...] = (
            ("base", "A", base, suspect, 0),
            ("suspect", "B", suspect, base, 1),
        )
        for whose, side, drawer, judge, shift in sides_:
            hot = Generation(settings.n, settings.length, settings.tempers, settings.n_chains, settings.seed + shift)
            drawn = pipeline.generated(drawer, hot, kept)
            points = []
            for middle in np.quantile(drawn.nll, _LOSSES):
                z = (middle - _HALF_WIDTH, middle + _HALF_WIDTH)
                found = pipeline.judged_inputs(drawn, side, z, judge, kept)
                points.append((float(middle), *found.share_below(seed=seed)))
            records.append(SweepRecord(name, whose, *map(list, zip(*points, strict=True))))
    return records


def sweep_finding(records: Sequence[SweepRecord]) -> str:
    """Name the losses at which the disagreement is one-sided, from the records."""
    names = dict.fromkeys(row.pair for row in records)
    by = {(row.pair, row.whose): row for row in records}
    found = [
        f"{name} near {x:.1f}"
        for name in names
        for x, ours, theirs in zip(by[name, "base"].x, by[name, "base"].low, by[name, "suspect"].low, strict=True)
        if ours > 0.5 and theirs > 0.5
    ]
    looked = sum(len(by[name, "base"].x) for name in names)
    return (
        "Losses at which both shares lie above one half beyond their 95% intervals, each taken alone: "
        f"{', '.join(found) or 'none'}, of {looked} looked at."
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
