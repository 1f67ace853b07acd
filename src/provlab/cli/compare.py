"""``provlab compare``: test a pair of models."""

from typing import Any

import rich_click as click

from provlab.cli import delivery, options, sources
from provlab.cli.command import Command


@click.command(cls=Command, surplus=sources.TWO, more=options.known)
@sources.pair
@delivery.VERBOSE
@delivery.JSON
@options.STATISTICS
@options.TEXT
@sources.PART
@options.JUDGED
@click.option(
    "--all-blocks",
    is_flag=True,
    help="compare every block with every block, by phi_match and phi_u (done unasked where depths differ)",
)
@delivery.report
def command(
    a: str,
    b: str,
    *,
    part: str | None,
    fail_on: frozenset[str],
    json: str | None,
    verbose: bool,
    report: str | None = None,
    **settings: Any,
) -> int:
    """Were two models trained independently? One sentence, the tests, and what would fool them.

    example: provlab compare zoo:oak zoo:oak-chat --statistic phi_u
    """
    from provlab.api import compare

    a, b = sources.parted((a, b), part)
    settings = options.without_defaults(settings)
    comparison = compare(a, b, progress=delivery.seconds_between_bars(), **settings)
    delivery.write_report(report, "compare", settings, comparison)
    delivery.deliver(json, comparison.to_json, comparison, verbose=verbose)
    return int(comparison.outcome in fail_on)
