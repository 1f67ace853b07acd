"""``provlab verify``: recompute a folder of evidence from the models' bytes."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from provlab.cli import arguments as common
from provlab.errors import EvidenceError, InputError


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("folder", help="one that --report of compare, tree or diff wrote")
    common.add_model(
        parser, "--models", nargs="+", default=(), metavar="MODEL",
        help="where the models lie, in the report's order (default: where it found them)",
    )  # fmt: skip
    parser.add_argument("--allow-pickle", action="store_true", help="also open .bin weights (weights_only)")
    parser.set_defaults(command=_verify)


def _verify(arguments: argparse.Namespace) -> int:
    if not Path(arguments.folder).is_dir():
        raise InputError(f"{arguments.folder} is no folder here; give one that --report of compare, tree or diff wrote")
    from provlab.attest.folder import STATEMENT, recompute
    from provlab.cli.screen import show

    if not (Path(arguments.folder) / STATEMENT).is_file():
        raise InputError(f"{arguments.folder} holds no {STATEMENT}, so it is no report; give one that --report wrote")
    try:
        agrees, result = recompute(Path(arguments.folder), arguments.models, allow_pickle=arguments.allow_pickle)
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
