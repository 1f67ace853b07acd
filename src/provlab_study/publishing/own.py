"""A page about a reader's models: their lineage as a file tells it, and what a study found, in words."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from provlab.errors import InputError
from provlab.plots.numbers import format_log10_p
from provlab.report.decide import NOT_REJECTED, OUTCOMES, REJECTED, UNTESTED
from provlab.report.findings import answer
from provlab.report.lineage import Lineage
from provlab.report.study_report import StudyReport

_NAMED = 6  # models, and pairs, that a sentence names


def told_lineage(models: Sequence[str], file: str) -> Lineage:
    """What is known of the origin of models, where a file of lines ``child,parent`` tells of some.

    A model without a parent is the root of a tree: its line is ``model,``. What the file says stands above what names
    say. Models are written in it as they are given.

    Raises
    ------
    InputError
        If the file cannot be read, a line is none of two names, two lines name one child, or lines go in a circle.
    """
    known = Lineage.of(models)
    if not file:
        return known
    told = read_lineage(Path(file))
    parents = known.parents | told | {parent: None for parent in told.values() if parent and parent not in told}
    for model in told:
        seen = [model]
        while (parent := parents.get(seen[-1])) is not None:
            if parent in seen:
                raise InputError(f"{file} makes {parent} its own ancestor; one of its lines is the wrong way round")
            seen.append(parent)
    return replace(known, parents=parents)


def check_lineage(file: str, models: Sequence[str]) -> None:
    """Raise InputError where a file of lineage tells of none of the models, or as `told_lineage`."""
    if file and not set(read_lineage(Path(file))) & set(models):
        raise InputError(
            f"{file} tells of none of the models {', '.join(models[:_NAMED])}; write each in it as it is given"
        )
    told_lineage(models, file)


def read_lineage(path: Path) -> dict[str, str | None]:
    """Parents by child, as a file tells them, None for a root; see `told_lineage`."""
    try:
        text = path.expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"lineage {path} cannot be read as text ({error}); give a file of child,parent") from error
    parents: dict[str, str | None] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].startswith("#") or (number == 1 and cells == ["child", "parent"]):
            continue
        if len(cells) > 2 or not cells[0]:
            raise InputError(f"line {number} of {path} is no child,parent (a root is written: model,)")
        child, parent = cells[0], (cells[1:] or [""])[0] or None
        if child in parents:
            raise InputError(f"{path} names the parent of {child} twice; keep one of the lines")
        parents[child] = parent
    if not parents:
        raise InputError(f"{path} tells of no model; give lines of child,parent")
    return parents


def in_words(study: StudyReport) -> str:
    """What a study found: how many pairs by outcome, which are related, and the strongest evidence."""
    names, outcomes = study.labels(), study.outcomes()
    pairs_of = {outcome: [pair for pair, found in outcomes.items() if found == outcome] for outcome in OUTCOMES}
    said = {outcome: answer(REJECTED) if outcome == REJECTED else outcome for outcome in OUTCOMES}
    counted = ", ".join(
        f"{len(pairs)} {said[outcome]}{_named(pairs, names, outcome)}" for outcome, pairs in pairs_of.items() if pairs
    )
    models = ", ".join(names[source] for source in study.sources[:_NAMED])
    more = f" and {len(study.sources) - _NAMED} more" if len(study.sources) > _NAMED else ""
    text = f"Of the {len(outcomes)} pairs of {models}{more}: {counted or 'none was compared'}."
    if len(outcomes) == 1:
        (((a, b), outcome),) = outcomes.items()
        text = f"{names[a]} and {names[b]}: {said[outcome]}."
    tests = zip(study.records, study.family.adjusted_log10_p, strict=True)
    if decided := [(float(p), record) for record, p in tests if not np.isnan(p)]:
        p, record = min(decided, key=lambda test: test[0])
        pair = f"{names[record.a]} and {names[record.b]}"
        first = "The strongest evidence is" if study.family.rejected.any() else "No test rejects; the smallest p is"
        text += f" {first} that of {pair}, by {record.statistic}: log10 p {format_log10_p(p)}"
        text += f", {study.family.words()}."
    return text


def _named(pairs: Sequence[tuple[str, str]], names: Mapping[str, str], outcome: str) -> str:
    """Name pairs that were found related, the first of them."""
    if outcome in (NOT_REJECTED, UNTESTED):
        return ""
    more = f"; and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
    return f" ({'; '.join(f'{names[a]} and {names[b]}' for a, b in pairs[:_NAMED])}{more})"
