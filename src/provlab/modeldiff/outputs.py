"""Parts of the report on two models: what one of them writes, and where the other disputes it."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from provlab.modeldiff.disputed import Disputed, Example, Output
from provlab.modeldiff.openings import most_of
from provlab.modeldiff.representative import LEAST_EFFECTIVE
from provlab.plots.numbers import format_interval, format_number, format_range
from provlab.report import views

MARKED, _FULL = 1.0, 6.0  # nats of a token: from the first it is in brackets, divided by the second is its opacity
# tokens less likely for B than for A, and more: a band below the letters, which leaves their contrast as it is
_LESS, _MORE = (f"box-shadow:inset 0 -.25em rgba({color}," for color in ("213,94,0", "0,114,178"))
INPUT = views.Marked.of(
    "([-less likely], [+more likely] for B)",
    f"(<span style='{_LESS}1)'>less</span>, <span style='{_MORE}1)'>more</span> likely for B)",
)
_LONGEST = 120  # characters of an example in text
_FAR = 3.0  # effective draws below which nothing can be said of how many sequences would do
_MOST = 0.5  # of a group: a token at which fewer of its outputs part first tells nothing
_CONCENTRATED, _EVEN = 0.25, 0.4  # share of the outputs that carries half of the divergence: below, and from which on


def marked(example: Example) -> views.Marked:
    """The input with the tokens that carry D: in brackets with the sign of D in text, coloured in HTML."""
    plain = [f"‹…{example.after}› "] if example.after else []
    plain += [
        "".join(f"‹{piece}›" if d is None else piece for piece, d in run)
        if sign is None
        else f"[{sign}{''.join(piece for piece, _ in run)}]"
        for sign, run in itertools.groupby(example.tokens, lambda token: _sign(token[1]))
    ]
    coloured = [f"<i title='follows'>…{escape(example.after)}</i> "] if example.after else []
    for piece, d in example.tokens:
        if d is None:
            coloured.append(f"<i title='given'>{escape(piece)}</i>")
            continue
        color = f"{_LESS if d < 0 else _MORE}{min(1.0, abs(d) / _FULL):.2f})"
        coloured.append(f"<span title='D = {format_number(d, '+.2f')}' style='{color}'>{escape(piece)}</span>")
    text = "".join(plain)
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return views.Marked.of(short, f"<code>{''.join(coloured)}</code>")


def _sign(d: float | None) -> str | None:
    """The sign that a token is shown with; None for one that nothing is said of."""
    return None if d is None or abs(d) < MARKED else "-" if d < 0 else "+"


def concentration(output: Output, side: str) -> str:
    """In how much of what a model writes half of the divergence lies."""
    if output.half is None:
        return f"nowhere: no output of {side} differs"
    _, low, high = output.half
    how = "concentrated" if high < _CONCENTRATED else "spread out" if low > _EVEN else "uneven"
    return f"{how}: half of it lies in {percent(output.half)} of {side}'s outputs"


def group_words(output: Output) -> str:
    """The largest group of disputed outputs, what its members are about, and the word at which most part first."""
    if not output.groups:
        return ""
    largest = output.groups[0]
    at = f"at the word{'s' * (len(largest.words) > 1)} {', '.join(map(repr, largest.words))}"
    about = f" and with {', '.join(map(repr, largest.about))} in many of them" * bool(largest.about)
    words = (
        f"the largest group, {at}{about}, is {percent(largest.share)} and carries {percent(largest.divergence)} of "
        "the distance"
    )
    if largest.first and largest.first[1] >= _MOST:
        word, share = largest.first
        words += f"; {share:.0%} of it part first at {word!r}"
    return words


def enough(parameters: Mapping[str, Any], worth: float) -> str:
    """What would do where the draws of a comparison are worth too few: more openings that differ, or more sequences."""
    n, openings = parameters["n"], parameters["prompts"]
    if 1 < openings < (most := most_of(n)):  # what follows one opening is alike: more of that adds little
        need = min(most, math.ceil(1.2 * openings * LEAST_EFFECTIVE / max(worth, 1.0)))
        return f"Give more openings, about {need} (--prompts; now {openings})"
    if worth < _FAR:
        return f"Write far more than {n * LEAST_EFFECTIVE / _FAR:,.0f} sequences (--sequences, n)"
    need = 1.2 * n * LEAST_EFFECTIVE / worth  # draws are worth about their number
    step = 10 ** (math.floor(math.log10(need)) - 1)
    return f"About {math.ceil(need / step) * step:,} sequences would do (--sequences, n; now {n:,})"


def lines_of(outputs: Mapping[str, Output]) -> list[tuple[str, Disputed]]:
    """The lines that are disputed most, each with who wrote it, the most disputed first."""
    lines = [(side, line) for side, output in outputs.items() for line in output.lines]
    return sorted(lines, key=lambda pair: -pair[1].nats)


def less_likely_for(line: Disputed) -> str:
    """The model that finds a line less likely."""
    return "A" if line.example.difference > 0 else "B"


def lines_table(outputs: Mapping[str, Output]) -> views.Table:
    """The lines that the other model disputes most, by who wrote them, the most disputed first."""
    rows = [
        (
            side,
            less_likely_for(line),
            f"{line.nats:.1f}",
            percent(line.share),
            percent(line.divergence),
            marked(line.example),
        )
        for side, line in lines_of(outputs)
    ]
    header = ("written by", "less likely for", "nats", "of its outputs", "of the distance", _headed("line"))
    return views.Table(header, rows, right=(2,))


def groups_table(outputs: Mapping[str, Output]) -> views.Table:
    """Groups of disputed outputs, by who wrote them."""
    rows = []
    for side, output in outputs.items():
        for group in output.groups:
            first = f"{group.first[0]} ({group.first[1]:.0%})" if group.first else "–"
            names = " | ".join(group.words) + f"; about {', '.join(group.about)}" * bool(group.about)
            cells = (side, names, percent(group.share), percent(group.divergence), first)
            for k, example in enumerate(group.members):
                rows.append((*(cells if k == 0 else ("",) * len(cells)), marked(example)))
    header = ("written by", "most at the words", "of its outputs", "of the distance", "part first at")
    return views.Table((*header, _headed("output")), rows)


def by_z_table(outputs: Sequence[Output]) -> views.Table:
    """How much of what each model writes lies in Z, and of the divergence."""
    a, b = outputs
    rows = [
        (place, *(percent(cell) for output in (a, b) for cell in output.by_z[place]))
        for place in ("below Z", "in Z", "above Z")
        if a.by_z and b.by_z
    ]
    header = ("", "of A's outputs", "of KL(A || B)", "of B's outputs", "of KL(B || A)")
    return views.Table(header, rows)


def _headed(what: str) -> views.Marked:
    return views.Marked.of(f"{what} {INPUT}", f"{what} {INPUT.html}")


def percent(share: Sequence[float]) -> str:
    """A share and its 95% interval; one that was seen is never 0.0%."""
    value, low, high = share
    shown = "<0.1%" if 0 < value < 0.0005 else format_number(value, ".1%")
    return f"{shown} ({format_range(low, high, '.1%')})"


def number(values: Sequence[float]) -> str:
    """A number and its 95% interval, or the number and that it has none."""
    value, low, high = values
    if not (np.isfinite(low) and np.isfinite(high)):
        return f"{format_number(value, '.3g')} (no interval)"
    return format_interval(value, low, high, ".2g" if 0 < abs(value) < 0.01 else ".3f")


def loss_words(apart: Sequence[float]) -> str:
    """B's loss beside A's in words, from the difference: higher, lower, or not shown to differ."""
    value, low, high = apart
    if not (low > 0 or high < 0):  # an end that is missing shows nothing
        return f"not shown to differ from A's: the difference is {number(apart)} nats per token"
    lower = value < 0
    by = number([-value, -high, -low] if lower else apart)
    return f"{by} nats per token {'lower' if lower else 'higher'} than A's (perplexity {np.exp(value):.3g} times A's)"


def finite(values: Iterable[float]) -> list[float | None]:
    """Numbers for JSON: None for one that is not finite, as an end that an interval does not have."""
    return [float(value) if np.isfinite(value) else None for value in values]
