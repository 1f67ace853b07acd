"""MLPs without gates, distilled into GLU MLPs and compared by phi_MATCH: size and power over pairs (Appendix H.3)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from provlab.chapters.distillation.ridges import (
    Stretched,
    gated_form,
    hermite_shares,
    random_ridges,
    without_gate_direction,
)
from provlab.chapters.shared.calibration import size_interval
from provlab.chapters.shared.groups import Groups
from provlab.chapters.shared.retraining import Retrained, as_views, compare
from provlab.chapters.shared.students import Settings, Student, distill
from provlab.chapters.shared.teachers import BlockMlp
from provlab.errors import InputError
from provlab.inference import pvalues
from provlab.plots.numbers import format_interval, format_log10_p
from provlab.publishing.published import published_table
from provlab.report import StudyReport
from provlab.statistics.base import Options
from provlab.statistics.phi_match import Views

Pair = tuple[str, str]

DEGREES = 6  # of which shares are shown
LEVEL = 0.05  # at which size and power are reported
COSINES = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0)  # of gate and up rows, where they are set by hand
MODELS_ROWS = "the models' rows"


# Models and students ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """Bases that are independent of each other, and a fine-tune of each of the first of them.

    Attributes
    ----------
    models
        By source, bases first.
    independent, dependent
        All pairs of bases; each base with its fine-tune.
    options
        Of the text that the models read.
    """

    models: Mapping[str, Retrained] = field(repr=False)
    independent: list[Pair]
    dependent: list[Pair]
    options: Options = field(repr=False)

    @classmethod
    def open(cls, bases: Sequence[str], tunes: Sequence[str], options: Options, *, allow_pickle: bool) -> "Family":
        """Open all models and run each once over the text."""
        models = {one: Retrained.open(one, options, allow_pickle=allow_pickle) for one in (*bases, *tunes)}
        return cls(models, list(combinations(bases, 2)), list(zip(bases, tunes, strict=False)), options)

    def judge(self, views: Mapping[str, Views], statistic: str = "phi_match") -> Groups:
        """log10 p of all pairs of bases, and those bases and fine-tunes that have views."""
        kin = [pair for pair in self.dependent if pair[1] in views]
        return Groups(
            list(log10_p(views, self.independent, self.options, statistic=statistic)),
            list(log10_p(views, kin, self.options, statistic=statistic)),
        )


def hermite(mlp: BlockMlp, factors: Iterable[float]) -> dict[str, list[float]]:
    """Share of each degree in the variance of an MLP's output, for Gaussian inputs of these standard deviations."""
    return {f"inputs x {factor:g}": hermite_shares(mlp, factor=factor, degrees=DEGREES).tolist() for factor in factors}


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
    return as_views((gate, without_gate_direction(student).numpy() @ model.inputs[0].T), model.spelt)


def log10_p(
    views: Mapping[str, Views], pairs: Sequence[Pair], options: Options, *, statistic: str = "phi_match"
) -> NDArray[np.float64]:
    """Return phi_MATCH of each pair, ``(pairs,)``."""
    found = [
        compare(views[a], views[b], 0, options, (statistic,))[statistic].log10_p
        for a, b in tqdm(pairs, desc=statistic, leave=False)
    ]
    return np.array(found, dtype=np.float64)


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
    errors, cosines = zip(*((one.relative, one.gate_up_cosine()) for one in made), strict=True)
    return Distilled(
        groups.independent, groups.dependent, float(np.mean(errors)), float(np.mean(cosines)), width_factor
    )


@dataclass(frozen=True)
class Snapshot:
    """Mean relative error of a recipe's students after so many steps, and mean |cosine| of their gate and up rows."""

    recipe: str
    step: int
    relative: float
    cosine: float


def snapshots(made: Mapping[str, Mapping[str, Student]]) -> list[Snapshot]:
    """How error and parallel rows develop while students are trained, by recipe."""
    records = []
    for recipe, some in made.items():
        first = next(iter(some.values()))
        for step in (*sorted(first.kept), first.curve[-1].step):
            then = [student.at(step) for student in some.values()]
            error, cosine = (
                float(np.mean(values)) for values in zip(*((s.relative, s.gate_up_cosine()) for s in then), strict=True)
            )
            records.append(Snapshot(recipe, step, error, cosine))
    return records


