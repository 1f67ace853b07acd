"""Models whose MLPs are narrow for their size, retrained by several recipes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from provlab.chapters.mlp_retraining.measure import BAR, Trial
from provlab.chapters.shared import retraining
from provlab.chapters.shared.students import Settings


@dataclass(frozen=True)
class NarrowRecord:
    """One block of a narrow model, retrained by one recipe; the other attributes are those of `BlockRecord`."""

    recipe: str
    block: int
    relative: float
    log10_p: float
    log10_p_unsigned: float
    log10_p_stranger: float
    log10_p_stranger_unsigned: float


def recipes(settings: Settings) -> dict[str, Settings]:
    """Return the recipe of the wide models, and three that could find more: longer, wider, or on the model's inputs."""
    return {
        "as above": settings,
        "twice the steps": replace(settings, steps=2 * settings.steps),
        "twice as wide again": replace(settings, width_factor=2 * settings.width_factor),
        "noise like the model's inputs": replace(settings, inputs="matched"),
    }


def records(trial: Trial, tried: Mapping[str, Settings], device: str) -> list[NarrowRecord]:
    """Retrain and judge every block by every recipe."""
    found = []
    for name, settings in tried.items():
        for block in range(trial.n_blocks):
            student = trial.model.student(block, settings, device=device)
            found.append(NarrowRecord(name, block, student.relative, **trial.judge(block, student).log10_p()))
    return found


def table(found: Sequence[NarrowRecord]) -> pd.DataFrame:
    """Return the weakest and the strongest block of each recipe, by both statistics."""
    return (
        pd.DataFrame(found)
        .groupby("recipe", sort=False)
        .agg(
            **{
                "relative error, median": ("relative", "median"),
                "log10 p, weakest block": ("log10_p", "max"),
                "log10 p, strongest block": ("log10_p", "min"),
                "unsigned log10 p, weakest block": ("log10_p_unsigned", "max"),
                "unsigned log10 p, strongest block": ("log10_p_unsigned", "min"),
                "strangers, smallest log10 p": ("log10_p_stranger", "min"),
                "strangers, smallest unsigned log10 p": ("log10_p_stranger_unsigned", "min"),
            }
        )
    )


def findings(found: Sequence[NarrowRecord], n_units: int) -> str:
    """How many retrained blocks pass the bar, and how much a perfect imitation of n_units could give, in Markdown."""
    signed, unsigned = (sum(getattr(one, key) < BAR for one in found) for key in ("log10_p", "log10_p_unsigned"))
    return (
        f"Where half of {n_units:,} units agree, log10 p is {retraining.log10_p_of_share(0.5, n_units):.1f}. Below "
        f"{BAR:g}: **{signed} of {len(found)}** retrained blocks by the signed statistic, "
        f"**{unsigned} of {len(found)}** by the unsigned one."
    )
