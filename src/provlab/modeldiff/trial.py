"""What a plan asks of `provlab.diff`: sequences and bytes of each model, and a few sequences written and judged."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from provlab.engine.timing import Taken
from provlab.modeldiff.generation import AT_ONCE, write
from provlab.modeldiff.held_out import N_PIECES
from provlab.modeldiff.nll import FEWEST, HELD, JUDGED, LOGITS, SequenceNll, sequence_nll
from provlab.modeldiff.pipeline import N_CHAINS
from provlab.modeldiff.rounding import READ
from provlab.reading.checkpoint import Checkpoint

_COPIES = 6  # of the logits of a step, in float32: as the model answers, laws, and cumulative sums, twice as wide
_LAWS = 5  # and of the laws that are read at once: of two models, and what divergences are made in
_READ = (
    64  # bytes of each token that was read: losses and divergences of both, as they are kept and as they are weighed
)
_MOST = 4000  # sequences that each model writes, at most
_PIECES = 8 * N_PIECES  # of a text that is given, at most
#: parameters times tokens that each of two models writes or reads in an hour on two cores, of 60 GFLOP/s each: on an
#: AMD EPYC with AVX2 a float32 product made 42 with 40 rows, as 7B writes, and 70 with 256, as it reads (2026-11-30)
_IN_AN_HOUR = 2 * 3600 * 60e9 / 2 / 2


def default_n(parameters: float, device: str, length: int) -> int:
    """How many sequences each of two models writes where nothing is asked: fewer of large ones on a CPU.

    As many as two cores write and read in an hour, with all else that is read (`sequences`, `most_pieces`). A share of
    ``n`` outputs has an interval of at most 1.6 points either way at 4,000, and of 13 at 60; a kind of output that
    comes in fewer than 3 of ``n`` is missed in one comparison of twenty.
    """
    most = float(_MOST)
    if device == "cpu":
        left = _IN_AN_HOUR / (max(parameters, 1.0) * (length - 1)) - READ
        # 3 n written and read, and pieces: n of a long text, `N_PIECES`, or 2 n
        most = min(most, max(left / 5, min(left / 4, (left - N_PIECES) / 3)))
    return max(2 * N_CHAINS, int(most) // N_CHAINS * N_CHAINS)


def most_pieces(n: int, *, given: bool, asked: bool) -> int:
    """Pieces of a text that are read at most: its reading takes no longer than that of what both models write.

    Parameters
    ----------
    n
        Sequences that each model writes.
    given
        Whether the text is the reader's, of which more is read.
    asked
        Whether `n` is: then no fewer pieces are read than where nothing is asked.
    """
    usual = N_PIECES if asked else min(N_PIECES, 2 * n)
    return min(_PIECES, max(usual, n)) if given else usual


def sequences(n: int, *, asked: bool = True) -> tuple[int, int]:
    """How many sequences a model writes, and how many it judges: its own, the other's, pieces of text, and rounded."""
    return n, 2 * n + most_pieces(n, given=False, asked=asked) + READ


def held(n: int, length: int, bytes_a_token: int, vocabulary: int) -> int:
    """Bytes of keys, values, logits and what was read beside the weights; `bytes_a_token` of keys and values."""
    beside = max(1, min(n, AT_ONCE["cpu"], LOGITS["cpu"] // vocabulary))  # sequences written side by side
    written = min(beside * length * bytes_a_token, HELD["cpu"]) + _COPIES * 4 * beside * vocabulary
    laws = _LAWS * 4 * max(JUDGED["cpu"], vocabulary * length * max(1, FEWEST // length))
    return written + laws + _READ * sequences(n)[1] * length


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
