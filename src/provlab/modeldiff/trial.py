"""What a plan asks of `provlab.diff`: sequences and bytes of each model, and a few sequences written and judged."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from provlab.engine.timing import Taken
from provlab.modeldiff.generation import AT_ONCE, write
from provlab.modeldiff.held_out import N_PIECES
from provlab.modeldiff.nll import HELD, LOGITS, SequenceNll, sequence_nll
from provlab.modeldiff.pipeline import N_CHAINS
from provlab.reading.checkpoint import Checkpoint

_COPIES = 3  # of the logits of a step, in float32


def sequences(n: int) -> tuple[int, int]:
    """How many sequences a model writes, and how many it judges: its own, the other's, and the pieces of text."""
    return n, 2 * n + N_PIECES


def held(n: int, length: int, bytes_a_token: int) -> int:
    """Bytes of keys, values and logits beside the weights, at most; `bytes_a_token` of keys and values."""
    chain = min(-(-n // N_CHAINS), AT_ONCE["cpu"])  # sequences written side by side, if their keys and values fit
    return min(chain * length * bytes_a_token, HELD["cpu"]) + _COPIES * 4 * LOGITS["cpu"]


def reader(folder: Path, dtype: str, device: str) -> SequenceNll:
    """Load a model as `provlab.diff` does."""
    import torch

    return sequence_nll(Checkpoint.open(folder), device=device, dtype=getattr(torch, dtype))


def rates(model: SequenceNll, n: int, length: int) -> tuple[Taken, Taken]:
    """What writing `n` sequences takes, and what judging them takes."""
    tokens = np.random.default_rng(0).integers(0, model.vocabulary, (n, length))
    return (
        _timed(lambda: write(model, n, length, tempers=[1.0], seed=0)),
        _timed(lambda: model(tokens)),
    )


def _timed(call: Callable[[], object]) -> Taken:
    clock, cpu = time.perf_counter(), time.process_time()
    call()
    return Taken(time.perf_counter() - clock, time.process_time() - cpu)
