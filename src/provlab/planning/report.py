"""A plan as it is shown and as JSON: how long a study takes, how much memory, what is fetched."""

from collections.abc import Mapping, Sequence
from typing import Any

from provlab.engine.memory import Budget, gigabytes
from provlab.engine.reference import too_large
from provlab.planning import diff
from provlab.planning.sketch import Sketch
from provlab.planning.study import Estimate
from provlab.plots.numbers import format_duration as duration
from provlab.report.card import OPEN, QUIET, Card
from provlab.report.views import Table

#: what the times of a plan rest on
_RATES = (
    "rates measured just now: the lower time is for rows without a common direction, the upper one for rows that share "
    "strong ones"
)


def numbers_of(sketch: Sketch, estimated: Estimate, budget: Budget) -> dict[str, Any]:
    """All numbers of a plan, in bytes and seconds."""
    plan = estimated.plan
    spilled = plan.waiting if estimated.workers > 1 or plan.waiting + plan.largest > budget.process else 0
    peak = plan.largest + plan.waiting - spilled
    does_not_fit = list(plan.refused)
    if budget.given and plan.smallest > budget.process:
        does_not_fit.append(too_large("the largest pair", plan.smallest, budget))
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
        "seconds": list(estimated.seconds),
        "cpu_seconds": list(estimated.cpu_seconds),
        "no_time_known": list(estimated.left_out),
    }


def study_card(
    estimated: Estimate, numbers: Mapping[str, Any], quick: Estimate | None = None, score: Estimate | None = None
) -> Card:
    """The time, memory and bytes to fetch in a sentence, all numbers below it.

    Parameters
    ----------
    estimated, numbers
        The plan, and `numbers_of` it.
    quick
        What the quick setting takes, if it is to be named.
    score
        What the stream score takes, if `compare` adds it where no test rejects.
    """

    def span(seconds: Sequence[float]) -> str:
        return " to ".join(map(duration, seconds))

    cores = estimated.rates.cores
    where = f"one process on {cores} core{'s'[: cores != 1]}"
    if estimated.workers > 1:
        where = f"{estimated.workers} processes, each with a core like these ({cores} here)"
    more = numbers["bytes_pair_by_pair"] / max(numbers["bytes_to_read"], 1)
    rows = {
        "models": f"{len(numbers['models']):,}",
        "units of work": f"{numbers['units']:,}, with {numbers['comparisons']:,} comparisons of a pair",
        "tensors to read": f"{numbers['tensors']:,}",
        "bytes to read": f"{gigabytes(numbers['bytes_to_read'])} (pair by pair {more:.1f} times as much)",
        "bytes to hash first": gigabytes(numbers["bytes_to_hash"]),
        "bytes to fetch": gigabytes(sum(numbers["bytes_to_fetch"].values())),
        "peak of memory": f"{gigabytes(numbers['peak'])} of arrays in a process, beside the libraries",
        "kept on disk meanwhile": gigabytes(numbers["spilled"]),
        "time, estimated": f"{span(estimated.seconds)} with {where}",
        "of the processors": span(estimated.cpu_seconds),
        "  hash and read": duration(estimated.hashing + estimated.disk + estimated.reading),
        "  load models": duration(estimated.loading),
        "  run models": duration(estimated.passes + estimated.canonical),
        "  look whether units are sorted": duration(estimated.order),
        "  multiply": duration(estimated.products),
        "  compare without matching": duration(estimated.others),
        "  assign": span(estimated.assignments),
    }
    to_fetch = sum(numbers["bytes_to_fetch"].values())
    answer = (
        f"{len(numbers['models']):,} models: {duration(estimated.seconds[1])} at most with {where}, "
        f"{gigabytes(numbers['peak'])} of memory, {gigabytes(to_fetch) if to_fetch else 'nothing'} to fetch."
    )
    added = []
    if quick is not None:
        added.append(("quicker", f"--quick: {duration(quick.seconds[1])} at most, by a few blocks and less text"))
    if score is not None:
        added.append(("then", f"{duration(score.seconds[1])} more for the stream score, where no test rejects"))
    remarks = [
        *(("no time", f"none is known of {name}; its bytes and memory are counted") for name in estimated.left_out),
        *(("too large", f"does not fit: {reason}") for reason in numbers["does_not_fit"]),
        *added,
        ("from", _RATES),
        ("beside it", "the start of a command, 2 s, and 7 s where models are run"),
    ]
    return Card(answer, OPEN if numbers["does_not_fit"] else QUIET, [Table(("", ""), list(rows.items()))], remarks)


def diff_card(works: Mapping[str, diff.Work], length: int, dtype: str, threads: float, room: int | None) -> Card:
    """The time and memory in a sentence, and a model to a line; `room` is what a limit leaves beside the libraries."""

    def total(kind: str) -> float:
        return sum(getattr(work, kind) for work in works.values())

    rows = [
        (
            name,
            f"{work.parameters:,}",
            f"{work.written + work.judged:,}",
            f"{work.tokens:,}",
            duration(work.cpu_seconds),
            duration(work.gpu_seconds),
        )
        for name, work in works.items()
    ]
    table = Table(("model", "parameters", "sequences", "tokens", "CPU time", "on a GPU"), rows, right=range(1, 6))
    memory = int(total("weights")) + max(work.held for work in works.values())
    fits = ""
    if room is not None:
        fits = f"; --memory leaves {gigabytes(room)}: " + ("enough" if memory <= room else "too little")
        fits += " (both models are held at once; try --dtype bfloat16)" * (memory > room and dtype == "float32")
    cpu, exchange = (duration(total(kind) / threads) for kind in ("cpu_seconds", "exchange_cpu_seconds"))
    answer = (
        f"{cpu} on this machine's cores, or {duration(total('gpu_seconds'))} on one GPU; {gigabytes(memory)} of memory "
        f"with both models in {dtype}, beside the libraries{fits}."
    )
    exchanging = f"{exchange} and {duration(total('exchange_gpu_seconds'))} more for each {diff.EXCHANGE_STEPS:,} steps"
    gpu = f"a GPU is assumed to reach {diff.GPU_PRODUCT / 1e12:.0f} TFLOP/s and to read {diff.GPU_READ / 1e12:g} TB/s"
    remarks = [
        ("exchange", f"{exchanging} of replica exchange, if asked for"),
        (
            "from",
            f"inputs of {length} tokens, written and judged, the judged ones at most; rates measured just now; {gpu}",
        ),
    ]
    return Card(answer, body=[table], remarks=remarks)
