"""What is said of two models: one list of labels and sentences, that which decided first (`words.toml`)."""

from collections.abc import Sequence
from pathlib import Path

from provlab.inference import pvalues
from provlab.modeldiff.answers import items_words
from provlab.modeldiff.disputed import CHANGED, Output
from provlab.modeldiff.found import Found
from provlab.modeldiff.gates import Decision, Tested
from provlab.modeldiff.outputs import group_words, loss_words, number, percent
from provlab.plots.numbers import format_number
from provlab.report.words import Finding, Words

_WORDS = Words(Path(__file__).with_name("words.toml"))
say = _WORDS.say


def findings(found: Found, decided: Decision) -> list[Finding]:
    """Label and words of each finding: gates that were asked, then what answers the question by itself."""
    if found.equal:
        return [*_equal(found), *say("gate", "equal", found.gates)]
    gates = [finding for one in decided.tested for finding in _gate(one, decided)]
    answered = say("answers", "items", words=items_words(found.items, found.level) if found.items else "")
    if found.rounding:
        return [*gates, *_rounding(found), *answered, *_text(found)[:1]]
    lead, output = found.lead
    written = [
        *say(
            "apart",
            "outputs",
            side=lead,
            other="BA"["AB".index(lead)],
            divergence=number(output.divergence),
            half=percent(output.half) if output.half else "",
        ),
        *say("where", "outputs", side=lead, group=group_words(output)),
    ]
    return [*gates, *answered, *_references(found), *written, *_text(found), *_paper(found), *_another(found)]


def _gate(one: Tested, decided: Decision) -> list[Finding]:
    level = f"{decided.level:g}"
    if one.p is None:
        return say("gate", "undecided", what=one.estimand, why=one.why)
    several = len(decided.tested) > 1
    facts = {
        "estimand": one.estimand,
        "p": f"{one.p:.2g}" if one.p > 1e-300 else "0",
        "holm": f", {one.holm:.2g} by Holm over {len(decided.tested)} gates" if several else " ",
        "level": level,
        "size": f"{one.size:.3g}",
    }
    ((_, what),) = say("gate", "counted" if one.name == "answers" else "tested", **facts)
    return say("gate", "failed" if one.fails else "passed", what=what.replace(" ,", ","))


def _equal(found: Found) -> list[Finding]:
    if found.copies:
        return say("equal", "copies")
    return say("equal", "rounding", n=f"{2 * found.written:,}", floor=f"{found.floor:.1e}")


def _rounding(found: Found) -> list[Finding]:
    if (way := found.rounding) is None:
        return []
    numbers = ("mean", "between", "farthest", "between_farthest")
    return say("rounding", "explains", way=way.way, **{name: f"{getattr(way, name):.2g}" for name in numbers})


def _references(found: Found) -> list[Finding]:
    apart, among = found.apart, found.apart.among
    if among is None:
        return []
    a, b = (model["name"] for model in found.models)
    what = "the reference" if among.k == 1 else f"{among.k} references"
    facts = {"where": apart.where, "a": a, "b": b, "what": what, "n": f"{among.k + 1}"}
    if among.small:
        nearer, least = f"{among.from_a[0]:.2g}", f"{min(among.from_a[1:]):.2g}"
        return say("references", "small", nearer=nearer, least=least, **facts)
    key = {True: "larger", False: "not_larger", None: "open"}[among.larger(found.level)]
    rank = f"its rank among {among.k + 1} models by mean and tail, {pvalues.in_words(among.p())}"
    return say("references", key, rank=rank, excess=capital(excess_words(found)), **facts)


def excess_words(found: Found) -> str:
    """By how much B is farther than a reference; the distance where there is none."""
    k = len(found.apart.references)
    of = f"excess over {k} reference{'s' * (k > 1)}" if k else f"distance of A and B on {found.apart.where}"
    return f"the {of} is {number(found.apart.excess)} nats per token"


def _text(found: Found) -> list[Finding]:
    """What a text that was read says: losses, how much of it is changed, and where."""
    if found.text_loss is None:
        return []
    loss = say("text", "loss", where=found.apart.where, loss=loss_words(found.text_loss[2]))
    of_text: Output | None = found.text
    if of_text is None or of_text.half is None:
        return loss
    changed = say("text", "changed", changed=percent(of_text.changed), bar=f"{CHANGED:.0%}")
    return loss + changed + say("text", "group", group=group_words(of_text))


def _paper(found: Found) -> list[Finding]:
    """The paper's own terms over Z, where the draws carry them."""
    if not found.carried or found.summary is None:
        return []

    def ends(extent: Sequence[float | None]) -> str:
        return " to ".join("?" if end is None else format_number(end, "+.2f") for end in extent)

    a, b = found.sides
    shares = {f"p{kind[0]}_{name}": f"{side[of][0]:.1%}" for name, side in (("a", a), ("b", b)) for kind, of in _TERMS}
    facts = {"a": ends(found.summary.extent_a), "b": ends(found.summary.extent_b), "floor": f"{found.floor:.1e}"}
    return say("paper", "ends", **facts, **shares)


_TERMS = (("d", "disagreement"), ("a", "agreement"))


def _another(found: Found) -> list[Finding]:
    return say("another", "seed", not found.apart.references)


def minded(found: Found) -> tuple[list[str], list[str]]:
    """What inputs leave unseen: for want of an opening, which is to be mended first; and by chance."""
    if found.equal:
        return [], []
    n, without = found.written, found.words.get("without_start", "")
    remedy = _NO_EXCHANGE if found.parameters["exchange_steps"] else _OPENINGS
    unseen = say("mind", "no_start", n=without, remedy=remedy), say("mind", "seen", n < _MANY, rare=f"{n // 3:,}")
    first, last = ([f"{words}." for _, words in some] for some in unseen)
    return first, last


_OPENINGS = "give openings (--prompts FILE)"
_NO_EXCHANGE = "leave replica exchange out (--exchange), which has nothing before inputs"
_MANY = 1000  # sequences: with more, what comes less often than three times among them is rare


def capital(words: str) -> str:
    """Words as the beginning of a sentence."""
    return words[:1].upper() + words[1:]
