"""The command ``plan``: the numbers of a plan, and the card that shows them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from provlab import statistics as registry
from provlab.engine.memory import budget_for
from provlab.errors import InputError
from provlab.planning.report import diff_card, numbers_of, study_card
from provlab.planning.sketch import shapes_of
from provlab.planning.study import estimate
from provlab.report.card import Card
from provlab.statistics import quick as few
from provlab.statistics.options import Options
from provlab.studying import expand


def study_plan(
    models: Sequence[str],
    *,
    statistics: Sequence[str] | None = None,
    blocks: Sequence[int] | None = None,
    memory: str | None,
    workers: int,
    allow_pickle: bool,
    progress: float,
    quick: bool = False,
    **settings: Any,
) -> tuple[dict[str, Any], Card]:
    """Plan a study; arguments as of `provlab.study`."""
    few.check(quick, blocks)
    options = Options(**(few.SETTINGS if quick else {}) | settings)
    names = registry.checked_names(statistics) if statistics is not None else None
    budget = budget_for(memory, workers)
    sketch = shapes_of(expand(models), allow_pickle=allow_pickle)
    if quick and len({model.anatomy.n_blocks for model in sketch.models.values()}) == 1:
        blocks = list(range(few.BLOCKS))  # which they are changes no size
    estimated = estimate(sketch.models, names, options, blocks=blocks, workers=workers, progress=progress)
    numbers = numbers_of(sketch, estimated, budget)
    return numbers, study_card(estimated, numbers)


def diff_plan(
    models: Sequence[str],
    *,
    memory: str | None,
    allow_pickle: bool,
    length: int = 25,
    n: int | None = None,
    dtype: str = "float32",
    device: str = "cpu",
) -> tuple[dict[str, Any], Card]:
    """Plan a comparison by Model-diff; arguments as of `provlab.diff`."""
    from provlab.planning.diff import works

    room = budget_for(memory).process if memory else None
    sketch = shapes_of(models, allow_pickle=allow_pickle)
    for source, why in sketch.refused.items():
        raise InputError(f"{source}: {why}")
    if len(sketch.models) != 2:
        raise InputError(f"diff compares two models, not {len(sketch.models)}")
    planned = works(sketch.models, length=length, n=n, dtype=dtype, device=device)
    return {name: asdict(work) for name, work in planned.items()}, diff_card(planned, length, dtype, device, room)
