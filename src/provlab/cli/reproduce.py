"""``provlab reproduce``: run the notebooks of a plan."""

import argparse
import sys
from pathlib import Path
from typing import Any

from provlab.errors import ParameterError


def add(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("plan", help="a YAML file, see notebooks/profiles/")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where executed notebooks go")
    parser.add_argument("--force", action="store_true", help="run all of them again")
    parser.add_argument("--yes", action="store_true", help="do not ask before models are fetched")
    parser.set_defaults(command=_reproduce)


def _reproduce(arguments: argparse.Namespace) -> int:
    from provlab import provenance, zoo
    from provlab.engine.store import Store
    from provlab.publishing import runner

    plan = runner.Plan.read(Path(arguments.plan))
    if plan.fetches and not arguments.yes:
        _ask(plan)
    if plan.zoo:
        zoo.build(edition=plan.zoo["edition"])
    ran = runner.run_plan(plan, Path(arguments.output), force=arguments.force, say=print)
    Store(provenance.results_root()).mark_current(plan.profile)
    print(
        f"{ran} of {len(plan.experiments)} notebooks ran"
        + (", the others were up to date" if ran < len(plan.experiments) else "")
    )
    return 0


def _ask(plan: Any) -> None:
    """Print what a plan fetches and needs, and go on only with a yes."""
    total = sum(float(model["gigabytes"]) for model in plan.fetches)
    for model in plan.fetches:
        print(f"  {model['id']:<50} {float(model['gigabytes']):>8.1f} GB")
    print(f"{len(plan.fetches)} models, {total:,.1f} GB. {plan.needs}".strip())
    if not sys.stdin.isatty():
        raise ParameterError("nobody is there to agree to fetching these; agree with --yes (make: YES=1)")
    if input("Fetch them? [y/N] ").strip().lower() not in ("y", "yes"):
        raise ParameterError("nothing was fetched")
