"""Plan against actual: a study of two synthetic models, each line of `provlab plan` beside what the run took.

The pair has the true shapes and few blocks: two models of random weights, strangers. The default statistics, or those
that are named, run on it in this process while functions of the library are timed one by one, each without
those that it calls. The rates of the machine are measured just before, so a plan that is off shows a wrong law and not
another machine. Seconds are of the processor, all threads of the process together; run it with ``OMP_NUM_THREADS=1``,
where these are also the seconds by the clock of a free machine. The files lie in the system's cache, which
the plan takes into account. ``--apart`` reads for each statistic by itself, as a study did before tensors were held.

Ratios hold what a plan cannot know: lines below `NOISE` seconds are not judged, neither is memory below the
libraries' own; and random weights are no trained ones: all their tokens are untrained. Copies are matched quicker than
strangers, with fewer products.

``python benchmarks/planned.py llama-2-7b --blocks 2``; without a shape a small one. ``--memory`` measures instead, in a
process for each, the peak of one statistic of each kind against the plan's.

Measured on 2026-11-27, two cores of an Intel Xeon with 23 GB, shared with other work (load 8 to 14), CPU seconds, one
run each: before with two threads and the default set, after with one thread and without phi_unseen, whose tables of
0.5 GB are in the seconds before, and phi_match_unsigned, which reads nothing. Two blocks of llama-2-7b and 32,000
tokens, a model and its noisy copy.

=============================  =========  =========
work                           before     after
=============================  =========  =========
read and prepare rows          17.5 s     6.3 s
whether units are sorted       23.9 s     9.3 s
tensors beside passes, blocks  3.07 GB    1.62 GB
a 7B pair, default set         76.5 GB    53.5 GB
bfloat16 into float32, 45 M    0.123 s    0.058 s
=============================  =========  =========

The last but one is counted from shapes (a test counts the same way in small models), the last one in a loop of its own.
Before, the plan of this run stood at 0.36 (multiply) to 3.3 (load models) times what it took; with the rates of now,
measured twelve minutes after it, run models 0.85, multiply 0.59 (copies need fewer products), sorted? 0.93, load models
1.40, assign 1.35, canonical form 1.05, read 1.72, phi_l2 1.12, phi_jsd 1.23, hash 1.01. Reading depends on where the
system takes its pages from: 2 to 13 ns a number in one minute.

Strangers of one whole block of llama-2-7b, at 4545817f, one thread, nothing else running, actual over planned: all
0.94; run models 0.88, multiply 0.92, phi_unseen 0.89, load models 0.86, sorted? 1.01, canonical form 1.05, assign 1.06,
phi_l2 0.98, hash 0.78, phi_jsd 1.10. Reading stood at 2.46, for the two large tables: a file that the system had let go
costs more than one in its cache. Both forms of phi_match find units that stand near once, and the plan counts half for
each. The whole pair of 32 blocks on two cores took 24.2 min by the clock (`goals.csv`), and the plan had 21.

The same at 4970498f, files in the system's cache, a page of the study on the other core: all 1.06; phi_unseen 1.06, run
models 0.91, multiply 1.16, sorted? 1.21, assign 1.08, canonical form 1.02, load models 0.87, phi_l2 1.31, hash 0.70,
phi_jsd 1.01. Reading stood at 1.79: 6.0 s where 3.3 were planned. On an AMD EPYC, at af0937a5, phi_unseen stood at 0.4
and reading at 2.1 to 3.7 (phi_u and phi_unseen alone, other work beside it). Two reasons were found. The law of
phi_unseen counted the products of another statistic; it counts its own now, and decompositions are measured. And this
machine is a guest, to which its host gives memory page by page: numbers that are read into pages that nobody used in
the last seconds took 3 to 15 ns, and 1 ns the second time.

Since then memory is used once, and kept, before the rates are measured. There, at 00908354, nothing else running, in
two runs: all 0.95 and 0.94; run models 0.98, 1.00; phi_unseen 0.82, 0.80; multiply 1.05, 1.04; assign 1.02, 1.00;
sorted? 0.91, 0.77; canonical form 1.01, 0.85; phi_l2 1.06, 0.99; hash 1.17, 0.92; read 1.15, 1.04; load models 1.57,
1.28 (1.0 s of 119; since then the plan counts a quarter more for embeddings and head).

On the same machine OPENBLAS_CORETYPE had been set to Haswell, so that numpy multiplied with vectors of half the length
that it would choose. Without it, at 88777488, run models stood at 1.81: torch's library does not use the longer ones on
an AMD, and the plan took numpy's pace for both. It measures torch's own now. At 6462f783: all 0.87; run models 0.83,
phi_unseen 0.82, multiply 1.00, assign 1.00, sorted? 0.99, canonical form 0.95, hash 1.08, load models 1.23, phi_l2
1.13, read 1.08. phi_e, which runs where it is named, took twice what was planned, until the plan counted that its
columns are laid apart and looked at, and 1.25 times since; phi_axes 0.95; stream_score 0.66, for which the plan gives
the most that it can take.

Peaks of memory of four blocks with 1,024 by 2,816 units: phi_u 0.92, phi_l2 0.72, phi_jsd 1.23 of the plan's; phi_h
1.17 and phi_match 1.05, 0.82 and 0.66 before the plan counted rows that wait once.
"""

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import synthetic
from cost import measure

