"""The claims as a table for the book."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from provlab.plots import style
from provlab.plots.style import require
from provlab_study.publishing.claims import same_records, words
from provlab_study.publishing.confirmation import (
    FRESH,
    LEVEL,
    SHARE,
    Confirmation,
    Frozen,
    Row,
    confirms,
    last_of,
    passed_by,
)
from provlab_study.publishing.evidence import (
    BAR_SET,
    EXPERIMENT_CHANGED,
    FAILS,
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
        `replicates`, `trained_once`, `fresh` (what fresh draws said), `same_records` and `link` (address of the page or
        cell that shows it) are used where present.

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
        f"{_note(replicates)}{_note(once)}{_note(claim.get('fresh'))}</td>"
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
        "Fresh draws": claim.get("fresh"),
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


def confirmed_so_far(confirmed: Mapping[str, Confirmation], frozen: Sequence[Frozen]) -> str:
    """Return how many claims fresh draws of the whole study confirm, under which rules, as paragraphs of HTML."""
    counts, n = sum(one.confirmed for one in confirmed.values()), len(confirmed)
    if not frozen:
        return (
            f"<p><strong>{counts} of {n} claims are confirmed.</strong> Their rules are not frozen: each status is "
            "that of one draw of the world, and another draw may give another status.</p>"
        )
    draws = Counter(row.draw for one in confirmed.values() for row in one.rows if row.status != NOT_RUN)
    fewest = next(k for k in range(1, FRESH + 1) if confirms(k, k))
    first, *again = frozen
    when = "".join(f"; those of {', '.join(one.rules)} on {one}" for one in again)
    said = (
        f"<p><strong>{counts} of {n} claims are confirmed</strong> by fresh draws of the study, under rules that were "
        f"frozen before ({first}{when}): a claim is confirmed where it holds in more than {SHARE:.0%} of worlds, at "
        f"the level {LEVEL:g}. It takes {fewest} draws at least.</p>"
    )
    if not draws:
        return said
    tried = [one for one in confirmed.values() if one.tried]
    always, never = sum(one.held == one.tried for one in tried), sum(not one.held for one in tried)
    judged = ", ".join(f"{k} on draw {draw}" for draw, k in sorted(draws.items()))
    return (
        f"{said}<p>So far {len(tried)} of them were judged ({judged}): {always} hold in each of their draws, "
        f"{never} in none, {len(tried) - always - never} in some.</p>"
    )


def fresh_draws(confirmed: Mapping[str, Confirmation], frozen: Sequence[Frozen]) -> str:
    """Return what fresh draws of the study said of each claim, as HTML: a row a claim, a column a draw.

    Rules that were frozen again have a table of their own, since their draws are others. Where no rules are frozen, or
    no draw was judged, there is no table.
    """
    so_far = confirmed_so_far(confirmed, frozen)
    if not frozen:
        return so_far
    n = len(confirmed)
    chance = " Rules that are frozen again have another chance, which is not counted here." * (len(frozen) > 1)
    said = (
        f"{so_far}<p>{FRESH} draws confirm a claim that holds in 99% of worlds with probability "
        f"{passed_by(0.99):.2f}, one that holds in 90% with {passed_by(0.9):.2f}, and one that holds in half of them "
        f"with {passed_by(0.5):.2f}: of {n} claims of the last kind, {n * passed_by(0.5):.1f} on average.{chance} What "
        "draws cannot show: the zoo is small, the same people wrote it and the rules, and all draws share "
        "architectures, recipes and corpus.</p><p>Each status that was judged opens.</p>"
    )
    last = last_of(frozen)
    return said + "".join(
        _of_frozen(one, {claim: its for claim, its in confirmed.items() if last.get(claim, frozen[-1]) is one})
        for one in frozen
    )


def _of_frozen(frozen: Frozen, confirmed: Mapping[str, Confirmation]) -> str:
    """What its draws said of the claims that were frozen then, and not again."""
    why = f" {html.escape(frozen.why)}" if frozen.why else ""
    said = f"<p>Frozen: {frozen}; the draws {', '.join(map(str, frozen.draws))} follow from these rules.{why}</p>"
    draws = {row.draw for one in confirmed.values() for row in one.rows}
    if not draws:
        return said
    head = "".join(f'<th scope="col">{draw}</th>' for draw in sorted(draws))
    body = "".join(
        f'<tr><th scope="row"><a href="#claim-{(name := html.escape(claim))}">{name}</a></th>'
        + "".join(_drawn({row.draw: row for row in one.rows}.get(draw)) for draw in sorted(draws))
        + f"<td>{_together(one)}: {html.escape(str(one))}</td></tr>"
        for claim, one in confirmed.items()
    )
    return (
        f'{said}<table class="provlab-draws"><thead><tr><th scope="col">Claim</th>{head}'
        f'<th scope="col">Together</th></tr></thead><tbody>{body}</tbody></table>'
        + "".join(f"<p>Draw {draw}: {_cost(confirmed, draw)}.</p>" for draw in sorted(draws))
    )


def _cost(confirmed: Mapping[str, Confirmation], draw: int) -> str:
    """How long the pages of a draw ran that judged claims, and where its records come from."""
    rows = [row for one in confirmed.values() for row in one.rows if row.draw == draw]
    pages = {row.experiment: row.seconds for row in rows}
    return (
        f"{len(pages)} page{'s' * (len(pages) > 1)} that ran {sum(pages.values()) / 60:,.0f} minutes one by one, "
        f"beside others · {html.escape(made_by(map(asdict, rows)))}"
    )


def _together(one: Confirmation) -> str:
    return "confirmed" if one.confirmed else "open" if one.open else "not confirmed"


def _drawn(row: Row | None) -> str:
    """One claim on one draw; a rule settled after a look at draw 0 was settled before any of these."""
    status = NOT_RUN if row is None else HOLDS if row.holds else row.status
    said = f'<span class="status">{SIGNS[status][0]} {words(status)}</span>'
    if row and row.ours:
        said = f"<details><summary>{said}</summary>{_seen(row)}</details>"
    return f'<td class="{_class(status)}">{said}</td>'


def _seen(row: Row) -> str:
    """All that was seen of a claim on a draw."""
    margin = f"; margin: {row.margin}" if row.margin else ""
    why = f"; {row.why}" if row.why and not row.holds else ""
    return html.escape(row.ours + margin + why)


def denied(claims: Sequence[Mapping[str, Any]], confirmed: Mapping[str, Confirmation]) -> str:
    """Return the claims that do not hold on every fresh draw they were judged on, a row a claim, as HTML.

    Those that hold on some come first, with the reason as far as one was found.
    """
    names = ("Claim", "Fresh draws", "What it says", "What was seen where it does not hold")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    some = [claim for claim in claims if confirmed[claim["id"]].denials]
    some.sort(key=lambda claim: not confirmed[claim["id"]].held)
    body = "".join(_denied(claim, confirmed[claim["id"]]) for claim in some)
    return f'<table class="provlab-scoreboard history"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _denied(claim: Mapping[str, Any], one: Confirmation) -> str:
    first = [html.escape((row.why or row.ours).split("; ")[0]) for row in one.denials]
    seen = "".join(
        f"<details><summary>{row.draw}, {words(row.status)}: {short}</summary>{_seen(row)}</details>"
        for row, short in zip(one.denials, first, strict=True)
    )
    reason = claim.get("on_draws") if one.held else ""
    return (
        f'<tr class="{_class(one.denials[0].status)}"><th scope="row">{html.escape(str(claim["id"]))}</th>'
        f'<td data-label="Fresh draws">{html.escape(str(one))}</td>'
        f'<td data-label="What it says">{html.escape(_text(claim.get("statement")))}{_note(reason)}</td>'
        f'<td data-label="Seen">{seen}</td></tr>'
    )


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
