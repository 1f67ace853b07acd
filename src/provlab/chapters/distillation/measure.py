"""MLPs without gates, distilled into GLU MLPs and compared by phi_MATCH: size and power over pairs (Appendix H.3)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from provlab.chapters.distillation.ridges import Stretched, without_gate_direction
from provlab.chapters.shared.calibration import size_interval
from provlab.chapters.shared.retraining import Retrained, as_views, compare
from provlab.chapters.shared.students import Settings, Student, distill
from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.statistics.base import Options
from provlab.statistics.phi_match import Views

Pair = tuple[str, str]


def students(
    models: Mapping[str, Retrained], settings: Settings, *, factor: float, seeds: Mapping[str, int], device: str = "cpu"
) -> dict[str, Student]:
    """Distil the first MLP of each model, or read the students kept from before.

    Parameters
    ----------
    models
        By source.
    settings
        Of all students but for the seed.
    factor
        Standard deviation of the Gaussian inputs.
    seeds
        Of each source's student: first weights and inputs.
    """
    made = {}
    for source, model in tqdm(models.items(), desc=f"students, inputs x {factor:g}", leave=False):
        teacher = Stretched(model.mlp(0), factor)
        made[source] = distill(teacher, replace(settings, seed=seeds[source]), device=device, progress=False)
    return made


def seen(model: Retrained, student: Student) -> Views:
    """Gate and up activations of a student on what enters the first MLP of its model."""
    return model.views(0, student)


def seen_apart(model: Retrained, student: Student) -> Views:
    """As `seen`, but of each up row only what is not along its own gate row."""
    gate, _ = student.activations(model.inputs[0])
    return as_views((gate, without_gate_direction(student).numpy() @ model.inputs[0].T), model.tokens)


def log10_p(
    views: Mapping[str, Views], pairs: Sequence[Pair], options: Options, *, statistic: str = "phi_match"
) -> NDArray[np.float64]:
    """Return phi_MATCH of each pair, ``(pairs,)``."""
    found = [
        compare(views[a], views[b], 0, options, (statistic,))[statistic].log10_p
        for a, b in tqdm(pairs, desc=statistic, leave=False)
    ]
    return np.array(found, dtype=np.float64)


@dataclass(frozen=True)
class SizeAndPower:
    """How a test fares on pairs whose truth is known.

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


def size_and_power(independent: ArrayLike, dependent: ArrayLike, *, level: float = 0.05) -> SizeAndPower:
    """Judge a test by its log10 p on independent and on dependent pairs.

    The intervals take pairs for separate experiments, which pairs that share a model are not: they are too narrow
    rather than too wide.

    Raises
    ------
    InputError
        A group is empty or holds a NaN.
    """
    strangers, kin = np.asarray(independent, dtype=float).ravel(), np.asarray(dependent, dtype=float).ravel()
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


def found(dependent: ArrayLike, level: float) -> int:
    """Count the dependent pairs that Holm's procedure finds among themselves."""
    return int((pvalues.holm(np.asarray(dependent, dtype=float)) <= math.log10(level)).sum())
