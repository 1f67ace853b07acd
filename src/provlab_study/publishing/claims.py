"""The papers' claims, and what the pages judged of them.

The claims are data, in the ``claims.yml`` of each chapter; this module reads them, looks published values up in the
papers' tables, and has a row judged by its function from the records that a page holds. A page calls it by
`publishing.experiment.Run.judge` and keeps the judgement, which the scoreboard reads. No value of ours is a constant
here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from importlib import import_module, resources
from shutil import get_terminal_size
from textwrap import shorten, wrap
from typing import Any, cast

import yaml

from provlab.errors import ParameterError
from provlab.schema import check_keys
from provlab_study.publishing.evidence import (
    BAR_SET,
    EXPERIMENT_CHANGED,
    FAILS,
    HELD,
    HOLDS,
    NOT_RUN,
    STATUSES,
    WITHIN_SPREAD,
    ClaimStatus,
    OldRecordsError,
)
from provlab_study.publishing.published import published_table
from provlab_study.publishing.results import Results

_PLAIN = {"id": str, "paper": str, "statement": str, "source": str, "published": dict}
_JUDGED = {"experiment": str, "predicate": dict, "profiles": list[str]}
# settled: a rule chosen, or changed, after a look at our records: what was changed, the rule, the day of the look and
# what it showed
# trained_once: the models whose training has no replicate, so that the claim stands for one draw of their seeds
# on_draws: why it holds on some fresh draws and not on all, as found afterwards
_STANDING = {"settled": dict, "same_records": list[str], "trained_once": str, "on_draws": str}
_SETTLED = {"changed": str, "rule": str, "date": date, "look": str}
#: what `changed` may be, and the status that a claim then has where it holds
CHANGED = {"bar": BAR_SET, "experiment": EXPERIMENT_CHANGED}
PROFILES = {"smoke", "default", "paper"}
_COUNTED = {
    HOLDS: "hold",
    BAR_SET: "hold by a bar set after data",
    EXPERIMENT_CHANGED: "hold in an experiment changed after data",
    WITHIN_SPREAD: "within their spread",
    FAILS: "fail",
}


def load_claims() -> list[dict[str, Any]]:
    """Claims of all chapters, ordered by number; each row names the experiment that judges it, its chapter."""
    rows: list[dict[str, Any]] = []
    for chapter in resources.files("provlab_study").iterdir():
        table = chapter / "claims.yml"
        if table.is_file():
            entries = yaml.safe_load(table.read_text(encoding="utf-8"))
            rows += [{**entry, "experiment": chapter.name} for entry in entries]
    for row in rows:
        check_row(row)
    return sorted(rows, key=lambda row: (row["paper"], int(row["id"][1:])))


def check_row(row: Mapping[str, Any]) -> None:
    """Raise ParameterError unless a row of claims has the keys that it must have, and no others."""
    what = f"claim {row.get('id', 'without an id')}"
    check_keys(what, row, _PLAIN | _JUDGED | _STANDING, _PLAIN | _JUDGED)
    if "settled" in row:
        check_keys(f"{what}: settled", row["settled"], _SETTLED, _SETTLED)
        if row["settled"]["changed"] not in CHANGED:
            raise ParameterError(f"{what}: settled: changed must be {' or '.join(CHANGED)}")


def predicate(claim: Mapping[str, Any]) -> Callable[..., ClaimStatus]:
    """Return the function that judges a claim: one of ``predicates.py`` in its chapter."""
    module = import_module(f"provlab_study.{claim['experiment']}.predicates")
    return cast(Callable[..., ClaimStatus], getattr(module, claim["predicate"]["name"]))


def published(claim: Mapping[str, Any]) -> str:
    """The paper's value of a claim: its text with names looked up in the papers' tables.

    Raises
    ------
    ParameterError
        If a lookup matches no cell, or several different ones where one is meant.
    """
    entry = claim["published"]
    values = {name: _cell(claim["id"], lookup) for name, lookup in entry.get("values", {}).items()}
    return str(entry["text"]).format(**values)


def _cell(claim_id: str, lookup: Mapping[str, Any]) -> str:
    tables = lookup["table"] if isinstance(lookup["table"], list) else [lookup["table"]]
    cells = [
        row[lookup["column"]]
        for table in tables
        for row in published_table(table)
        if all(row.get(column) == value for column, value in lookup.get("where", {}).items())
    ]
    pick = lookup.get("pick", "only")
    if cells and pick in ("min", "max"):
        return (min if pick == "min" else max)(cells, key=float)
    if len(set(cells)) != 1:
        raise ParameterError(f"claim {claim_id}: {lookup} matches {len(set(cells))} published values, not one")
    return cells[0]


def bars(claim: Mapping[str, Any], profile: str) -> dict[str, Any]:
    """Bars of a claim, which its function takes beside the records; those of the profile where they differ by it.

    In another profile of the study the largest number is asked for; in one of a reader's own, where no claim counts,
    the smallest.
    """
    arguments = {name: bar for name, bar in claim["predicate"].items() if name != "name"}
    otherwise = max if profile in PROFILES else min
    return {
        name: bar.get(profile, otherwise(bar.values())) if isinstance(bar, dict) and set(bar) <= PROFILES else bar
        for name, bar in arguments.items()
    }


def verdict(claim: Mapping[str, Any], records: Mapping[str, Any], profile: str) -> ClaimStatus:
    """Judge a claim by its function, from records by the names of the function's parameters, in any profile."""
    try:
        judged = predicate(claim)(**records, **bars(claim, profile))
    except OldRecordsError as error:
        return ClaimStatus(NOT_RUN, "", str(error))
    return _standing(claim, judged)


