"""MATCH against the reference way: float64 similarities and scipy's assignment, on the same matrices in the same run.

Times are CPU seconds of this process, the smallest of three rounds in which both ways take turns; what can be compared
between machines is the ratio. Run with sizes to choose: ``python benchmarks/matching.py 1024 4096``.
"""

import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy starts its threads

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from provlab.inference.matching import match

COLUMNS = 256
ROUNDS = 3
Matrix = NDArray[np.float32]


def reference(a: Matrix, b: Matrix) -> float:
    """Algorithm 2 as a user would write it; returns the objective."""
    x, y = (rows.astype(np.float64) for rows in (a, b))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    similarity = x @ y.T
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    return float(similarity[rows, columns].sum())


def seconds(run: Callable[[], float]) -> tuple[float, float]:
    """CPU seconds and result of one call."""
    started = time.process_time()
    result = run()
    return time.process_time() - started, result


def pairs(n: int, rng: np.random.Generator) -> dict[str, tuple[Matrix, Matrix]]:
    """Independent rows, and a noisy copy in which two thirds of each row's direction are left."""
    a = rng.normal(size=(n, COLUMNS)).astype(np.float32)
    b = rng.normal(size=(n, COLUMNS)).astype(np.float32)
    return {"independent": (a, b), "noisy copy": (a, (a + b).astype(np.float32))}


def main() -> None:
    """Print one row a size and kind."""
    sizes = [int(text) for text in sys.argv[1:]] or [512, 1024, 2048]
    print(f"{'rows':<14}{'n':>7}{'match':>10}{'reference':>11}{'ratio':>8}  same objective")
    for n in sizes:
        for kind, (a, b) in pairs(n, np.random.default_rng(n)).items():
            rounds = [
                (seconds(lambda a=a, b=b: match(a, b).objective), seconds(lambda a=a, b=b: reference(a, b)))
                for _ in range(ROUNDS)
            ]
            ours, theirs = (min(round_[way][0] for round_ in rounds) for way in (0, 1))
            gap = abs(rounds[0][0][1] - rounds[0][1][1]) / n
            same = "yes" if gap < 1e-6 else f"no, {gap:.1e} a row"
            print(f"{kind:<14}{n:>7,}{ours:>9.3f}s{theirs:>10.3f}s{theirs / ours:>7.1f}x  {same}")


if __name__ == "__main__":
    main()
