"""``provlab claims``: the scoreboard, as the pages of a run judged the papers' claims."""

from pathlib import Path

import rich_click as click

from provlab import provenance
from provlab.cli import delivery
from provlab.cli.command import Command
from provlab.errors import InputError
from provlab_study.commands import check_checkout
from provlab_study.publishing.results import Results


@click.command(cls=Command)
@delivery.JSON
@click.option("--results", type=Path, metavar="FOLDER", help="of a profile (default: that of the last reproduction)")
@delivery.VERBOSE
def command(*, json: str | None, results: Path | None, verbose: bool) -> int:
    """Which claims of the papers hold, by the records of the last reproduction?

    example: provlab claims -v
    """
    from provlab_study.publishing import claims

    if results is None:
        check_checkout()
    elif not results.is_dir():
        raise InputError(f"--results {results} is no folder of results; give that of a profile")
    store = Results(results) if results else Results(provenance.results_root()).current()
    rows = claims.evaluate(store)
    delivery.deliver(json, lambda: rows, claims.as_text(rows, verbose=verbose))
    if json != "-" and next(store.experiments(), None) is None:
        print("\nNo reproduction left records here: make reproduce (PROFILE=smoke is quicker).")
    return 0