def _standing(claim: Mapping[str, Any], judged: ClaimStatus) -> ClaimStatus:
    """A verdict with its status as the claim's history has it: of what holds, by which kind of rule."""
    if not judged.status.startswith(HOLDS):
        return judged
    settled = claim.get("settled")
    return replace(judged, status=CHANGED[settled["changed"]] if settled else HOLDS)


def status_in(claim: Mapping[str, Any], profile: str, judged: ClaimStatus) -> ClaimStatus:
    """The verdict that counts for the scoreboard: none in a profile that the claim is not judged in."""
    if profile in claim["profiles"]:
        return judged
    return ClaimStatus(NOT_RUN, "", f"cannot be judged in the profile {profile}")


def evaluate(store: Results, experiment: str | None = None) -> list[dict[str, Any]]:
    """What the pages judged of the claims of one experiment, or of all, as one results folder holds it.

    Returns
    -------
    list of dict
        Keys: id, paper, status (one of `evidence.STATUSES`), statement, source, published, ours, why, margin,
        replicates, trained_once (models whose training has no replicate), on_draws (why it does not hold on all fresh
        draws), changed, rule, look and date (of a rule that was settled after a look, else None), same_records (ids of
        claims judged from the same records), experiment, profile.
    """
    kept = {run["name"]: run for run in store.experiments()}
    return [
        as_row(claim, _kept(claim, kept.get(claim["experiment"])), kept.get(claim["experiment"]))
        for claim in load_claims()
        if experiment in (None, claim["experiment"])
    ]


def as_row(claim: Mapping[str, Any], judged: ClaimStatus, experiment: Mapping[str, Any] | None) -> dict[str, Any]:
    """A claim and its verdict, as `evaluate` returns them."""
    settled = claim.get("settled", {})
    return {
        **{key: claim[key] for key in ("id", "paper", "statement", "source", "experiment")},
        **asdict(judged),
        "published": published(claim),
        **{key: claim.get(key, "") for key in ("trained_once", "on_draws")},
        **{key: settled.get(key) for key in ("changed", "rule", "look")},
        "date": settled["date"].isoformat() if settled else None,
        "same_records": list(claim.get("same_records", [])),
        "profile": experiment["profile"] if experiment else None,
    }


def _kept(claim: Mapping[str, Any], experiment: Mapping[str, Any] | None) -> ClaimStatus:
    """The judgement that a page kept."""
    if experiment is None:
        return ClaimStatus(NOT_RUN, "", f"make reproduce runs its page, {claim['experiment']}")
    if claim["id"] not in (judgements := experiment.get("judgements", {})):  # none before pages judged
        return ClaimStatus(NOT_RUN, "", "its page kept no judgement of it: run its page again")
    return _standing(claim, ClaimStatus(**judgements[claim["id"]]))


def words(status: str) -> str:
    """Write a status for readers."""
    return status.replace("_", " ")


def counted(claims: Sequence[Mapping[str, Any]]) -> str:
    """How many claims have each status, in words: ``20 hold, 3 hold by a bar set after data, ...``."""
    statuses = [str(claim["status"]) for claim in claims]
    return ", ".join(f"{statuses.count(status)} {_COUNTED.get(status, status)}" for status in STATUSES)


def same_records(claim: Mapping[str, Any]) -> str:
    """Say which claims are judged from the records that judge this one; empty if there are none."""
    others = claim.get("same_records") or ()
    return f"rests on the same records as {', '.join(others)}" if others else ""


def as_text(rows: list[dict[str, Any]], *, verbose: bool = False) -> str:
    """The scoreboard for a terminal: counts, names by status, and the claims that were judged and do not hold.

    With `verbose`, all that is known of every claim.
    """
    width = get_terminal_size((100, 24)).columns
    lines = [*wrap(f"{len(rows)} claims: {counted(rows)}", width), ""]
    if not verbose:
        for status in (*HELD, NOT_RUN):
            head = f"{words(status):<36} "
            if named := ", ".join(row["id"] for row in rows if row["status"] == status):
                lines += wrap(head + named, width, subsequent_indent=" " * len(head))
        open_ones = [row for status in (WITHIN_SPREAD, FAILS) for row in rows if row["status"] == status]
        lines += [""] * bool(open_ones)
        for row in open_ones:
            head = f"{words(row['status']):<18}  {row['id']:<4}"
            lines.append(head + shorten(row["statement"], width - len(head), placeholder=" ..."))
        more = "-v shows every claim, with the published value and ours; --json FILE has all"
        return "\n".join([*lines, "", more])
    for row in rows:
        head = f"{row['id']:<4}{words(row['status']):<18} "
        lines += wrap(head + row["statement"], width, subsequent_indent=" " * len(head), break_on_hyphens=False)
        details = {"published": row["published"], "ours": row["ours"]} if row["ours"] else {}
        details |= {"margin": row["margin"], "replicates": row["replicates"], "trained once": row["trained_once"]}
        details |= {"why": "" if row["status"] == HOLDS else row["why"], "records": same_records(row)}
        for name, text in details.items():
            if text:
                label = f"            {name:<12} "
                lines += wrap(f"{label}{text}", width, subsequent_indent=" " * len(label), break_on_hyphens=False)
    return "\n".join(lines)
