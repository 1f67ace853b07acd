"""``provlab study``: test all pairs of many models, here or on a cluster, and go on after a stop."""

import argparse
from contextlib import ExitStack

from provlab.cli import arguments as common
from provlab.cli.cluster import cluster, parse_resources
from provlab.engine.store import Store
from provlab.errors import InputError


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    common.add_model(
        parser, "models", nargs="+", help="as for compare; zoo:* stands for the Llama tree of the embedded models"
    )
    common.add_verbose(parser)
    common.add_json(parser)
    common.add_statistics(parser)
    common.add_text(parser)
    common.add_part(parser)
    common.add_family(parser)
    common.add_status(parser)
    parser.add_argument(
        "--pairs", action="append", metavar="A,B", help="compare only this pair; may be repeated (default: all pairs)"
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory that the study may take, such as 8GB (default: most that is free); with --scheduler, each worker",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes on this machine (default: 1)")
    parser.add_argument(
        "--scheduler", metavar="tcp://HOST:PORT", help="compute on the workers of this Dask scheduler (provlab[dask])"
    )
    parser.add_argument("--resources", metavar="GPU=1", help="what each piece of work needs of a Dask worker")
    parser.add_argument(
        "--results",
        metavar="FOLDER",
        help="folder of finished units of work (default: below _results/ of a checkout, else in the cache); with "
        "--scheduler, one that all workers see",
    )
    parser.set_defaults(command=_study, goes_on=True)


def _study(arguments: argparse.Namespace) -> int:
    from provlab.studying import study

    common.check_json(arguments.json)
    models = common.parted(arguments.models, arguments.part)
    common.check_models(models)
    if arguments.resources and not arguments.scheduler:
        raise InputError("--resources are those of Dask workers; give --scheduler too")
    if arguments.scheduler and arguments.workers != 1:
        raise InputError("--workers are processes of this machine and --scheduler has its own; give one of them")
    resources = parse_resources(arguments.resources)
    pairs = [_pair(text, arguments.part) for text in arguments.pairs] if arguments.pairs else None
    root = common.store_root(arguments.results)
    if root.exists() and not root.is_dir():
        raise InputError(f"--results {root} is a file; give a folder")
    with ExitStack() as stack:
        executor = None
        if arguments.scheduler:
            executor = stack.enter_context(cluster(arguments.scheduler, resources=resources))
        report = study(
            models,
            pairs=pairs,
            store=Store(root),
            progress=common.seconds_between_bars(),
            memory=arguments.memory,
            workers=arguments.workers,
            executor=executor,
            text=common.text("--text", arguments.text),
            **common.statistics(arguments),
            **common.family(arguments),
        )
    common.deliver(arguments.json, report.to_json, lambda: report, verbose=arguments.verbose)
    return int(not arguments.fail_on.isdisjoint(report.outcomes().values()))


def _pair(text: str, part: str | None) -> tuple[str, str]:
    """``A,B`` as two sources, of each the part that was named."""
    a, comma, b = text.partition(",")
    if not (a.strip() and comma and b.strip()) or "," in b:
        raise InputError(f"--pairs are two models such as zoo:oak,zoo:elm, not {text!r}")
    a, b = common.parted((a.strip(), b.strip()), part)
    return a, b
