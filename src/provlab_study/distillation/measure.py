"""MLPs without gates, distilled into GLU MLPs and compared by phi_MATCH: size and power over pairs (Appendix H.3)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from tqdm import tqdm

from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.plots.numbers import format_log10_p
from provlab_study.distillation.ridges import stretched
from provlab_study.shared.calibration import size_interval
from provlab_study.shared.groups import Groups
from provlab_study.shared.retraining import Retrained
from provlab_study.shared.students import Settings, Student, distill

LEVEL = 0.05  # at which size and power are reported


def students(
    models: Mapping[str, Retrained], settings: Settings, *, factor: float, seeds: Mapping[str, int], device: str = "cpu"
) -> dict[str, Student]:
    """Distil the first MLP of each model, or read the students kept from before.

    Parameters
    ----------
    models
        By source.
    settings
        The settings of all students but for the seed.
    factor
        Standard deviation of the Gaussian inputs.
    seeds
        The seeds of each source's student: first weights and inputs.
    """
    return {
        source: distill(
            stretched(model.mlp(0), factor), replace(settings, seed=seeds[source]), device=device, progress=False
        )
        for source, model in tqdm(models.items(), desc=f"students, inputs x {factor:g}", leave=False)
    }


# Size and power ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distilled(Groups):
    """log10 p that a way of distilling and comparing gives, and how good its students are.

    Attributes
    ----------
    relative
        Mean relative error of the students.
    cosine
        Mean over students of the absolute cosine between gate and up rows.
    width_factor
        Hidden units of the students for each one of their teachers'.
    """

    relative: float
    cosine: float
    width_factor: float


def distilled(groups: Groups, made: Iterable[Student], width_factor: float) -> Distilled:
    """Put p-values and the quality of the students that they are of together."""
    errors, cosines = zip(*((student.relative, student.gate_up_cosine()) for student in made), strict=True)
    return Distilled(
        groups.independent, groups.dependent, float(np.mean(errors)), float(np.mean(cosines)), width_factor
    )


@dataclass(frozen=True)
class SizeAndPower:
    """How a test does on pairs whose truth is known.

    Attributes
    ----------
    size, low, high
        Share of the independent pairs with p up to `level`, and the exact interval (Clopper-Pearson).
    power, power_low, power_high
        The same of the dependent pairs.
    smallest
        log10 p of the independent pair that looks most related.
    beyond
        Share of the dependent pairs below it: what is found at a threshold that accuses none of these strangers.
    level
        As asked.
    """

    size: float
    low: float
    high: float
    power: float
    power_low: float
    power_high: float
    smallest: float
    beyond: float
    level: float


def size_and_power(groups: Groups, *, level: float = LEVEL) -> SizeAndPower:
    """Judge a test by its log10 p on independent and on dependent pairs.

    The intervals take pairs for separate experiments, which pairs that share a model are not: they are too narrow
    rather than too wide.

    Raises
    ------
    InputError
        A group is empty or holds a NaN.
    """
    strangers, kin = np.array(groups.independent, dtype=float), np.array(groups.dependent, dtype=float)
    for name, values in (("independent", strangers), ("dependent", kin)):
        if not values.size or np.isnan(values).any():
            raise InputError(f"{name} must hold at least one log10 p, and no NaN")
    below = [int((values <= math.log10(level)).sum()) for values in (strangers, kin)]
    low, high = size_interval(below[0], strangers.size)
    power_low, power_high = size_interval(below[1], kin.size)
    return SizeAndPower(
        size=below[0] / strangers.size,
        low=low,
        high=high,
        power=below[1] / kin.size,
        power_low=power_low,
        power_high=power_high,
        smallest=float(strangers.min()),
        beyond=float((kin < strangers.min()).mean()),
        level=level,
    )


def n_called(log10_p: ArrayLike, level: float) -> int:
    """Count the pairs that Holm's procedure over them all calls dependent."""
    return int((pvalues.holm(np.asarray(log10_p, dtype=float)) <= math.log10(level)).sum())


def surviving(
    frame: pd.DataFrame, statistics: Sequence[str], base: str, columns: Mapping[str, str], bases: Sequence[str]
) -> tuple[list[list[str]], list[list[bool]]]:
    """Return what each statistic gives for a base and each disguise of its fine-tune, and whether it is found.

    A p-value is found at 0.01, corrected for the number of disguises; the outer score, above every pair of bases.
    """
    texts, survives = [], []
    for statistic in statistics:
        rows = frame[frame["statistic"] == statistic]
        scored = statistic == "phi_views_outer"
        cells = rows[rows["a"] == base].set_index("b")["value" if scored else "log10_p"]
        values = [float(cells[other]) for other in columns.values()]
        most = rows.loc[rows["b"].isin(bases), "value"].max()
        texts.append([f"{value:.2f}" if scored else format_log10_p(value) for value in values])
        survives.append([bool(v > most if scored else v <= -2 - math.log10(len(values))) for v in values])
    return texts, survives
