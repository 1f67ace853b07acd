"""The cheapest way known to have a claim judged wrongly, by the price of `flaws.toml`."""

from collections.abc import Collection

from provlab.report.outcome import PairEvidence
from provlab.statistics import flaws

DISGUISE, FRAMING = "disguise", "framing"
NONE_KNOWN = "none is known that fools all of them"
NOTHING_RAN = "nothing need be done: no test that could have rejected ran"


def _price(flaw: flaws.Flaw) -> str:
    return f"{flaw.what}; it costs {flaw.price.words() if flaw.price else f'{flaw.cost} (never measured)'}"


def to_hide(pair: PairEvidence) -> str:
    """Say how a common origin is hidden from all that ran: the same way as *to hide one* of a verdict names."""
    if not pair.ran:
        return NOTHING_RAN
    return _price(pair.cheapest) if pair.cheapest else NONE_KNOWN


def to_frame(hits: Collection[str]) -> str:
    """Say how a stranger is made to look related: by what fools all tests that reject, or else any, and costs least."""
    known = [flaw for flaw in flaws.FRAMINGS if flaw.fooled.intersection(hits)]
    best = flaws.cheapest(hits, known) or flaws.cheapest((), known)
    if best is None:
        return NONE_KNOWN
    rest = sorted(set(hits).intersection(best.withstand))
    beside = f", and {', '.join(rest)} would not reject" if rest else ""
    return _price(best) + beside
