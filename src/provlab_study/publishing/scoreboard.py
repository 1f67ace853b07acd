"""The claims as a table for the book."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from provlab.plots import style
from provlab.plots.style import require
from provlab_study.publishing.claims import same_records, words
from provlab_study.publishing.confirmation import LEVEL, SHARE, Confirmation, Frozen
from provlab_study.publishing.evidence import (
    BAR_SET,
    EXPERIMENT_CHANGED,
    FAILS,
    HELD,
    HOLDS,
    NOT_RUN,
    WITHIN_SPREAD,
)

# a sign for each status, beside its word, so that colour only repeats what is said
SIGNS = {
    HOLDS: ("✓", "#00664d"),
    BAR_SET: ("(✓)", "#3b4f8a"),
    EXPERIMENT_CHANGED: ("[✓]", "#6b3a86"),
    WITHIN_SPREAD: ("≈", "#755a00"),
    FAILS: ("✗", "#a33c00"),
    NOT_RUN: ("–", style.MUTED),
}


def made_by(experiments: Iterable[Mapping[str, Any]]) -> str:
    """Say on which machine, from which commit and when the records of some experiments were made."""
    rows = list(experiments)
    machines = sorted({str(row.get("machine") or "a machine that was not recorded") for row in rows})
    commits = sorted({_short(row.get("commit")) for row in rows})
    days = sorted({str(row["finished"])[:10] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{'; '.join(machines)} · commit {', '.join(commits)} · {when}"


def _short(commit: str | None) -> str:
    """A commit as people write it, its mark of changed files kept."""
    head, plus, changes = (commit or "unknown").partition("+")
    return head[:9] + plus + changes


def _known(claim: Mapping[str, Any]) -> str:
    status = str(claim["status"])
    require(status in SIGNS, f"claim {claim['id']}: status {status!r} is none of {', '.join(SIGNS)}")
    return status


def _text(value: object) -> str:
    return "–" if value is None or value == "" else str(value)


def scoreboard_table(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the claims as an HTML table that becomes a list of cards on a phone.

    The row of claim I4 has the id ``claim-I4``, so that other pages can point at it.

    Parameters
    ----------
    claims
        Mappings with the keys id, status (one of `evidence.STATUSES`) and statement; `why` (a reason), `margin`,
        `replicates`, `trained_once`, `same_records` and `link` (address of the page or cell that shows it) are used
        where present.

    Raises
    ------
    InputError
        If a status is unknown.
    """
    names = ("Claim", "Status", "What it says", "Published", "Ours")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(_table_row(claim) for claim in claims)
    return f'<table class="provlab-scoreboard"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _table_row(claim: Mapping[str, Any]) -> str:
    status = _known(claim)
    name = anchor = html.escape(str(claim["id"]))
    if claim.get("link"):
        name = f'<a href="{html.escape(str(claim["link"]))}">{name}</a>'
    replicates = f"holds in {claim['replicates']} replicates" if claim.get("replicates") else ""
    once = f"trained once: {claim['trained_once']}" if claim.get("trained_once") else ""
    margin = f"margin: {claim['margin']}" if claim.get("margin") else ""
    return (
        f'<tr class="{_class(status)}" id="claim-{anchor}"><th scope="row">{name}</th>'
        f'<td data-label="Status"><span class="status">{SIGNS[status][0]} {words(status)}</span>'
        f"{_note(replicates)}{_note(once)}</td>"
        f'<td data-label="What it says">{html.escape(_text(claim.get("statement")))}{_note(claim.get("why"))}'
        f"{_note(same_records(claim))}</td>"
        f'<td data-label="Published">{html.escape(_text(claim.get("published")))}</td>'
        f'<td data-label="Ours">{html.escape(_text(claim.get("ours")))}{_note(margin)}</td></tr>'
    )


