"""``provlab compare``: test a pair of models."""

import argparse

from provlab.cli import arguments as common


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    common.add_model(parser, "a", help="zoo:NAME, a checkpoint folder, or a hub id org/name[@revision]")
    common.add_model(parser, "b", help="the other model")
    common.add_verbose(parser)
    common.add_json(parser)
    common.add_statistics(parser)
    common.add_text(parser)
    common.add_part(parser)
    common.add_family(parser)
    common.add_status(parser)
    parser.add_argument(
        "--all-blocks",
        action="store_true",
        help="compare every block with every block, by phi_match and phi_u (done unasked where depths differ)",
    )
    common.add_report(parser)
    parser.set_defaults(command=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    from provlab.api import compare

    common.check_json(arguments.json)
    a, b = common.parted((arguments.a, arguments.b), arguments.part)
    common.check_models((a, b))
    settings = common.statistics(arguments) | common.family(arguments)
    settings |= {"all_blocks": arguments.all_blocks}
    if arguments.text:
        settings["text"] = common.text("--text", arguments.text)
    comparison = compare(a, b, progress=common.seconds_between_bars(), **settings)
    common.report(arguments.report, "compare", settings, comparison)
    common.deliver(arguments.json, comparison.to_json, lambda: comparison, verbose=arguments.verbose)
    return int(comparison.outcome in arguments.fail_on)
