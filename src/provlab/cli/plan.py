"""``provlab plan``: what a study of these models will read, hold and take, before anything starts."""

import argparse
import sys

from provlab.cli import arguments as common


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    common.add_model(
        parser,
        "models",
        nargs="+",
        help="as for study; shape:llama-2-7b*21 stands for 21 models of that shape, which need not exist",
    )
    common.add_statistics(parser)
    parser.add_argument(
        "--memory", metavar="SIZE", help="memory that the study may take, such as 8GB (default: most that is free)"
    )
    parser.add_argument(
        "--diff",
        action="store_true",
        help="what provlab diff of two models takes instead: --sequences (default: 4000) of --sequence-length tokens "
        "(default: 25) in --dtype on --device",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes that compute (default: 1)")
    common.add_json(parser)
    parser.set_defaults(command=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from provlab.planning import command

    common.check_json(arguments.json)
    if arguments.diff:
        names = {"sequence_length": "length", "n_sequences": "n", "dtype": "dtype", "device": "device"}
        given = {to: getattr(arguments, name) for name, to in names.items() if hasattr(arguments, name)}
        numbers, card = command.diff_plan(
            arguments.models, memory=arguments.memory, allow_pickle=arguments.allow_pickle, **given
        )
    else:
        numbers, card = command.study_plan(
            arguments.models,
            memory=arguments.memory,
            workers=arguments.workers,
            progress=sys.stderr.isatty(),
            **common.statistics(arguments),
        )
        for source, why in numbers["refused"].items():
            print(f"left out: {source}: {why}", file=sys.stderr)
    common.deliver(arguments.json, lambda: numbers, lambda: card)
    return 0
