"""The cheapest way known to have a claim judged wrongly: what `flaws.toml` says of the tests that decided."""

from collections.abc import Collection, Sequence

from provlab.report.decide import Test, seen
from provlab.statistics import flaws

DISGUISE, FRAMING = "disguise", "framing"
NONE_KNOWN = "none is known that fools all of them"


def _price(flaw: flaws.Flaw) -> str:
    return f"{flaw.what}; it costs {flaw.cost or 'nothing'}"


def to_hide(tests: Sequence[Test], left_open: Collection[flaws.Flaw]) -> str:
    """Say how a copy is hidden from tests that do not reject: those disguises first that cost nothing.

    Parameters
    ----------
    tests
        Those that could have rejected.
    left_open
        Disguises without a cost that this pair leaves open (`provlab.report.outcome.PairEvidence.disguises`).
    """
    able = [test for test in tests if test.able]
    costly = [flaw for flaw in flaws.DISGUISES if flaw.cost]
    for flaw in left_open:
        if able and not any(seen(flaw, test) for test in able):
            return _price(flaw)
    # of those with a cost, the one that most of the tests miss
    missed = [sum(test.name in flaw.fooled for test in able) for flaw in costly]
    return _price(costly[missed.index(max(missed))]) if any(missed) else NONE_KNOWN


def to_frame(hits: Collection[str]) -> str:
    """Say how a stranger is made to look related by one of the tests that reject: what costs least."""
    known = [flaw for flaw in flaws.FRAMINGS if flaw.fooled.intersection(hits)]
    every = [flaw for flaw in known if flaw.fooled.issuperset(hits)]
    best = min(every or known, key=lambda flaw: bool(flaw.cost), default=None)
    if best is None:
        return NONE_KNOWN
    rest = sorted(set(hits).intersection(best.withstand))
    beside = f", and {', '.join(rest)} would not reject" if rest else ""
    return _price(best) + beside