from provlab import statistics as registry
from provlab.cli.plan import QUICK
from provlab.engine import pairs
from provlab.engine.memory import free
from provlab.engine.pairs import open_models, run_pairs, with_common_vocabulary
from provlab.inference import matching
from provlab.inference.matching import cosine
from provlab.machine import keep_freed_memory
from provlab.models import by_blocks, canonical, checkpoint, loading, local, running
from provlab.models.checkpoint import Checkpoint
from provlab.models.counting import counting
from provlab.models.weights import WeightFiles
from provlab.planning import shapes
from provlab.planning.laws import LAWS, NO_LAW
from provlab.planning.rates import measure_rates
from provlab.planning.study import Estimate, estimate, plan
from provlab.statistics import order
from provlab.statistics.base import Options

_TOUCHED = 2**33  # bytes: more than the pair of one block of 7B takes
NOISE = 0.5  # seconds below which a ratio says nothing
OFF = 1.5  # a line is off if it takes so many times as long as planned, or as much less
KINDS = ("phi_u", "phi_h", "phi_match", "phi_l2", "phi_jsd", "phi_unseen")  # one of each kind of work
_TEXT = "a text that no model knows, as none has a tokenizer: ids are drawn at random. " * 64


class Stopwatch:
    """Seconds of the processor by line, each without the lines that are called meanwhile.

    Parameters
    ----------
    whole
        Lines that keep the lines called meanwhile, as the plan counts them.
    """

    def __init__(self, whole: Collection[str]) -> None:
        self._whole = whole
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def line(self, name: str) -> Iterator[None]:
        """Within, time goes to this line."""
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def timed(self, function: Callable[..., Any], line: str) -> Callable[..., Any]:
        """Return a function whose time goes to a line; of the main thread alone, which waits for the others."""

        @functools.wraps(function)
        def call(*arguments: Any, **settings: Any) -> Any:
            main = threading.current_thread() is threading.main_thread()
            kept = bool(self._open) and self._open[-1] in self._whole
            with self.line(line) if main and not kept else nullcontext():
                return function(*arguments, **settings)

        return call


def _watch(stack: ExitStack, watch: Stopwatch, names: Sequence[str]) -> None:
    """Time the functions behind each line, wherever a module of the library has them."""
    functions = {
        checkpoint._hashes: "hash",  # in threads, for which it waits
        cosine.unit_rows: "read",
        loading.load_model: "load models",
        running.run: "run models",
        canonical.merged: "canonical form",
        canonical.shares: "canonical form",
        order.keys_of: "sorted?",
        order.keys_of_mlp: "sorted?",
        cosine.cosines: "multiply",
        matching.match_shuffled: "assign",
    }
    for module in [m for name, m in sys.modules.items() if name.partition(".")[0] == "provlab"]:
        for name, value in list(vars(module).items()):
            if callable(value) and getattr(value, "__hash__", None) and value in functions:
                stack.enter_context(patch.object(module, name, watch.timed(value, functions[value])))
    stack.enter_context(patch.object(WeightFiles, "array", watch.timed(WeightFiles.array, "read")))
    spare = by_blocks._Spare
    stack.enter_context(patch.object(spare, "widened", watch.timed(spare.widened, "load models")))
    for statistic in map(registry.get, names):
        prepared = "run models" if statistic.recorded else "rest"
        for method, line in (("compare_block", f"compare {statistic.name}"), ("prepare", prepared)):
            kind = next(kind for kind in type(statistic).__mro__ if method in vars(kind))
            if not hasattr(getattr(kind, method), "__wrapped__"):
                stack.enter_context(patch.object(kind, method, watch.timed(getattr(kind, method), line)))


