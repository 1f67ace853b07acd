"""``provlab shelf``: keep fingerprints of models, which ``provlab identify`` asks."""

import argparse
from pathlib import Path


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("action", choices=["add"], help="put fingerprints of models on a shelf")
    parser.add_argument("models", nargs="+", help="zoo:NAME, checkpoint folders, or hub ids org/name[@revision]")
    add_shelf(parser)
    parser.set_defaults(command=_shelf)


def add_shelf(parser: argparse.ArgumentParser) -> None:
    """Add where the shelf is, and how models are opened."""
    parser.add_argument("--shelf", metavar="FOLDER", required=True, type=Path, help="folder of fingerprints")
    parser.add_argument("--allow-pickle", action="store_true", help="also open .bin weights (weights_only)")


def _shelf(arguments: argparse.Namespace) -> int:
    from provlab.attest import shelf

    paths = shelf.add(arguments.models, arguments.shelf, allow_pickle=arguments.allow_pickle)
    for source, path in zip(arguments.models, paths, strict=True):
        print(f"{source}: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0
