"""Cost of `provlab diff` of two models: sequences, tokens and memory from shapes, minutes from a trial.

Each model writes `n` sequences, token by token with a cache of keys and values, and judges its own, the other's, and
the pieces of text. A trial writes and judges some short ones, by stand-ins of one block (`provlab.planning.stand_in`):
with a small vocabulary for what grows with the blocks, and with the whole one for what does not. It is short since a
block of a large model is read anew for each token that is written.
"""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provlab import plugins
from provlab.engine.timing import Taken
from provlab.errors import InputError
from provlab.planning.stand_in import write_stand_in
from provlab.planning.trial import FEW, kinds_of
from provlab.statistics.model import Model

TRIED, SHORT = 32, 9  # sequences, and tokens of one at most; few written side by side take longer each
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


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
        Bytes of weights in the precision of the run; of keys, values, logits and what was read beside them.
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


def works(
    models: Mapping[str, Model], *, length: int, n: int | None, dtype: str, device: str = "cpu"
) -> dict[str, Work]:
    """Say what each model does for `provlab.diff` with one temper.

    Parameters
    ----------
    models
        Known by their shapes.
    length, n
        Tokens of an input, and sequences that each model writes; None for as many as `provlab.diff` takes of models of
        this size.
    dtype, device
        The dtype of the weights in the run, and where it is made.

    Raises
    ------
    InputError
        A model cannot read inputs of this length, no model runs in this dtype, or one predicts no next token.
    """
    if dtype not in _BYTES:
        raise InputError(f"dtype must be one of {', '.join(_BYTES)}, not {dtype}")
    if length < 2 or (n is not None and n < 1):
        raise InputError(f"a comparison needs inputs of 2 tokens or more and one sequence, not {length} and {n}")
    asked, n = n is not None, n or _trial().default_n(max(map(_parameters, models.values())), device, length)
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
    written, judged = _trial().sequences(n, asked=asked)
    return {
        source: _work(model, length, written, judged, dtype, *tried[kinds[source]]) for source, model in models.items()
    }


def _work(model: Model, length: int, written: int, judged: int, dtype: str, block: "Rates", whole: "Rates") -> Work:
    anatomy, parameters = model.anatomy, _parameters(model)
    held = _trial().held(written, length, 2 * anatomy.n_blocks * anatomy.width * _BYTES[dtype], anatomy.vocab_size)
    tokens_tried = TRIED * (min(length, SHORT) - 1)
    clock, cpu = (
        sum(
            sequences
            * (length - 1)
            * (getattr(beside, kind) + (anatomy.n_blocks - 1) * getattr(of_block, kind))
            / tokens_tried
            for sequences, of_block, beside in zip((written, judged), block, whole, strict=True)
        )
        for kind in ("clock", "cpu")
    )
    tokens = (written + judged) * (length - 1)  # the last of a sequence predicts nothing that is there
    return Work(parameters, written, judged, tokens, parameters * _BYTES[dtype], held, clock, cpu)


def _parameters(model: Model) -> int:
    return sum(math.prod(part.shape) for part in model.anatomy.parts)


#: what writing and judging of so many short sequences (`TRIED`) took
Rates = tuple[Taken, Taken]


def _trial() -> Any:
    """What `provlab.diff` says of its work."""
    if (door := plugins.door("diff")) is None:
        raise InputError("diff is not installed; install provlab again")
    return door.trial


def _tried(model: Model, length: int, dtype: str, device: str) -> tuple[Rates, Rates]:
    """Rates of one block with few tokens, and with all of them."""
    trial = _trial()
    with tempfile.TemporaryDirectory(prefix="provlab-trial-") as scratch:
        readers = []
        for tokens in (FEW, None):
            folder = write_stand_in(model, Path(scratch) / str(tokens), vocabulary=tokens, seed=0)
            readers.append(trial.reader(folder, dtype, device))
        for reader in readers:
            trial.rates(reader, 2, 2)  # libraries are loaded, weights read, and kernels chosen
        few, whole = (trial.rates(reader, TRIED, min(length, SHORT)) for reader in readers)
    return few, whole