def claims_in_short(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the claims as a table of short rows, of which each folds out to all that `scoreboard_table` says.

    A row holds status and statement, and the first part of our value, up to its first semicolon; of a claim that was
    not run, the reason.

    Raises
    ------
    InputError
        If a status is unknown.
    """
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Claim", "Status", "What it says, and what we found"))
    body = "".join(_short_row(claim) for claim in claims)
    return f'<table class="provlab-scoreboard short"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _short_row(claim: Mapping[str, Any]) -> str:
    status, name = _known(claim), html.escape(str(claim["id"]))
    ours = _text(claim.get("ours") or claim.get("why"))
    details = {
        "Published": claim.get("published"),
        "Ours": claim.get("ours"),
        "Margin": claim.get("margin"),
        "Holds in": claim.get("replicates"),
        "Trained once": claim.get("trained_once"),
        "Why": claim.get("why"),
        "Records": same_records(claim),
    }
    more = "".join(f"<dt>{what}</dt><dd>{html.escape(str(text))}</dd>" for what, text in details.items() if text)
    link = f'<p><a href="{html.escape(str(claim["link"]))}">where it is shown</a></p>' if claim.get("link") else ""
    return (
        f'<tr class="{_class(status)}" id="claim-{name}"><th scope="row">{name}</th>'
        f'<td data-label="Status"><span class="status">{SIGNS[status][0]} {words(status)}</span></td>'
        f'<td data-label="What it says">{html.escape(_text(claim.get("statement")))}'
        f"<details><summary>{html.escape(ours.split('; ')[0])}</summary><dl>{more}</dl>{link}</details></td></tr>"
    )


def fresh_draws(confirmed: Mapping[str, Confirmation], frozen: Frozen | None) -> str:
    """Return what fresh draws of the whole study said of each claim: a row a claim, a column a draw, as HTML.

    Where no rules are frozen, or no draw was judged, a paragraph says so.
    """
    if frozen is None:
        return (
            f"<p><strong>0 of {len(confirmed)} claims are confirmed.</strong> Their rules are not frozen: each status "
            "below is that of one draw of the world, and another draw may give another status.</p>"
        )
    draws = sorted({row.draw for one in confirmed.values() for row in one.rows})
    counts = sum(one.confirmed for one in confirmed.values())
    said = (
        f"<p><strong>{counts} of {len(confirmed)} claims are confirmed</strong> on {len(draws)} fresh draws of the "
        f"whole study, under rules that were frozen before ({frozen}): a claim is confirmed where it holds in more "
        f"than {SHARE:.0%} of worlds, at the level {LEVEL:g}. Draws: {', '.join(map(str, frozen.draws))}.</p>"
    )
    if not draws:
        return said
    head = "".join(f'<th scope="col">{draw}</th>' for draw in draws)
    body = "".join(
        f'<tr><th scope="row">{html.escape(claim)}</th>'
        + "".join(_drawn({row.draw: row.status for row in one.rows}.get(draw)) for draw in draws)
        + f"<td>{'confirmed' if one.confirmed else 'not confirmed'}: {html.escape(str(one))}</td></tr>"
        for claim, one in confirmed.items()
    )
    return (
        f'{said}<table class="provlab-draws"><thead><tr><th scope="col">Claim</th>{head}'
        f'<th scope="col">Together</th></tr></thead><tbody>{body}</tbody></table>'
    )


def _drawn(status: str | None) -> str:
    """One claim on one draw; a rule settled after a look at draw 0 was settled before any of these."""
    status = HOLDS if status in HELD else status or NOT_RUN
    return f'<td class="{_class(status)}"><span class="status">{SIGNS[status][0]} {words(status)}</span></td>'


def history(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return what was settled after a look at our own records, a row a claim, as HTML: what, when, after which look."""
    names = ("Claim", "Changed", "The rule since then", "What had been seen")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(
        f'<tr class="{_class(_known(claim))}"><th scope="row">{html.escape(str(claim["id"]))}</th>'
        f'<td data-label="Changed"><span class="status">{html.escape(str(claim["changed"]))}</span>'
        f"{_note(claim['date'])}</td>"
        f'<td data-label="What it says">{html.escape(str(claim["rule"]))}{_note(claim.get("statement"))}</td>'
        f'<td data-label="Ours">{html.escape(str(claim["look"]))}</td></tr>'
        for claim in claims
        if claim.get("changed")
    )
    return f'<table class="provlab-scoreboard history"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def tiles(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return the claims as a strip of tiles, number and sign, each a link to the claim's row on the same page."""
    items = "".join(
        f'<li class="{_class(status := _known(claim))}"><a href="#claim-{(name := html.escape(str(claim["id"])))}" '
        f'title="{html.escape(_text(claim.get("statement")))}: {words(status)}" '
        f'aria-label="{name}: {words(status)}">{name} <span class="status">{SIGNS[status][0]}</span></a></li>'
        for claim in claims
    )
    return f'<ul class="provlab-tiles">{items}</ul>'


def _class(status: str) -> str:
    """A status as the book's style names it."""
    return words(status).replace(",", "").replace(" ", "-")


def _note(text: object) -> str:
    """Text in small type below what a cell says."""
    return f'<p class="why">{html.escape(str(text))}</p>' if text else ""
