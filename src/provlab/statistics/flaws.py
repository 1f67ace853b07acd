"""Which disguises and framings fool which test, and which test withstands them; the table itself is `flaws.toml`."""

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Flaw:
    """A disguise of related models, or a framing of independent ones.

    Attributes
    ----------
    what
        In a few words.
    shown
        Rows of the attack lab that show it.
    fooled, withstand
        Names of statistics: a disguise hides related models from the former, a framing makes them reject for
        independent ones; the latter see the truth.
    refuse
        Statistics that cannot be computed after it.
    cost
        To the adversary; "" for none.
    """

    what: str
    shown: tuple[str, ...]
    fooled: frozenset[str]
    withstand: tuple[str, ...]
    refuse: tuple[str, ...] = ()
    cost: str = ""


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

DISGUISES, FRAMINGS = (
    tuple(Flaw(**row | {"shown": tuple(row["shown"]), "fooled": frozenset(row["fooled"])}) for row in _TABLE[kind])
    for kind in ("disguise", "framing")
)
#: statistics that read the order of units or dimensions as training left it, and those that find related units in any
ORDERED, ORDER_FREE = frozenset(_TABLE["ordered"]), tuple(_TABLE["order_free"])
#: statistics of the embedding alone
ROWS = frozenset(_TABLE["rows"])
#: statistics of two models of any shape
ANY_SHAPE = tuple(_TABLE["any_shape"])
#: statistics that no disguise without a cost hides from: an acquittal needs one of them
STANDING = tuple(name for name in ORDER_FREE if not any(name in f.fooled for f in DISGUISES if not f.cost))
#: tests one to one cannot see units that were spread where one model has more than so many times the other's: a copy
#: that writes each unit over two or more has twice as many, and the zoo's models of one width the same number.
#: phi_match knows what units write, and asks how many more could be those that matter
SPREAD = 1.5


def applicable(names: Collection[str], *, gated: bool, experts: bool, wide: bool, deep: bool) -> list[str]:
    """Leave out the statistics that refuse two models: without gates, with experts, of unequal width, or depth."""
    refused = [*_TABLE["gates"] * (not gated), *_TABLE["one_mlp"] * experts]
    refused += [*_TABLE["one_width"] * wide, *_TABLE["one_depth"] * deep]
    return [name for name in names if name not in refused]


def hiding(tested: Collection[str], *, free: bool = False) -> list[Flaw]:
    """Return disguises, together enough to hide related models from every one of the tests, free ones first."""
    hidden: set[str] = set()
    chosen = []
    for flaw in DISGUISES:
        if (not free or not flaw.cost) and flaw.fooled & (set(tested) - hidden):
            chosen.append(flaw)
            hidden |= flaw.fooled
    for flaw in reversed(list(chosen)):  # what the others hide as well needs no words
        rest = frozenset().union(*(other.fooled for other in chosen if other is not flaw))
        if flaw.fooled & set(tested) <= rest:
            chosen.remove(flaw)
    return chosen
