"""MATCH against the reference way on the same rows: what each costs, and that both reach the same objective.

The reference way is Algorithm 2 as one would write it down: unit rows and similarities in float64, and scipy's
`linear_sum_assignment`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from provlab.errors import InputError
from provlab.inference.matching import Assignment, assign, match
from provlab.studies.cost import Cost, measure
from provlab.studies.rates import rows_of_two, warm_up

NOISE = 0.5  # of a copy, in standard deviations, as in a rehearsal
KINDS = ("independent", "noisy copy", "shared directions")


@dataclass(frozen=True)
class Race:
    """One pair of matrices, matched both ways.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    n, columns : int
        Rows of either matrix, and their length.
    match, assign : Cost
        Of the library: similarities and assignment, and the assignment alone.
    reference, reference_assign : Cost
        Of the reference way.
    gap : float
        By how much the objectives differ, a row.
    certified : bool
        The library proved both of its assignments optimal.
    """

    kind: str
    n: int
    columns: int
    match: Cost
    assign: Cost
    reference: Cost
    reference_assign: Cost
    gap: float
    certified: bool

    def as_row(self) -> dict[str, Any]:
        """Plain data, for a record."""
        return asdict(self)


def rows(kind: str, n: int, columns: int, *, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Two matrices of rows, float32 ``(n, columns)``.

    "independent" rows share nothing, those of a "noisy copy" have a cosine of about 0.9 with their partner, and
    "shared directions" are independent but for a few strong directions, as in models trained on like data.

    Raises
    ------
    InputError
        The kind is unknown.
    """
    if kind not in KINDS:
        raise InputError(f"kind must be {', '.join(KINDS)}, not {kind!r}")
    a, b = rows_of_two(n, columns, np.random.default_rng([seed, n]), shared=kind == "shared directions")
    return (a, a + NOISE * b) if kind == "noisy copy" else (a, b)


def race(kind: str, n: int, columns: int, *, seed: int = 0) -> Race:
    """Match one pair of matrices both ways, one after the other."""
    a, b = rows(kind, n, columns, seed=seed)
    warm_up()
    found, whole = measure(partial(match, a, b))
    similarity, multiplying = measure(partial(_similarity, a, b))
    objective, assigning = measure(partial(_reference, similarity))
    narrow = similarity.astype(np.float32)
    del similarity
    alone: Assignment
    alone, ours = measure(partial(assign, narrow))
    gap = max(abs(found.objective - objective), abs(alone.objective - objective)) / n
    return Race(
        kind,
        n,
        columns,
        match=whole,
        assign=ours,
        # the similarities are held while they are assigned
        reference=Cost(
            multiplying.seconds + assigning.seconds,
            multiplying.cpu_seconds + assigning.cpu_seconds,
            max(multiplying.memory, 8 * n * n + assigning.memory),
        ),
        reference_assign=assigning,
        gap=gap,
        certified=found.certified and alone.certified,
    )


def _similarity(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    x, y = (matrix.astype(np.float64) for matrix in (a, b))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    similarity: NDArray[np.float64] = x @ y.T
    return similarity


def _reference(similarity: NDArray[np.float64]) -> float:
    chosen = linear_sum_assignment(similarity, maximize=True)
    return float(similarity[chosen].sum())


def with_threads(counts: Sequence[int], n: int, columns: int, *, seed: int = 0) -> dict[int, Cost]:
    """Match independent rows in fresh processes that use so many threads each.

    How many threads a process uses is settled when its libraries are loaded, so that one process cannot try two.
    """
    code = (
        "import json, sys\n"
        "from provlab.inference.matching import match\n"
        "from provlab.studies.cost import measure\n"
        "from provlab.studies.race import rows\n"
        "from provlab.studies.rates import warm_up\n"
        "n, columns, seed = map(int, sys.argv[1:])\n"
        "a, b = rows('independent', n, columns, seed=seed)\n"
        "warm_up()\n"
        "costs = [measure(lambda: match(a, b))[1] for _ in range(2)]\n"
        "print(json.dumps(vars(min(costs, key=lambda cost: cost.seconds))))\n"
    )
    found = {}
    for count in counts:
        limits = {
            name: str(count)
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        }
        answer = subprocess.run(
            [sys.executable, "-c", code, str(n), str(columns), str(seed)],
            env=os.environ | limits,
            capture_output=True,
            text=True,
            check=True,
        )
        found[count] = Cost(**json.loads(answer.stdout.splitlines()[-1]))
    return found
