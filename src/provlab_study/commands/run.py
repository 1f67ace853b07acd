"""``provlab run``: run a notebook with one's own parameters."""

import argparse
import sys
from pathlib import Path

from provlab import provenance


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("notebook", help="its name in notebooks/, or a path")
    parser.add_argument(
        "-p",
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter; may be repeated; values are YAML, lists may be a,b",
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="with what notebooks/profiles/NAME.yml gives it; -p stands above that"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where the executed notebook goes (default: below _results/)"
    )
    parser.set_defaults(command=_run)


def _run(arguments: argparse.Namespace) -> int:
    from provlab_study.publishing import runner
    from provlab_study.publishing.experiment import checked_profile
    from provlab_study.publishing.plan import Plan

    path = runner.find_notebook(arguments.notebook)
    parameters = runner.as_lists(path, runner.parse_assignments(arguments.parameter))
    if arguments.profile is not None:
        plan = Plan.read(provenance.project_root() / "notebooks" / "profiles" / f"{arguments.profile}.yml")
        parameters = plan.parameters_of(path.stem) | parameters
    if "profile" in runner.parameters_of(path):
        parameters.setdefault("profile", "own")  # so that own runs never mix with a reproduction
    default = provenance.results_root() / checked_profile(str(parameters.get("profile", "own"))) / path.name
    output = Path(arguments.output) if arguments.output else default
    runner.run(path, parameters, output, progress=sys.stderr.isatty())
    print(output)
    return 0
