"""``provlab tree``: the families of many models, and the tree of each."""

import argparse
import sys

from provlab.cli import arguments as common
from provlab.cli.completion import completed, statistics
from provlab.engine.store import Store


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    common.add_model(parser, "models", nargs="+", help="as for study")
    common.add_model(
        parser, "--outgroup", metavar="MODEL", help="one of them, known to have parted first from its family"
    )
    joins = parser.add_argument(
        "--statistic", default="phi_u", metavar="NAME", help="it joins families (default: phi_u)"
    )
    completed(joins, statistics)
    common.add_part(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of ties (default: 0)")
    parser.add_argument("--memory", metavar="SIZE", help="memory to use, such as 8GB (default: most that is free)")
    parser.add_argument("--allow-pickle", action="store_true", help="also open .bin weights (weights_only)")
    parser.add_argument("--results", metavar="FOLDER", help="keeps finished units of work (default: as for study)")
    common.add_verbose(parser)
    common.add_report(parser)
    parser.add_argument("--picture", metavar="FILE", help="draw the forest as PNG")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", metavar="FILE", help="write everything as JSON; - is standard output")
    form.add_argument("--mermaid", action="store_true", help="print a flow chart of Mermaid")
    form.add_argument("--dot", action="store_true", help="print a graph for Graphviz")
    parser.set_defaults(command=_tree)


def _tree(arguments: argparse.Namespace) -> int:
    from provlab.growing import tree

    common.check_json(arguments.json)
    common.check_json(arguments.picture, "--picture")
    models = common.parted(arguments.models, arguments.part)
    common.check_models(models)
    settings = {name: getattr(arguments, name) for name in ("outgroup", "statistic", "seed")}
    if arguments.outgroup:
        (settings["outgroup"],) = common.parted([arguments.outgroup], arguments.part)
    result = tree(
        models,
        memory=arguments.memory,
        allow_pickle=arguments.allow_pickle,
        store=Store(common.store_root(arguments.results)),
        progress=sys.stderr.isatty(),
        **settings,
    )
    common.report(arguments.report, "tree", settings, result)
    if arguments.picture:
        result.drawn().save(arguments.picture)
    text = result.to_mermaid() if arguments.mermaid else result.to_dot() if arguments.dot else result
    common.deliver(arguments.json, result.to_json, lambda: text, verbose=arguments.verbose)
    return 0
