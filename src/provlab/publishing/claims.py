"""The papers' claims, judged: each holds, fails, or was not run.

The claims are data, in the ``claims.yml`` of each chapter; this module reads them, looks published values up in the
papers' tables, and has each row judged from the experiment files and units of one results folder. No value of ours is
a constant here.
"""

from collections.abc import Callable, Mapping
from importlib import import_module, resources
from typing import Any, cast

import yaml

from provlab.engine.store import Store
from provlab.errors import ParameterError
from provlab.publishing.evidence import NOT_RUN, Evidence, Verdict
from provlab.publishing.published import published_table


def load_claims() -> list[dict[str, Any]]:
    """Claims of all chapters, ordered by number; each row names the experiment that judges it, its chapter."""
    rows: list[dict[str, Any]] = []
    for chapter in resources.files("provlab.chapters").iterdir():
        table = chapter / "claims.yml"
        if table.is_file():
            found = yaml.safe_load(table.read_text(encoding="utf-8"))
            rows += [{**row, "experiment": chapter.name} for row in found]
    return sorted(rows, key=lambda row: (row["paper"], int(row["id"][1:])))


def predicate(claim: Mapping[str, Any]) -> Callable[..., Verdict]:
    """Return the function that judges a claim: one of ``predicates.py`` in its chapter."""
    module = import_module(f"provlab.chapters.{claim['experiment']}.predicates")
    return cast(Callable[..., Verdict], getattr(module, claim["predicate"]["name"]))


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


def evaluate(store: Store, experiment: str | None = None) -> list[dict[str, Any]]:
    """Judge the claims of one experiment, or of all, from what one results folder holds.

    Returns
    -------
    list of dict
        Keys: id, paper, status, statement, source, published, ours, why, experiment, profile.
    """
    evidence = {found["name"]: Evidence(found, store) for found in store.experiments()}
    rows = []
    for claim in load_claims():
        if experiment not in (None, claim.get("experiment")):
            continue
        here = evidence.get(claim.get("experiment", ""))
        verdict = _verdict(claim, here)
        rows.append(
            {
                "id": claim["id"],
                "paper": claim["paper"],
                "status": verdict.status,
                "statement": claim["statement"],
                "source": claim["source"],
                "published": published(claim),
                "ours": verdict.ours,
                "why": verdict.why,
                "experiment": claim.get("experiment"),
                "profile": here.profile if here else None,
            }
        )
    return rows


def _verdict(claim: Mapping[str, Any], evidence: Evidence | None) -> Verdict:
    if "predicate" not in claim:
        return Verdict(NOT_RUN, "", "this edition of the study has no experiment for it")
    if evidence is None:
        return Verdict(NOT_RUN, "", f"run it: provlab run {claim['experiment']}")
    if evidence.profile not in claim["profiles"]:
        return Verdict(NOT_RUN, "", f"cannot be judged in the profile {evidence.profile}")
    arguments = dict(claim["predicate"])
    arguments.pop("name")
    return predicate(claim)(evidence, **arguments)


def as_text(rows: list[dict[str, Any]]) -> str:
    """The scoreboard for a terminal: counts, then every claim that has an experiment."""
    counts = {status: sum(row["status"] == status for row in rows) for status in ("holds", "fails", "not run")}
    lines = [f"{counts['holds']} claims hold, {counts['fails']} fail, {counts['not run']} not run", ""]
    for row in rows:
        if row["experiment"] is None:
            continue
        lines.append(f"{row['id']:<4}{row['status']:<8} {row['statement']}")
        if row["ours"]:
            lines += [f"            published  {row['published']}", f"            ours       {row['ours']}"]
        if row["status"] != "holds":
            lines.append(f"            why        {row['why']}")
    rest = [row["id"] for row in rows if row["experiment"] is None]
    if rest:
        lines += ["", f"no experiment in this edition: {', '.join(rest)}"]
    return "\n".join(lines)
