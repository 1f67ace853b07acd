"""How fast this machine is: a few measurements of some seconds together, from which `study` estimates hours.

Times are of the calling thread (`time.thread_time`). What else runs on the machine hardly counts then, and neither do
the other threads of a matrix product, which spin for a while after it: with them, an assignment seems to take 16 times
as long on 16 cores. On a free machine this is the time by the clock at the threads that will be used. The assignment is
measured at growing sizes until one takes a third of a second, on two kinds of rows, and its growth is fitted: rows that
share no direction are the easiest case, rows that share a few strong ones, as trained models' do, the hardest.

Where models run on another device, all that is computed there (`provlab.arrays`) is measured there, by the clock, with
the way of its numbers over the bus: the calling thread waits meanwhile.
"""

import hashlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from provlab import machine, statistics
from provlab.arrays import There, of, on
from provlab.engine.device import product_on
from provlab.inference import pvalues
from provlab.inference.matching import assign, cosine_similarity, match_shuffled, unit_rows
from provlab.models import anatomy
from provlab.models.canonical import SEEN, merged
from provlab.models.formats.container import TensorInfo
from provlab.models.formats.writing import write_safetensors
from provlab.models.local import LocalFiles
from provlab.models.weights import WeightFiles
from provlab.planning.shapes import shape
from provlab.planning.skeleton import Skeleton
from provlab.statistics.options import Options
from provlab.statistics.order import keys_of_mlp
from provlab.statistics.phi_jsd import jensen_shannon
from provlab.statistics.phi_l2 import BlockWeights

_SIZES = (256, 512, 1024, 2048, 4096)
_ENOUGH = 0.33  # CPU seconds after which no larger assignment is tried
_COLUMNS = 128
_DECOMPOSED = 768  # width
_LARGE = (
    4096,
    4096,
)  # of a matrix that the C library keeps no memory for: each copy takes new pages from the system
_DIRECTIONS = 8  # that the hardest rows share
_BLOCK = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 8}
_WIDER = {"hidden_size": 1024, "intermediate_size": 4096}  # the same for a device
_FILE = 2**26  # bytes hashed; written and read back where no file of the study is here
_READ = 2**28  # bytes that are read of a file of the study
_HERE, _ON_DEVICE = 1024, 8192  # rows of the matrices that torch multiplies on the CPU, and that a device multiplies
_LARGER = 4  # times as many units as on the CPU, of MLPs that a device looks at: it takes little time for few

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class PowerLaw:
    """CPU seconds of a task of size n: ``seconds * (n / size) ** exponent``."""

    size: int
    seconds: float
    exponent: float

    def __call__(self, n: float) -> float:
        """Seconds at size `n`; below the smallest size that was measured well it is an upper bound."""
        return float(self.seconds * (n / self.size) ** self.exponent)


@dataclass(frozen=True)
class Rates:
    """Work that this machine does in a CPU second; where models run on a device, some rates are of the device.

    Attributes
    ----------
    product : float
        Floating point operations of a float32 matrix product of numpy's.
    forward : float
        The same of a product of torch's, in the dtype in which models run; on a device, by the clock. The two libraries
        need not be equally fast: on an AMD EPYC torch's took vectors of half the length that numpy's took.
    threads : float
        CPU seconds that a product uses in a second by the clock: the threads that it keeps busy.
    prepared : float
        Numbers of a matrix turned into float32 unit rows.
    read, hashed : float
        Bytes read from the disk, past the system's cache, by the clock; bytes hashed.
    turned : float
        Numbers of a file in bfloat16, read from the system's cache, turned into float32 and checked.
    ordered : float
        Numbers of a matrix whose units are asked whether they are sorted (`provlab.statistics.order.keys_of_mlp`).
    lengths, near : float
        Numbers of an MLP whose units are brought to canonical form, and pairs of units that are compared for it; of the
        device, by the clock.
    decomposed : float
        Cubed widths of square matrices whose singular vectors are found in float64: twice the width takes 8 times as
        long. A large matrix does not fit into the processor's cache, and takes up to a quarter more.
    call : float
        Seconds of one comparison of two tiny matrices: what each comparison takes at least.
    permuted, divergence : float
        Weights that phi_l2 compares, all copies together, and probabilities that phi_JSD compares; of the device, by
        the clock.
    easy, hard : Law
        The assignment on independent rows, and on rows that share strong directions.
    cores : int
        Cores that this process may use.
    device_product : float or None
        Operations, by the clock, of the float32 product of a matching on the device on which models run, with the way
        of its result into memory; None where that is the CPU.
    """

    product: float
    forward: float
    threads: float
    prepared: float
    read: float
    hashed: float
    turned: float
    ordered: float
    lengths: float
    near: float
    decomposed: float
    call: float
    permuted: float
    divergence: float
    easy: PowerLaw
    hard: PowerLaw
    cores: int
    device_product: float | None = None

    @property
    def multiplied(self) -> float:
        """Floating point operations of a float32 product of what is as large as the weights: on the device, if any."""
        return self.device_product or self.product


