"""How many models are held within the memory of a study: measured as they are read, not foretold."""

import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from provlab.engine.memory import Pair

Result = TypeVar("Result")


def in_rounds(
    pairs: Sequence[Pair],
    load: Callable[[str], Any],
    compare: Callable[[Pair, Any, Any], Result],
    fits: Callable[[Sequence[Any]], bool],
) -> Iterator[tuple[Pair, Result]]:
    """Compare each pair once, holding as many models as fit.

    A round loads one model after the other and compares it with those that are held. It is then held too, as long as
    models fit; once they do not, the later ones are compared and dropped, and a next round loads them again. So each
    model is loaded once where all fit.

    Parameters
    ----------
    load
        Features of a model, by its source.
    compare
        A pair, and the features of both.
    fits
        Whether these features may be held together while another model is read and compared with them.
    """
    left = dict.fromkeys(pairs)
    while left:
        held: dict[str, Any] = {}
        full = False
        for source in dict.fromkeys(source for pair in left for source in pair):
            mine = [pair for pair in left if source in pair and not held.keys().isdisjoint(pair)]
            if full and not mine:
                continue
            features = load(source)
            for pair in mine:
                del left[pair]
                yield pair, compare(pair, *(features if side == source else held[side] for side in pair))
            needed = {side for pair in left for side in pair}
            held = {side: held[side] for side in held if side in needed}
            if source in needed and (not held or (not full and fits([*held.values(), features]))):
                held[source] = features
            elif source in needed:
                full = True
            del features


@contextmanager
def traced() -> Iterator[list[int]]:
    """Peak of the bytes that numpy's arrays take within, beyond those that are there before: the one entry of a list.

    0 in any thread but the main one: `tracemalloc.stop` may end the process while another thread allocates without
    Python's lock, as compiled kernels do.
    """
    peak = [0]
    if threading.current_thread() is not threading.main_thread():
        yield peak
        return
    already = tracemalloc.is_tracing()
    if not already:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield peak
    finally:
        peak[0] = tracemalloc.get_traced_memory()[1] - before
        if not already:
            tracemalloc.stop()
