"""Cost of `provlab diff` of two models: sequences, tokens, memory and hours, from shapes and the machine's rates.

Each model writes `n` sequences, token by token with a cache of keys and values, and reads once its own, the other's,
and the pieces of text; all of it is products with the weights, so that time is the number of tokens times the
operations of one. On a CPU these run at the measured rate of a product, beside passes over the vocabulary; on a GPU at
an assumed one, but a step of writing takes at least the reading of all weights.
"""

import math
from dataclasses import dataclass

from provlab.errors import InputError
from provlab.modeldiff.generation import AT_ONCE
from provlab.modeldiff.held_out import N_PIECES
from provlab.modeldiff.nll import HELD, LOGITS
from provlab.modeldiff.pipeline import N_CHAINS
from provlab.planning.rates import Rates
from provlab.statistics.model import Model

# one GPU is assumed to reach these: operations and bytes a second, and seconds for a block of a model at least
GPU_PRODUCT, GPU_READ, GPU_BLOCK = 1e14, 1.5e12, 1e-4
EXCHANGE_STEPS, EXCHANGE_SEQUENCES = 1000, 96  # for whose cost a line is given: eight chains of twelve temperatures
_VOCABULARY = 1.0  # times what phi_JSD takes for as many probabilities: a softmax, and a draw
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_COPIES = 3  # of the logits of a step, in float32
_FORWARD = 1.3  # attention, norms and copies, over the products of a forward pass


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
    operations
        Floating point operations for one token.
    weights, held
        Bytes of weights in the precision of the run, and of keys, values and logits beside them.
    cpu_seconds, gpu_seconds
        For writing and judging.
    exchange_cpu_seconds, exchange_gpu_seconds
        For so many steps of replica exchange (`EXCHANGE_STEPS`).
    """

    parameters: int
    written: int
    judged: int
    tokens: int
    operations: float
    weights: int
    held: int
    cpu_seconds: float
    gpu_seconds: float
    exchange_cpu_seconds: float
    exchange_gpu_seconds: float


def checked_dtype(dtype: str) -> str:
    """Return the dtype of a comparison's weights; raise InputError unless models run in it."""
    if dtype not in _BYTES:
        raise InputError(f"dtype must be one of {', '.join(_BYTES)}, not {dtype}")
    return dtype


def work(model: Model, *, length: int, n: int, dtype: str, rates: Rates) -> Work:
    """Say what one model does for `provlab.diff` with one temper.

    Parameters
    ----------
    model
        Known by its shapes.
    length, n
        Tokens of an input, and sequences that each model writes.
    dtype
        The dtype of the weights in the run.
    rates
        The rates of this machine.
    """
    if length < 2 or n < 1:
        raise InputError(f"a comparison needs inputs of 2 tokens or more and one sequence, not {length} and {n}")
    config = model.checkpoint.config
    context = config.get("max_position_embeddings", config.get("n_positions", length))
    if length > context:
        raise InputError(f"length {length} exceeds the context of {model.checkpoint.name}: {context}; give less")
    anatomy = model.anatomy
    sizes = {part.name: math.prod(part.shape) for part in anatomy.parts}
    inside = sum(sizes[part.name] for part in anatomy.parts if part.block is not None)
    vocabulary, width = anatomy.vocab_size, anatomy.width
    # twice a number for its product and sum; attention reads the keys and values of half the tokens in the mean
    operations = 2.0 * (inside + vocabulary * width + anatomy.n_blocks * width * length)
    read = length - 1  # tokens of a sequence that go through the model: the last predicts nothing that is there
    written, judged = n, 2 * n + N_PIECES
    tokens = (written + judged) * read
    bytes_each = _BYTES[checked_dtype(dtype)]
    weights = sum(sizes.values()) * bytes_each
    chain = min(-(-n // N_CHAINS), AT_ONCE["cpu"])  # sequences written side by side, if their keys and values fit
    each = length * 2 * anatomy.n_blocks * width * bytes_each
    held = min(chain * each, HELD["cpu"]) + _COPIES * 4 * LOGITS["cpu"]

    def seconds(tokens: float) -> float:
        return tokens * (_FORWARD * operations / rates.forward + _VOCABULARY * vocabulary / rates.divergence)

    # in half of the steps the present sequence is judged and a new one written, in the others a token is redrawn
    exchanged = 2 * EXCHANGE_STEPS * EXCHANGE_SEQUENCES * read
    steps = math.ceil(n / min(n, AT_ONCE["cuda"], max(1, HELD["cuda"] // each))) * read  # of writing
    at_gpu = tokens * operations / GPU_PRODUCT + steps * (weights / GPU_READ + anatomy.n_blocks * GPU_BLOCK)
    return Work(
        sum(sizes.values()), written, judged, tokens, operations, weights, held, seconds(tokens), at_gpu,
        seconds(exchanged), exchanged * operations / GPU_PRODUCT,
    )  # fmt: skip