def measure_rates(*, seed: int = 0, device: str = "cpu", dtype: str = "float32", file: Path | None = None) -> Rates:
    """Measure this machine, and the device on which models are to run in a dtype, as torch names both.

    Parameters
    ----------
    seed
        For the numbers that are compared.
    device, dtype
        As for `provlab.study`.
    file
        A file of the study, by whose disk reading is measured; by that of the temporary folder without one.

    Raises
    ------
    ParameterError
        torch cannot use the device.
    InputError
        It rounds more than float32 does.
    """
    rng, there = np.random.default_rng(seed), on(device)
    for n in (64, 512):  # threads start, and loops are compiled or fetched from their cache
        assign(cosine_similarity(*rows(n, 64, 0, rng=rng)))
    matrix = rng.standard_normal((2048, 2048), dtype=np.float32)
    large = rng.standard_normal(_LARGE, dtype=np.float32)
    small = rng.standard_normal((64, 16), dtype=np.float32)
    square = rng.standard_normal((_DECOMPOSED, _DECOMPOSED))
    other = matrix[::-1].copy()  # with itself, BLAS would compute half of a square
    began = time.process_time()
    alone = cpu_seconds(lambda: matrix @ other.T, 3)
    threads = float(np.clip((time.process_time() - began) / (3 * alone), 1.0, machine.cores()))
    content = os.urandom(2**20) * (_FILE // 2**20)
    return Rates(
        product=2 * 2048**3 / (alone * threads),
        forward=_forward(device, dtype) / (threads if device == "cpu" else 1.0),
        threads=threads,
        prepared=large.size / cpu_seconds(lambda: unit_rows(large), 2),
        read=_from_disk(content) if file is None or file.stat().st_size < _FILE else read_rate(file),
        hashed=_FILE / cpu_seconds(lambda: hashlib.sha256(content).digest(), 1),
        turned=_turned(large),
        # of the down projection the columns, which lie apart, are the units
        ordered=2 * large.size / cpu_seconds(lambda: keys_of_mlp({"up": large, "down": large.T}), 2),
        **_canonical(rng, there),
        decomposed=_DECOMPOSED**3 / cpu_seconds(lambda: np.linalg.svd(square, full_matrices=False), 2),
        call=cpu_seconds(lambda: pvalues.spearman(match_shuffled(small, small, seed=0).indices), 5),
        permuted=_permuted(rng, there, device),
        divergence=_divergence(rng, there),
        easy=_assignment(0, rng),
        hard=_assignment(_DIRECTIONS, rng),
        cores=machine.cores(),
        device_product=None if device == "cpu" else _device_product(device, rng),
    )


def _forward(device: str, dtype: str) -> float:
    """Operations of torch's product in a second of the calling thread, or on a device in a second by the clock."""
    import torch

    n, home = (_HERE, True) if device == "cpu" else (_ON_DEVICE, False)
    with machine.using_device(device):
        weights = torch.zeros((n, n // 2), dtype=getattr(torch, dtype), device=device)
        inputs = torch.zeros((n // 2, n // 2), dtype=getattr(torch, dtype), device=device)

        def forward() -> object:
            return (weights @ inputs)[0, 0].item()  # which waits for the product

        forward()  # libraries are loaded, and kernels chosen
        return n**3 / 2 / (cpu_seconds(forward, 3) if home else min(_clock(forward) for _ in range(3)))


def _device_product(device: str, rng: np.random.Generator) -> float:
    """Operations a second of a matching's product on a device, as it is made there, by the clock."""
    multiply, n = product_on(device), _ON_DEVICE
    assert multiply is not None  # it is so for the CPU alone
    rows = rng.standard_normal((n, n // 2), dtype=np.float32)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = partial(multiply, unit, unit)
    similarity()
    return n**3 / min(_clock(similarity) for _ in range(3))


def _clock(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return max(time.perf_counter() - began, 1e-6)


def _turned(matrix: Matrix) -> float:
    """Numbers of a bfloat16 file a second, from the system's cache, as a checkpoint reads them: each tensor once."""
    with tempfile.TemporaryDirectory(prefix="provlab-") as folder:
        halves = (matrix.view(np.uint32) >> 16).astype(np.uint16)
        tensors = {name: TensorInfo(matrix.shape, "bfloat16") for name in "abcd"}
        write_safetensors(Path(folder) / "model.safetensors", tensors, lambda _: iter([halves]))
        weights = WeightFiles(LocalFiles(Path(folder)), {})
        # the first tensor has left the processor's cache since it was written; all are held, as a study holds them
        return len(tensors) * matrix.size / cpu_seconds(lambda: [weights.array(name) for name in tensors], 2)


def _canonical(rng: np.random.Generator, there: There) -> dict[str, float]:
    """Numbers and pairs of units a second in `provlab.models.canonical.merged`: a wide MLP, and one of many units."""
    rates = {}
    for name, (h, d) in {"lengths": (512, 4096), "near": (3072, 32)}.items():
        h *= 1 if there is of else _LARGER
        matrices = [rng.standard_normal((h, d), dtype=np.float32) for _ in range(3)]
        on_text = rng.standard_normal((h, SEEN), dtype=np.float32)
        work = partial(_merged, matrices, on_text, there)
        rates[name] = (3 * h * d if name == "lengths" else h * h) / _seconds(work, 2, there)
    return rates


def _merged(matrices: Sequence[Matrix], on_text: Matrix, there: There) -> object:
    gate, up, down = map(there, matrices)
    return merged(gate, up, down, np.ones(len(on_text)), on_text=on_text, output=1.0)


def rows(n: int, columns: int, directions: int, *, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Two matrices ``(n, columns)`` of independent normal rows which all share so many strong directions."""
    shared = rng.standard_normal((directions, columns), dtype=np.float32)

    def side() -> Matrix:
        own = rng.standard_normal((n, columns), dtype=np.float32)
        return own + 2 * rng.standard_normal((n, directions), dtype=np.float32) @ shared if directions else own

    return side(), side()


def fit(times: dict[int, float]) -> PowerLaw:
    """Fit a power law to seconds by size: the slope of the last three on logarithmic axes, through the largest.

    One size alone is taken to grow with the cube, the worst case of an assignment.
    """
    sizes = sorted(times)[-3:]
    logs = np.log(sizes), np.log([times[size] for size in sizes])
    exponent = float(np.polyfit(*logs, 1)[0]) if len(sizes) > 1 else 3.0
    return PowerLaw(sizes[-1], times[sizes[-1]], float(np.clip(exponent, 1.0, 3.5)))


def _assignment(directions: int, rng: np.random.Generator) -> PowerLaw:
    """CPU seconds of one assignment by size, for one kind of rows."""
    times: dict[int, float] = {}
    for n in _SIZES:
        similarity = cosine_similarity(*rows(n, _COLUMNS, directions, rng=rng))
        times[n] = cpu_seconds(partial(assign, similarity), 2 if n < 2048 else 1)
        if times[n] > _ENOUGH:
            break
    return fit(times)


def _permuted(rng: np.random.Generator, there: There, device: str) -> float:
    """Weights a second in phi_l2 on one block of some millions, all permuted copies together."""
    options, statistic = Options(device=device), statistics.get("phi_l2")
    tiny = anatomy.of(Skeleton("tiny", shape("tiny", 1) | (_BLOCK if there is of else _BLOCK | _WIDER)))
    sizes = {part.name: part.shape for part in tiny.parts if part.block == 0}
    a, b = (
        BlockWeights(tiny, 0, {name: rng.standard_normal(size, dtype=np.float32) for name, size in sizes.items()})
        for _ in range(2)
    )
    return sum(map(math.prod, sizes.values())) / _seconds(lambda: statistic.compare_block(a, b, 0, options), 2, there)


def _divergence(rng: np.random.Generator, there: There) -> float:
    """Probabilities a second in phi_JSD."""
    a, b = (-rng.exponential(size=(256, 16_384)).astype(np.float32) for _ in range(2))
    return a.size / _seconds(lambda: jensen_shannon(a, b, there=there), 2, there)


def _seconds(work: Callable[[], object], rounds: int, there: There) -> float:
    """CPU seconds, or seconds by the clock of what is done on a device, once it has been done there before."""
    return cpu_seconds(work, rounds) if there is of else min([_clock(work) for _ in range(1 + rounds)][1:])


def cpu_seconds(work: Callable[[], object], rounds: int = 1) -> float:
    """CPU seconds of this thread in the quickest of some rounds."""
    times = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return max(min(times), 1e-6)


def _from_disk(content: bytes) -> float:
    """Bytes a second from the disk of the temporary folder."""
    with tempfile.NamedTemporaryFile(prefix="provlab-") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        return read_rate(Path(file.name))


def read_rate(path: Path) -> float:
    """Bytes a second, by the clock, of the middle of a file, past the system's cache where the system allows that."""
    with path.open("rb", buffering=0) as stream:
        size = path.stat().st_size
        some = min(_READ, size)
        let_go(stream.fileno(), (size - some) // 2, some)
        stream.seek((size - some) // 2)
        began, left = time.perf_counter(), some
        while left > 0 and (got := stream.read(min(2**22, left))):
            left -= len(got)
        return some / max(time.perf_counter() - began, 1e-6)


def let_go(file: int, start: int, nbytes: int) -> None:
    """Ask the system to drop what it keeps in memory of a part of an open file."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, start, nbytes, os.POSIX_FADV_DONTNEED)
