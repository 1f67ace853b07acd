"""What the tests of one pair amount to, in one word: the rule that `compare`, `study` and scripts share.

A test that rejects names what agrees: hidden units in any order, an order, or rows of the embedding. Rows and an order
can be given to any model at no cost, so they have words of their own. Where nothing rejects, the pair is *not rejected*
if some able test sees through every disguise without a cost that this pair leaves open. Else it could not be tested.

So a test that an open disguise hides from decides nothing by its silence, whatever stands beside it. Nor is *not
rejected* a finding of independence: `provlab.statistics.flaws` knows what it costs to hide from the tests that ran.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from provlab.report.family import LEVEL
from provlab.statistics.base import Evidence
from provlab.statistics.flaws import Flaw

IDENTICAL, EQUAL, SAME = "identical", "equal in content", "same function"
REJECTED, ROWS, ORDER = "rejected", "rows of one origin", "by order alone"
NOT_REJECTED, UNTESTED = "not rejected", "could not be tested"
OUTCOMES = (IDENTICAL, EQUAL, SAME, REJECTED, ROWS, ORDER, NOT_REJECTED, UNTESTED)
#: what `--fail-on rejected` stands for: outcomes that no order and no copied row brings about
REJECTIONS = (IDENTICAL, EQUAL, SAME, REJECTED)

#: what agrees -> the outcome; the first that a test names counts
_NAMED: dict[Evidence, str] = {"units": REJECTED, "rows": ROWS, "order": ORDER}


@dataclass(frozen=True)
class Test:
    """One test of a pair.

    Attributes
    ----------
    name : str
        Of the statistic.
    evidence : str
        What agrees where it rejects: "units" in any order, an "order", or "rows".
    reads : frozenset of str
        What a disguise of this pair may spoil: "text", "places" where only blocks of one index met, and "parts", since
        no test reads tensors without a role.
    log10_p, reach : float
        Its p, and the smallest that it could have been on this pair; both corrected over the tests read together.
    """

    name: str
    evidence: Evidence
    reads: frozenset[str]
    log10_p: float
    reach: float

    @property
    def rejects(self) -> bool:
        """Whether its p is small enough."""
        return self.log10_p <= np.log10(LEVEL)

    @property
    def able(self) -> bool:
        """Whether it could have been."""
        return self.reach <= np.log10(LEVEL)


@dataclass(frozen=True)
class Decision:
    """The outcome, one of `OUTCOMES`; the tests that reject; and those that would have seen a copy in any case."""

    outcome: str
    hits: tuple[Test, ...]
    through: tuple[Test, ...]


def decide(
    tests: Sequence[Test],
    disguises: Sequence[Flaw],
    *,
    beside: Sequence[Test] = (),
    kin: Collection[str] = (),
    same: bool = False,
    equal: bool = False,
    identical: bool = False,
) -> Decision:
    """Bring the tests of one pair to an outcome.

    Parameters
    ----------
    tests : sequence of Test
        Those that are corrected together.
    disguises : sequence of Flaw
        Those without a cost that this pair leaves open.
    beside : sequence of Test
        Tests that a test declared beforehand left as description. They may bear out what rejects, and decide nothing.
    kin : collection of str
        Figures, no tests, that are those of related models: where one stands, no pair is *not rejected*.
    same, equal, identical : bool
        Whether the two compute one function, hold the same tensors, or are the same files.
    """
    hits = tuple(test for test in tests if test.rejects)
    through = tuple(test for test in tests if test.able and all(seen(flaw, test) for flaw in disguises))
    agree = {test.evidence for test in hits} | {test.evidence for test in beside if test.rejects and hits}
    ladder = [
        (identical, IDENTICAL),
        (equal, EQUAL),
        (same, SAME),
        *((evidence in agree, outcome) for evidence, outcome in _NAMED.items()),
        (through and not kin, NOT_REJECTED),
        (True, UNTESTED),
    ]
    return Decision(next(outcome for holds, outcome in ladder if holds), hits, through)


def seen(disguise: Flaw, test: Test) -> bool:
    """Whether a test sees through a disguise: it reads nothing of what that spoils, or is known to withstand it."""
    return disguise.spoils not in test.reads if disguise.spoils else test.name in disguise.withstand
