"""What a comparison is to fail on: each gate one number that the report shows, tested at one level.

``answers`` asks whether more answers turned wrong than right, ``text`` how far B is from A where all models read the
same tokens, beside references if there are any, and ``outputs`` how far apart the two are over what they write. Several
are corrected by Holm. A gate that no data could make fail is refused before anything is drawn; one that the draws do
not carry, or that the references say nothing of, is not decided, which is no pass.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from provlab.errors import InputError, nearest
from provlab.inference import pvalues

GATES = ("answers", "text", "outputs")
ANY = "any"  # all that can be answered with what was given
TEST_LEVEL, HIGHEST = 0.05, 0.5  # where no other is asked for, and above which there is none
#: a decision, and the exit status of the command; 2 is that of a command that could not run
STATUS = {"not asked": 0, "equal": 0, "passed": 0, "failed": 1, "not decided": 3}


class Gate(NamedTuple):
    """What to fail on, and the size up to which it may go; None for the smallest that can be asked."""

    name: str
    size: float | None = None


class Given(NamedTuple):
    """What a test can rest on: questions with answers, references, pieces that are read, and why these are too few."""

    items: int
    references: int
    too_short: str


class Measured(NamedTuple):
    """One gate's number: what is estimated, in words, the size it is held against, and its p-value.

    Without a p-value, `why` says what would decide.
    """

    estimand: str
    size: float
    p: float | None
    why: str = ""


@dataclass(frozen=True)
class Tested:
    """One gate after correction.

    Attributes
    ----------
    name, estimand, size
        As asked, and what is estimated in words.
    p, holm
        The p-value, and adjusted by Holm over all gates that were asked; None where nothing decides.
    fails
        Whether the adjusted one is at most the level.
    why
        Why nothing decides.
    """

    name: str
    estimand: str
    size: float
    p: float | None
    holm: float | None
    fails: bool
    why: str


@dataclass(frozen=True)
class Decision:
    """All gates of a comparison.

    Attributes
    ----------
    word
        A key of `STATUS`.
    level
        The chance that any gate fails where none should.
    tested
        The gates; that which decided first.
    """

    word: str
    level: float
    tested: tuple[Tested, ...] = ()

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return STATUS[self.word]

    def to_json(self) -> dict[str, Any]:
        """What was decided, by which estimand, at which level."""
        first = self.tested[0].estimand if self.tested else None
        return {
            "decision": self.word,
            "estimand": first,
            "level": self.level,
            "gates": [vars(one) for one in self.tested],
        }


def parsed(words: str | Sequence[str]) -> tuple[Gate, ...]:
    """Read gates: ``answers,text=0.1`` as two, of which the second may go up to 0.1 nats per token.

    Raises
    ------
    InputError
        There is no such gate, one comes twice, or a size is none.
    """
    named = [word.strip() for word in (words.split(",") if isinstance(words, str) else words) if word.strip()]
    gates = [_gate(word) for word in named]
    if len({gate.name for gate in gates}) < len(gates) or (len(gates) > 1 and ANY in {gate.name for gate in gates}):
        raise InputError(f"--fail-on names each gate once, and any alone, not {','.join(named)}")
    return tuple(gates)


def _gate(word: str) -> Gate:
    name, sign, number = word.partition("=")
    if name not in (*GATES, ANY):
        hint = nearest(name, [*GATES, ANY]) or f"; there are {', '.join((*GATES, ANY))}"
        raise InputError(f"there is nothing to fail on that is called {name!r}{hint}")
    if not sign:
        return Gate(name)
    if name in ("answers", ANY):
        raise InputError(
            f"{name} takes no size: it fails where more answers turn wrong than right; leave ={number} out"
        )
    try:
        size = float(number)
    except ValueError:
        size = math.nan
    if not 0 <= size < math.inf:
        raise InputError(f"the size of {name} is a number of nats per token, at least 0, not {number!r}")
    return Gate(name, size)


def checked(gates: Sequence[Gate], level: float, given: Given) -> tuple[Gate, ...]:
    """Return the gates with ``any`` spelled out, all of which could fail on some data.

    Raises
    ------
    InputError
        The level is none, or a gate cannot be answered with what was given; the message says what to give.
    """
    if not 0 < level < HIGHEST:
        raise InputError(f"a level is a chance of a wrong answer, above 0 and below 0.5, not {level}")
    if [gate.name for gate in gates] == [ANY]:
        able = {"answers": given.items > 0, "text": not given.too_short or given.references > 0, "outputs": True}
        gates = [Gate(name) for name in GATES if able[name]]
    for gate in gates:
        _check(gate, level / len(gates), level, given)
    return tuple(gates)


def _check(gate: Gate, share: float, level: float, given: Given) -> None:
    beside = "" if share == level else f" as one of several gates, of which each must reach {share:.2g}"
    if gate.name == "answers":
        need = max(1, math.ceil(1 - math.log2(share) - 1e-9))
        if given.items < need:
            raise InputError(
                f"{given.items} questions with answers cannot reach the level {level:g}{beside}: give {need} or more "
                "(--text ITEMS.jsonl)"
            )
    if gate.name != "text":
        return
    k = given.references
    if k and share < 1 / (k + 1) - 1e-12:
        reached = math.ceil(1000 * level / share / (k + 1)) / 1000
        raise InputError(
            f"{k} reference{'s' * (k > 1)} cannot reach the level {level:g}{beside}: one more of them is changed "
            f"most of {k + 1} models one time in {k + 1}; give {math.ceil(1 / share - 1e-9) - 1} references, "
            + f"--level {reached:g}, " * (reached < HIGHEST)
            + "or no reference and a size of your own (text=0.1)"
        )
    if not k and gate.size == 0:
        raise InputError(
            "with no reference any two models are farther apart than 0; give references (--reference MODEL), or a size "
            "above 0 (text=0.1)"
        )
    if not k and given.too_short:
        raise InputError(f"what is read is too short for a test: {given.too_short}")


def decide(
    gates: Sequence[Gate], level: float, measure: Callable[[Gate], Measured], *, equal: bool = False
) -> Decision:
    """Test all gates: any that fails decides, then any that nothing decides.

    Parameters
    ----------
    gates, level
        As of `checked`.
    measure
        What each gate asks.
    equal
        Whether no draw tells the models apart: then no gate fails.
    """
    measured = [measure(gate) for gate in gates]
    known = [math.log10(max(one.p, 1e-300)) for one in measured if one.p is not None]
    adjusted = iter((10 ** np.minimum(pvalues.holm(known), 0.0)).tolist() if known else [])
    tested = []
    for gate, one in zip(gates, measured, strict=True):
        holm = None if one.p is None else next(adjusted)
        fails = holm is not None and holm <= level and not equal
        tested.append(Tested(gate.name, one.estimand, one.size, one.p, holm, fails, one.why))
    open_ = [one for one in tested if one.p is None]
    failed = [one for one in tested if one.fails]
    word = (
        "equal" if equal else "not asked" if not gates else "failed" if failed else "not decided" if open_ else "passed"
    )
    first = sorted(tested, key=lambda one: (not one.fails, one.p is not None, one.holm or 0.0, one.p or 0.0))
    return Decision(word, level, tuple(first))
