"""Every attack by its name: what it does, whether outputs stay, what it costs, and the number it takes.

The table itself is `catalogue.toml`. ``T1+split=3+T3`` is three attacks in turn, the second with the number 3.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provlab.attacks import bases, coding, exact, experts, framing, silencing, switching, twofold
from provlab.attacks import lossy as lossy_attacks
from provlab.attacks.state import Aim, AttackedModel
from provlab.errors import InputError, nearest


@dataclass(frozen=True)
class Number:
    """The number that an attack takes.

    Attributes
    ----------
    usual
        If none is given; a whole number if this is one.
    least, most
        What it may be.
    what
        What it counts or measures.
    """

    usual: float
    least: float
    most: float
    what: str

    def read(self, text: str, name: str) -> float:
        """Read the number from text; raise InputError unless it may be that."""
        whole = isinstance(self.usual, int)
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = float("nan")
        if not self.least <= value <= self.most:
            kind = "a whole number" if whole else "a number"
            raise InputError(f"{name}={text}: give {kind} from {self.least:g} to {self.most:g}, {self.what}")
        return value


@dataclass(frozen=True)
class Attack:
    """One thing that an adversary can do.

    Attributes
    ----------
    does
        In one line.
    apply
        Returns the attacked model.
    cost
        To the adversary, in addition to the quality that a lossy attack costs.
    exact
        Whether outputs stay: proved by the logits whenever it is applied.
    number
        That it takes, if any.
    others
        What it takes from other models, in order.
    """

    does: str
    apply: Callable[[AttackedModel, Aim], AttackedModel]
    cost: str = "nothing"
    exact: bool = True
    number: Number | None = None
    others: tuple[str, ...] = ()


def _attack(name: str, does: str, *, lossy: bool = False, number: dict[str, Any] | None = None, **rest: Any) -> Attack:
    """Read one row of the table."""
    module, _, function = rest.pop("function", name).rpartition(".")
    modules = {
        "bases": bases,
        "coding": coding,
        "framing": framing,
        "experts": experts,
        "silencing": silencing,
        "switching": switching,
        "twofold": twofold,
    }
    modules[""] = lossy_attacks if lossy else exact
    rest |= {"others": tuple(rest.get("others", ())), "number": Number(**number) if number else None}
    return Attack(does, getattr(modules[module], function), exact=not lossy, **rest)


#: name -> attack, in the order of the table
CATALOGUE: Mapping[str, Attack] = {
    name: _attack(name, **row)
    for name, row in tomllib.loads((Path(__file__).parent / "catalogue.toml").read_text(encoding="utf-8")).items()
}


@dataclass(frozen=True)
class Step:
    """An attack with its number.

    Attributes
    ----------
    name
        In the catalogue.
    value
        Its number, 0 if it takes none.
    """

    name: str
    value: float

    @property
    def attack(self) -> Attack:
        """What the catalogue says."""
        return CATALOGUE[self.name]

    @classmethod
    def read(cls, text: str) -> "Step":
        """Read ``T3`` or ``noise=0.3``.

        Raises
        ------
        InputError
            There is no such attack, or its number is none that it takes.
        """
        name, equals, value = text.partition("=")
        if name not in CATALOGUE:
            names = re.split(r"[,; ]+", text)
            several = len(names) > 1 and {each.partition("=")[0] for each in names} <= CATALOGUE.keys()
            joined = f"; several are joined by +: {'+'.join(names)}" if several else ""
            hint = joined or nearest(name, CATALOGUE) or f"; there are {', '.join(CATALOGUE)}"
            raise InputError(f"there is no attack {name!r}{hint}")
        number = CATALOGUE[name].number
        if number is None and equals:
            raise InputError(f"{name} takes no number; write {name}, not {text}")
        return cls(name, 0.0 if number is None else number.read(value, name) if equals else number.usual)


def listing() -> list[tuple[str, str, str]]:
    """Return an attack a row: its name with the usual number, exact or lossy, and what it does, takes and costs."""
    rows = []
    for name, attack in CATALOGUE.items():
        number = f"={attack.number.usual:g}" if attack.number else ""
        notes = [attack.number.what] if attack.number else []
        notes += [f"of {' and '.join(attack.others)}"] if attack.others else []
        notes += [f"costs {attack.cost}"] if attack.cost != "nothing" else []
        note = f" ({'; '.join(notes)})" if notes else ""
        rows.append((name + number, "exact" if attack.exact else "lossy", f"{attack.does}{note}"))
    return rows
