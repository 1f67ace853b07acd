"""``provlab check``: what a vendor says of models, judged."""

import sys
from typing import Any

import rich_click as click

from provlab.cli import delivery, options
from provlab.cli.command import Command
from provlab.engine.store import Store
from provlab.errors import InputError


def _kinds() -> str:
    from provlab.claimed.kinds import KINDS

    return f"A claim is one of: {'; '.join(kind.written for kind in KINDS.values())}."


@click.command(cls=Command, goes_on=True, more=_kinds)
@click.argument(
    "claims",
    required=False,
    metavar="CLAIMS.yml",
    help="YAML: models, each with a list of claims",
)
@click.option("--card", metavar="FOLDER", help="a model's folder: judge base_model and base_model_relation of its card")
@options.TEXT
@options.SEED
@options.DEVICE
@options.DTYPE
@options.ALLOW_PICKLE
@delivery.RESULTS
@delivery.VERBOSE
@delivery.JSON
@click.option(
    "--junit", type=delivery.OutputFile(), help="write JUnit XML, which build machines show; - is standard output"
)
def command(
    claims: str | None,
    *,
    card: str | None,
    results: str | None,
    verbose: bool,
    json: str | None,
    junit: str | None,
    **settings: Any,
) -> int:
    """Is what somebody says of a model true? Exit codes: 0 nothing is refuted, 1 a claim is, 2 could not run, 3 open.

    example: provlab check CLAIMS.yml
    """
    from provlab.claimed.door import check

    if (claims is None) == (card is None):
        raise InputError("give a file of claims, or --card with a model's folder")
    if junit and junit == json:
        raise InputError(f"--json and --junit both go to {junit}; name two places")
    checked = check(
        card or claims or "",
        card=card is not None,
        store=Store(delivery.store_root(results)),
        progress=delivery.seconds_between_bars(),
        **options.without_defaults(settings),
    )
    if junit == "-":
        sys.stdout.write(checked.to_junit())
        sys.stdout.flush()
        if json:
            delivery.write_json(json, checked.to_json)
        return checked.status
    delivery.deliver(json, checked.to_json, checked, verbose=verbose)
    if junit:
        delivery.write_text(junit, checked.to_junit())
    return checked.status
