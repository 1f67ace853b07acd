"""Pairs of models compared in an order that reads each model as seldom as the memory of a study allows."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")
Side = TypeVar("Side", bound=Hashable)


def in_rounds(
    pairs: Sequence[tuple[Side, Side]],
    load: Callable[[Side], Any],
    compare: Callable[[tuple[Side, Side], Any, Any], Result],
    fits: Callable[[Sequence[Any]], bool],
) -> Iterator[tuple[tuple[Side, Side], Result]]:
    """Compare each pair once, holding as many sides as fit: models, or blocks of models.

    A round loads one side after the other and compares it with those that are held. It is then held too, as long as
    they fit; once they do not, the later ones are compared and dropped, and a next round loads them again. So each
    side is loaded once where all fit.

    Parameters
    ----------
    load
        Features of a side.
    compare
        A pair, and the features of both.
    fits
        Whether these features may be held together while another model is read and compared with them.
    """
    left = dict.fromkeys(pairs)
    while left:
        held: dict[Side, Any] = {}
        full = False
        for this in dict.fromkeys(side for pair in left for side in pair):
            known = {this, *held}
            mine = [pair for pair in left if this in pair and known.issuperset(pair)]
            if full and not mine:
                continue
            features = load(this)
            for pair in mine:
                del left[pair]
                yield pair, compare(pair, *(features if side == this else held[side] for side in pair))
            needed = {side for pair in left for side in pair}
            held = {side: held[side] for side in held if side in needed}
            if this in needed and (not held or (not full and fits([*held.values(), features]))):
                held[this] = features
            elif this in needed:
                full = True
            del features