def lines_of(estimated: Estimate) -> dict[str, tuple[float, float]]:
    """Seconds of each line of a plan, at least and at most."""
    same = {
        "hash": estimated.hashing,
        "read": estimated.reading + estimated.disk,
        "load models": estimated.loading,
        "run models": estimated.passes,
        "canonical form": estimated.canonical,
        "sorted?": estimated.order,
        "multiply": estimated.products,
        **{f"compare {name}": seconds for name, seconds in estimated.compared.items()},
    }
    return {line: (seconds, seconds) for line, seconds in same.items()} | {"assign": estimated.assignments}


def make_pair(shape: str, blocks: int | None, folder: Path) -> list[str]:
    """Write two models of a shape, or take those that are there."""
    config = shapes.shape(shape, blocks)
    first, second = folder / "a", folder / "b"
    if not first.exists():
        synthetic.synthesise(config, first, seed=0)
    if not second.exists():
        synthetic.synthesise(config, second, seed=1)
    return [str(first), str(second)]


def _touch(nbytes: int) -> None:
    """Use memory once, and keep it in this process.

    A machine that is a guest of another one may get each page from its host when it is first written, and give it back
    when it is freed: a number of float32 then takes up to 14 ns to read, not 1, where no plan can know it.
    """
    keep_freed_memory()
    np.ones(nbytes // 8).sum()


def study(sources: Sequence[str], names: Sequence[str], *, apart: bool = False, **settings: Any) -> dict[str, Any]:
    """Plan and run the statistics on a pair; plan and actual by line, in seconds, and bytes."""
    options = Options(text=_TEXT, **settings)
    matching.match_shuffled([[1.0, 2.0], [2.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], seed=0)  # loops are compiled
    with tempfile.TemporaryDirectory(prefix="provlab-warm-") as scratch:  # libraries are loaded
        tiny = synthetic.synthesise(shapes.shape("tiny", 1), Path(scratch) / "tiny")
        Checkpoint.open(tiny.folder).load_model()
    for file in (file for source in sources for file in sorted(Path(source).glob("*.safetensors"))):
        file.read_bytes()  # the system lets go of files that were written long ago
    _touch(min(_TOUCHED, free() // 2))
    rates = replace(measure_rates(), read=float("inf"))
    opened = open_models(list(sources))
    options = with_common_vocabulary(options, opened.models, names)
    estimated = estimate(opened.models, names, options, rates)
    laws = {name: LAWS.get(name, NO_LAW) for name in names}
    watch = Stopwatch({f"compare {name}" for name, law in laws.items() if law.seconds and not law.weighed})
    with ExitStack() as stack:
        _watch(stack, watch, names)
        if apart:
            stack.enter_context(patch.object(pairs, "SHARE_HELD", 10**15))
        opened = open_models(list(sources))  # with hashes that are not known yet
        count = stack.enter_context(counting())
        began = time.perf_counter()
        with watch.line("rest"):
            records = run_pairs(opened, names, options, progress=False)
        clock = time.perf_counter() - began
    return {
        "planned": lines_of(estimated),
        "actual": dict(watch.seconds),
        "clock": clock,
        "read": count.tensors,
        "planned_read": estimated.plan.bytes_to_read,
        "failed": {record.statistic: record.error for record in records if record.error},
    }


def peak(sources: Sequence[str], name: str) -> dict[str, float]:
    """Peak of memory of one statistic on a pair, above what the libraries take, and the plan's.

    A file that is mapped while its model is loaded is resident, and yet no array: the system takes it back as it likes.
    """
    with tempfile.TemporaryDirectory(prefix="provlab-warm-") as scratch:
        small = open_models(make_pair("tiny", 1, Path(scratch)))  # with these all libraries are loaded
        settings = with_common_vocabulary(Options(text=_TEXT), small.models, [name])
        run_pairs(small, [name], settings, progress=False)
    opened = open_models(list(sources))
    options = with_common_vocabulary(Options(text=_TEXT), opened.models, [name])
    whole = plan(opened.models, [name], options)
    _, cost = measure(lambda: run_pairs(opened, [name], options, progress=False))
    mapped = max(whole.passes.values(), default=0)
    return {"planned": whole.largest + whole.waiting, "actual": cost.memory - mapped, "mapped": mapped}


def table(measured: dict[str, Any]) -> str:
    """Plan, actual and ratio by line."""
    rows = [f"{'line':<28}{'planned':>18}{'actual':>10}{'ratio':>8}"]
    for line in sorted({*measured["planned"], *measured["actual"]}, key=lambda line: -measured["actual"].get(line, 0)):
        low, high = measured["planned"].get(line, (0.0, 0.0))
        actual = measured["actual"].get(line, 0.0)
        span = f"{low:,.1f} s" if low == high else f"{low:,.1f} to {high:,.1f} s"
        nearest = min(max(actual, low), high)
        ratio = f"{actual / nearest:.2f}" if nearest and max(actual, nearest) > NOISE else "-"
        mark = " *" if ratio != "-" and not 1 / OFF <= actual / nearest <= OFF else ""
        rows.append(f"{line:<28}{span:>18}{actual:>8,.1f} s{ratio:>8}{mark}")
    planned, actual = (sum(seconds) for seconds in (highs(measured), measured["actual"].values()))
    rows.append(f"{'all':<28}{planned:>16,.1f} s{actual:>8,.1f} s{actual / planned:>8.2f}")
    rows.append(f"read {measured['read'] / 1e9:.2f} GB of tensors, planned {measured['planned_read'] / 1e9:.2f} GB")
    rows += [f"failed: {name}: {why}" for name, why in measured["failed"].items()]
    return "\n".join(rows)


def highs(measured: dict[str, Any]) -> list[float]:
    """The plan's seconds at most, by line."""
    return [high for _, high in measured["planned"].values()]


def main(command: list[str] | None = None) -> None:
    """Compare a plan with a run, and print both."""
    parser = argparse.ArgumentParser(description="each line of a plan beside what the run took")
    parser.add_argument("shape", nargs="?", default="tiny", help="as for provlab plan (default: tiny)")
    parser.add_argument("--blocks", type=int, metavar="N", help="how many are written and compared (default: all)")
    parser.add_argument("--statistic", metavar="NAMES", help="separated by commas (default: the default set)")
    parser.add_argument("--folder", metavar="FOLDER", help="keep the pair there, or take it from there")
    parser.add_argument("--apart", action="store_true", help="hold no tensor for the next statistic")
    parser.add_argument("--quick", action="store_true", help="the quick setting, and the stream score")
    parser.add_argument("--memory", action="store_true", help="peaks of memory instead of seconds")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--peak", metavar="NAME", help=argparse.SUPPRESS)  # of one statistic, in a process of its own
    arguments = parser.parse_args(command)
    with ExitStack() as stack:
        scratch = arguments.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="provlab-planned-"))
        Path(scratch).mkdir(parents=True, exist_ok=True)
        sources = make_pair(arguments.shape, arguments.blocks, Path(scratch))
        names = arguments.statistic.split(",") if arguments.statistic else None
        if arguments.peak:
            print(json.dumps(peak(sources, arguments.peak)))
            return
        if arguments.memory:
            again = [sys.executable, __file__, arguments.shape, "--folder", scratch]
            peaks = {
                name: json.loads(subprocess.run([*again, "--peak", name], capture_output=True, check=True).stdout)
                for name in names or KINDS
            }
            print(json.dumps(peaks) if arguments.json else memory_table(peaks))
            return
        # hashes that are remembered would cost nothing: the run keeps its own
        kept = stack.enter_context(tempfile.TemporaryDirectory(prefix="provlab-hashes-"))
        stack.enter_context(patch.object(local, "cache_dir", lambda: Path(kept)))
        settings = QUICK if arguments.quick else {}
        usual = registry.checked_names(None, units=settings.get("units"))
        measured = study(
            sources, names or [*usual, *["stream_score"] * arguments.quick], apart=arguments.apart, **settings
        )
    print(json.dumps(measured) if arguments.json else table(measured))


def memory_table(peaks: dict[str, dict[str, float]]) -> str:
    """Peaks planned and measured, in GB."""
    rows = [f"{'statistic':<20}{'planned':>12}{'actual':>12}{'ratio':>8}"]
    for name, of in peaks.items():
        ratio = of["actual"] / of["planned"]
        rows.append(f"{name:<20}{of['planned'] / 1e9:>9,.2f} GB{of['actual'] / 1e9:>9,.2f} GB{ratio:>8.2f}")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
