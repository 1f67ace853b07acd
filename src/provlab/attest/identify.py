"""``provlab identify``: which models of a shelf one model is kin of."""

from pathlib import Path

import rich_click as click

from provlab.attest.keep import SHELF
from provlab.cli import delivery, options, sources
from provlab.cli.command import Command


@click.command(cls=Command)
@sources.model("model")
@SHELF
@options.ALLOW_PICKLE
@delivery.VERBOSE
@delivery.JSON
def command(model: str, *, shelf: Path, allow_pickle: bool, verbose: bool, json: str | None) -> int:
    """Is a model kin of one on a shelf?

    example: provlab identify zoo:oak-chat --shelf shelf
    """
    from provlab.attest.shelf import identify

    kin = identify(model, shelf, allow_pickle=allow_pickle)
    delivery.deliver(json, kin.to_json, kin, verbose=verbose)
    return 0
