"""``provlab plan``: what a study of these models will read, hold and take, before anything starts."""

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from provlab.cli import arguments as common

if TYPE_CHECKING:
    from provlab.fullsize.diff_cost import Work
    from provlab.fullsize.planning import Estimate, Sketch


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
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
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON; - is standard output")
    parser.set_defaults(command=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from provlab import statistics as registry
    from provlab.api import expand
    from provlab.fullsize.planning import estimate, shapes_of, to_fetch
    from provlab.fullsize.rates import measure_rates
    from provlab.statistics.base import Options

    common.check_json(arguments.json)
    if arguments.diff:
        return _plan_diff(arguments)
    settings = common.statistics(arguments)
    given, blocks, allow_pickle = (settings.pop(name) for name in ("statistics", "blocks", "allow_pickle"))
    options = Options(**settings)
    names = registry.checked_names(given, units=options.units)
    sketch = shapes_of(expand(arguments.models), allow_pickle=allow_pickle)
    for source, why in sketch.refused.items():
        print(f"left out: {source}: {why}", file=sys.stderr)
    found = estimate(
        sketch.models,
        names,
        options,
        measure_rates(seed=options.seed),
        blocks=blocks,
        memory=arguments.memory,
        workers=arguments.workers,
    )
    fetched = to_fetch(sketch, found.schedule, options)
    if arguments.json:
        common.write_json(arguments.json, _as_json(sketch, found, fetched))
    if arguments.json != "-":
        print(_as_text(found, fetched))
    return 0


def _plan_diff(arguments: argparse.Namespace) -> int:
    """Say what a comparison by Model-diff takes."""
    from provlab.errors import InputError
    from provlab.fullsize import diff_cost
    from provlab.fullsize.planning import shapes_of
    from provlab.fullsize.rates import measure_rates

    sketch = shapes_of(arguments.models, allow_pickle=arguments.allow_pickle)
    for source, why in sketch.refused.items():
        raise InputError(f"{source}: {why}")
    if len(sketch.models) != 2:
        raise InputError(f"diff compares two models, not {len(sketch.models)}")
    length, n = getattr(arguments, "sequence_length", 25), getattr(arguments, "n_sequences", 4000)
    dtype, rates = getattr(arguments, "dtype", "float32"), measure_rates()
    found = {
        name: diff_cost.work(model, length=length, n=n, dtype=dtype, rates=rates)
        for name, model in sketch.models.items()
    }
    if arguments.json:
        common.write_json(arguments.json, {name: asdict(one) for name, one in found.items()})
    if arguments.json != "-":
        print(_diff_as_text(found, length, dtype, rates.threads))
    return 0


def _diff_as_text(found: "dict[str, Work]", length: int, dtype: str, threads: float) -> str:
    """Lay it out as a table, a model to a line."""
    from provlab.engine.memory import gigabytes
    from provlab.fullsize import diff_cost
    from provlab.fullsize.rehearsal import duration

    lines = [f"{'':<24}{'parameters':>16}{'sequences':>11}{'tokens':>14}{'CPU time':>16}{'on a GPU':>14}"]
    for name, one in found.items():
        lines.append(
            f"{name:<24}{one.parameters:>16,}{one.written + one.judged:>11,}{one.tokens:>14,}"
            f"{duration(one.cpu_seconds):>16}{duration(one.gpu_seconds):>14}"
        )
    both = list(found.values())
    cpu, gpu = (sum(getattr(one, f"{kind}_seconds") for one in both) for kind in ("cpu", "gpu"))
    more = [sum(getattr(one, f"exchange_{kind}_seconds") for one in both) for kind in ("cpu", "gpu")]
    memory = sum(one.weights for one in both) + max(one.held for one in both)
    return "\n".join(
        [
            *lines,
            f"memory                  {gigabytes(memory)} with both models in {dtype}, beside the libraries",
            f"time, estimated         {duration(cpu / threads)} on this machine's cores, {duration(gpu)} on one GPU",
            f"replica exchange        {duration(more[0] / threads)} and {duration(more[1])} for each "
            f"{diff_cost.EXCHANGE_STEPS:,} steps, if asked for",
            f"Inputs of {length} tokens; sequences are written and judged, the judged ones at most. CPU time from "
            f"rates measured just now; the GPU is assumed to reach {diff_cost.GPU_PRODUCT / 1e12:.0f} TFLOP/s and to "
            f"read {diff_cost.GPU_READ / 1e12:g} TB/s.",
        ]
    )


def _as_text(found: "Estimate", fetched: dict[str, int]) -> str:
    """Lay the plan out as a table."""
    from provlab.engine.memory import gigabytes
    from provlab.fullsize.rehearsal import duration

    plan = found.schedule
    more = plan.bytes_pair_by_pair / plan.bytes_to_read if plan.bytes_to_read else 1.0
    low, high = found.seconds
    cpu_low, cpu_high = found.cpu_seconds
    cores = found.rates.cores
    where = f"one process on {cores} core{'s'[: cores != 1]}"
    if found.workers > 1:
        where = f"{found.workers} processes, each with a core like these ({cores} here)"
    rows = [
        ("models", f"{len(plan.models):,}"),
        ("units of work", f"{len(plan.units):,}, with {plan.comparisons:,} comparisons of a pair"),
        ("tensors to read", f"{plan.tensors:,}"),
        ("bytes to read", f"{gigabytes(plan.bytes_to_read)} (pair by pair {more:.1f} times as much)"),
        ("bytes to hash first", gigabytes(plan.bytes_to_hash)),
        ("bytes to fetch", gigabytes(sum(fetched.values()))),
        ("peak of memory", f"{gigabytes(plan.peak)} of arrays in a process, beside the libraries"),
        ("kept on disk meanwhile", gigabytes(plan.spilled)),
        ("time, estimated", f"{duration(low)} to {duration(high)} with {where}"),
        ("of the processors", f"{duration(cpu_low)} to {duration(cpu_high)}"),
        ("  hash and read", duration(found.hashing + found.reading)),
        ("  run models", duration(found.passes)),
        ("  multiply", duration(found.products)),
        ("  compare without matching", duration(found.others)),
        ("  assign", f"{duration(found.assignments[0])} to {duration(found.assignments[1])}"),
    ]
    lines = [f"{name:<28}{text}" for name, text in rows]
    lines += [f"no estimate of the time of {name}; its bytes and memory are counted" for name in found.left_out]
    lines += [f"does not fit: {one.reason}" for one in plan.refused]
    lines.append(
        "Estimated from rates measured just now: the lower time is for rows without a common direction, the upper one "
        "for rows that share strong ones."
    )
    return "\n".join(lines)


def _as_json(sketch: "Sketch", found: "Estimate", fetched: dict[str, int]) -> dict[str, Any]:
    """Return the same numbers for machines; bytes and seconds."""
    plan = found.schedule
    return {
        "models": list(plan.models),
        "refused": dict(sketch.refused),
        "units": len(plan.units),
        "comparisons": plan.comparisons,
        "tensors": plan.tensors,
        "bytes_to_read": plan.bytes_to_read,
        "bytes_pair_by_pair": plan.bytes_pair_by_pair,
        "bytes_to_hash": plan.bytes_to_hash,
        "bytes_to_fetch": fetched,
        "peak": plan.peak,
        "spilled": plan.spilled,
        "does_not_fit": [one.reason for one in plan.refused],
        "workers": found.workers,
        "seconds": list(found.seconds),
        "cpu_seconds": list(found.cpu_seconds),
        "no_time_known": list(found.left_out),
    }
