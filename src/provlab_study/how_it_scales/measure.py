"""Rows to be matched, and what is measured beside the page: by scripts of `benchmarks/`, on Model-diff's readers."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.errors import InputError
from provlab.modeldiff.generation import write
from provlab.modeldiff.pipeline import open_models
from provlab.planning.study import Estimate

Matrix = NDArray[np.float32]
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
_TIMED = 200  # sequences that are judged and written to time them: as many as a chain of Model-diff's

KINDS = {
    "independent": "rows of independent normal entries, as weights are",
    "activation-like": "units that read the same 128 inputs through SiLU: non-negative means, correlated columns",
    "shared directions": "rows with eight strong directions that all rows of both sides share",
    "one direction": "rows that are mostly one shared direction, in different amounts",
    "noisy copy": "the second side is the first, in another order and with noise of a third of its size",
}


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


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Growth with the size: the slope of log seconds over log size, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def benchmark(script: str, *arguments: object) -> Any:
    """Run a script of ``benchmarks/`` in a process of its own, and return the JSON that it prints."""
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"benchmarks/{script} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)


def speeds(source: str, length: int, *, seed: int) -> dict[str, float]:
    """Tokens a CPU second of one model: judged, written, and sent through it without any purpose.

    The quicker of two rounds in which the three ways take turns.
    """
    (reader,) = (model.nll for model in open_models([source], progress=False).values())
    tokens = np.random.default_rng(seed).integers(0, reader.vocabulary, (_TIMED, length))

    def bare() -> None:
        at_once = max(1, 4096 // length)
        for begin in range(0, _TIMED, at_once):
            with torch.inference_mode():
                reader.read(torch.from_numpy(tokens[begin : begin + at_once, :-1]), use_cache=False)

    ways = {
        "judged": lambda: reader(tokens),
        "written": lambda: write(reader, _TIMED, length, tempers=[1.0], seed=seed),
        "bare": bare,
    }
    rounds = [{name: cpu_seconds(way) for name, way in ways.items()} for _ in range(2)]
    return {name: _TIMED * (length - 1) / min(once[name] for once in rounds) for name in ways}


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this thread."""
    began = time.thread_time()
    work()
    return max(time.thread_time() - began, 1e-6)


def bill(label: str, estimated: Estimate, share: float) -> dict[str, Any]:
    """CPU seconds by what they go to, if this share of the work falls to each machine."""
    seconds = {line.partition(" ")[0]: share * taken.cpu for line, taken in estimated.parts.items()}
    return {"label": label, "seconds": {part: seconds[part] for part in ("read", "compare")}}
