"""``provlab shelf``: keep fingerprints of models, which ``provlab identify`` asks."""

from pathlib import Path

import rich_click as click

from provlab.cli import delivery, options, sources
from provlab.cli.command import CommandGroup

SHELF = click.option("--shelf", metavar="FOLDER", required=True, type=Path, help="folder of fingerprints")
MODELS = sources.model("models", nargs=-1, required=True)
KEPT = click.argument("models", nargs=-1, required=True, metavar="MODEL...", help="as shelf list names them")


@click.group(cls=CommandGroup)
def command() -> None:
    """Which fingerprints of models are kept? They answer identify without the models.

    example: provlab shelf add zoo:oak zoo:elm --shelf shelf
    """


@command.command()
@MODELS
@SHELF
@options.ALLOW_PICKLE
def add(models: tuple[str, ...], shelf: Path, allow_pickle: bool) -> None:
    """Add fingerprints of models."""
    from provlab.attest.shelf import add

    delivery.check_open(shelf)
    for source, path in zip(models, add(models, shelf, allow_pickle=allow_pickle), strict=True):
        print(f"{source}: {path} ({path.stat().st_size / 1e6:.1f} MB)")


@command.command("list")
@SHELF
def listed(shelf: Path) -> None:
    """List all fingerprints."""
    from provlab.attest.shelf import fingerprints

    for path, kept in sorted(fingerprints(shelf), key=lambda entry: entry[1].source):
        print(f"{kept.source}: {path.name} ({path.stat().st_size / 1e6:.1f} MB)")


@command.command()
@KEPT
@SHELF
def show(models: tuple[str, ...], shelf: Path) -> None:
    """Show what is kept of models."""
    from provlab.attest.shelf import of_models

    for _, kept in of_models(models, shelf):
        print(kept.about())


@command.command()
@KEPT
@SHELF
def remove(models: tuple[str, ...], shelf: Path) -> None:
    """Remove fingerprints of models."""
    from provlab.attest.shelf import of_models

    for path, kept in of_models(models, shelf):
        path.unlink()
        print(f"{kept.source}: removed from {shelf}")
