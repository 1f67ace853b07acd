"""``provlab plan``: what a study of these models will read, hold and take, before anything starts."""

import sys
from dataclasses import asdict, replace
from typing import Any

import rich_click as click

from provlab import statistics as registry
from provlab.cli import delivery, options, sources
from provlab.cli.command import Command
from provlab.errors import InputError

QUICK: dict[str, Any] = {"units": 1024, "n_sequences": 4}  # what --quick stands for
_LONG = 600  # seconds from which a quicker setting is named


@click.command(cls=Command, more=options.known)
@click.argument(
    "models",
    nargs=-1,
    required=True,
    type=sources.ModelName(checked=False),
    help="as for study; shape:llama-2-7b*21 stands for 21 models of that shape, which need not exist",
)
@options.STATISTICS
@options.MEMORY
@click.option(
    "--diff",
    "by_diff",
    is_flag=True,
    help="what provlab diff of two models takes instead: --sequences (default: 4000) of --sequence-length tokens "
    "(default: 25) in --dtype",
)
@click.option("--workers", type=int, default=1, metavar="N", help="processes that compute (default: 1)")
@delivery.JSON
def command(
    models: tuple[str, ...],
    *,
    by_diff: bool,
    statistics: list[str] | None,
    blocks: list[int] | None,
    allow_pickle: bool,
    memory: str | None,
    workers: int,
    json: str | None,
    quick: bool | None,
    **settings: Any,
) -> int:
    """How many bytes, how much memory and how many hours does a study take?

    example: provlab plan zoo:oak zoo:elm --statistic phi_u
    """
    from provlab.planning.rates import measure_rates
    from provlab.planning.sketch import shapes_of

    settings = (QUICK if quick else {}) | options.without_defaults(settings)
    if by_diff:
        return _plan_diff(models, settings, memory=memory, allow_pickle=allow_pickle, json=json)
    from provlab.engine.memory import budget_for
    from provlab.planning.report import numbers_of, study_card
    from provlab.planning.study import estimate
    from provlab.statistics.base import Options
    from provlab.studying import expand

    used = Options(**settings)
    names = registry.checked_names(statistics, units=used.units)
    budget = budget_for(memory, workers)
    sketch = shapes_of(expand(models), allow_pickle=allow_pickle)
    for source, why in sketch.refused.items():
        print(f"left out: {source}: {why}", file=sys.stderr)
    rates = measure_rates(seed=used.seed, device=used.device, dtype=used.dtype, file=sketch.largest_here())
    estimated = estimate(sketch.models, names, used, rates, blocks=blocks, workers=workers)
    numbers = numbers_of(sketch, estimated, budget)
    quicker = score = None
    if statistics is None and len(sketch.models) == 2:  # as `provlab.compare` has it
        score = estimate(sketch.models, ["stream_score"], used, rates, workers=workers)
        score = replace(score, hashing=0.0)  # the files are hashed by then
    if statistics is None and used.units is None and estimated.seconds[1] > _LONG:
        used = replace(used, **QUICK)
        some = registry.checked_names(None, units=used.units)
        quicker = estimate(sketch.models, some, used, rates, blocks=blocks, workers=workers)
    delivery.deliver(json, lambda: numbers, study_card(estimated, numbers, quicker, score))
    return 0


def _plan_diff(
    models: tuple[str, ...], settings: dict[str, Any], *, memory: str | None, allow_pickle: bool, json: str | None
) -> int:
    """Say what a comparison by Model-diff takes."""
    from provlab.engine.memory import budget_for
    from provlab.planning import diff
    from provlab.planning.rates import measure_rates
    from provlab.planning.report import diff_card
    from provlab.planning.sketch import shapes_of

    room = budget_for(memory).process if memory else None
    sketch = shapes_of(models, allow_pickle=allow_pickle)
    for source, why in sketch.refused.items():
        raise InputError(f"{source}: {why}")
    if len(sketch.models) != 2:
        raise InputError(f"diff compares two models, not {len(sketch.models)}")
    length, n = settings.get("sequence_length", 25), settings.get("n_sequences", 4000)
    dtype = diff.checked_dtype(settings.get("dtype", "float32"))
    rates = measure_rates(dtype=dtype)
    works = {
        name: diff.work(model, length=length, n=n, dtype=dtype, rates=rates) for name, model in sketch.models.items()
    }
    numbers = {name: asdict(work) for name, work in works.items()}
    delivery.deliver(json, lambda: numbers, diff_card(works, length, dtype, rates.threads, room))
    return 0
