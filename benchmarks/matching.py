"""MATCH against the reference way: float64 similarities and scipy's assignment, on the same matrices in the same run.

Times are CPU seconds of this process; what can be compared between machines is the ratio. Sizes may be given, the rest
is left as it is: ``python benchmarks/matching.py 1024 4096``; ``--memory``, ``--match`` and
``--threads`` choose the parts.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy starts its threads

from provlab import machine
from provlab.planning import matching_speed as speed
from provlab.planning.cost import Cost

SIZES = [2048, 4096, 8192]
COLUMNS = 1024  # of the rows whose similarities are assigned; the assignment does not see them
FULL = (11_008, 11_008, 4_096)  # an up projection of Llama-2-7B


def show(timing: speed.Timing) -> None:
    """One line of the table."""
    shape = f"{timing.rows:,} x {timing.others:,} x {timing.columns:,}"
    same = "yes" if timing.error < 1e-6 else f"no, {timing.error:.1e} a row"
    print(
        f"{timing.kind:<20}{shape:>24}{timing.ours:>10.3f}s{timing.reference:>11.2f}s{timing.ratio:>8.1f}x"
        f"  {same:<5}{'certified' if timing.certified else 'not certified'}",
        flush=True,
    )


def assignments(asked: list[int]) -> None:
    """The assignment alone, and how it grows with the size."""
    print(f"assignment{'':<10}{'rows x others x columns':>24}{'ours':>11}{'scipy':>12}{'ratio':>9}  same objective")
    for kind in speed.KINDS:
        sizes = [n for n in asked if kind != "one direction" or n <= 4096]  # scipy takes minutes beyond
        timings = [speed.time_assignment(kind, n, n, COLUMNS, seed=n, rounds=3) for n in sizes]
        for timing in timings:
            show(timing)
        if len(sizes) > 1:
            ours = speed.exponent(sizes, [timing.ours for timing in timings])
            theirs = speed.exponent(sizes, [timing.reference for timing in timings])
            print(f"{'':<20}grows as n^{ours:.2f}, scipy as n^{theirs:.2f}")


def with_threads(counts: Sequence[int], n: int, columns: int) -> dict[int, Cost]:
    """Match two matrices of independent rows in fresh processes that use so many threads each.

    How many threads a process uses is settled when its libraries are loaded, so that one process cannot try two.

    Returns
    -------
    dict
        Number of threads -> cost of the quicker of two rounds.
    """
    code = (
        "import json, sys, numpy\n"
        "from provlab.planning import matching_speed\n"
        "from provlab.inference import matching\n"
        "from provlab.planning.cost import measure\n"
        "n, columns = map(int, sys.argv[1:])\n"
        "a, b = matching_speed.pair('independent', n, n, columns, rng=numpy.random.default_rng(0))\n"
        "matching_speed.warm_up()\n"
        "costs = [measure(lambda: matching.match(a, b))[1] for _ in range(2)]\n"
        "print(json.dumps(vars(min(costs, key=lambda cost: cost.seconds))))\n"
    )
    costs = {}
    for count in counts:
        limits = dict.fromkeys(machine.THREADS, str(count))
        command = [sys.executable, "-c", code, str(n), str(columns)]
        answer = subprocess.run(command, env=os.environ | limits, capture_output=True, text=True, check=True)
        costs[count] = Cost(**json.loads(answer.stdout.splitlines()[-1]))
    return costs


def main() -> None:
    """Print the tables."""
    options = {text for text in sys.argv[1:] if text.startswith("--")}
    sizes = [int(text) for text in sys.argv[1:] if not text.startswith("--")]
    if not options:
        assignments(sizes or SIZES)
    if not sizes and not options:
        show(speed.time_assignment("independent", 8192, 14_336, COLUMNS, seed=1, rounds=3))
        show(speed.time_assignment("independent", *FULL[:2], COLUMNS, seed=2, rounds=3))
    shapes = [(n, n, n // 2) for n in sizes] or [FULL]
    if not options or "--match" in options:
        print("similarities and assignment")
        for shape in shapes:
            for kind in ("independent", "noisy copy"):
                show(speed.time_match(kind, *shape, seed=3, rounds=2))
    if not options or "--memory" in options:
        for shape in shapes:
            ours, theirs = (speed.peak_memory(way, *shape) for way in speed.MEMORY_WAYS)
            print(f"peak memory above the inputs: {ours / 2**20:,.0f} MiB, scipy {theirs / 2**20:,.0f} MiB", end="; ")
            print(f"{ours / theirs:.2f} of it")
    if not options or "--threads" in options:
        for n, _, columns in shapes:
            for count, cost in with_threads([1, 2], n, columns).items():
                print(
                    f"{n:,} independent rows, threads: {count}; clock {cost.seconds:.2f}s, CPU {cost.cpu_seconds:.2f}s"
                )


if __name__ == "__main__":
    main()
