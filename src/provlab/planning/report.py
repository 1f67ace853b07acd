"""A plan as it is shown and as JSON: how long a study takes, how much memory, what is fetched."""

from collections.abc import Mapping
from typing import Any

from provlab import machine
from provlab.engine.memory import LIBRARIES, Budget, gigabytes
from provlab.engine.reference import too_large
from provlab.planning import diff
from provlab.planning.sketch import Sketch
from provlab.planning.study import Estimate
from provlab.plots.numbers import format_duration as duration
from provlab.report.card import OPEN, QUIET, Card
from provlab.report.views import Table


def numbers_of(sketch: Sketch, estimated: Estimate, budget: Budget) -> dict[str, Any]:
    """All numbers of a plan, in bytes and seconds."""
    plan, waiting, largest = estimated.plan, estimated.waiting, estimated.largest
    spilled = waiting if estimated.workers > 1 or waiting + largest > budget.process else 0
    peak = largest + waiting - spilled
    does_not_fit = list(plan.refused)
    if budget.given and estimated.smallest > budget.process:
        does_not_fit.append(too_large("the largest pair", estimated.smallest, budget))
    return {
        "models": list(plan.models),
        "refused": dict(sketch.refused),
        "units": len(plan.jobs),
        **{name: getattr(plan, name) for name in ("comparisons", "tensors", "bytes_to_read", "bytes_pair_by_pair")},
        "bytes_to_hash": plan.bytes_to_hash,
        "bytes_to_fetch": plan.to_fetch(sketch),
        "peak": min(peak, budget.process) if budget.given else peak,
        "spilled": spilled,
        "does_not_fit": does_not_fit,
        "workers": estimated.workers,
        "seconds": estimated.seconds,
        "cpu_seconds": estimated.cpu_seconds,
        "cpu_seconds_by_part": {line: taken.cpu for line, taken in estimated.parts.items()},
        "no_time_known": dict(estimated.trial.failed),
        "trial_seconds": estimated.trial.seconds,
    }


def study_card(estimated: Estimate, numbers: Mapping[str, Any]) -> Card:
    """The time, memory and bytes to fetch in a sentence, all numbers of `numbers_of` below it."""
    cores = machine.cores()
    where = f"one process on {cores} core{'s'[: cores != 1]}"
    if estimated.workers > 1:
        where = f"{estimated.workers} processes, each with a core like these ({cores} here)"
    more = numbers["bytes_pair_by_pair"] / max(numbers["bytes_to_read"], 1)
    to_fetch = sum(numbers["bytes_to_fetch"].values())
    rows = {
        "models": f"{len(numbers['models']):,}",
        "units of work": f"{numbers['units']:,}, with {numbers['comparisons']:,} comparisons of a pair",
        "tensors to read": f"{numbers['tensors']:,}",
        "bytes to read": f"{gigabytes(numbers['bytes_to_read'])} (pair by pair {more:.1f} times as much)",
        "bytes to hash first": gigabytes(numbers["bytes_to_hash"]),
        "bytes to fetch": gigabytes(to_fetch),
        "peak of memory": f"{gigabytes(numbers['peak'])} of arrays in a process, beside the libraries",
        "kept on disk meanwhile": gigabytes(numbers["spilled"]),
        "time, estimated": f"{duration(numbers['seconds'])} with {where}",
        "of the processors": duration(numbers["cpu_seconds"]),
        **{f"  {line}": duration(seconds) for line, seconds in numbers["cpu_seconds_by_part"].items()},
    }
    answer = (
        f"{len(numbers['models']):,} models: about {duration(numbers['seconds'])} with {where}, "
        f"{gigabytes(numbers['peak'])} of memory, {gigabytes(to_fetch) if to_fetch else 'nothing'} to fetch."
    )
    remarks = [
        *(("no time", f"none is known of {name}: {why}") for name, why in numbers["no_time_known"].items()),
        *(("too large", f"does not fit: {reason}") for reason in numbers["does_not_fit"]),
        (
            "from",
            f"a trial of {duration(numbers['trial_seconds'])} on this machine: one block of the same shapes with "
            "random numbers, by the code that the study runs, times blocks and pairs",
        ),
        ("beside it", "the start of a command, 2 s, and 7 s where models are run; a slow disk"),
    ]
    return Card(answer, OPEN if numbers["does_not_fit"] else QUIET, [Table(("", ""), list(rows.items()))], remarks)


def diff_card(works: Mapping[str, diff.Work], length: int, dtype: str, device: str, room: int | None) -> Card:
    """The time and memory in a sentence, and a model to a line; `room` is what a limit leaves beside the libraries."""
    rows = [
        (
            name,
            f"{work.parameters:,}",
            f"{work.written + work.judged:,}",
            f"{work.tokens:,}",
            duration(work.seconds),
            duration(work.cpu_seconds),
        )
        for name, work in works.items()
    ]
    table = Table(("model", "parameters", "sequences", "tokens", "clock", "CPU time"), rows, right=range(1, 6))
    arrays = sum(work.weights for work in works.values()) + max(work.held for work in works.values())
    memory, fits = arrays + LIBRARIES, ""
    if room is not None:
        fits = f"; --memory leaves {gigabytes(room)}: " + ("enough" if arrays <= room else "too little")
        fits += " (both models are held at once; try --dtype bfloat16)" * (arrays > room and dtype == "float32")
    where = "this machine's cores" if device == "cpu" else device
    clock, cpu = (duration(sum(getattr(work, kind) for work in works.values())) for kind in ("seconds", "cpu_seconds"))
    n = max(work.written for work in works.values())
    answer = (
        f"about {clock} on {where}, {cpu} of the processors; {gigabytes(memory)} of memory with the libraries and both "
        f"models in {dtype}{fits}."
    )
    buys = (
        f"{n:,} sequences of each model: a share of what it writes is known to {98 / n**0.5:.1f} points either way at "
        f"most, and what comes in fewer than one of {n // 3:,} may be missed (--sequences)"
    )
    tried = f"a trial on this machine: {diff.TRIED} short sequences, one block of the same shapes with random numbers"
    return Card(
        answer,
        body=[table],
        remarks=[("buys", buys), ("from", f"inputs of {length} tokens, written and judged, at most; {tried}")],
    )
