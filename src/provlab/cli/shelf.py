"""``provlab shelf``: keep fingerprints of models, which ``provlab identify`` asks."""

import argparse
from pathlib import Path

from provlab.cli import arguments as common
from provlab.errors import InputError


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    what = "add fingerprints of models, list them all, show what is kept of some, or remove some"
    parser.add_argument("action", choices=["add", "list", "show", "remove"], help=what)
    common.add_model(parser, "models", nargs="*", help="zoo:NAME, checkpoint folders, or hub ids org/name[@revision]")
    add_shelf(parser)
    parser.set_defaults(command=_shelf)


def add_shelf(parser: argparse.ArgumentParser) -> None:
    """Add where the shelf is, and how models are opened."""
    parser.add_argument("--shelf", metavar="FOLDER", required=True, type=Path, help="folder of fingerprints")
    parser.add_argument("--allow-pickle", action="store_true", help="also open .bin weights (weights_only)")


def _shelf(arguments: argparse.Namespace) -> int:
    from provlab.attest import shelf

    if arguments.action == "list":
        for path, kept in sorted(shelf.fingerprints(arguments.shelf), key=lambda entry: entry[1].source):
            print(f"{kept.source}: {path.name} ({path.stat().st_size / 1e6:.1f} MB)")
        return 0
    if not arguments.models:
        raise InputError(f"name models: provlab shelf {arguments.action} MODEL --shelf {arguments.shelf}")
    if arguments.action in ("show", "remove"):
        for path, kept in shelf.of_models(arguments.models, arguments.shelf):
            if arguments.action == "remove":
                path.unlink()
                print(f"{kept.source}: removed from {arguments.shelf}")
            else:
                print(kept.about())
        return 0
    common.check_models(arguments.models)
    common.check_open(arguments.shelf)
    paths = shelf.add(arguments.models, arguments.shelf, allow_pickle=arguments.allow_pickle)
    for source, path in zip(arguments.models, paths, strict=True):
        print(f"{source}: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0
