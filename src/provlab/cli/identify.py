"""``provlab identify``: which models of a shelf one model is kin of."""

import argparse

from provlab.cli import arguments as common
from provlab.cli import shelf


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    common.add_model(parser, "model", help="zoo:NAME, a checkpoint folder, or a hub id org/name[@revision]")
    shelf.add_shelf(parser)
    common.add_verbose(parser)
    common.add_json(parser)
    parser.set_defaults(command=_identify)


def _identify(arguments: argparse.Namespace) -> int:
    from provlab.attest.shelf import identify

    common.check_json(arguments.json)
    common.check_models([arguments.model])
    kin = identify(arguments.model, arguments.shelf, allow_pickle=arguments.allow_pickle)
    common.deliver(arguments.json, kin.to_json, lambda: kin, verbose=arguments.verbose)
    return 0
