"""``provlab plan``: what a study of these models will read, hold and take, before anything starts."""

import argparse
import sys
from dataclasses import asdict, replace

from provlab import statistics as registry
from provlab.cli import arguments as common
from provlab.errors import InputError

_LONG = 600  # seconds from which a quicker setting is named


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    common.add_model(
        parser,
        "models",
        nargs="+",
        help="as for study; shape:llama-2-7b*21 stands for 21 models of that shape, which need not exist",
    )
    common.add_statistics(parser)
    parser.add_argument(
        "--memory", metavar="SIZE", help="memory that the study may take, such as 8GB (default: most that is free)"
    )
    parser.add_argument(
        "--diff",
        action="store_true",
        help="what provlab diff of two models takes instead: --sequences (default: 4000) of --sequence-length tokens "
        "(default: 25) in --dtype",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that compute (default: 1)")
    common.add_json(parser)
    parser.set_defaults(command=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from provlab.planning.rates import measure_rates
    from provlab.planning.sketch import shapes_of

    common.check_json(arguments.json)
    if arguments.diff:
        return _plan_diff(arguments)
    from provlab.engine.memory import budget_for
    from provlab.planning.report import numbers_of, study_card
    from provlab.planning.study import estimate
    from provlab.statistics import quick
    from provlab.statistics.options import Options
    from provlab.studying import expand

    settings = common.statistics(arguments)
    names, blocks, allow_pickle = (settings.pop(name) for name in ("statistics", "blocks", "allow_pickle"))
    asked = settings.pop("quick", False)
    options = Options(**(quick.SETTINGS if asked else {}) | settings)
    names = registry.checked_names(names)
    budget = budget_for(arguments.memory, arguments.workers)
    sketch = shapes_of(expand(arguments.models), allow_pickle=allow_pickle)
    for source, why in sketch.refused.items():
        print(f"left out: {source}: {why}", file=sys.stderr)
    rates = measure_rates(seed=options.seed, device=options.device, dtype=options.dtype, file=sketch.largest_here())
    blocks = list(range(quick.BLOCKS)) if asked and blocks is None else blocks  # which they are changes no size
    estimated = estimate(sketch.models, names, options, rates, blocks=blocks, workers=arguments.workers)
    numbers = numbers_of(sketch, estimated, budget)
    quicker = score = None
    if arguments.statistic is None and len(sketch.models) == 2:  # as `provlab.compare` has it
        score = estimate(sketch.models, ["stream_score"], options, rates, workers=arguments.workers)
        score = replace(score, hashing=0.0)  # the files are hashed by then
    if not asked and estimated.seconds[1] > _LONG:
        options, few = replace(options, **quick.SETTINGS), list(range(quick.BLOCKS))
        quicker = estimate(sketch.models, names, options, rates, blocks=few, workers=arguments.workers)
    common.deliver(arguments.json, lambda: numbers, lambda: study_card(estimated, numbers, quicker, score))
    return 0


def _plan_diff(arguments: argparse.Namespace) -> int:
    """Say what a comparison by Model-diff takes."""
    from provlab.engine.memory import budget_for
    from provlab.planning import diff
    from provlab.planning.rates import measure_rates
    from provlab.planning.report import diff_card
    from provlab.planning.sketch import shapes_of

    room = budget_for(arguments.memory).process if arguments.memory else None
    sketch = shapes_of(arguments.models, allow_pickle=arguments.allow_pickle)
    for source, why in sketch.refused.items():
        raise InputError(f"{source}: {why}")
    if len(sketch.models) != 2:
        raise InputError(f"diff compares two models, not {len(sketch.models)}")
    length, n = getattr(arguments, "sequence_length", 25), getattr(arguments, "n_sequences", 4000)
    dtype = diff.checked_dtype(getattr(arguments, "dtype", "float32"))
    rates = measure_rates(dtype=dtype)
    works = {
        name: diff.work(model, length=length, n=n, dtype=dtype, rates=rates) for name, model in sketch.models.items()
    }
    numbers = {name: asdict(work) for name, work in works.items()}
    common.deliver(arguments.json, lambda: numbers, lambda: diff_card(works, length, dtype, rates.threads, room))
    return 0
