"""Plan against actual: each line of `provlab plan` beside what the study took, in CPU seconds and in bytes.

Synthetic models of a true shape are written, planned, and compared in this process; what the parts of the study took is
added up by the engine (`provlab.engine.timing`). Run it with ``OMP_NUM_THREADS=1`` and on a machine that does nothing
else; on a busy one look at ratios. Lines below `NOISE` seconds are not judged.

``python benchmarks/planned.py llama-2-7b --blocks 2``; without a shape a small one.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import synthetic
from cost import measure

from provlab import statistics as registry
from provlab.engine.pairs import open_models, run_pairs
from provlab.engine.timing import timing
from provlab.planning import shapes
from provlab.planning.study import estimate
from provlab.reading.counting import counting
from provlab.statistics.options import Options

NOISE = 0.5  # CPU seconds below which a ratio says nothing
OFF = 2.0  # a line is off if it takes so many times as long as planned, or as much less
_TEXT = "a text that no model knows, as none has a tokenizer: ids are drawn at random. " * 64
_LINES = {"run": "run models", "read": "read and prepare"}


def study(sources: list[str], names: list[str], **settings: Any) -> dict[str, Any]:
    """Plan and run the statistics on all pairs; CPU seconds by line, and bytes."""
    options = Options(text=_TEXT, **settings)
    estimated = estimate(open_models(sources).models, names, options)  # which loads the libraries, too
    opened = open_models(sources)
    with timing() as parts, counting() as count:
        records, cost = measure(lambda: run_pairs(opened, names, options, progress=False))
    actual: dict[str, float] = defaultdict(float)
    for (what, name, _), taken in parts.items():
        actual[_LINES.get(what, f"compare by {name}")] += taken.cpu
    return {
        "planned": {line: taken.cpu for line, taken in estimated.parts.items() if line != "hash"},
        "actual": dict(actual),
        "whole": cost.cpu_seconds,
        "trial": estimated.trial.seconds,
        "read": count.tensors,
        "planned_read": estimated.plan.bytes_to_read,
        "memory": cost.memory,
        "planned_memory": estimated.largest + estimated.waiting,
        "failed": {record.statistic: record.error for record in records if record.error} | estimated.trial.failed,
    }


def table(measured: dict[str, Any]) -> str:
    """Plan, actual and ratio by line."""
    planned, actual = measured["planned"], measured["actual"]
    rows = [f"{'CPU seconds':<32}{'planned':>9}{'actual':>9}{'ratio':>8}"]

    def row(line: str, plan: float, took: float) -> None:
        ratio = took / plan if plan and max(plan, took) > NOISE else None
        mark = " *" if ratio and not 1 / OFF <= ratio <= OFF else ""
        rows.append(f"{line:<32}{plan:>9,.1f}{took:>9,.1f}{'-' if ratio is None else f'{ratio:.2f}':>8}{mark}")

    for line in planned | actual:
        row(line, planned.get(line, 0.0), actual.get(line, 0.0))
    row("all", sum(planned.values()), measured["whole"])
    rows.append(f"the trial took {measured['trial']:.0f} s by the clock")
    for what, key in (("read", "read"), ("held", "memory")):
        rows.append(f"{what} {measured[key] / 1e9:.2f} GB, planned {measured[f'planned_{key}'] / 1e9:.2f} GB")
    rows += [f"failed: {name}: {why}" for name, why in measured["failed"].items()]
    return "\n".join(rows)


def main(command: list[str] | None = None) -> None:
    """Compare a plan with a run, and print both."""
    parser = argparse.ArgumentParser(description="each line of a plan beside what the run took")
    parser.add_argument("shape", nargs="?", default="tiny", help="as for provlab plan (default: tiny)")
    parser.add_argument("--blocks", type=int, metavar="N", help="how many are written and compared (default: all)")
    parser.add_argument("--models", type=int, default=2, metavar="N", help="all pairs of so many (default: 2)")
    parser.add_argument("--statistic", metavar="NAMES", help="separated by commas (default: the default set)")
    parser.add_argument("--json", action="store_true", help="for machines")
    arguments = parser.parse_args(command)
    names = registry.checked_names(arguments.statistic.split(",") if arguments.statistic else None)
    config = shapes.shape(arguments.shape, arguments.blocks)
    with tempfile.TemporaryDirectory(prefix="provlab-planned-") as scratch:
        sources = [str(Path(scratch) / str(seed)) for seed in range(arguments.models)]
        for seed, source in enumerate(sources):
            synthetic.synthesise(config, Path(source), seed=seed)
        measured = study(sources, names)
    print(json.dumps(measured) if arguments.json else table(measured))


if __name__ == "__main__":
    main()