def by_error(records: Sequence[Snapshot]) -> dict[str, pd.DataFrame]:
    """Cosine (y) by error (x), a frame for each recipe."""
    frame = pd.DataFrame(records).rename(columns={"relative": "x", "cosine": "y"})
    return {str(name): group for name, group in frame.groupby("recipe", sort=False)}


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


def found(dependent: ArrayLike, level: float) -> int:
    """Count the dependent pairs that Holm's procedure finds among themselves."""
    return int((pvalues.holm(np.asarray(dependent, dtype=float)) <= math.log10(level)).sum())


def size_and_power_table(results: Mapping[str, Groups], first: str = "recipe") -> pd.DataFrame:
    """Return size and power with exact intervals, a row for each of `results`; of students with error and cosine."""
    rows = []
    for name, groups in results.items():
        fares = size_and_power(groups)
        row: dict[str, Any] = {first: name}
        if isinstance(groups, Distilled):
            row |= {"relative error": groups.relative, "|cosine|": groups.cosine}
        row |= {
            "independent below 0.05": format_interval(fares.size, fares.low, fares.high, 2),
            "dependent below 0.05": format_interval(fares.power, fares.power_low, fares.power_high, 2),
            "smallest independent": format_log10_p(fares.smallest),
            "smallest dependent": format_log10_p(min(groups.dependent)),
            "dependent below every independent": f"{fares.beyond:.2f}",
        }
        rows.append(row)
    return pd.DataFrame(rows).set_index(first)


def recipe_findings(groups: Groups) -> str:
    """Size and power of a recipe in one sentence, in Markdown."""
    fares = size_and_power(groups)
    kinds = [fares.low > fares.level, found(groups.dependent, 0.01) < len(groups.dependent)]
    said = {
        (True, True): "It fails in size and in power",
        (True, False): "It fails in size alone",
        (False, True): "It fails in power alone",
        (False, False): "It fails in neither size nor power",
    }[kinds[0], kinds[1]]
    return (
        f"By the recipe that is judged **{fares.size:.0%} of the independent pairs** have a p-value up to "
        f"{fares.level:g} (exact interval {fares.low:.0%} to {fares.high:.0%}), and {fares.power:.0%} of the "
        f"dependent pairs ({fares.power_low:.0%} to {fares.power_high:.0%}). "
        f"{said} (Holm at 0.01 over the dependent pairs)."
    )


def attempt_findings(attempts: Mapping[str, Groups]) -> str:
    """How many ways have both a size that may be `LEVEL` and a power above it, in Markdown."""
    fares = {name: size_and_power(groups) for name, groups in attempts.items()}
    useful = [name for name, one in fares.items() if one.low <= one.level < one.power_low]
    named = f": {', '.join(useful)}" if useful else ""
    return (
        f"Of these {len(fares)} ways, **{len(useful)}** {'has' if len(useful) == 1 else 'have'} both: a size whose "
        f"exact interval reaches down to {LEVEL:g}, and a power whose exact interval lies above it{named}. The largest "
        f"share of dependent pairs below every independent one is {max(one.beyond for one in fares.values()):.2f}."
    )


def published_and_ours(groups: Groups) -> tuple[pd.DataFrame, str]:
    """Return the published p-value beside the range of ours, and the name of the published quantity."""
    row = next(row for row in published_table("independence_scalars") if "distilled" in row["experiment"])
    told = [("a base and its fine-tune", f"{row['value']} (one pair)", groups.dependent)]
    told += [("independent models", "not shown", groups.independent)]
    table = [
        {"": what, "published": published, "log10 p, ours": f"{_range(values)} ({len(values)} pairs)"}
        for what, published, values in told
    ]
    return pd.DataFrame(table), row["quantity"]


def _range(values: Sequence[float]) -> str:
    return f"{format_log10_p(min(values))} to {format_log10_p(max(values))}"


def one_teacher_findings(same: Sequence[float], strangers: Groups) -> str:
    """Compare p-values of two students of one MLP with those of students of independent MLPs, in Markdown."""
    return (
        f"log10 p of two students of one MLP: **{', '.join(map(format_log10_p, same))}**. Median over students of "
        f"independent models: {format_log10_p(float(np.median(strangers.independent)))}."
    )


# Parallel rows ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DialRecord:
    """Median, smallest and largest log10 p of independent pairs whose gate and up rows have this cosine by hand."""

    teachers: str
    cosine: float
    median: float
    low: float
    high: float


