"""``provlab study``: test all pairs of many models, here or on a cluster, and go on after a stop."""

from contextlib import nullcontext
from typing import Any

import rich_click as click

from provlab.cli import delivery, options, sources
from provlab.cli.cluster import cluster, parse_resources
from provlab.cli.command import Command
from provlab.engine.store import Store
from provlab.errors import CheckpointError, InputError


@click.command(cls=Command, goes_on=True, more=options.known)
@sources.model("models", nargs=-1, required=True, help="as for compare; zoo:* stands for the Llama tree of the zoo")
@delivery.VERBOSE
@delivery.JSON
@options.STATISTICS
@options.TEXT
@sources.PART
@options.JUDGED
@click.option("--pairs", multiple=True, metavar="A,B", help="compare only this pair; may be repeated (default: all)")
@options.MEMORY
@click.option("--workers", type=int, default=1, metavar="N", help="processes on this machine (default: 1)")
@click.option(
    "--scheduler",
    metavar="tcp://HOST:PORT",
    help="compute on the workers of this Dask scheduler (provlab[dask]), each with --memory",
)
@click.option("--resources", metavar="GPU=1", help="what each piece of work needs of a Dask worker")
@delivery.RESULTS
def command(
    models: tuple[str, ...],
    *,
    part: str | None,
    pairs: tuple[str, ...],
    workers: int,
    scheduler: str | None,
    resources: str | None,
    results: str | None,
    fail_on: frozenset[str],
    json: str | None,
    verbose: bool,
    **settings: Any,
) -> int:
    """Which pairs of many models were not trained independently? Families first, then pairs by their verdict.

    example: provlab study zoo:oak zoo:oak-chat zoo:elm --statistic phi_u
    """
    from provlab.studying import study

    if resources and not scheduler:
        raise InputError("--resources are those of Dask workers; give --scheduler too")
    if scheduler and workers != 1:
        raise InputError("--workers are processes of this machine and --scheduler has its own; give one of them")
    needs = parse_resources(resources)
    named = [_pair(text, part) for text in pairs] or None
    with cluster(scheduler, resources=needs) if scheduler else nullcontext() as executor:
        report = study(
            sources.parted(models, part),
            pairs=named,
            store=Store(delivery.store_root(results)),
            progress=delivery.seconds_between_bars(),
            workers=workers,
            executor=executor,
            **options.without_defaults(settings),
        )
    delivery.deliver(json, report.to_json, report, verbose=verbose)
    opened = {model["source"] for model in report.models}
    if lost := [source for source in report.sources if source not in opened]:
        why = next(record.error for record in report.records if lost[0] in (record.a, record.b))
        others = f"; nor could {', '.join(lost[1:])}" if lost[1:] else ""
        raise CheckpointError(f"{lost[0]} could not be opened{others}: {why}; the other pairs stand above")
    return int(not fail_on.isdisjoint(report.outcomes().values()))


def _pair(text: str, part: str | None) -> tuple[str, str]:
    """``A,B`` as two sources, of each the part that was named."""
    a, comma, b = text.partition(",")
    if not (a.strip() and comma and b.strip()) or "," in b:
        raise InputError(f"--pairs are two models such as zoo:oak,zoo:elm, not {text!r}")
    a, b = sources.parted((a.strip(), b.strip()), part)
    return a, b
