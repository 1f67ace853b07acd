"""``provlab verify``: recompute a folder of evidence from the models' bytes."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from provlab.cli import options, sources
from provlab.cli.command import Command
from provlab.cli.screen import show
from provlab.errors import EvidenceError, InputError


@click.command(cls=Command)
@click.argument("folder", type=Path, help="one that --report of compare, tree or diff wrote")
@sources.model("models", nargs=-1, help="where the models lie, in the report's order (default: where it found them)")
@options.ALLOW_PICKLE
def command(folder: Path, models: tuple[str, ...], *, allow_pickle: bool) -> int:
    """Is a report right? Models are hashed, the question is asked again, and all is compared.

    example: provlab compare zoo:oak zoo:elm --statistic phi_u -o report && provlab verify report
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder here; give one that --report of compare, tree or diff wrote")
    from provlab.attest.folder import STATEMENT, recompute

    if not (folder / STATEMENT).is_file():
        raise InputError(f"{folder} holds no {STATEMENT}, so it is no report; give one that --report wrote")
    try:
        agrees, result = recompute(folder, models, allow_pickle=allow_pickle)
    except EvidenceError as error:
        print(f"provlab: refused: {error}", file=sys.stderr)
        return 1
    confirmed = result.card()
    mind = [("verify", sentence) for sentence in agrees[1:]]
    body = [f"It confirms: {confirmed.answer}", *confirmed.body]
    show(replace(confirmed, answer=f"{agrees[0]}.", body=body, remarks=[*mind, *confirmed.remarks]))
    return 0


def write(folder: Path, question: str, settings: Mapping[str, Any], result: Any) -> None:
    """Write an answer as a folder that this command recomputes; --report of other commands comes here."""
    from provlab.attest.folder import write as written

    written(folder, question, settings, result)
