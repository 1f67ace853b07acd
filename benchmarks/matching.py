"""MATCH against the reference way: float64 similarities and scipy's assignment, on the same matrices in the same run.

Times are CPU seconds of this process; what can be compared between machines is the ratio. Sizes may be given, the rest
is left as it is: ``python benchmarks/matching.py 1024 4096``; ``--memory``, ``--match`` and ``--threads`` choose the
parts. ``--peak WAY ROWS COLUMNS`` prints the bytes that one way takes above two matrices of independent rows.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy starts its threads

import numpy as np
from cost import Cost, measure
from scipy.optimize import linear_sum_assignment

from provlab.inference.matching import assign, match
from provlab.processes import THREADS
from provlab_study.how_it_scales.measure import KINDS, exponent, pair

SIZES = [2048, 4096, 8192]
COLUMNS = 1024  # of the rows whose similarities are assigned; the assignment does not see them
FULL = (11_008, 11_008, 4_096)  # an up projection of Llama-2-7B


@dataclass(frozen=True)
class Timing:
    """CPU seconds of both ways on one problem, and the difference of the two objectives a row."""

    kind: str
    shape: tuple[int, int, int]
    ours: float
    reference: float
    error: float
    certified: bool

    def __str__(self) -> str:
        same = "yes" if self.error < 1e-6 else f"no, {self.error:.1e} a row"
        return (
            f"{self.kind:<20}{' x '.join(f'{n:,}' for n in self.shape):>24}{self.ours:>10.3f}s{self.reference:>11.2f}s"
            f"{self.reference / self.ours:>8.1f}x  {same:<5}{'certified' if self.certified else 'not certified'}"
        )


def time_assignment(kind: str, rows: int, others: int, columns: int, *, seed: int) -> Timing:
    """Time the assignment alone, on float32 cosines; scipy is given the same values in float64."""
    first, second = pair(kind, rows, others, columns, rng=np.random.default_rng(seed))
    similarity = unit(first).astype(np.float32) @ unit(second).astype(np.float32).T
    exact = similarity.astype(np.float64)
    return compared(kind, (rows, others, columns), lambda: assign(similarity), lambda: scipy_objective(exact), 3)


def time_match(kind: str, rows: int, others: int, columns: int, *, seed: int) -> Timing:
    """Time similarities and assignment together."""
    first, second = pair(kind, rows, others, columns, rng=np.random.default_rng(seed))
    return compared(
        kind, (rows, others, columns), lambda: match(first, second), lambda: reference_way(first, second), 2
    )


def compared(
    kind: str, shape: tuple[int, int, int], ours: Callable[[], Any], reference: Callable[[], float], rounds: int
) -> Timing:
    """Time both ways in turn, and take the best round of each; the first also pays for new memory."""
    match(np.eye(512, dtype=np.float32), np.eye(512, dtype=np.float32))  # compiled before any is timed
    times: list[tuple[float, float]] = []
    for _ in range(rounds):
        began = time.process_time()
        assignment = ours()
        middle = time.process_time()
        objective = reference()
        times.append((middle - began, time.process_time() - middle))
    error = abs(assignment.objective - objective) / shape[0]
    return Timing(kind, shape, *np.min(times, axis=0), error, assignment.certified)


def reference_way(first: np.ndarray, second: np.ndarray) -> float:
    """Algorithm 2 as a user would write it; returns the objective."""
    return scipy_objective(unit(first) @ unit(second).T)


def scipy_objective(similarity: np.ndarray) -> float:
    """Objective of scipy's assignment."""
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    return float(similarity[rows, columns].sum())


def unit(rows: np.ndarray) -> np.ndarray:
    """Unit rows in float64."""
    exact = rows.astype(np.float64)
    return exact / np.linalg.norm(exact, axis=1, keepdims=True)


WAYS = {"match": match, "reference": reference_way}


def in_fresh_process(way: str, rows: int, columns: int, threads: int | None = None) -> Cost:
    """Cost of one way on independent rows; how many threads a process uses is settled when its libraries are loaded."""
    limits = {} if threads is None else dict.fromkeys(THREADS, str(threads))
    command = [sys.executable, __file__, "--peak", way, str(rows), str(columns)]
    done = subprocess.run(command, env=os.environ | limits, capture_output=True, text=True, check=True)
    return Cost(**json.loads(done.stdout))


def cost_of(way: str, rows: int, columns: int) -> Cost:
    """Cost of one way in this process: the quicker of two rounds, and its peak above the two matrices."""
    first, second = pair("independent", rows, rows, columns, rng=np.random.default_rng(0))
    match(np.eye(512, dtype=np.float32), np.eye(512, dtype=np.float32))
    rounds = 1 if way == "reference" else 2
    costs = [measure(lambda: WAYS[way](first, second))[1] for _ in range(rounds)]
    quickest = min(costs, key=lambda cost: cost.seconds)
    return replace(quickest, memory=max(cost.memory for cost in costs))


def assignments(chosen: list[int]) -> None:
    """Print the assignment alone, and how it grows with the size."""
    print(f"assignment{'':<10}{'rows x others x columns':>24}{'ours':>11}{'scipy':>12}{'ratio':>9}  same objective")
    for kind in KINDS:
        sizes = [n for n in chosen if kind != "one direction" or n <= 4096]  # scipy takes minutes beyond
        timings = [time_assignment(kind, n, n, COLUMNS, seed=n) for n in sizes]
        print(*timings, sep="\n", flush=True)
        if len(sizes) > 1:
            ours, theirs = (
                exponent(sizes, [getattr(timing, way) for timing in timings]) for way in ("ours", "reference")
            )
            print(f"{'':<20}grows as n^{ours:.2f}, scipy as n^{theirs:.2f}")


def main() -> None:
    """Print the tables."""
    if sys.argv[1:2] == ["--peak"]:
        way, rows, columns = sys.argv[2:]
        print(json.dumps(vars(cost_of(way, int(rows), int(columns)))))
        return
    options = {text for text in sys.argv[1:] if text.startswith("--")}
    sizes = [int(text) for text in sys.argv[1:] if not text.startswith("--")]
    if not options:
        assignments(sizes or SIZES)
    if not sizes and not options:
        print(time_assignment("independent", 8192, 14_336, COLUMNS, seed=1))
        print(time_assignment("independent", *FULL[:2], COLUMNS, seed=2))
    shapes = [(n, n, n // 2) for n in sizes] or [FULL]
    if not options or "--match" in options:
        print("similarities and assignment")
        for shape in shapes:
            for kind in ("independent", "noisy copy"):
                print(time_match(kind, *shape, seed=3), flush=True)
    if not options or "--memory" in options:
        for n, _, columns in shapes:
            ours, theirs = (in_fresh_process(way, n, columns).memory for way in WAYS)
            print(f"peak memory above the inputs: {ours / 2**20:,.0f} MiB, scipy {theirs / 2**20:,.0f} MiB", end="; ")
            print(f"{ours / theirs:.2f} of it")
    if not options or "--threads" in options:
        for n, _, columns in shapes:
            for threads in (1, 2):
                cost = in_fresh_process("match", n, columns, threads)
                print(f"{n:,} rows, threads: {threads}; clock {cost.seconds:.2f}s, CPU {cost.cpu_seconds:.2f}s")


if __name__ == "__main__":
    main()
