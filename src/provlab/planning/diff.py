"""Cost of `provlab diff` of two models: sequences, tokens and memory from shapes, minutes from a trial.

Each model writes `n` sequences, token by token with a cache of keys and values, and judges its own, the other's, and
the pieces of text. A trial writes and judges some, by stand-ins of one block (`provlab.planning.stand_in`): with few
tokens for what grows with the blocks, and with all of them for the vocabulary.
"""

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from provlab.engine.timing import Taken
from provlab.errors import InputError
from provlab.modeldiff.generation import AT_ONCE, write
from provlab.modeldiff.held_out import N_PIECES
from provlab.modeldiff.nll import HELD, LOGITS, SequenceNll, sequence_nll
from provlab.modeldiff.pipeline import N_CHAINS
from provlab.planning.stand_in import write_stand_in
from provlab.planning.trial import FEW, kinds_of
from provlab.reading.checkpoint import Checkpoint
from provlab.statistics.model import Model

TRIED = 16  # sequences
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_COPIES = 3  # of the logits of a step, in float32


@dataclass(frozen=True)
class Work:
    """What one model of a comparison does.

    Attributes
    ----------
    parameters
        Numbers of its weights, the table of tokens once.
    written, judged
        Sequences.
    tokens
        Sent through it for both.
    weights, held
        Bytes of weights in the precision of the run, and of keys, values and logits beside them, at most.
    seconds, cpu_seconds
        For writing and judging, by the clock and of the processors.
    """

    parameters: int
    written: int
    judged: int
    tokens: int
    weights: int
    held: int
    seconds: float
    cpu_seconds: float


def works(models: Mapping[str, Model], *, length: int, n: int, dtype: str, device: str = "cpu") -> dict[str, Work]:
    """Say what each model does for `provlab.diff` with one temper.

    Parameters
    ----------
    models
        Known by their shapes.
    length, n
        Tokens of an input, and sequences that each model writes.
    dtype, device
        The dtype of the weights in the run, and where it is made.

    Raises
    ------
    InputError
        A model cannot read inputs of this length, no model runs in this dtype, or one predicts no next token.
    """
    if dtype not in _BYTES:
        raise InputError(f"dtype must be one of {', '.join(_BYTES)}, not {dtype}")
    if length < 2 or n < 1:
        raise InputError(f"a comparison needs inputs of 2 tokens or more and one sequence, not {length} and {n}")
    for model in models.values():
        config = model.checkpoint.config
        context = config.get("max_position_embeddings", config.get("n_positions", length))
        if length > context:
            raise InputError(f"length {length} exceeds the context of {model.checkpoint.name}: {context}; give less")
    kinds = kinds_of(models)
    tried = {
        kind: _tried(next(models[source] for source in kinds if kinds[source] == kind), length, dtype, device)
        for kind in set(kinds.values())
    }
    return {source: _work(model, length, n, dtype, *tried[kinds[source]]) for source, model in models.items()}


def _work(model: Model, length: int, n: int, dtype: str, block: "Rates", whole: "Rates") -> Work:
    anatomy = model.anatomy
    parameters = sum(math.prod(part.shape) for part in anatomy.parts)
    written, judged = n, 2 * n + N_PIECES
    chain = min(-(-n // N_CHAINS), AT_ONCE["cpu"])  # sequences written side by side, if their keys and values fit
    each = length * 2 * anatomy.n_blocks * anatomy.width * _BYTES[dtype]
    held = min(chain * each, HELD["cpu"]) + _COPIES * 4 * LOGITS["cpu"]
    clock, cpu = (
        sum(
            sequences * (getattr(beside, kind) + (anatomy.n_blocks - 1) * getattr(of_block, kind)) / TRIED
            for sequences, of_block, beside in zip((written, judged), block, whole, strict=True)
        )
        for kind in ("clock", "cpu")
    )
    tokens = (written + judged) * (length - 1)  # the last of a sequence predicts nothing that is there
    return Work(parameters, written, judged, tokens, parameters * _BYTES[dtype], held, clock, cpu)


#: what writing and judging of so many sequences (`TRIED`) took
Rates = tuple[Taken, Taken]


def _tried(model: Model, length: int, dtype: str, device: str) -> tuple[Rates, Rates]:
    """Rates of one block with few tokens, and with all of them."""
    with tempfile.TemporaryDirectory(prefix="provlab-trial-") as scratch:
        readers = []
        for tokens in (FEW, None):
            folder = write_stand_in(model, Path(scratch) / str(tokens), vocabulary=tokens, seed=0)
            readers.append(_reader(folder, dtype, device))
        _rates(readers[0], length)  # libraries are loaded, and kernels chosen
        few, whole = (_rates(reader, length) for reader in readers)
    return few, whole


def _reader(folder: Path, dtype: str, device: str) -> SequenceNll:
    import torch

    return sequence_nll(Checkpoint.open(folder), device=device, dtype=getattr(torch, dtype))


def _rates(reader: SequenceNll, length: int) -> Rates:
    tokens = np.random.default_rng(0).integers(0, reader.vocabulary, (TRIED, length))
    return (
        _timed(lambda: write(reader, TRIED, length, tempers=[1.0], seed=0)),
        _timed(lambda: reader(tokens)),
    )


def _timed(call: Callable[[], object]) -> Taken:
    clock, cpu = time.perf_counter(), time.process_time()
    call()
    return Taken(time.perf_counter() - clock, time.process_time() - cpu)
