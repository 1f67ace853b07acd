"""What MATCH costs, against the way that a user would otherwise take: float64 similarities and scipy's assignment.

Both ways work on the same matrices in the same process, one after the other, and are timed by the CPU seconds of that
process: the ratio is what can be compared between machines. Memory is measured in processes of their own.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from provlab.errors import InputError
from provlab.inference.matching import assign, match
from provlab.planning.cost import measure

Matrix = NDArray[np.float32]
KINDS = {
    "independent": "rows of independent normal entries, as weights are",
    "activation-like": "units that read the same 128 inputs through SiLU: non-negative means, correlated columns",
    "shared directions": "rows with eight strong directions that all rows of both sides share",
    "one direction": "rows that are mostly one shared direction, in different amounts",
    "noisy copy": "the second side is the first, in another order and with noise of a third of its size",
}
MEMORY_WAYS = ("match", "reference")


@dataclass(frozen=True)
class Timing:
    """CPU seconds of both ways on one problem.

    Attributes
    ----------
    kind
        Of `KINDS`.
    rows, others, columns
        The problem: `rows` by `columns` against `others` by `columns`.
    ours, reference
        CPU seconds.
    error
        Difference of the two objectives a row: rounding, if both are right.
    certified
        Whether our answer came with its certificate.
    """

    kind: str
    rows: int
    others: int
    columns: int
    ours: float
    reference: float
    error: float
    certified: bool

    @property
    def ratio(self) -> float:
        """How many times faster."""
        return self.reference / self.ours


def pair(kind: str, rows: int, others: int, columns: int, *, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Two matrices of one of the `KINDS`, shapes (rows, columns) and (others, columns)."""

    def normal(*shape: int) -> Matrix:
        return rng.standard_normal(shape, dtype=np.float32)

    if kind == "independent":
        return normal(rows, columns), normal(others, columns)
    if kind == "activation-like":
        inputs = normal(128, columns)

        def activations(n: int) -> Matrix:
            x = normal(n, 128) @ inputs * np.float32(2 / np.sqrt(128)) + np.float32(0.5) * (normal(n, 1) - 1)
            return x / (1 + np.exp(-x)) + np.float32(0.3)

        return activations(rows), activations(others)
    if kind in ("shared directions", "one direction"):
        directions = normal(8 if kind == "shared directions" else 1, columns)
        return tuple(normal(n, columns) + 2 * normal(n, len(directions)) @ directions for n in (rows, others))  # type: ignore[return-value]
    if kind == "noisy copy":
        first = normal(max(rows, others), columns)
        second = first[rng.permutation(len(first))[:others]] + normal(others, columns) / np.float32(3)
        return first[:rows], second
    raise InputError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")


def time_assignment(kind: str, rows: int, others: int, columns: int, *, seed: int, rounds: int = 1) -> Timing:
    """Time the assignment alone, on float32 cosines; scipy is given the same values in float64."""
    first, second = pair(kind, rows, others, columns, rng=np.random.default_rng(seed))
    similarity = _unit(first, np.float32) @ _unit(second, np.float32).T
    exact = similarity.astype(np.float64)
    warm_up()
    ours = min((_timed(lambda: assign(similarity)) for _ in range(rounds)), key=lambda one: one[0])
    reference = _timed(lambda: _scipy(exact))
    return Timing(kind, rows, others, columns, ours[0], reference[0], *_verdict(ours[1], reference[1], rows))


def time_match(kind: str, rows: int, others: int, columns: int, *, seed: int, rounds: int = 1) -> Timing:
    """Time similarities and assignment together, both ways in turn, and take the best round of each.

    Whoever comes first pays for memory that the process never had before, and a busy machine is busier at times.
    """
    first, second = pair(kind, rows, others, columns, rng=np.random.default_rng(seed))
    warm_up()
    ours, reference = [], []
    for _ in range(rounds):
        ours.append(_timed(lambda: match(first, second)))
        reference.append(_timed(lambda: reference_way(first, second)))
    best, other = (min(times, key=lambda one: one[0]) for times in (ours, reference))
    return Timing(kind, rows, others, columns, best[0], other[0], *_verdict(best[1], other[1], rows))


def reference_way(first: Matrix, second: Matrix) -> float:
    """Algorithm 2 as a user would write it; returns the objective."""
    return _scipy(_unit(first, np.float64) @ _unit(second, np.float64).T)


def peak_memory(way: str, rows: int, others: int, columns: int) -> int:
    """Bytes above the two matrices that one way takes at its peak, in a process of its own."""
    if way not in MEMORY_WAYS:
        raise InputError(f"way is {way!r}; it must be one of {', '.join(MEMORY_WAYS)}")
    command = [sys.executable, "-m", __name__, way, str(rows), str(others), str(columns)]
    return int(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Growth with the size: the slope of log seconds over log size, by least squares."""
    if len(sizes) < 2:
        raise InputError(f"an exponent needs at least two sizes; given {len(sizes)}")
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def warm_up() -> None:
    """Have everything compiled, so that no timing holds it."""
    match(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32))
    assign(np.eye(3, dtype=np.float32))


def _unit(rows: Matrix, dtype: type[np.floating]) -> NDArray[np.floating]:
    exact = rows.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    return exact.astype(dtype, copy=False)


def _scipy(similarity: NDArray[np.floating]) -> float:
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    return float(similarity[rows, columns].sum())


def _timed(run: Callable[[], object]) -> tuple[float, object]:
    started = time.process_time()
    result = run()
    return time.process_time() - started, result


def _verdict(ours: object, reference: object, rows: int) -> tuple[float, bool]:
    return abs(ours.objective - reference) / rows, ours.certified  # type: ignore[attr-defined]


def _peak(way: str, rows: int, others: int, columns: int) -> int:
    """Of this process, above what it holds when the two matrices are there."""
    first, second = pair("independent", rows, others, columns, rng=np.random.default_rng(0))
    warm_up()
    work: Callable[[], object] = partial(match if way == "match" else reference_way, first, second)
    return measure(work)[1].memory


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_peak(sys.argv[1], *map(int, sys.argv[2:]))))
