"""Which disguises and framings fool which test, and which test withstands them; the table itself is `flaws.toml`."""

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, order=True)
class Price:
    """What a disguise costs, as the attack lab measured it; prices stand in the order of these fields.

    Attributes
    ----------
    tokens
        Of training.
    nats
        What the model loses on held-out text (nats a token), as a mean over the lab's families, to two decimals: what
        is below that is nothing.
    parameters
        After it, over those before.
    on
        The day, as 2026-11-29; "" for what costs nothing by construction.
    """

    tokens: int = 0
    nats: float = 0.0
    parameters: float = 1.0
    on: str = ""

    def words(self) -> str:
        """Say it, with its day."""
        told = [
            f"{self.parameters:.2f} times the parameters" if self.parameters > 1 else "",
            f"{self.nats:.2f} nats a token" if self.nats else "",
            f"{self.tokens:,} tokens of training" if self.tokens else "",
        ]
        day = f" (measured on {self.on})" if self.on else ""
        return f"{', '.join(filter(None, told)) or 'nothing'}{day}"


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
        To the adversary, in words; "" for none.
    price
        The same in numbers; None where nobody measured it.
    spoils, closed
        Of a disguise that hides from all tests that read this ("text", "places" or "parts"), whatever their names:
        what it spoils, and how it is shut out.
    blocks
        The fewest that a model has which is disguised so.
    """

    what: str
    shown: tuple[str, ...] = ()
    fooled: frozenset[str] = frozenset()
    withstand: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    cost: str = ""
    price: Price | None = None
    spoils: str = ""
    closed: str = ""
    blocks: int = 0

    @classmethod
    def read(cls, row: dict[str, Any]) -> "Flaw":
        """Take a row of the table."""
        lists = {"shown": tuple(row.get("shown", ())), "fooled": frozenset(row.get("fooled", ()))}
        price = Price(**row["price"]) if "price" in row else None if row.get("cost") else Price()
        return cls(**row | lists | {"price": price})


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

DISGUISES, FRAMINGS = (tuple(map(Flaw.read, _TABLE[kind])) for kind in ("disguise", "framing"))
#: disguises without a cost: a test that does not withstand them says nothing by its silence
FREE = tuple(flaw for flaw in DISGUISES if not flaw.cost)
#: what tests read of the inputs -> the disguise that spoils it
OF_PAIR = {row["spoils"]: Flaw.read(row) for row in _TABLE["of_pair"]}
#: statistic -> what two models must have to be read by it; in the order of advice
NEEDS: dict[str, list[str]] = _TABLE["needs"]
#: statistic -> the roles of tensors that it compares
LOOKS: dict[str, list[str]] = _TABLE["looks"]
#: tests one to one cannot see units that were spread where one model has more than so many times the other's: a copy
#: that writes each unit over two or more has twice as many, and the zoo's models of one width the same number.
#: phi_match knows what units write, and asks how many more could be those that matter
SPREAD = 1.5


def applicable(lacking: Collection[str]) -> list[str]:
    """Statistics that can read two models which lack these of what `NEEDS` names."""
    return [name for name, needs in NEEDS.items() if not set(needs).intersection(lacking)]


def cheapest(ran: Collection[str], known: Iterable[Flaw] = DISGUISES) -> Flaw | None:
    """Return the cheapest disguise that hides from all of these; one without a price is the last; None if none does.

    Parameters
    ----------
    ran
        Tests that could have rejected, and figures that could have been those of related models.
    known
        Disguises.
    """
    hide = [flaw for flaw in known if flaw.fooled.issuperset(ran)]
    return min(hide, key=lambda flaw: (flaw.price is None, flaw.price or Price()), default=None)


def hiding(hidden: Iterable[tuple[Flaw, Collection[str]]]) -> list[tuple[Flaw, list[str]]]:
    """Choose flaws, together enough to fool all tests that any of them fools; and all that a reader can shut out.

    Parameters
    ----------
    hidden : iterable of (Flaw, names)
        Each flaw, and the tests that it fools; the first of them are preferred.

    Returns
    -------
    list of (Flaw, names)
        Those that are needed.
    """
    chosen: list[tuple[Flaw, list[str]]] = []
    for flaw, names in hidden:
        if (flaw.closed and names) or set(names).difference(*(other for _, other in chosen)):
            chosen.append((flaw, list(names)))
    for row in reversed([row for row in chosen if not row[0].closed]):  # what the others do as well needs no words
        if not set(row[1]).difference(*(names for other, names in chosen if other is not row[0])):
            chosen.remove(row)
    return chosen
