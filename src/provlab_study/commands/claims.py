"""``provlab claims``: the scoreboard, as the pages of a run judged the papers' claims."""

import argparse
from pathlib import Path

from provlab import provenance
from provlab.cli import arguments as common
from provlab.errors import InputError
from provlab_study.commands import check_checkout
from provlab_study.publishing.results import Results


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--json", metavar="FILE", help="write a list of claims as JSON; - is standard output")
    parser.add_argument(
        "--results", metavar="FOLDER", help="folder of results (default: that of the last reproduction)"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print all that is known of each claim")
    parser.set_defaults(command=_claims)


def _claims(arguments: argparse.Namespace) -> int:
    from provlab_study.publishing import claims

    common.check_json(arguments.json)
    if not arguments.results:
        check_checkout()
    if arguments.results and not Path(arguments.results).is_dir():
        raise InputError(f"--results {arguments.results} is no folder of results; give that of a profile")
    store = Results(Path(arguments.results)) if arguments.results else Results(provenance.results_root()).current()
    rows = claims.evaluate(store)
    common.deliver(arguments.json, lambda: rows, lambda: claims.as_text(rows, verbose=arguments.verbose))
    if arguments.json != "-" and next(store.experiments(), None) is None:
        print("\nNo reproduction left records here: make reproduce (PROFILE=smoke is quicker).")
    return 0