def dial(
    family: Family, bases: Sequence[str], pairs: Sequence[Pair], seeds: Mapping[str, int]
) -> tuple[list[DialRecord], list[float]]:
    """Turn up rows away from gate rows by hand, for the models' weights and for random ones in their place.

    Returns
    -------
    records
        Of both kinds of weights, at each of `COSINES`.
    perfect
        log10 p of each pair of models at a cosine of 1: the perfect gated form of both.
    """
    own = {source: family.models[source].mlp(0) for source in bases}
    random = {source: random_ridges(mlp, seed=seeds[source]) for source, mlp in own.items()}
    records, perfect = [], []
    for who, mlps in ((MODELS_ROWS, own), ("random rows", random)):
        for cosine in COSINES:
            forms = {}
            for source, mlp in mlps.items():
                model = family.models[source]
                activations = gated_form(mlp, model.inputs[0], cosine=cosine, seed=seeds[source])
                forms[source] = as_views(activations, model.spelt)
            values = log10_p(forms, pairs, family.options)
            if who == MODELS_ROWS and cosine == 1.0:
                perfect = list(values)
            low, high = float(values.min()), float(values.max())
            records.append(DialRecord(who, cosine, float(np.median(values)), low, high))
    return records, perfect


def trained_pairs(
    family: Family, made: Mapping[str, Mapping[str, Student]], outcome: Mapping[str, Groups]
) -> pd.DataFrame:
    """Return each independent pair of students: recipe, log10_p, and the smaller of the two cosines of their rows."""
    return pd.DataFrame(
        [
            {"recipe": name, "cosine": min(made[name][one].gate_up_cosine() for one in pair), "log10_p": value}
            for name, groups in outcome.items()
            for pair, value in zip(family.independent, groups.independent, strict=True)
        ]
    )


def dial_findings(records: Sequence[DialRecord], trained: pd.DataFrame) -> str:
    """At which cosine independent pairs fall below `LEVEL` by hand, and how students' pairs compare, in Markdown."""
    small = math.log10(LEVEL)
    below = [one.cosine for one in records if one.teachers == MODELS_ROWS and one.median <= small]
    critical = min(below, default=1.0)
    near = trained["cosine"] >= critical
    counts = [f"{int((trained[side]['log10_p'] <= small).sum())} of {int(side.sum())}" for side in (near, ~near)]
    return (
        f"By hand the median independent pair falls below {LEVEL:g} at a cosine of {critical:g}. Of the pairs in which "
        f"both students' rows are at least as parallel as that, **{counts[0]}** are below {LEVEL:g}; of the others "
        f"**{counts[1]}**."
    )


# Two ends of a unit -----------------------------------------------------------------------------------------

VIEWS = ("phi_views", "phi_views_outer")


def two_views(study: StudyReport, family: Family) -> dict[str, Groups]:
    """log10 p of every block of the independent and the dependent pairs; of the outer score, its nominal value.

    Pairs that cannot be compared, such as models of different depths, are left out; the study says why.
    """
    blocks = {
        (record.statistic, record.a, record.b): record.outcome.blocks
        for record in study.records
        if record.outcome is not None
    }

    def of(statistic: str, pairs: Iterable[Pair]) -> list[float]:
        found = [block for pair in pairs for block in blocks.get((statistic, *pair), ())]
        return [block.detail["nominal"] if block.log10_p is None else block.log10_p for block in found]

    return {name: Groups(of(name, family.independent), of(name, family.dependent)) for name in VIEWS}


def surviving(
    frame: pd.DataFrame, statistics: Sequence[str], base: str, columns: Mapping[str, str], bases: Sequence[str]
) -> tuple[list[list[str]], list[list[bool]]]:
    """Return what each statistic gives for a base and each disguise of its fine-tune, and whether it is found.

    A p-value is found at 0.01, corrected for the number of disguises; the outer score, above every pair of bases.
    """
    texts, found = [], []
    for statistic in statistics:
        rows = frame[frame["statistic"] == statistic]
        scored = statistic == "phi_views_outer"
        cells = rows[rows["a"] == base].set_index("b")["value" if scored else "log10_p"]
        values = [float(cells[other]) for other in columns.values()]
        most = rows.loc[rows["b"].isin(bases), "value"].max()
        texts.append([f"{value:.2f}" if scored else format_log10_p(value) for value in values])
        found.append([bool(v > most if scored else v <= -2 - math.log10(len(values))) for v in values])
    return texts, found
