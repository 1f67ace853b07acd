"""How fast this machine is: a few measurements of under five seconds, from which `planning` estimates hours.

Times are of the processors (`time.process_time`), so that what else runs on the machine hardly counts. The assignment
is measured at growing sizes until one takes a third of a second, on two kinds of rows, and its growth is fitted: rows
that share no direction are the easiest case, rows that share a few strong ones, as trained models' do, the hardest.
"""

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from provlab import machine, statistics
from provlab.fullsize import matching_speed, shapes, synthetic
from provlab.fullsize.cost import Cost
from provlab.inference import pvalues
from provlab.inference.matching import assign, cosine_similarity, match_shuffled, unit_rows
from provlab.statistics.base import Model, Options
from provlab.statistics.phi_jsd import jensen_shannon

_SIZES = (256, 512, 1024, 2048, 4096)
_ENOUGH = 0.33  # CPU seconds after which no larger assignment is tried
_COLUMNS = 128
_BLOCK = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8}
_FILE = 2**26  # bytes written and read back

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Law:
    """CPU seconds of a task of size n: ``seconds * (n / size) ** exponent``."""

    size: int
    seconds: float
    exponent: float

    def __call__(self, n: float) -> float:
        """Seconds at size `n`; below the smallest size that was measured well it is an upper bound."""
        return float(self.seconds * (n / self.size) ** self.exponent)


@dataclass(frozen=True)
class Rates:
    """What this machine does in a CPU second.

    Attributes
    ----------
    product : float
        Floating point operations of a float32 matrix product.
    threads : float
        CPU seconds that a product uses in a second by the clock: the threads that it keeps busy.
    prepared : float
        Numbers of a matrix turned into float32 unit rows.
    read, hashed : float
        Bytes read from the temporary folder's disk, by the clock; bytes hashed.
    call : float
        Seconds of one comparison of two tiny matrices: what each comparison takes at least.
    permuted, divergence : float
        Numbers that phi_l2 compares, each copy counted, and probabilities that phi_JSD compares.
    easy, hard : Law
        The assignment on independent rows, and on rows that share strong directions.
    cores : int
        Cores that this process may use.
    took : float
        Seconds of measuring, by the clock.
    """

    product: float
    threads: float
    prepared: float
    read: float
    hashed: float
    call: float
    permuted: float
    divergence: float
    easy: Law
    hard: Law
    cores: int
    took: float


def warm_up() -> None:
    """Let happen what happens on first use: threads start, loops are compiled or fetched from their cache."""
    for kind in ("independent", "noisy copy"):  # which take different ways
        matching_speed.time_match(kind, 512, 512, 64, seed=0)


def measure_rates(*, seed: int = 0) -> Rates:
    """Measure this machine."""
    warm_up()
    began = time.perf_counter()
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((2048, 2048), dtype=np.float32)
    small = rng.standard_normal((64, 16), dtype=np.float32)
    wall = time.perf_counter()
    product = _fastest(lambda: _product(matrix), 2)
    threads = 2 * product / max(time.perf_counter() - wall, 1e-9)
    call = _fastest(lambda: pvalues.spearman(match_shuffled(small, small, seed=0).indices), 5)
    read, hashed = _file_rates()
    return Rates(
        product=2 * 2048**3 / product,
        threads=float(np.clip(threads, 1.0, machine.cores())),
        prepared=matrix.size / _fastest(lambda: unit_rows(matrix), 2),
        read=read,
        hashed=hashed,
        call=call,
        permuted=_permuted(seed),
        divergence=_divergence(rng),
        easy=fit(_assignments("independent", rng)),
        hard=fit(_assignments("shared directions", rng)),
        cores=machine.cores(),
        took=time.perf_counter() - began,
    )


def fit(times: dict[int, float]) -> Law:
    """Fit a power law to seconds by size: the slope of the last three, through the largest.

    One size alone is taken to grow with the cube, the worst case of an assignment.
    """
    sizes = sorted(times)[-3:]
    exponent = matching_speed.exponent(sizes, [times[size] for size in sizes]) if len(sizes) > 1 else 3.0
    return Law(sizes[-1], times[sizes[-1]], float(np.clip(exponent, 1.0, 3.5)))


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
        "from provlab.fullsize import matching_speed\n"
        "from provlab.inference import matching\n"
        "from provlab.fullsize.cost import measure\n"
        "n, columns = map(int, sys.argv[1:])\n"
        "a, b = matching_speed.pair('independent', n, n, columns, rng=numpy.random.default_rng(0))\n"
        "matching_speed.warm_up()\n"
        "costs = [measure(lambda: matching.match(a, b))[1] for _ in range(2)]\n"
        "print(json.dumps(vars(min(costs, key=lambda cost: cost.seconds))))\n"
    )
    found = {}
    for count in counts:
        limits = dict.fromkeys(machine.THREADS, str(count))
        command = [sys.executable, "-c", code, str(n), str(columns)]
        answer = subprocess.run(command, env=os.environ | limits, capture_output=True, text=True, check=True)
        found[count] = Cost(**json.loads(answer.stdout.splitlines()[-1]))
    return found


def _assignments(kind: str, rng: np.random.Generator) -> dict[int, float]:
    """CPU seconds of one assignment by size, for one kind of rows."""
    found: dict[int, float] = {}
    for n in _SIZES:
        similarity = cosine_similarity(*matching_speed.pair(kind, n, n, _COLUMNS, rng=rng))
        found[n] = _fastest(partial(assign, similarity), 2 if n < 2048 else 1)
        if found[n] > _ENOUGH:
            break
    return found


def _permuted(seed: int) -> float:
    """Numbers a CPU second in phi_l2 on one small block, every permuted copy counted."""
    options, statistic = Options(seed=seed), statistics.get("phi_l2")
    with tempfile.TemporaryDirectory(prefix="provlab-") as scratch:
        for name in ("a", "b"):
            synthetic.synthesise(shapes.shape("tiny", 1) | _BLOCK, Path(scratch) / name, seed=ord(name))
        models = [Model.open(str(Path(scratch) / name)) for name in ("a", "b")]
        a, b = (statistic.prepare(model, options).block(0) for model in models)
    size = sum(math.prod(part.shape) for part in models[0].anatomy.parts if part.block == 0)
    return size * (options.n_permutations + 1) / _fastest(lambda: statistic.compare_block(a, b, 0, options), 1)


def _divergence(rng: np.random.Generator) -> float:
    """Probabilities a CPU second in phi_JSD."""
    a, b = (-rng.exponential(size=(256, 1024)).astype(np.float32) for _ in range(2))
    return a.size / _fastest(lambda: jensen_shannon(a, b), 2)


def _product(matrix: Matrix) -> Matrix:
    result: Matrix = matrix @ matrix.T.copy()  # a copy, or BLAS would compute one half of a symmetric product
    return result


def _fastest(work: Callable[[], object], rounds: int) -> float:
    """CPU seconds of the quickest of some rounds."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return max(min(found), 1e-6)


def _file_rates() -> tuple[float, float]:
    """Bytes a second from disk, past the system's cache where it can be told to forget, and bytes hashed."""
    content = os.urandom(2**20) * (_FILE // 2**20)
    hashing = _fastest(lambda: hashlib.sha256(content).digest(), 1)
    with tempfile.NamedTemporaryFile(prefix="provlab-") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        with open(file.name, "rb", buffering=0) as stream:
            while stream.read(2**22):
                pass
        reading = time.perf_counter() - began
    return _FILE / max(reading, 1e-6), _FILE / hashing
