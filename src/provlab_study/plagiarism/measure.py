"""Steps of the page on noisy copies: suspects, the shift of losses at one loss, and findings from the records."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm

from provlab.files import digest
from provlab.modeldiff.representative import Direction
from provlab.reading import symmetry
from provlab.reading.checkpoint import Checkpoint, register_scheme
from provlab.report.lineage import short_names
from provlab_study.plagiarism.predicates import Sweep, criterion_right, one_sided_losses

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
        The model that is copied.
    folder
        Where copies are kept.
    noises
        Standard deviations of the Gaussian noise on every weight, `n_copies` of each.
    tune, others
        Sources.
    seed
        The seed of the noise.
    """

    def noisy_copy(name: str) -> Path:
        """Folder of a copy; `name` is its standard deviation and a number."""
        sd, number = float(name.partition("/")[0]), int(name.partition("/")[2])
        copy = folder / f"{base.digest[:16]}-noise-{sd:g}-{seed}-{number}"
        if not copy.is_dir():
            # of a seed of its own: with one for both, two standard deviations would be one direction scaled
            generator = torch.Generator().manual_seed(int(digest([sd, seed, number])[:15], 16))
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
    names = short_names([*filter(None, [tune]), *others])
    made |= {f"fine-tune {names[tune]}": Suspect(tune, "tune")} if tune else {}
    return made | {f"stranger {names[source]}": Suspect(source, "stranger") for source in others}


def shift(direction: Direction, loss: float, half_width: float) -> tuple[float, float, float]:
    """Mean and variance of NLL_B - NLL_A over A's inputs at a loss, and the slope of the log of their number.

    The slope is from the two halves of the range, each `half_width` wide: if the number grows as exp(s z), they differ
    by exp(s h), h the width of one.
    """
    assert direction.draws is not None
    rise = -direction.difference
    mean = float(np.average(rise, weights=direction.weight))
    variance = float(np.average((rise - mean) ** 2, weights=direction.weight))
    upper = direction.draws.nll > loss
    slope = np.log(direction.weight[upper].sum() / direction.weight[~upper].sum()) / half_width
    return mean, variance, float(slope)


def predicted_share(mean: float, variance: float, slope: float) -> float:
    """Share of B's inputs with D < 0 if NLL_B - NLL_A is normal there, of mean mu - s v and variance v."""
    return float(norm.cdf((mean - slope * variance) / variance**0.5)) if variance else 0.0


def sweep_table(rows: Sequence[Sweep]) -> pd.DataFrame:
    """How many suspects of each kind lie on one side, loss by loss."""
    lines = []
    for loss in sorted({row.loss for row in rows}):
        here = [row for row in rows if row.loss == loss]
        cells = {"loss": f"{loss:.2f}", "slope s": f"{np.mean([row.slope for row in here]):.0f}"}
        for group in dict.fromkeys(row.group for row in rows):
            sides = [row.side for row in here if row.group == group]
            cells[group] = f"{sides.count(1)} below, {sides.count(-1)} above, of {len(sides)}" if sides else ""
        lines.append(cells)
    return pd.DataFrame(lines)


def sweep_finding(rows: Sequence[Sweep]) -> str:
    """Say where the copies lie on one side and other pairs do not, and how well mu > s v says so; from the records."""
    words = []
    for group in dict.fromkeys(row.group for row in rows if row.kind == "noise"):
        sides = [row.side for row in rows if row.group == group]
        whole = ", ".join(f"{loss:.1f}" for loss in one_sided_losses(rows, group)) or "none"
        words.append(
            f"{group}: both models' inputs lie mostly below zero, beyond their intervals, in {sides.count(1)} of "
            f"{len(sides)} cases (one copy at one loss) and mostly above it in {sides.count(-1)}; losses at which "
            f"every copy lies below it, and no other pair: {whole}."
        )
    right, sure = criterion_right(rows)
    off = float(np.median([abs(row.predicted_b - row.below_b[0]) for row in rows])) if rows else 0.0
    return (
        " ".join(words) + f" Of the {sure} cases in which the side of the suspect's inputs is beyond its interval, "
        f"$\\mu > s\\,v$ says the right one in {right}; the share that it gives is {off:.3f} off in the median."
    )


def p_values(
    frame: pd.DataFrame, base: str, sources: Sequence[str], statistics: Sequence[str]
) -> dict[str, list[float]]:
    """log10 p of the base and each suspect by statistic, NaN where a pair could not be compared."""
    rows = frame[frame["error"].isna()].itertuples()
    known = {(row.statistic, frozenset((row.a, row.b))): float(row.log10_p) for row in rows}
    return {
        statistic: [known.get((statistic, frozenset((base, source))), float("nan")) for source in sources]
        for statistic in statistics
    }
