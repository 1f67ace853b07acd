"""``provlab disguise``: write a model as an adversary would show it."""

import argparse
import tomllib
from importlib import resources
from pathlib import Path

from provlab import zoo
from provlab.cli import arguments as common
from provlab.cli.completion import completed
from provlab.errors import InputError
from provlab.models.checkpoint import Checkpoint
from provlab.report.card import Card


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    common.add_model(parser, "source", nargs="?", help="zoo:NAME, a checkpoint folder, or a hub id org/name[@revision]")
    parser.add_argument("folder", nargs="?", help="a new folder for the attacked model")
    attacks = parser.add_argument(
        "--with",
        dest="attacks",
        action="append",
        metavar="ATTACK[+ATTACK]",
        help="attacks in their order, such as T1+split=2+T3; may be repeated (default: those of T1 to T6 that exist)",
    )
    completed(attacks, lambda *_: _attacks(), "+")
    common.add_model(
        parser,
        "--other",
        action="append",
        default=[],
        metavar="MODEL",
        help="a model that attacks take from; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices (default: 0)")
    parser.add_argument(
        "--text", metavar="FILE", help="held-out text to measure a loss on (default: prose that no zoo model has seen)"
    )
    parser.add_argument("--allow-pickle", action="store_true", help="also open .bin weights (weights_only)")
    parser.add_argument("--list", action="store_true", help="list the attacks and leave")
    parser.set_defaults(command=_disguise)


def _attacks() -> list[str]:
    """Names of all attacks; their table is read alone, since the attacks themselves import torch."""
    return list(tomllib.loads((resources.files("provlab.models.attacks") / "catalogue.toml").read_text("utf-8")))


def _disguise(arguments: argparse.Namespace) -> int:
    from provlab.cli.screen import show
    from provlab.models.attacks import catalogue
    from provlab.models.disguise import disguise
    from provlab.report.views import Table

    if arguments.list:
        rows = catalogue.listing()
        exact = sum(kind == "exact" for _, kind, _ in rows)
        answer = f"{exact} attacks keep the outputs (exact), {len(rows) - exact} change them (lossy)."
        use = ("use", "provlab disguise MODEL NEW --with ATTACK+ATTACK")
        show(Card(answer, body=[Table(("attack", "outputs", "what it does"), rows)], remarks=[use]))
        return 0
    if not arguments.folder:
        raise InputError("give a model and a new folder: provlab disguise zoo:oak-chat hidden --with T1+split")
    if Path(arguments.folder).exists():
        raise InputError(f"{arguments.folder} exists; name a new folder")
    common.check_open(Path(arguments.folder))
    common.check_models([arguments.source, *arguments.other])
    kinds = "+".join(arguments.attacks).split("+") if arguments.attacks is not None else None
    lossy = any(not catalogue.Step.read(kind).attack.exact for kind in kinds or ())
    opened = [Checkpoint.open(s, allow_pickle=arguments.allow_pickle) for s in (arguments.source, *arguments.other)]
    text = _text(arguments.text) if lossy or arguments.text else ""
    made = disguise(opened[0], Path(arguments.folder), seed=arguments.seed, kinds=kinds, others=opened[1:], text=text)
    changed = "outputs unchanged" if made.difference_saved is not None else "outputs changed"
    show(
        Card(
            f"{made.folder}: {arguments.source} by {'+'.join(made.applied)}, {changed}.",
            remarks=[*made.facts(), ("ask", f"provlab compare {arguments.source} {made.folder} says what is found")],
        )
    )
    return 0


def _text(file: str | None) -> str:
    if file is not None:
        return Path(file).read_text(encoding="utf-8")

    return zoo.held_out_text("prose")
